from collections.abc import Callable

import pytest

from milepost.handlers import ANYTHING, NOTHING, Handler, Message, Reject, Store
from milepost.handlers.calls import End, Outcome, Server, TookTooLong, Work
from milepost.handlers.ledger import Cancelled
from milepost.handlers.records import Request
from milepost.handlers.store import StoreValues
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import MessageId
from milepost.model.sites import EdgeRef, ForwardedMessage

NOW = Instant(1_900_000_000_000_000_000)
NUMBER = {"type": "integer", "minimum": 0}

Function = Callable[[int, Message, Store], object]


def request(
    body: bytes = b"3", *, source: str = "truck-7", topic: str = "a", valid_until: int = FOREVER, times: int = 0
) -> Request:
    message = Message(MessageId(1), EndpointId(source), topic, Instant(NOW - 10), valid_until=Instant(valid_until), body=body)
    return Request(ForwardedMessage(EdgeRef("north", "edge-1"), 1, message), times)


class Desk:
    """A handler of one function, called at once, and the waits between its tries."""

    def __init__(self, function: Function) -> None:
        app = Handler("counter")
        app.on("a/#", accepts=NUMBER, answers=NUMBER)(function)
        self.waits: list[float] = []
        self.values = StoreValues({"kept": b"1"})
        self._server = Server(app, self.call, self.waits.append)

    def call(self, work: Work) -> object:
        return work()

    def serve(self, asked: Request) -> Outcome:
        return self._server.serve(asked, self.values, NOW)


def test_what_is_in_order_is_accepted_with_what_it_changed() -> None:
    def count(given: int, message: Message, store: Store) -> int:
        store.put(message.source, given)
        return given + 1

    outcome = Desk(count).serve(request())
    assert outcome == Outcome(End.ACCEPTED, b"4", tries=1, changes={"truck-7": b"3"})


def test_a_function_may_say_nothing() -> None:
    def keep(given: int, message: Message, store: Store) -> None:
        store.put("x", given)

    assert Desk(keep).serve(request()) == Outcome(End.SILENT, tries=1, changes={"x": b"3"})


@pytest.mark.parametrize("body", [b"", b"-1", b'"3"', b"\xff\xfe", b"{" * 100_000])
def test_poison_is_rejected_before_the_function_sees_it(body: bytes) -> None:
    # D11
    def never(given: int, message: Message, store: Store) -> int:
        raise AssertionError

    outcome = Desk(never).serve(request(body))
    assert outcome.end is End.REJECTED
    assert outcome.reason.startswith("22")
    assert outcome.tries == 0


def test_a_rejection_is_told_and_changes_nothing() -> None:
    def reject(given: int, message: Message, store: Store) -> int:
        store.put("x", given)
        raise Reject("no room")

    desk = Desk(reject)
    assert desk.serve(request()) == Outcome(End.REJECTED, reason="no room", tries=1)
    assert desk.waits == []


def test_what_fails_is_tried_three_times_and_then_a_dead_letter_with_the_last_fault() -> None:
    def fail(given: int, message: Message, store: Store) -> int:
        store.put("x", given)
        raise KeyError(given)

    desk = Desk(fail)
    outcome = desk.serve(request())
    assert (outcome.end, outcome.tries, outcome.changes) == (End.DEAD_LETTER, 3, {})
    assert outcome.reason.startswith("KeyError: 3 (line ")
    assert "of fail)" in outcome.reason
    assert desk.waits == [0.1, 1.0]


def test_a_try_begins_as_if_none_had_been_before() -> None:
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
    outcome = server.serve(request(b"[3]"), StoreValues({"kept": b"1"}), NOW)
    assert (outcome.end, outcome.tries) == (End.ACCEPTED, 3)
    assert seen == [([3], ["kept"])] * 3


def test_an_answer_that_breaks_its_schema_is_the_handler_s_fault_and_is_not_tried_again() -> None:
    # D11
    calls = []

    def lie(given: int, message: Message, store: Store) -> int:
        calls.append(given)
        store.put("x", 1)
        return -1

    outcome = Desk(lie).serve(request())
    assert (outcome.end, outcome.changes, len(calls)) == (End.DEAD_LETTER, {}, 1)
    assert "the answer" in outcome.reason


def test_what_is_over_is_not_dealt_with_unless_somebody_asked_for_it_again() -> None:
    def same(given: int, message: Message, store: Store) -> int:
        return given

    assert Desk(same).serve(request(valid_until=NOW - 1)).end is End.EXPIRED
    assert Desk(same).serve(request(valid_until=NOW - 1, times=1)).end is End.ACCEPTED


def test_a_handler_does_not_hear_itself_nor_what_it_has_no_function_for() -> None:
    def never(given: int, message: Message, store: Store) -> int:
        raise AssertionError

    desk = Desk(never)
    assert desk.serve(request(source="@counter", topic="a/accept")).end is End.IGNORED
    assert desk.serve(request(source="@counter.1.far")).end is End.IGNORED
    assert desk.serve(request(topic="b")).end is End.IGNORED


def test_a_call_that_is_called_off_has_no_outcome_and_its_store_is_shut() -> None:
    stores: list[Store] = []

    def keep(given: int, message: Message, store: Store) -> None:
        stores.append(store)
        raise Cancelled

    with pytest.raises(Cancelled):
        Desk(keep).serve(request())
    with pytest.raises(ValueError, match="given up"):
        stores[0].put("x", 1)


def test_the_store_of_a_call_that_took_too_long_is_shut() -> None:
    stores: list[Store] = []

    def keep(given: int, message: Message, store: Store) -> None:
        stores.append(store)
        raise TookTooLong

    assert Desk(keep).serve(request()).end is End.DEAD_LETTER
    for store in stores:
        with pytest.raises(ValueError, match="given up"):
            store.put("x", 1)


def test_bytes_pass_as_they_are_where_the_handler_says_so() -> None:
    app = Handler("echo")
    app.on("a", accepts=ANYTHING, answers=ANYTHING)(lambda given, message, store: given)
    app.on("b", accepts=ANYTHING, answers=NOTHING)(lambda given, message, store: given)
    server = Server(app, lambda work: work(), lambda _: None)
    assert server.serve(request(b"\xff"), StoreValues({}), NOW) == Outcome(End.ACCEPTED, b"\xff", is_json=False, tries=1)
    assert server.serve(request(b"\xff", topic="b"), StoreValues({}), NOW).end is End.DEAD_LETTER
