"""Delivery: what goes now, what waits, what is given up; and every message for every taker is accounted for."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.broker import Broker, Opened
from milepost.broker.effects import Deliver, Expel, Release
from milepost.broker.limits import Limits, SlowPolicy
from milepost.broker.session import NUMBERS_MAX, Link, Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.priorities import Priority
from milepost.model.queries import OnTopic
from milepost.model.reasons import Reason
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import UNLIMITED
from publications import at, delivery, publication

EVERYTHING = 1 << 30


class Room:
    """A corridor whose links take whatever a test says."""

    def __init__(self, limits: Limits = SMALL) -> None:
        self.broker = Broker(limits)
        self.deliveries = self.broker.deliveries
        self.counts = self.broker.counts

    def open(self, name: str, *, is_kept: bool = False, window: int = 10, now: Instant | None = None) -> Session:
        opened = self.broker.connect(
            EndpointId(name),
            who=ClientIdentity(EndpointId(name)),
            rates=UNLIMITED,
            link=Link(),
            is_fresh=not is_kept,
            expiry_ns=100 * SECOND_NS if is_kept else 0,
            window=window,
            encoding=5,
            will=None,
            now=now or at(0),
        )
        assert isinstance(opened, Opened), opened
        return opened.session

    def taker(self, name: str, *, qos: int = 1, is_kept: bool = False, window: int = 10) -> Session:
        session = self.open(name, is_kept=is_kept, window=window)
        refused = self.broker.subscribe(session, "t", Subscription(session.name, OnTopic("t"), qos=qos), at(0))
        assert refused is None
        return session

    def publish(
        self, body: bytes = b"x", *, qos: int = 1, priority: Priority = Priority.CONVENIENCE, valid_s: float | None = None
    ) -> None:
        self.broker.accept(publication(body, qos=qos, priority=priority, valid_s=valid_s), None, at(0))

    def sent(self) -> list[tuple[bytes, int, list[str], bool]]:
        """What the turn sends, as body, number, names and whether it is sent again."""
        actions = [one for one in self.broker.take_actions() if isinstance(one, Deliver)]
        return [(one.delivery.publication.body, one.number, [to.name for to in one.sessions], one.is_again) for one in actions]

    def end_turn(self) -> None:
        self.broker.take_actions()
        self.broker.take_changes()


def waiting(session: Session) -> list[bytes]:
    return [one.publication.body for _, one in session.waiting.all()] if session.waiting is not None else []


def test_all_who_can_take_it_now_get_it_under_one_number() -> None:
    room = Room()
    room.taker("a")
    room.taker("b")
    room.publish()
    assert room.sent() == [(b"x", 1, ["a", "b"], False)]
    assert room.counts.delivered == 2


def test_who_has_that_number_in_use_gets_the_message_under_another() -> None:
    room = Room()
    first = room.taker("a")
    room.taker("b")
    first.in_flight[1] = first.in_flight[2] = delivery(b"old")
    room.publish()
    assert sorted(room.sent(), key=str) == [(b"x", 1, ["b"], False), (b"x", 3, ["a"], False)]


def test_numbers_begin_again_after_the_last_and_pass_over_what_is_open() -> None:
    room = Room(replace(SMALL, in_flight_max=2))
    session = room.taker("a")
    for _ in range(NUMBERS_MAX):
        room.publish()
        if len(session.in_flight) == 2:
            room.deliveries.acknowledge(session, max(session.in_flight))
        room.end_turn()
    assert list(session.in_flight) == [1]
    room.publish()
    assert set(session.in_flight) == {1, 2}


def test_a_number_that_became_free_in_a_turn_is_not_used_in_it_by_a_kept_session() -> None:
    room = Room()
    session = room.taker("a", is_kept=True)
    for body in (b"1", b"2"):
        room.publish(body)
    room.end_turn()
    room.deliveries._number = 0
    room.deliveries.acknowledge(session, 1)
    room.publish(b"3")
    assert set(session.in_flight) == {2, 3}
    assert room.broker.changes.queued[session.number, 1] is None


@pytest.mark.parametrize("qos", [1, 2])
def test_more_than_the_window_waits_until_something_is_acknowledged(qos: int) -> None:
    room = Room()
    session = room.taker("a", window=2, qos=qos)
    for body in (b"1", b"2", b"3", b"4"):
        room.publish(body, qos=qos)
    assert [body for body, *_ in room.sent()] == [b"1", b"2"]
    assert waiting(session) == [b"3", b"4"]
    if qos == 2:
        assert room.deliveries.release(session, 1)
        assert room.deliveries.resume(session, at(0), EVERYTHING) == 0, "an exchange that is not over takes part of the window"
        assert room.deliveries.complete(session, 1)
    else:
        assert room.deliveries.acknowledge(session, 1)
    assert room.deliveries.resume(session, at(0), EVERYTHING) > 0
    assert [body for body, *_ in room.sent()] == [b"3"]
    assert waiting(session) == [b"4"]


def test_what_needs_no_acknowledgement_does_not_wait_for_the_window() -> None:
    room = Room()
    room.taker("a", window=1)
    room.publish(b"1")
    room.publish(b"2")
    room.publish(b"0", qos=0)
    assert [body for body, *_ in room.sent()] == [b"1", b"0"]


def test_acknowledging_what_is_not_there_means_nothing() -> None:
    room = Room()
    session = room.taker("a")
    assert not room.deliveries.acknowledge(session, 9)
    assert not room.deliveries.release(session, 9)
    assert not room.deliveries.complete(session, 9)


def test_for_who_is_busy_everything_waits_and_goes_most_urgent_first() -> None:
    room = Room()
    session = room.taker("a")
    session.is_clear = False
    room.publish(b"plain", qos=0)
    room.publish(b"numbered")
    room.publish(b"now", qos=0, priority=Priority.EMERGENCY)
    assert room.sent() == []
    room.deliveries.resume(session, at(0), EVERYTHING)
    assert [(body, number > 0) for body, number, *_ in room.sent()] == [(b"now", False), (b"plain", False), (b"numbered", True)]
    assert session.is_clear
    assert session.waiting is None


def test_only_so_many_bytes_go_at_a_time() -> None:
    room = Room()
    session = room.taker("a")
    session.is_clear = False
    for _ in range(3):
        room.publish(b"x" * 10, qos=0)
    assert room.deliveries.resume(session, at(0), 1) == 12
    assert len(room.sent()) == 1
    assert not session.is_clear, "what comes now must not overtake what waits"
    room.publish(b"later", qos=0)
    room.deliveries.resume(session, at(0), EVERYTHING)
    assert [body for body, *_ in room.sent()] == [b"x" * 10, b"x" * 10, b"later"]


def test_what_expired_while_it_waited_is_dropped_and_counted() -> None:
    room = Room()
    session = room.taker("a", is_kept=True)
    session.is_clear = False
    room.publish(b"short", valid_s=1)
    room.publish(b"long", valid_s=3)
    room.deliveries.resume(session, at(2), EVERYTHING)
    assert [body for body, *_ in room.sent()] == [b"long"]
    assert room.counts.dropped == {Reason.EXPIRED: 1}
    assert len([queued for queued in room.broker.changes.queued.values() if queued]) == 1


def test_what_is_valid_until_now_is_still_sent() -> None:
    room = Room()
    session = room.taker("a")
    session.is_clear = False
    room.publish(b"x", valid_s=2)
    room.deliveries.resume(session, at(2), EVERYTHING)
    assert len(room.sent()) == 1


def test_a_full_queue_gives_up_the_oldest_of_the_lowest_class() -> None:
    room = Room(replace(SMALL, queue_messages_max=2))
    session = room.taker("a", is_kept=True)
    session.is_clear = False
    low, high = Priority.CONVENIENCE, Priority.SAFETY
    for body, priority in ((b"1", high), (b"2", low), (b"3", low), (b"4", high)):
        room.publish(body, priority=priority)
    assert waiting(session) == [b"1", b"4"]
    assert room.counts.dropped == {Reason.QUEUE_FULL: 2}
    kept = [queued for queued in room.broker.changes.queued.values() if queued is not None]
    assert len(kept) == 2
    assert not [one for one in room.broker.take_actions() if isinstance(one, Expel)]


@pytest.mark.parametrize("limits", [replace(SMALL, queue_bytes_max=25), replace(SMALL, queues_bytes_max=25)])
def test_a_queue_is_limited_in_bytes_for_one_and_for_all(limits: Limits) -> None:
    room = Room(limits)
    session = room.taker("a")
    session.is_clear = False
    for number in range(4):
        room.publish(bytes([number]) * 10)
    assert waiting(session) == [b"\2" * 10, b"\3" * 10]
    assert room.deliveries.waiting_bytes == 22
    assert room.counts.dropped == {Reason.QUEUE_FULL: 2}


def test_a_full_queue_disconnects_the_receiver_where_that_is_the_policy_and_what_fits_stays() -> None:
    room = Room(replace(SMALL, queue_messages_max=1, when_slow=SlowPolicy.DISCONNECT))
    session = room.taker("a", is_kept=True)
    link, session.is_clear = session.link, False
    room.publish(b"1")
    assert not room.broker.take_actions()
    room.publish(b"2")
    (expel,) = room.broker.take_actions()
    assert isinstance(expel, Expel)
    assert (expel.link, expel.why.reason) == (link, Reason.QUEUE_FULL)
    assert waiting(session) == [b"2"]


def test_for_who_is_away_and_kept_waits_what_is_acknowledged_and_nothing_else() -> None:
    room = Room()
    session = room.taker("a", is_kept=True)
    room.broker.disconnect(session, at(0), is_willed=True)
    room.publish(b"0", qos=0)
    room.publish(b"1")
    assert waiting(session) == [b"1"]
    assert room.counts.dropped == {Reason.RECEIVER_AWAY: 1}


def test_what_waited_without_acknowledgement_is_dropped_and_counted_when_the_receiver_goes() -> None:
    room = Room()
    session = room.taker("a", is_kept=True)
    session.is_clear = False
    room.publish(b"0", qos=0)
    room.publish(b"1")
    room.broker.disconnect(session, at(0), is_willed=True)
    assert waiting(session) == [b"1"]
    assert room.counts.dropped == {Reason.RECEIVER_AWAY: 1}
    assert room.deliveries.waiting_bytes == 2


def test_who_comes_back_gets_what_was_in_flight_again_under_its_number_before_all_else() -> None:
    room = Room()
    session = room.taker("a", is_kept=True, window=2)
    for body in (b"1", b"2", b"3"):
        room.publish(body)
    room.deliveries.release(session, 1)
    room.broker.disconnect(session, at(0), is_willed=True)
    room.end_turn()
    room.open("a", is_kept=True, window=3)
    room.deliveries.resume(session, at(0), EVERYTHING)
    first, *rest = room.broker.take_actions()
    assert isinstance(first, Release)
    assert first.number == 1
    found = [(one.delivery.publication.body, one.number, one.is_again) for one in rest if isinstance(one, Deliver)]
    assert found == [(b"2", 2, True), (b"3", 3, False)]


def test_what_was_in_flight_and_expired_is_not_sent_again() -> None:
    room = Room()
    session = room.taker("a", is_kept=True)
    room.publish(b"1", valid_s=1)
    room.broker.disconnect(session, at(0), is_willed=True)
    room.end_turn()
    room.open("a", is_kept=True, now=at(2))
    assert room.sent() == []
    assert not session.in_flight
    assert room.counts.dropped == {Reason.EXPIRED: 1}
    assert room.broker.changes.queued == {(session.number, 1): None}


def test_who_comes_back_with_a_smaller_window_is_not_sent_more_than_it_takes() -> None:
    room = Room()
    session = room.taker("a", is_kept=True, window=5)
    for _ in range(5):
        room.publish()
    room.broker.disconnect(session, at(0), is_willed=True)
    room.end_turn()
    room.open("a", is_kept=True, window=2)
    assert len(room.sent()) == 2


def test_what_a_smaller_window_holds_back_goes_before_what_waited_and_is_counted_once() -> None:
    room = Room()
    session = room.taker("a", is_kept=True, window=3)
    bodies = [b"1", b"2", b"3", b"4", b"5"]
    for body in bodies:
        room.publish(body)
    room.broker.disconnect(session, at(0), is_willed=True)
    room.end_turn()
    room.open("a", is_kept=True, window=1)
    found = room.sent()
    while session.in_flight:
        room.deliveries.acknowledge(session, next(iter(session.in_flight)))
        room.deliveries.resume(session, at(0), EVERYTHING)
        found += room.sent()
    assert [(body, is_again) for body, *_, is_again in found] == [(body, body < b"4") for body in bodies]
    assert room.counts.delivered == 5


def test_a_session_taken_over_twice_in_the_turn_of_a_message_gets_it_once() -> None:
    room = Room()
    room.taker("a", is_kept=True)
    room.publish()
    for _ in range(2):
        room.open("a", is_kept=True)
    assert [(body, names) for body, _, names, _ in room.sent() if names] == [(b"x", ["a"])]


def test_a_message_is_kept_once_for_all_who_wait_for_it_and_goes_with_the_last() -> None:
    room = Room()
    sessions = [room.taker(name, is_kept=True) for name in "ab"]
    room.publish()
    (number,) = room.broker.changes.messages
    room.end_turn()
    room.deliveries.acknowledge(sessions[0], 1)
    assert room.broker.changes.messages == {}
    room.deliveries.acknowledge(sessions[1], 1)
    assert room.broker.changes.messages == {number: None}


def test_what_a_session_did_not_get_before_its_end_is_counted() -> None:
    room = Room()
    session = room.taker("a", window=1)
    for _ in range(3):
        room.publish()
    room.broker.disconnect(session, at(0), is_willed=True)
    assert room.counts.dropped == {Reason.SESSION_EXPIRED: 3}
    assert room.deliveries.waiting_bytes == 0
