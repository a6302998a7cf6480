from collections.abc import Callable

import pytest

from milepost.handlers import ANYTHING, NOTHING, Handler, Message, Reject, Store
from milepost.handlers.calls import CallTimeout, RequestEnd, RequestOutcome, Server, Work
from milepost.handlers.ledger import Cancelled
from milepost.handlers.records import HandlerRequest
from milepost.handlers.store import StoreValues
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import MessageId
from milepost.model.site_records import EdgeRef, ForwardedMessage

NOW = Instant(1_900_000_000_000_000_000)
NUMBER = {"type": "integer", "minimum": 0}

Function = Callable[[int, Message, Store], object]


def request(
    body: bytes = b"3", *, source: str = "truck-7", topic: str = "a", valid_until: int = FOREVER, retries: int = 0
) -> HandlerRequest:
    message = Message(MessageId(1), EndpointId(source), topic, Instant(NOW - 10), valid_until=Instant(valid_until), body=body)
    return HandlerRequest(ForwardedMessage(EdgeRef("north", "edge-1"), 1, message), retries)


class OneFunctionHandler:
    """A handler with one function that is called directly, and the recorded waits between attempts."""

    def __init__(self, function: Function) -> None:
        app = Handler("counter")
        app.on("a/#", accepts=NUMBER, answers=NUMBER)(function)
        self.waits: list[float] = []
        self.values = StoreValues({"stored": b"1"})
        self._server = Server(app, self.call, self.waits.append)

    def call(self, work: Work) -> object:
        return work()

    def serve(self, request: HandlerRequest) -> RequestOutcome:
        return self._server.serve(request, self.values, NOW)


def test_a_valid_request_is_accepted_with_its_changes() -> None:
    def count(given: int, message: Message, store: Store) -> int:
        store.put(message.source, given)
        return given + 1

    outcome = OneFunctionHandler(count).serve(request())
    assert outcome == RequestOutcome(RequestEnd.ACCEPTED, b"4", attempts=1, changes={"truck-7": b"3"})


def test_a_function_may_return_no_answer() -> None:
    def put(given: int, message: Message, store: Store) -> None:
        store.put("x", given)

    assert OneFunctionHandler(put).serve(request()) == RequestOutcome(RequestEnd.NO_ANSWER, attempts=1, changes={"x": b"3"})


@pytest.mark.parametrize("body", [b"", b"-1", b'"3"', b"\xff\xfe", b"{" * 100_000])
def test_an_invalid_request_is_rejected_before_the_function_is_called(body: bytes) -> None:
    # D11
    def never(given: int, message: Message, store: Store) -> int:
        raise AssertionError

    outcome = OneFunctionHandler(never).serve(request(body))
    assert outcome.end is RequestEnd.REJECTED
    assert outcome.reason.startswith("22")
    assert outcome.attempts == 0


def test_a_rejection_carries_its_reason_and_changes_nothing() -> None:
    def reject(given: int, message: Message, store: Store) -> int:
        store.put("x", given)
        raise Reject("no room")

    served = OneFunctionHandler(reject)
    assert served.serve(request()) == RequestOutcome(RequestEnd.REJECTED, reason="no room", attempts=1)
    assert served.waits == []


def test_a_failing_request_is_attempted_three_times_and_then_a_dead_letter_with_the_last_fault() -> None:
    def fail(given: int, message: Message, store: Store) -> int:
        store.put("x", given)
        raise KeyError(given)

    served = OneFunctionHandler(fail)
    outcome = served.serve(request())
    assert (outcome.end, outcome.attempts, outcome.changes) == (RequestEnd.DEAD_LETTER, 3, {})
    assert outcome.reason.startswith("KeyError: 3 (line ")
    assert "of fail)" in outcome.reason
    assert served.waits == [0.1, 1.0]


def test_each_attempt_starts_from_the_original_request_and_store() -> None:
    seen: list[tuple[list[int], list[str]]] = []

    def spoil(given: list[int], message: Message, store: Store) -> int:
        seen.append((list(given), store.keys()))
        given.append(9)
        store.put("x", 1)
        if len(seen) < 3:
            raise SystemExit
        return 0

    app = Handler("counter")
    app.on("a", accepts={"type": "array"}, answers=NUMBER)(spoil)
    server = Server(app, lambda work: work(), lambda _: None)
    outcome = server.serve(request(b"[3]"), StoreValues({"stored": b"1"}), NOW)
    assert (outcome.end, outcome.attempts) == (RequestEnd.ACCEPTED, 3)
    assert seen == [([3], ["stored"])] * 3


def test_an_answer_that_violates_its_schema_is_a_dead_letter_without_a_retry() -> None:
    # D11
    calls = []

    def return_invalid(given: int, message: Message, store: Store) -> int:
        calls.append(given)
        store.put("x", 1)
        return -1

    outcome = OneFunctionHandler(return_invalid).serve(request())
    assert (outcome.end, outcome.changes, len(calls)) == (RequestEnd.DEAD_LETTER, {}, 1)
    assert "the answer" in outcome.reason


def test_an_expired_request_is_served_only_as_a_retry() -> None:
    def same(given: int, message: Message, store: Store) -> int:
        return given

    assert OneFunctionHandler(same).serve(request(valid_until=NOW - 1)).end is RequestEnd.EXPIRED
    assert OneFunctionHandler(same).serve(request(valid_until=NOW - 1, retries=1)).end is RequestEnd.ACCEPTED


def test_a_handler_ignores_its_own_messages_and_topics_without_a_function() -> None:
    def never(given: int, message: Message, store: Store) -> int:
        raise AssertionError

    served = OneFunctionHandler(never)
    assert served.serve(request(source="@service/counter", topic="a/accept")).end is RequestEnd.IGNORED
    assert served.serve(request(source="@service/counter.1.remote")).end is RequestEnd.IGNORED
    assert served.serve(request(topic="b")).end is RequestEnd.IGNORED


def test_a_cancelled_call_has_no_outcome_and_its_store_is_closed() -> None:
    stores: list[Store] = []

    def put(given: int, message: Message, store: Store) -> None:
        stores.append(store)
        raise Cancelled

    with pytest.raises(Cancelled):
        OneFunctionHandler(put).serve(request())
    with pytest.raises(ValueError, match="abandoned"):
        stores[0].put("x", 1)


def test_the_store_of_a_call_that_timed_out_is_closed() -> None:
    stores: list[Store] = []

    def put(given: int, message: Message, store: Store) -> None:
        stores.append(store)
        raise CallTimeout

    assert OneFunctionHandler(put).serve(request()).end is RequestEnd.DEAD_LETTER
    for store in stores:
        with pytest.raises(ValueError, match="abandoned"):
            store.put("x", 1)


def test_bytes_pass_unchanged_with_anything() -> None:
    app = Handler("echo")
    app.on("a", accepts=ANYTHING, answers=ANYTHING)(lambda given, message, store: given)
    app.on("b", accepts=ANYTHING, answers=NOTHING)(lambda given, message, store: given)
    server = Server(app, lambda work: work(), lambda _: None)
    assert server.serve(request(b"\xff"), StoreValues({}), NOW) == RequestOutcome(
        RequestEnd.ACCEPTED, b"\xff", is_json=False, attempts=1
    )
    assert server.serve(request(b"\xff", topic="b"), StoreValues({}), NOW).end is RequestEnd.DEAD_LETTER
