"""What an edge said comes back from the log, and is known there without being read."""

from edge_in_memory import SMALL, START
from milepost.broker.broker import Broker
from milepost.broker.publication import Publication
from milepost.federation.forwarding import UNDER_WAY_BYTES_MAX, UNDER_WAY_MAX
from milepost.federation.limits import SiteLimits
from milepost.federation.member import SiteMember
from milepost.federation.outbox import Append
from milepost.model.endpoints import EndpointId
from milepost.model.queries import OnTopic
from milepost.model.sites import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, EdgeRef, ForwardedMessage, LoggedRecord
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
    appends = edge.state.outbox.take()
    edge.appended(appends, START)
    return [one for one in appends if one.topic == CROSS_HUB]


def cut(append: Append) -> Append:
    """Without its end: nobody could read it."""
    return append._replace(value=(append.value or b"")[:-5])


def come_back(edge: SiteMember, appends: list[Append]) -> list[ForwardedMessage]:
    edge.begin_at(0, 0)
    edge.on_records(CROSS_HUB, [LoggedRecord(at, one.key, one.value, START) for at, one in enumerate(appends)], START)
    return [read.said for read in edge.state.recent.since(0)]


def test_what_comes_back_is_what_was_said() -> None:
    edge = member()
    appends = publish(edge, b"1", b"2", b"3")
    assert come_back(edge, appends) == [from_record(one.value or b"") for one in appends]
    assert edge.state.cursors[str(ME)] == appends[-1].number


def test_a_message_that_comes_back_is_not_read_again() -> None:
    edge = member()
    appends = [cut(one) for one in publish(edge, b"1")]
    assert [said.message.body for said in come_back(edge, appends)] == [b"1"]
    assert edge.state.counts["unreadable"] == 0


def test_one_that_is_missing_in_the_log_does_not_shift_the_others() -> None:
    edge = member()
    first, _, third = publish(edge, b"1", b"2", b"3")
    assert [said.message.body for said in come_back(edge, [first, cut(third)])] == [b"1", b"3"]


def test_large_messages_are_not_remembered_but_read() -> None:
    edge, body = member(), bytes(UNDER_WAY_BYTES_MAX)
    (large,) = publish(edge, body)
    assert edge.roaming.forwarder.come_back(large.number) is None
    assert [said.message.body for said in come_back(edge, [large])] == [body]


def test_what_is_no_longer_at_hand_and_what_an_earlier_process_said_is_read() -> None:
    edge, before = member(), member()
    old = publish(before, b"old")
    many = publish(edge, *(b"%d" % at for at in range(UNDER_WAY_MAX + 5)))
    bodies = [said.message.body for said in come_back(edge, [*old, *many])]
    assert bodies == [b"old", *(b"%d" % at for at in range(UNDER_WAY_MAX + 5))]
