"""Serving: one request from its record to what becomes of it; what waits and calls comes in as functions."""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from milepost.handlers.appending import CalledOff
from milepost.handlers.calls import Work
from milepost.handlers.handler import Handler, Reject, Route
from milepost.handlers.notes import Request
from milepost.handlers.store import Shelf, Store
from milepost.handlers.validators import told
from milepost.hub.handling import is_own, maybe_wait_s
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed

REASON_CHARACTERS_MAX: Final = 500


class End(Enum):
    """What became of a request."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SILENT = "silent"
    """Dealt with, and there is nothing to say."""
    PARKED = "parked"
    EXPIRED = "expired"
    IGNORED = "ignored"
    """No function is for its topic any more, or the handler said it itself."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """What became of a request, and what follows."""

    end: End
    body: bytes = b""
    """Of the answer."""
    is_json: bool = True
    reason: str = ""
    tries: int = 0
    changes: dict[str, bytes | None] = field(default_factory=dict)


class Server:
    """Serves requests with the functions of a handler; `call` makes a call, `wait` waits between two tries."""

    def __init__(self, handler: Handler, call: Callable[[Work], object], wait: Callable[[float], None]) -> None:
        self._handler = handler
        self._call = call
        self._wait = wait

    def serve(self, request: Request, shelf: Shelf, now: Instant) -> Outcome:
        """What becomes of a request; raises `CalledOff`."""
        message = request.said.message
        route = self._handler.maybe_route(message.topic)
        if route is None or is_own(message.source, self._handler.name):
            return Outcome(End.IGNORED)
        if message.is_expired(now) and not request.times:
            return Outcome(End.EXPIRED)
        tries = 0
        while True:
            try:
                value = route.accepts.read(message.body)  # each time anew: a function may change what it gets
            except Malformed as fault:
                return Outcome(End.REJECTED, reason=told(fault))
            tries += 1
            outcome = self._try(route, value, message, shelf, tries)
            if isinstance(outcome, Outcome):
                return outcome
            wait_s = maybe_wait_s(tries)
            if wait_s is None:
                return Outcome(End.PARKED, reason=outcome, tries=tries)
            self._wait(wait_s)

    def _try(self, route: Route, value: object, message: Message, shelf: Shelf, tries: int) -> Outcome | str:
        """What becomes of it, or why this try failed."""
        store = Store(shelf)
        try:
            answer = self._call(lambda: route.function(value, message, store))
        except Reject as rejection:
            return Outcome(End.REJECTED, reason=rejection.reason, tries=tries)
        except CalledOff:
            store.end()
            raise
        except BaseException as fault:  # noqa: BLE001  # a third party's code may raise anything
            store.end()
            return described(fault)
        if answer is None:
            return Outcome(End.SILENT, tries=tries, changes=store.changes)
        try:
            body = route.answers.write(answer)
        except Malformed as fault:  # trying again would give the same
            return Outcome(End.PARKED, reason=told(fault)[:REASON_CHARACTERS_MAX], tries=tries)
        return Outcome(End.ACCEPTED, body, is_json=route.answers.is_json, tries=tries, changes=store.changes)


def described(fault: BaseException) -> str:
    """A fault, and the line it came from."""
    trace = fault.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    where = f" (line {trace.tb_lineno} of {trace.tb_frame.f_code.co_name})" if trace is not None else ""
    return f"{type(fault).__name__}: {fault}{where}"[:REASON_CHARACTERS_MAX]
