"""A session exported from one edge and adopted at another is unchanged."""

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker
from milepost.broker.publication import Delivery, Publication
from milepost.broker.session import Session
from milepost.broker.session_transfer import SessionSnapshot
from milepost.broker.state_codec import publication_from_bytes
from milepost.eventlog.log import RECORD_BYTES_MAX
from milepost.federation.handover import joined, split_into_portions
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS
from milepost.model.queries import OnTopic
from milepost.model.site_records import EdgeRef, Epoch, HandoverPart, HeldSubscription, QueuedMessage
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.wire.records import to_record

CAR = EndpointId("car")
EDGE = EdgeRef("north", "a")
HOUR_NS = 3_600 * SECOND_NS

bodies = st.lists(
    st.tuples(st.integers(1, 2), st.sampled_from(["in flight", "released", "waiting"]), st.binary(max_size=40)), max_size=12
)


def snapshot(
    waiting: tuple[QueuedMessage, ...] = (), received: tuple[int, ...] = (), subscriptions: tuple[HeldSubscription, ...] = ()
) -> SessionSnapshot:
    return SessionSnapshot(CAR, HOUR_NS, None, subscriptions, waiting, received, (), ClientIdentity(CAR, "ada"))


def adopted(broker: Broker, one: SessionSnapshot) -> Session:
    session = broker.adopt_session(one, START)
    assert isinstance(session, Session)
    return session


def waiting_of(broker: Broker, session: Session) -> tuple[QueuedMessage, ...]:
    """Export the session and return its queued messages."""
    return broker.export_session(session).queued


def filled(queue: list[tuple[int, str, bytes]]) -> tuple[Broker, Session]:
    broker = Broker(SMALL)
    session = adopted(broker, snapshot())
    for number, (qos, where, body) in enumerate(queue, 1):
        publication = Publication("t/a", body, START, source=EndpointId("pub"), qos=qos)
        publication.forwarded_by, publication.forwarded_number = "north/a", number
        is_sent = where == "in flight"
        is_released = where == "released" and qos == 2
        broker.deliveries.adopt(
            session, number, Delivery(publication, qos, (number,), is_duplicate=is_sent), is_released=is_released
        )
    return broker, session


def comparable(waiting: Iterable[QueuedMessage]) -> list[tuple[object, ...]]:
    return [(*one[:8], publication_from_bytes(one.publication).body if one.publication else b"") for one in waiting]


@given(bodies)
def test_queued_messages_survive_a_handover_unchanged(queue: list[tuple[int, str, bytes]]) -> None:
    before = waiting_of(*filled(queue))
    other = Broker(SMALL)
    waiting = tuple(joined(one for portion in split_into_portions((), before) for one in portion.waiting))
    there = adopted(other, snapshot(waiting, (5, 9)))
    assert there.received == {5, 9}
    assert {key for key, stored in other.changes.queued.items() if stored is not None} == {
        (there.number, one.packet_id) for one in before
    }
    assert comparable(waiting_of(other, there)) == comparable(before)


@given(bodies, bodies)
def test_merged_messages_reuse_no_packet_id_in_use_and_none_is_lost(
    here: list[tuple[int, str, bytes]], there: list[tuple[int, str, bytes]]
) -> None:
    own = comparable(waiting_of(*filled(here)))
    broker, session = filled(here)
    arriving = waiting_of(*filled(there))
    broker.merge_session(session, snapshot(arriving))
    after = comparable(waiting_of(broker, session))
    assert [one for one in after if one in own] == own
    assert len({one[0] for one in after}) == len(after)
    messages = Counter(one[-1] for one in after if one[-1])
    assert messages == Counter(one[-1] for one in (*own, *comparable(arriving)) if one[-1])


def test_many_queued_messages_are_split_into_portions_in_order() -> None:
    portions = split_into_portions((), waiting_of(*filled([(1, "waiting", bytes(200_000))] * 6)))
    assert [len(portion.waiting) for portion in portions] == [2, 2, 2]
    assert [one.packet_id for portion in portions for one in portion.waiting] == [1, 2, 3, 4, 5, 6]


def test_a_message_too_large_for_a_record_is_split_and_joined_again() -> None:
    before = waiting_of(*filled([(1, "waiting", b"small"), (1, "waiting", bytes(1_900_000)), (2, "in flight", b"last")]))
    portions = split_into_portions((), before)
    parts = [HandoverPart(CAR, Epoch(1), EDGE, EDGE, 1, tuple(portion.waiting)) for portion in portions]
    assert all(len(to_record(part)) < RECORD_BYTES_MAX for part in parts)
    assert joined(one for portion in portions for one in portion.waiting) == list(before)


def test_subscriptions_fill_the_first_portion_and_continue_in_the_next() -> None:
    few = [HeldSubscription(f"t/{at}", Subscription(CAR, OnTopic(f"t/{at}"))) for at in range(1_000)]
    assert [len(portion.held) for portion in split_into_portions(few, ())] == [1_000]
    many = [HeldSubscription(f"{at:04}/" + "x" * 900, Subscription(CAR, OnTopic(f"{at:04}/" + "x" * 900))) for at in range(1_000)]
    portions = split_into_portions(many, ())
    assert [one for portion in portions for one in portion.held] == many
    assert len(portions) > 1
    parts = [HandoverPart(CAR, Epoch(1), EDGE, EDGE, 1, (), tuple(portion.held)) for portion in portions]
    assert all(len(to_record(part)) < RECORD_BYTES_MAX for part in parts)


def test_a_merge_keeps_the_existing_subscription_of_the_same_name() -> None:
    broker = Broker(SMALL)
    session = adopted(broker, snapshot(subscriptions=(HeldSubscription("t/#", Subscription(CAR, OnTopic("t/#"), qos=2)),)))
    broker.merge_session(session, snapshot(subscriptions=(HeldSubscription("t/#", Subscription(CAR, OnTopic("t/#"), qos=0)),)))
    assert session.subscriptions["t/#"].subscription.qos == 2
    assert set(broker.changes.subscriptions) == {(session.number, "t/#")}
