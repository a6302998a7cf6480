"""An edge recognises its own messages when it reads them back from the log, without decoding them."""

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.federation.forwarding import IN_FLIGHT_BYTES_MAX, IN_FLIGHT_MAX
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import Append
from milepost.model.endpoints import EndpointId
from milepost.model.queries import OnTopic
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, EdgeRef, ForwardedMessage, LoggedRecord
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

ME, OTHER = EdgeRef("north", "a"), EdgeRef("north", "b")


def member() -> SiteMember:
    found = SiteMember(Broker(SMALL), ME, SiteLimits())
    found.state.interest.put("k", str(OTHER), Subscription(EndpointId("car"), OnTopic("t/#")))
    found.caught_up(SUBSCRIPTION_INFO, START)
    found.caught_up(VEHICLE_INFO, START)
    return found


def publish(edge: SiteMember, *bodies: bytes) -> list[Append]:
    for body in bodies:
        publication = Publication("t/a", body, START, source=EndpointId("pub"), origin=0)
        assert not edge.state.broker.accept(publication, None, START)
    appends = edge.state.outbox.take_batch()
    edge.appended(appends, START)
    return [one for one in appends if one.topic == CROSS_HUB]


def truncated(append: Append) -> Append:
    """Return the record without its end, so that it cannot be decoded."""
    return append._replace(value=(append.value or b"")[:-5])


def read_back(edge: SiteMember, appends: list[Append]) -> list[ForwardedMessage]:
    edge.begin_at(0, 0)
    edge.on_records(CROSS_HUB, [LoggedRecord(at, one.key, one.value, START) for at, one in enumerate(appends)], START)
    return [read.forwarded for read in edge.state.recent.since(0)]


def test_a_message_read_back_equals_the_forwarded_one() -> None:
    edge = member()
    appends = publish(edge, b"1", b"2", b"3")
    assert read_back(edge, appends) == [from_record(one.value or b"") for one in appends]
    assert edge.state.cursors[str(ME)] == appends[-1].number


def test_a_message_read_back_is_not_decoded_again() -> None:
    edge = member()
    appends = [truncated(one) for one in publish(edge, b"1")]
    assert [forwarded.message.body for forwarded in read_back(edge, appends)] == [b"1"]
    assert edge.state.counts["unreadable"] == 0


def test_a_message_missing_in_the_log_does_not_shift_later_ones() -> None:
    edge = member()
    first, _, third = publish(edge, b"1", b"2", b"3")
    assert [forwarded.message.body for forwarded in read_back(edge, [first, truncated(third)])] == [b"1", b"3"]


def test_large_messages_are_decoded_instead_of_remembered() -> None:
    edge, body = member(), bytes(IN_FLIGHT_BYTES_MAX)
    (large,) = publish(edge, body)
    assert edge.roaming.forwarder.pop_read_back(large.number) is None
    assert [forwarded.message.body for forwarded in read_back(edge, [large])] == [body]


def test_messages_no_longer_in_memory_are_decoded() -> None:
    edge, before = member(), member()
    old = publish(before, b"old")
    many = publish(edge, *(b"%d" % at for at in range(IN_FLIGHT_MAX + 5)))
    bodies = [forwarded.message.body for forwarded in read_back(edge, [*old, *many])]
    assert bodies == [b"old", *(b"%d" % at for at in range(IN_FLIGHT_MAX + 5))]
