"""A session that is taken out of one edge and made again at another is what it was."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from door_in_memory import SMALL, START
from milepost.backbone.log import RECORD_BYTES_MAX
from milepost.edge.corridor import Corridor
from milepost.edge.journal import parcel_from_bytes
from milepost.edge.parcels import Delivery, Parcel
from milepost.edge.sessions import Session
from milepost.edge.site.handing import add_to, in_portions, install, joined, open_away, take_up, waiting_of
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.queries import OnTopic
from milepost.model.sites import EdgeRef, Epoch, Held, Rest, Waiting
from milepost.model.subscriptions import Subscription
from milepost.wire.records import to_record

CAR = EndpointId("car")
EDGE = EdgeRef("north", "a")
HOUR_NS = 3_600 * SECOND_NS

bodies = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from(["in flight", "released", "waiting"]), st.binary(max_size=40)), max_size=12
)


def away(corridor: Corridor) -> Session:
    session = open_away(corridor, CAR, HOUR_NS, START)
    assert isinstance(session, Session)
    return session


def filled(queue: list[tuple[int, str, bytes]]) -> tuple[Corridor, Session]:
    corridor = Corridor(SMALL)
    session = away(corridor)
    for number, (qos, where, body) in enumerate(queue, 1):
        parcel = Parcel("t/a", body, START, source=EndpointId("pub"), qos=qos)
        parcel.said_by, parcel.said_number = "north/a", number
        is_sent = where == "in flight"
        is_released = where == "released" and qos == 2
        corridor.deliveries.adopt(session, number, Delivery(parcel, qos, (number,), is_again=is_sent), is_released=is_released)
    return corridor, session


def comparable(waiting: list[Waiting]) -> list[tuple[object, ...]]:
    return [(*one[:8], parcel_from_bytes(one.parcel).body if one.parcel else b"") for one in waiting]


@given(bodies)
def test_what_waits_is_the_same_after_it_was_handed_over(queue: list[tuple[int, str, bytes]]) -> None:
    _, session = filled(queue)
    before = waiting_of(session)
    other = Corridor(SMALL)
    there = away(other)
    install(other, there, joined(one for portion in in_portions((), before) for one in portion.waiting), (5, 9))
    assert comparable(waiting_of(there)) == comparable(before)
    assert there.received == {5, 9}
    assert {key for key, kept in other.changes.queued.items() if kept is not None} == {
        (there.number, one.number) for one in before
    }


@given(bodies, bodies)
def test_what_is_added_to_a_session_takes_no_number_that_is_in_use_and_loses_none(
    here: list[tuple[int, str, bytes]], there: list[tuple[int, str, bytes]]
) -> None:
    corridor, session = filled(here)
    mine = comparable(waiting_of(session))
    _, other = filled(there)
    brought = waiting_of(other)
    add_to(corridor, session, brought)
    after = comparable(waiting_of(session))
    assert [one for one in after if one in mine] == mine
    assert len({one[0] for one in after}) == len(after)
    messages = Counter(one[-1] for one in after if one[-1])
    assert messages == Counter(one[-1] for one in (*mine, *comparable(brought)) if one[-1])


def test_much_that_waits_goes_in_several_portions_and_in_order() -> None:
    _, session = filled([(1, "waiting", bytes(200_000))] * 6)
    portions = in_portions((), waiting_of(session))
    assert [len(portion.waiting) for portion in portions] == [2, 2, 2]
    assert [one.number for portion in portions for one in portion.waiting] == [1, 2, 3, 4, 5, 6]


def test_a_message_that_is_too_large_for_a_record_goes_in_pieces_that_fit_and_is_whole_again() -> None:
    _, session = filled([(1, "waiting", b"small"), (1, "waiting", bytes(1_900_000)), (2, "in flight", b"last")])
    before = waiting_of(session)
    portions = in_portions((), before)
    rests = [Rest(CAR, Epoch(1), EDGE, EDGE, 1, tuple(portion.waiting)) for portion in portions]
    assert all(len(to_record(rest)) < RECORD_BYTES_MAX for rest in rests)
    assert joined(one for portion in portions for one in portion.waiting) == before


def test_what_a_session_asks_for_goes_with_the_handover_while_there_is_room_and_else_follows() -> None:
    few = [Held(f"t/{at}", Subscription(CAR, OnTopic(f"t/{at}"))) for at in range(1_000)]
    assert [len(portion.held) for portion in in_portions(few, ())] == [1_000]
    many = [Held(f"{at:04}/" + "x" * 900, Subscription(CAR, OnTopic(f"{at:04}/" + "x" * 900))) for at in range(1_000)]
    portions = in_portions(many, ())
    assert [one for portion in portions for one in portion.held] == many
    assert len(portions) > 1
    rests = [Rest(CAR, Epoch(1), EDGE, EDGE, 1, (), tuple(portion.held)) for portion in portions]
    assert all(len(to_record(rest)) < RECORD_BYTES_MAX for rest in rests)


def test_a_subscription_under_a_name_that_the_session_has_stays_as_it_is() -> None:
    corridor, session = filled([])
    held = Held("t/#", Subscription(CAR, OnTopic("t/#"), qos=2))
    assert take_up(corridor, session, held)
    assert not take_up(corridor, session, Held("t/#", Subscription(CAR, OnTopic("t/#"), qos=0)))
    assert session.subscriptions["t/#"].subscription.qos == 2
    assert set(corridor.changes.subscriptions) == {(session.number, "t/#")}
