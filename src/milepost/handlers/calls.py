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

from milepost.handlers.handler import REASON_CHARACTERS_MAX, Handler, HandlerRoute, Reject, describe_fault, refusal_text
from milepost.handlers.ledger import POLL_S, Cancelled
from milepost.handlers.records import HandlerRequest
from milepost.handlers.store import Store, StoreValues
from milepost.handlers.topic_names import is_own_message
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.retry import Retry, RetryPolicy

HUNG_MAX: Final = 8

CALL_RETRY: Final = RetryPolicy(first_s=0.1, limit_s=1.0, factor=10.0, retries_max=2)
"""Waits between the attempts for one request; after the last attempt the request becomes a dead letter."""

Work = Callable[[], object]


class CallTimeout(Exception):
    """A call exceeded its timeout and was abandoned."""


class _PendingCall:
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


class CallRunner:
    """Runs one call at a time; setting `cancelled` ends the wait for it."""

    def __init__(self, timeout_s: float, cancelled: threading.Event) -> None:
        self._timeout_s = timeout_s
        self._cancelled = cancelled
        self._calls: SimpleQueue[_PendingCall | None] | None = None
        self._abandoned: list[_PendingCall] = []

    @property
    def hung(self) -> int:
        """Abandoned calls that have not returned."""
        self._abandoned = [call for call in self._abandoned if not call.done.is_set()]
        return len(self._abandoned)

    def call(self, work: Work) -> object:
        """Return the result of *work* or raise its exception; raise `CallTimeout` or `Cancelled` if it is abandoned."""
        call = _PendingCall(work)
        if self._calls is None:
            self._calls = SimpleQueue()
            threading.Thread(target=_serve, args=(self._calls,), name="handler-call", daemon=True).start()
        self._calls.put(call)
        left_s = self._timeout_s
        while not call.done.wait(min(left_s, POLL_S)):
            left_s -= POLL_S
            if left_s <= 0 or self._cancelled.is_set():
                self._abandon(call)
                raise Cancelled if self._cancelled.is_set() else CallTimeout(f"the call exceeded timeout_s = {self._timeout_s:g}")
        if call.fault is not None:
            raise call.fault
        return call.result

    def close(self) -> None:
        """End the thread."""
        if self._calls is not None:
            self._calls.put(None)
            self._calls = None

    def _abandon(self, call: _PendingCall) -> None:
        self._abandoned.append(call)
        self.close()


def _serve(calls: "SimpleQueue[_PendingCall | None]") -> None:
    while (call := calls.get()) is not None:
        call.run()


class RequestEnd(Enum):
    """How a request ended."""

    ACCEPTED = "accepted"
    REJECTED = "rejected"
    NO_ANSWER = "no_answer"
    """Served, without an answer."""
    DEAD_LETTER = "dead_letter"
    EXPIRED = "expired"
    IGNORED = "ignored"
    """No function matches its topic any more, or the handler itself published it."""


@dataclass(frozen=True, slots=True)
class RequestOutcome:
    """The end of a request, and its effects."""

    end: RequestEnd
    body: bytes = b""
    """The body of the answer."""
    is_json: bool = True
    reason: str = ""
    attempts: int = 0
    changes: dict[str, bytes | None] = field(default_factory=dict)


class Server:
    """Serves requests with the functions of a handler; `call` runs a call, `wait` waits between two attempts."""

    def __init__(self, handler: Handler, call: Callable[[Work], object], wait: Callable[[float], None]) -> None:
        self._handler = handler
        self._call = call
        self._wait = wait

    def serve(self, request: HandlerRequest, stored: StoreValues, now: Instant) -> RequestOutcome:
        """Serve a request and return its outcome; raise `Cancelled` if the wait was cancelled."""
        message = request.forwarded.message
        route = self._handler.find_route(message.topic)
        if route is None or is_own_message(message.source, self._handler.name):
            return RequestOutcome(RequestEnd.IGNORED)
        if message.is_expired(now) and not request.retries:
            return RequestOutcome(RequestEnd.EXPIRED)
        attempts, retry = 0, Retry(CALL_RETRY)
        while True:
            try:
                value = route.accepts.read(message.body)  # once per attempt: a function may modify its argument
            except Malformed as fault:
                return RequestOutcome(RequestEnd.REJECTED, reason=refusal_text(fault))
            attempts += 1
            outcome = self._attempt(route, value, message, stored, attempts)
            if isinstance(outcome, RequestOutcome):
                return outcome
            wait_s = retry.next_wait_s()
            if wait_s is None:
                return RequestOutcome(RequestEnd.DEAD_LETTER, reason=outcome, attempts=attempts)
            self._wait(wait_s)

    def _attempt(
        self, route: HandlerRoute, value: object, message: Message, stored: StoreValues, attempts: int
    ) -> RequestOutcome | str:
        """Return the outcome, or why this attempt failed."""
        store = Store(stored)
        try:
            answer = self._call(lambda: route.function(value, message, store))
        except Reject as rejection:
            return RequestOutcome(RequestEnd.REJECTED, reason=rejection.reason, attempts=attempts)
        except Cancelled:
            store.close()
            raise
        except BaseException as fault:  # noqa: BLE001  # third-party code may raise anything
            store.close()
            return describe_fault(fault)
        if answer is None:
            return RequestOutcome(RequestEnd.NO_ANSWER, attempts=attempts, changes=store.changes)
        try:
            body = route.answers.write(answer)
        except Malformed as fault:  # a retry would produce the same answer
            return RequestOutcome(RequestEnd.DEAD_LETTER, reason=refusal_text(fault)[:REASON_CHARACTERS_MAX], attempts=attempts)
        return RequestOutcome(RequestEnd.ACCEPTED, body, is_json=route.answers.is_json, attempts=attempts, changes=store.changes)
