"""The small parts of an edge's membership: interest, outbox, registry, recent records, and the audience of a message."""

from dataclasses import replace

from milepost.broker.effects import StateChanges
from milepost.broker.publication import Publication
from milepost.federation.catch_up import Recipient, maybe_delivery
from milepost.federation.limits import SiteLimits
from milepost.federation.member_state import InterestTable, ReadRecord, RecentRecords, SiteRegistry
from milepost.federation.outbox import TRANSIENT, Append, Outbox
from milepost.model.addresses import ToArea, ToEndpoint, ToEveryone
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.queries import OnTopic
from milepost.model.site_records import EdgeRef, EndpointClaim, Epoch, ForwardedMessage, HeldSubscription
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import TimeWindow

NOW = Instant(1_900_000_000 * SECOND_NS)
HOME, AWAY = Place(40.0, -111.0), Place(41.0, -111.0)
CAR = EndpointId("car")
A, B = EdgeRef("north", "a"), EdgeRef("north", "b")


def message(topic: str = "t/a", place: Place | None = None) -> Message:
    return Message(MessageId(1), EndpointId("pub"), topic, NOW, place=place)


def subscription(topic: str = "t/#", **more: object) -> Subscription:
    return replace(Subscription(CAR, OnTopic(topic)), **more)  # type: ignore[arg-type]


class Changed:
    """Counts how often cached routes were invalidated."""

    def __init__(self) -> None:
        self.count = 0

    def __call__(self) -> None:
        self.count += 1


def test_the_interest_table_returns_the_owners_of_matching_subscriptions_until_removed() -> None:
    interest = InterestTable(Changed())
    interest.put("k1", "north/b", subscription())
    interest.put("k2", "@parking", subscription("t/a"))
    assert interest.owners_matching(message(), NOW) == {"north/b", "@parking"}
    assert interest.owners_matching(message("t/b"), NOW) == {"north/b"}
    assert interest.remove("k1")
    assert not interest.remove("k1")
    assert interest.owners_matching(message("t/b"), NOW) == frozenset()


def test_areas_are_exact_for_a_message_and_ignored_for_a_topic() -> None:
    interest = InterestTable(Changed())
    interest.put("k", "north/b", subscription(area=Circle(HOME, 500.0)))
    assert interest.owners_matching(message(place=HOME), NOW) == {"north/b"}
    assert interest.owners_matching(message(place=AWAY), NOW) == frozenset()
    assert interest.owners_matching(message(), NOW) == frozenset()
    assert interest.may_match("t/a", NOW)
    assert not interest.may_match("u", NOW)


def test_a_subscription_whose_time_window_is_over_matches_no_longer() -> None:
    interest = InterestTable(Changed())
    interest.put("k", "north/b", subscription(time_window=TimeWindow(NOW, Instant(NOW + SECOND_NS))))
    assert interest.may_match("t/a", NOW)
    interest.expire(Instant(NOW + 2 * SECOND_NS))
    assert not interest.may_match("t/a", NOW)
    assert len(interest) == 0


def test_routes_are_invalidated_only_by_the_first_and_the_last_of_equal_queries() -> None:
    changed = Changed()
    interest = InterestTable(changed)
    interest.put("k1", "north/b", subscription())
    interest.put("k2", "north/c", subscription())
    interest.remove("k1")
    assert changed.count == 1
    interest.remove("k2")
    assert changed.count == 2


def an_outbox(limits: SiteLimits) -> tuple[Outbox, StateChanges]:
    changes = StateChanges()
    return Outbox(limits, changes.outbox.__setitem__), changes


def spooled(number: int) -> Append:
    return Append(number, "t", "k", b"value")


def test_numbers_are_strictly_increasing() -> None:
    outbox, _ = an_outbox(SiteLimits())
    numbers = [outbox.next_number(at) for at in (NOW, NOW, Instant(NOW - 5), Instant(NOW + 9))]
    assert numbers == sorted(set(numbers))


def test_spooled_records_survive_a_restart_until_the_log_has_them() -> None:
    outbox, changes = an_outbox(SiteLimits())
    outbox.spool(spooled(5))
    outbox.spool(spooled(7))
    again, _ = an_outbox(SiteLimits())
    again.restore({number: body for number, body in changes.outbox.items() if body is not None}, last=3)
    assert again.waiting == outbox.waiting == 2
    assert again.next_number(Instant(1)) == 8


def test_a_full_spool_is_reported() -> None:
    outbox, _ = an_outbox(SiteLimits(spool_messages_max=2))
    for number in (1, 2):
        assert not outbox.is_full()
        outbox.spool(spooled(number))
    assert outbox.is_full()


def test_transient_records_have_a_limit() -> None:
    outbox, _ = an_outbox(SiteLimits())
    taken = sum(outbox.add_transient(Append(TRANSIENT, "t", "k", b"")) for _ in range(30_000))
    assert taken == 20_000


def test_the_highest_epoch_wins_in_any_order_of_claims() -> None:
    claims = [EndpointClaim(CAR, A, Epoch(1)), EndpointClaim(CAR, B, Epoch(5)), EndpointClaim(CAR, A, Epoch(3))]
    for order in (claims, claims[::-1], [claims[1], claims[0], claims[2]]):
        registry = SiteRegistry(10)
        for claim in order:
            registry.put(claim)
        assert registry.winner(CAR) == claims[1]
        assert registry.claim_of(CAR, A) == claims[2]
        assert registry.epoch_above(CAR, 2) == 6
        registry.remove(CAR, B)
        assert registry.winner(CAR) == claims[2]


def read(offset: int) -> ReadRecord:
    return ReadRecord(offset, Instant(NOW + offset), 10, ForwardedMessage(A, offset + 1, message()))


def test_recent_records_reach_back_as_far_as_the_limit() -> None:
    recent = RecentRecords(SiteLimits(recent_records_max=3))
    recent.begin(10)
    for offset in range(10, 15):
        recent.put(read(offset))
    assert not recent.reaches(11)
    assert recent.reaches(12)
    assert [one.offset for one in recent.since(13)] == [13, 14]


def delivered(one: Message, *held: HeldSubscription, place: Place | None = None) -> tuple[int, tuple[int, ...]] | None:
    publication = Publication(one.topic, b"", NOW, source=one.source, qos=2, address=one.address)
    found = maybe_delivery(publication, one, Recipient(CAR, place, held), NOW)
    return None if found is None else (found.qos, found.subscription_ids)


def test_a_delivery_has_the_highest_qos_and_all_subscription_ids_of_matching_subscriptions() -> None:
    first = HeldSubscription("t/#", subscription(qos=1, id=SubscriptionId(4)))
    second = HeldSubscription("t/a", subscription("t/a", qos=2, id=SubscriptionId(9)))
    assert delivered(message(), first, second) == (2, (4, 9))
    assert delivered(message("t/b"), first, second) == (1, (4,))
    assert delivered(message("u"), first, second) is None


def test_an_endpoint_is_addressed_by_its_name_its_area_and_with_everyone() -> None:
    assert delivered(replace(message(), address=ToEndpoint(CAR))) is not None
    assert delivered(replace(message(), address=ToEndpoint(EndpointId("bus")))) is None
    assert delivered(replace(message(), address=ToArea(Circle(HOME, 500.0))), place=HOME) is not None
    assert delivered(replace(message(), address=ToArea(Circle(HOME, 500.0))), place=AWAY) is None
    assert delivered(replace(message(), address=ToArea(Circle(HOME, 500.0)))) is None
    assert delivered(replace(message(), address=ToEveryone())) is not None
