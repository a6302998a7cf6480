"""A handler as its author writes it: a name, and functions for topics, each between two validators (D11).

A validator is a JSON Schema: it checks type, integrity and validity of fields, and limits on values. A handler may also accept or
return bytes. The file of a handler defines one `Handler`; `load` imports it.
"""

import inspect
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Final, TypeVar

import orjson

from milepost.handlers.topic_names import PARTITIONS_MAX
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.site_records import check_site_name
from milepost.model.topics import check_filter, filter_matches
from milepost.vetting.payloads import PayloadCheck, PayloadChecks, PayloadRule

ANSWER_BYTES_MAX: Final = 150_000
_EVERY_TOPIC: Final = "#"


class Unchecked(Enum):
    """Alternatives to a schema."""

    ANYTHING = "anything"
    """Arbitrary bytes."""
    NOTHING = "nothing"
    """No answer."""


ANYTHING: Final = Unchecked.ANYTHING
NOTHING: Final = Unchecked.NOTHING

Schema = Mapping[str, object] | str | Path | Unchecked
"""A JSON Schema, the path of one, or a marker for none."""


class Validator:
    """One compiled schema; paths are relative to `folder`. Raises ValueError for an invalid schema."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self.is_json = not isinstance(schema, Unchecked)
        self._is_silent = schema is NOTHING
        self._check: PayloadCheck | None = None if isinstance(schema, Unchecked) else _check_of(schema, folder)

    def read(self, body: bytes) -> object:
        """Return the function's argument, a JSON value or bytes; raise `Malformed` if the body is invalid."""
        if self._check is None:
            return body
        if (refused := self._check(body)) is not None:
            raise Malformed(refused.reason, refused.detail)
        return orjson.loads(body)

    def write(self, answer: object) -> bytes:
        """Return the body of an answer; raise `Malformed` if the answer is invalid."""
        body = self._encode(answer)
        if len(body) > ANSWER_BYTES_MAX:
            raise Malformed(Reason.MESSAGE_TOO_LARGE, f"the answer has {len(body)} bytes; the maximum is {ANSWER_BYTES_MAX}")
        return body

    def _encode(self, answer: object) -> bytes:
        if self._is_silent:
            raise Malformed(Reason.FIELD_TYPE, f"the function returned a {type(answer).__name__} but declares answers=NOTHING")
        if self._check is None:
            if not isinstance(answer, bytes):
                raise Malformed(
                    Reason.FIELD_TYPE, f"the function returned a {type(answer).__name__}; answers=ANYTHING requires bytes"
                )
            return answer
        try:
            body = orjson.dumps(answer)
        except orjson.JSONEncodeError as fault:
            raise Malformed(Reason.FIELD_TYPE, f"the answer cannot be encoded as JSON: {fault}") from None
        if (refused := self._check(body)) is not None:
            raise Malformed(refused.reason, f"the answer: {refused.detail}")
        return body


def refusal_text(fault: Malformed) -> str:
    """Return the reason sent to the requester: number, name and detail."""
    return str(Refused(fault.reason, fault.detail))


def _check_of(schema: Mapping[str, object] | str | Path, folder: Path) -> PayloadCheck:
    if isinstance(schema, Mapping):
        name, content = "inline", orjson.dumps(dict(schema))
    else:
        name = str(schema)
        try:
            content = (folder / schema).read_bytes()
        except OSError as error:
            raise ValueError(f"the schema {name} cannot be read: {error.strerror or error}") from None
    check = PayloadChecks((PayloadRule(_EVERY_TOPIC, schema=name),), {name: content}).check_for("any")
    assert check is not None
    return check


TIMEOUT_S: Final = 30.0
REASON_CHARACTERS_MAX: Final = 500

Function = TypeVar("Function", bound=Callable[..., object])
"""Receives the request, the whole message and the store; returns the answer or None."""


class Reject(Exception):
    """Raised by a function for a valid request that cannot be granted. The requester receives the reason."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.reason = reason[:REASON_CHARACTERS_MAX]


@dataclass(frozen=True, slots=True)
class HandlerRoute:
    """A function, its topic filter, and its validators."""

    filter: str
    accepts: Validator
    answers: Validator
    function: Callable[..., object]


class Handler:
    """A third-party service. With `partitions`, several processes share its work: each has its own sources and store."""

    def __init__(self, name: str, *, partitions: int = 1, timeout_s: float = TIMEOUT_S) -> None:
        check_site_name(name)
        if not 1 <= partitions <= PARTITIONS_MAX:
            raise ValueError(f"partitions is {partitions}: it must be from 1 to {PARTITIONS_MAX}")
        if not timeout_s > 0:
            raise ValueError(f"timeout_s is {timeout_s}: it must be greater than 0")
        self.name = name
        self.partitions = partitions
        self.timeout_s = timeout_s
        self.routes: list[HandlerRoute] = []

    def on(self, topics: str, *, accepts: Schema, answers: Schema) -> Callable[[Function], Function]:
        """Register a function for the messages that match a topic filter; of several matching functions the first is called."""
        check_filter(topics)
        if topics.startswith("$"):
            raise ValueError(f"{topics}: topics that begin with $ are reserved for the system")
        if any(route.filter == topics for route in self.routes):
            raise ValueError(f"{topics}: a function is already registered for this filter")
        if accepts is NOTHING:
            raise ValueError("accepts=NOTHING would never call the function; use ANYTHING to accept any bytes")

        def add(function: Function) -> Function:
            inspect.signature(function).bind("request", "message", "store")
            folder = Path(inspect.getfile(function)).parent
            self.routes.append(HandlerRoute(topics, Validator(accepts, folder), Validator(answers, folder), function))
            return function

        return add

    def find_route(self, topic: str) -> HandlerRoute | None:
        """Return the first route whose filter matches a topic."""
        return next((route for route in self.routes if filter_matches(route.filter, topic)), None)


class UnusableHandlerFile(Exception):
    """A file cannot be run as a handler; the text is for its author."""


def load(path: Path) -> Handler:
    """Return the handler defined in a Python file; raise `UnusableHandlerFile` if there is none."""
    if not path.is_file():
        raise UnusableHandlerFile(f"{path} does not exist: correct the name or create the file")
    spec = spec_from_file_location(f"handler_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise UnusableHandlerFile(f"{path} is not a Python file: its name must end in .py")
    module = module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.insert(0, str(path.resolve().parent))  # for imports of modules beside the file
    try:
        spec.loader.exec_module(module)
    except Exception as fault:
        raise UnusableHandlerFile(f"{path} cannot be loaded: {describe_fault(fault)}") from fault
    found = {id(one): one for one in vars(module).values() if isinstance(one, Handler)}
    if len(found) != 1:
        raise UnusableHandlerFile(f'{path} defines {len(found)} handlers: define one, such as app = Handler("parking")')
    handler = next(iter(found.values()))
    if not handler.routes:
        raise UnusableHandlerFile(f"{path}: the handler {handler.name} has no function: decorate one with @app.on(...)")
    return handler


def describe_fault(fault: BaseException) -> str:
    """Return the text of an exception, and the line that raised it."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace is not None else ""
    return f"{type(fault).__name__}: {fault}{where}"[:REASON_CHARACTERS_MAX]
