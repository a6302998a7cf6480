"""The flows of the paper, record by record: subscribing (figure 2), publishing (figure 3); whose the reserved topics are (D5).

taker ─▶ n1 ─▶ north's log ─▶ centre ─▶ south's log ─▶ s1         what is wanted
taker ◀─ n1 ◀─ north's log ◀─ centre ◀─ south's log ◀─ s1 ◀─ publisher

Each part takes the topics that are its own from the start (D6), what is wanted is told to the other site (D7), and what is
published goes as far as it is wanted and no farther (D9): through the log, past every edge of a site, each of which looks for
itself (M1, M2, M14).
"""

from collections.abc import Iterator

import pytest

from live.federation.records import Found, Watch, filter_of
from live.federation.town import Town
from live.mqtt.packets import V4, V5, Kind, P, Will, publish
from live.mqtt.raw import Closed, Raw
from live.udp.edges import UdpEdge
from milepost.model.sites import (
    ALL,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    EdgeRef,
    ForwardedMessage,
    Interest,
    interest_key,
)

NOT_AUTHORIZED = 0x87


class Sites:
    """All records of both sites that come during a test."""

    def __init__(self, town: Town) -> None:
        self.north, self.south = (Watch(town.log(site)) for site in ("north", "south"))

    def close(self) -> None:
        self.north.close()
        self.south.close()


@pytest.fixture
def sites(town: Town) -> Iterator[Sites]:
    opened = Sites(town)
    yield opened
    opened.close()


def joined(edge: UdpEdge, client: str, *filters: str) -> Raw:
    one = Raw(edge.tcp)
    one.join(client, keep_alive=0)
    for each in filters:
        assert one.subscribe((each, 1)).codes == (1,)
    return one


def wants(one: Found, edge: EdgeRef, topic: str) -> bool:
    return isinstance(one.value, Interest) and one.value.edge == edge and filter_of(one.value.subscription) == topic


def said_on(watch: Watch, topic: str) -> list[ForwardedMessage]:
    return [said for said in watch.of(ForwardedMessage) if said.message.topic == topic]


def publish_until_heard(publisher: Raw, topic: str, taker: Raw) -> None:
    """Until the publisher's edge knows that somebody elsewhere wants the topic."""
    for _ in range(200):
        publisher.publish(topic, b"probe", qos=1)
        try:
            assert taker.message(within_s=0.1).payload == b"probe"
        except TimeoutError:
            continue
        return
    raise AssertionError(f"{topic} never arrived")


def test_a_subscription_is_told_to_the_site_and_by_the_centre_to_all_others(town: Town, sites: Sites, name: str) -> None:
    """Figure 2: the broker tells its hub, the centre tells the other hubs, which learn only that somebody wants it."""
    # D5, D6, D7, D15, T7
    n1, topic, client = EdgeRef("north", "n1"), f"{name}/road", f"{name}-car"
    with joined(town.edges["n1"], client, topic) as taker:
        here = sites.north.wait(lambda one: wants(one, n1, topic), "the site is told")
        assert (here.topic, here.key) == (SUBSCRIPTION_INFO, interest_key(n1, client, topic))
        there = sites.south.wait(lambda one: wants(one, EdgeRef("north", ALL), topic), "the other site is told")
        assert there.topic == SUBSCRIPTION_INFO
        assert client not in there.key
        claimed = sites.north.wait(lambda one: isinstance(one.value, Claim) and one.value.endpoint == client, "it is claimed")
        assert (claimed.topic, isinstance(claimed.value, Claim) and claimed.value.edge) == (VEHICLE_INFO, n1)
        taker.unsubscribe(topic)
        sites.north.wait(lambda one: (one.key, one.value) == (here.key, None), "the site hears that it is over")
        sites.south.wait(lambda one: (one.key, one.value) == (there.key, None), "the other site hears that it is over")


def test_a_message_goes_to_its_own_takers_and_through_the_centre_to_the_sites_that_want_it(
    town: Town, sites: Sites, name: str
) -> None:
    """Figure 3: at once to those who are here; wrapped whole to the hub, the centre, the hub that wants it, and its taker."""
    # M1, M2, D1, D2, D5, D6, D9
    topic = f"{name}/road"
    s1 = town.edges["s1"]
    with (
        joined(town.edges["n1"], f"{name}-taker", topic) as taker,
        joined(s1, f"{name}-local", topic) as local,
        joined(s1, f"{name}-publisher") as publisher,
    ):
        publish_until_heard(publisher, topic, taker)
        local.settle()
        publisher.publish(topic, b"ice", qos=1, props=[(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("lane", "2"))])
        for one in (local.message(), taker.message()):
            assert (one.topic, one.payload, one.qos, one.is_dup) == (topic, b"ice", 1, False)
            assert one.one(P.CONTENT_TYPE) == "text/plain"
            assert one.all(P.USER_PROPERTY) == [("lane", "2")]
        for watch in (sites.south, sites.north):
            said = [one for one in said_on(watch, topic) if one.message.body == b"ice"]
            assert [(one.sender, one.message.source) for one in said] == [(EdgeRef("south", "s1"), f"{name}-publisher")]
            assert {one.topic for one in watch.found if isinstance(one.value, ForwardedMessage)} == {CROSS_HUB}
        assert taker.settle() == []


