"""Validators: what a handler takes and what it says (D11): JSON by a JSON Schema, or bytes where a handler says so.

A schema checks both what the paper asks for: type, integrity and validity of fields, and limits on values.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import Final

import orjson

from milepost.model.reasons import Malformed, Reason, Refused
from milepost.vetting.payloads import Check, PayloadRule, Payloads

ANSWER_BYTES_MAX: Final = 150_000
_EVERY_TOPIC: Final = "#"


class Unchecked(Enum):
    """In place of a schema."""

    ANYTHING = "anything"
    """Bytes, whatever they are."""
    NOTHING = "nothing"
    """No answer at all."""


ANYTHING: Final = Unchecked.ANYTHING
NOTHING: Final = Unchecked.NOTHING

Schema = Mapping[str, object] | str | Path | Unchecked
"""A JSON Schema, or the file that holds it, or that there is none."""


class Validator:
    """One schema, ready for use; files are found from `folder`. Raises ValueError if it will not do."""

    def __init__(self, schema: Schema, folder: Path) -> None:
        self.is_json = not isinstance(schema, Unchecked)
        self._is_silent = schema is NOTHING
        self._check: Check | None = None if isinstance(schema, Unchecked) else _check_of(schema, folder)

    def read(self, body: bytes) -> object:
        """What a function gets: the JSON value, or the bytes; raises `Malformed` if the body does not obey."""
        if self._check is None:
            return body
        if (refused := self._check(body)) is not None:
            raise Malformed(refused.reason, refused.detail)
        return orjson.loads(body)

    def write(self, answer: object) -> bytes:
        """The body of an answer; raises `Malformed` if the answer does not obey."""
        body = self._written(answer)
        if len(body) > ANSWER_BYTES_MAX:
            raise Malformed(Reason.MESSAGE_TOO_LARGE, f"an answer of {len(body)} bytes, {ANSWER_BYTES_MAX} are allowed")
        return body

    def _written(self, answer: object) -> bytes:
        if self._is_silent:
            raise Malformed(Reason.FIELD_TYPE, f"it answered with a {type(answer).__name__}, and said answers=NOTHING")
        if self._check is None:
            if not isinstance(answer, bytes):
                raise Malformed(Reason.FIELD_TYPE, f"it answered with a {type(answer).__name__}; answers=ANYTHING is bytes")
            return answer
        try:
            body = orjson.dumps(answer)
        except orjson.JSONEncodeError as fault:
            raise Malformed(Reason.FIELD_TYPE, f"no JSON can be made of the answer: {fault}") from None
        if (refused := self._check(body)) is not None:
            raise Malformed(refused.reason, f"the answer: {refused.detail}")
        return body


def told(fault: Malformed) -> str:
    """What a requester reads of a refusal: number, name and what was wrong."""
    return str(Refused(fault.reason, fault.detail))


def _check_of(schema: Mapping[str, object] | str | Path, folder: Path) -> Check:
    if isinstance(schema, Mapping):
        name, content = "given here", orjson.dumps(dict(schema))
    else:
        name = str(schema)
        try:
            content = (folder / schema).read_bytes()
        except OSError as error:
            raise ValueError(f"the schema {name} cannot be read: {error.strerror or error}") from None
    check = Payloads((PayloadRule(_EVERY_TOPIC, schema=name),), {name: content}).check_for("any")
    assert check is not None
    return check
