"""Serving one request: from its message, through validators and the function, to its outcome.

    decoded by `accepts` ─▶ the function ─▶ encoded by `answers` ─▶ accept
        │ invalid              │ Reject         │ invalid
        ▼                      ▼                ▼
      reject                reject           dead letter, and reject: the service failed
                               │ any other exception, or a timeout
                               └▶ retried, then a dead letter

Invariants:
- a failing request delays those behind it by a bounded time, and stops none of them;
- a call has its own thread, so that one that never returns costs only that thread. Python cannot stop a thread: after the timeout
  it is abandoned. Its effects are discarded, its store refuses further calls, and it ends when the function returns. At
  `HUNG_MAX` abandoned threads the process must be restarted.
"""

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from queue import SimpleQueue
from typing import Final

from milepost.handlers.handler import REASON_CHARACTERS_MAX, Handler, Reject, Route, described, told
from milepost.handlers.ledger import POLL_S, Cancelled
from milepost.handlers.names import is_own
from milepost.handlers.records import Request
from milepost.handlers.store import Store, StoreValues
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.retry import Retry, RetryPolicy

HUNG_MAX: Final = 8

CALL_RETRY: Final = RetryPolicy(first_s=0.1, limit_s=1.0, factor=10.0, retries_max=2)
"""Waits between the attempts for one request; after the last attempt the request becomes a dead letter."""

Work = Callable[[], object]


class TookTooLong(Exception):
    """A call exceeded its timeout and was abandoned."""


class _Call:
    """One call and its result."""

    def __init__(self, work: Work) -> None:
        self.work = work
        self.result: object = None
        self.fault: BaseException | None = None
        self.done = threading.Event()

    def run(self) -> None:
        try:
            self.result = self.work()
        except BaseException as fault:  # noqa: BLE001  # SystemExit too: it ends the call, not the process
            self.fault = fault
        self.done.set()


class Caller:
    """Runs one call at a time; setting `over` cancels the wait for it."""

    def __init__(self, timeout_s: float, over: threading.Event) -> None:
        self._timeout_s = timeout_s
        self._over = over
        self._calls: SimpleQueue[_Call | None] | None = None
        self._abandoned: list[_Call] = []

    @property
    def hung(self) -> int:
        """Abandoned calls that have not returned."""
        self._abandoned = [call for call in self._abandoned if not call.done.is_set()]
        return len(self._abandoned)

    def call(self, work: Work) -> object:
        """Return the result of *work* or raise its exception; raise `TookTooLong` or `Cancelled` if it is abandoned."""
        call = _Call(work)
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_serve, args=(self._calls,), name="handler-call", daemon=True).start()
        self._calls.put(call)
        left_s = self._timeout_s
        while not call.done.wait(min(left_s, POLL_S)):
            left_s -= POLL_S
            if left_s <= 0 or self._over.is_set():
                self._abandon(call)
                raise Cancelled if self._over.is_set() else TookTooLong(f"it took more than {self._timeout_s:g} s")
        if call.fault is not None:
            raise call.fault
        return call.result

    def close(self) -> None:
        """End the thread."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _abandon(self, call: _Call) -> None:
        self._abandoned.append(call)
        self.close()


def _serve(calls: "SimpleQueue[_Call | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()


class End(Enum):
    """How a request ended."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    SILENT = "silent"
    """Served, without an answer."""
    DEAD_LETTER = "dead_letter"
    EXPIRED = "expired"
    IGNORED = "ignored"
    """No function matches its topic any more, or the handler itself published it."""


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a request, and its effects."""

    end: End
    body: bytes = b""
    """The body of the answer."""
    is_json: bool = True
    reason: str = ""
    tries: int = 0
    changes: dict[str, bytes | None] = field(default_factory=dict)


class Server:
    """Serves requests with the functions of a handler; `call` runs a call, `wait` waits between two attempts."""

    def __init__(self, handler: Handler, call: Callable[[Work], object], wait: Callable[[float], None]) -> None:
        self._handler = handler
        self._call = call
        self._wait = wait

    def serve(self, request: Request, stored: StoreValues, now: Instant) -> Outcome:
        """Serve a request and return its outcome; raise `Cancelled` if the wait was cancelled."""
        message = request.said.message
        route = self._handler.maybe_route(message.topic)
        if route is None or is_own(message.source, self._handler.name):
            return Outcome(End.IGNORED)
        if message.is_expired(now) and not request.times:
            return Outcome(End.EXPIRED)
        tries, retry = 0, Retry(CALL_RETRY)
        while True:
            try:
                value = route.accepts.read(message.body)  # once per attempt: a function may modify its argument
            except Malformed as fault:
                return Outcome(End.REJECTED, reason=told(fault))
            tries += 1
            outcome = self._try(route, value, message, stored, tries)
            if isinstance(outcome, Outcome):
                return outcome
            wait_s = retry.next_wait_s()
            if wait_s is None:
                return Outcome(End.DEAD_LETTER, reason=outcome, tries=tries)
            self._wait(wait_s)

    def _try(self, route: Route, value: object, message: Message, stored: StoreValues, tries: int) -> Outcome | str:
        """Return the outcome, or why this attempt failed."""
        store = Store(stored)
        try:
            answer = self._call(lambda: route.function(value, message, store))
        except Reject as rejection:
            return Outcome(End.REJECTED, reason=rejection.reason, tries=tries)
        except Cancelled:
            store.end()
            raise
        except BaseException as fault:  # noqa: BLE001  # third-party code may raise anything
            store.end()
            return described(fault)
        if answer is None:
            return Outcome(End.SILENT, tries=tries, changes=store.changes)
        try:
            body = route.answers.write(answer)
        except Malformed as fault:  # a retry would produce the same answer
            return Outcome(End.DEAD_LETTER, reason=told(fault)[:REASON_CHARACTERS_MAX], tries=tries)
        return Outcome(End.ACCEPTED, body, is_json=route.answers.is_json, tries=tries, changes=store.changes)