def test_nothing_leaves_an_edge_that_nobody_elsewhere_wants(town: Town, sites: Sites, name: str) -> None:
    # M2, D9
    n2, s1 = town.edges["n2"], town.edges["s1"]
    wanted, local, in_site = f"{name}/wanted", f"{name}/local", f"{name}/site"
    with (
        joined(town.edges["n1"], f"{name}-taker", wanted, in_site) as taker,
        joined(n2, f"{name}-here", local) as here,
        joined(n2, f"{name}-publisher") as publisher,
        joined(s1, f"{name}-far", wanted) as far,
    ):
        publish_until_heard(publisher, wanted, far)
        taker.settle()
        for topic in (f"{name}/nobody", local, in_site, wanted):
            for qos in (1, 2):
                publisher.publish(topic, b"%d" % qos, qos=qos)
        assert [one.payload for one in far.messages(2)] == [b"1", b"2"]
        assert [one.topic for one in taker.messages(4)] == [in_site] * 2 + [wanted] * 2
        assert [one.topic for one in here.messages(2)] == [local] * 2
    for topic, in_north, in_south in ((f"{name}/nobody", 0, 0), (local, 0, 0), (in_site, 2, 0), (wanted, 2, 2)):
        for watch, count in ((sites.north, in_north), (sites.south, in_south)):
            assert len([one for one in said_on(watch, topic) if one.message.body != b"probe"]) == count, topic


def test_messages_of_all_qualities_that_are_written_at_once_arrive_in_their_order(town: Town, name: str) -> None:
    # D15
    topic = f"{name}/x"
    with (
        joined(town.edges["s1"], f"{name}-taker", topic) as taker,
        joined(town.edges["n1"], f"{name}-near", topic) as near,
        joined(town.edges["n2"], f"{name}-publisher") as publisher,
    ):
        publish_until_heard(publisher, topic, taker)
        publish_until_heard(publisher, topic, near)
        publisher.send(*(publish(topic, b"%d" % at, qos=at % 3, packet_id=at + 1 if at % 3 else 0) for at in range(30)))
        for one in (near, taker):
            taken: list[int] = []
            while len(taken) < 30:
                payload = one.message().payload
                taken += [int(payload)] if payload != b"probe" else []
            assert taken == list(range(30))


@pytest.mark.parametrize("level", [V4, V5])
@pytest.mark.parametrize("topic", ["$reserved/cross-hub", "$reserved/subscription-info", f"$reserved/subscription-north-{'n1'}"])
def test_ordinary_clients_may_neither_publish_nor_subscribe_below_reserved(
    town: Town, sites: Sites, name: str, level: int, topic: str
) -> None:
    # D4, D5
    with Raw(town.edges["n1"].tcp, level=level) as client:
        client.join(f"{name}-c")
        for each in (topic, "$reserved/#", "$reserved/+"):
            assert client.subscribe((each, 1)).codes == (NOT_AUTHORIZED if level == V5 else 0x80,)
        for qos in (0, 1, 2):
            if level == V5 and qos:
                answer = client.publish(topic, b"forged", qos=qos)
                assert answer is not None
                assert (answer.kind, answer.reason) == (Kind.PUBACK if qos == 1 else Kind.PUBREC, NOT_AUTHORIZED)
            elif not qos:
                client.publish(topic, b"forged")
        client.settle()
    assert not [one for one in sites.north.of(ForwardedMessage) if one.message.topic.startswith("$")]


def test_a_plain_wildcard_hears_nothing_of_what_is_reserved(town: Town, name: str) -> None:
    n1, n2 = town.edges["n1"], town.edges["n2"]
    with joined(n1, f"{name}-all", "#") as taker, joined(n2, f"{name}-publisher") as publisher:
        publish_until_heard(publisher, f"{name}/x", taker)
        assert not [one for one in taker.settle() if one.topic.startswith("$")]


def test_a_will_below_reserved_is_refused(town: Town, name: str) -> None:
    with Raw(town.edges["n1"].tcp) as client:
        try:
            answer = client.ask(f"{name}-c", will=Will("$reserved/cross-hub"))
        except Closed:
            return
        assert answer.reason == NOT_AUTHORIZED
