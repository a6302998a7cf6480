"""The flows of the paper, record by record: subscribing (figure 2), publishing (figure 3); access to reserved topics (D5).

subscriber ─▶ n1 ─▶ north's log ─▶ hub ─▶ south's log ─▶ s1         subscriptions
subscriber ◀─ n1 ◀─ north's log ◀─ hub ◀─ south's log ◀─ s1 ◀─ publisher

Each process subscribes to its own topics from the start (D6), subscriptions are announced to the other site (D7), and messages go
only to sites with a matching subscription (D9): through the log, read by every edge of a site, each of which matches for itself
(M1, M2, M14).
"""

from collections.abc import Iterator

import pytest

from live.federation.deployment import Deployment
from live.federation.records import Found, LogWatcher, filter_of
from live.mqtt.packets import V4, V5, Kind, P, Will, publish
from live.mqtt.raw_client import Closed, RawClient
from live.udp.edges import UdpEdge
from milepost.model.site_records import (
    ANY_EDGE,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    EndpointClaim,
    ForwardedMessage,
    Interest,
    interest_key,
)

NOT_AUTHORIZED = 0x87


class Sites:
    """All records of both sites during a test."""

    def __init__(self, deployment: Deployment) -> None:
        self.north, self.south = (LogWatcher(deployment.log(site)) for site in ("north", "south"))

    def close(self) -> None:
        self.north.close()
        self.south.close()


@pytest.fixture
def sites(deployment: Deployment) -> Iterator[Sites]:
    opened = Sites(deployment)
    yield opened
    opened.close()


def joined(edge: UdpEdge, client: str, *filters: str) -> RawClient:
    one = RawClient(edge.tcp)
    one.join(client, keep_alive=0)
    for each in filters:
        assert one.subscribe((each, 1)).codes == (1,)
    return one


def has_interest(one: Found, edge: EdgeRef, topic: str) -> bool:
    return isinstance(one.value, Interest) and one.value.edge == edge and filter_of(one.value.subscription) == topic


def messages_on(watch: LogWatcher, topic: str) -> list[ForwardedMessage]:
    return [message_record for message_record in watch.of(ForwardedMessage) if message_record.message.topic == topic]


def publish_until_received(publisher: RawClient, topic: str, subscriber: RawClient) -> None:
    """Publish until the publisher's edge knows the remote subscription."""
    for _ in range(200):
        publisher.publish(topic, b"probe", qos=1)
        try:
            assert subscriber.message(within_s=0.1).payload == b"probe"
        except TimeoutError:
            continue
        return
    raise AssertionError(f"{topic} never arrived")


def test_a_subscription_is_announced_to_its_site_and_by_the_hub_to_all_others(
    deployment: Deployment, sites: Sites, name: str
) -> None:
    """Figure 2: the edge announces to its site, the central hub to the other sites, without the name of the subscriber."""
    # D5, D6, D7, D15, T7
    n1, topic, client = EdgeRef("north", "n1"), f"{name}/road", f"{name}-car"
    with joined(deployment.edges["n1"], client, topic) as subscriber:
        here = sites.north.wait(lambda one: has_interest(one, n1, topic), "the subscription is announced at its site")
        assert (here.topic, here.key) == (SUBSCRIPTION_INFO, interest_key(n1, client, topic))
        there = sites.south.wait(
            lambda one: has_interest(one, EdgeRef("north", ANY_EDGE), topic), "the subscription is announced at the other site"
        )
        assert there.topic == SUBSCRIPTION_INFO
        assert client not in there.key
        claimed = sites.north.wait(
            lambda one: isinstance(one.value, EndpointClaim) and one.value.endpoint == client, "it is claimed"
        )
        assert (claimed.topic, isinstance(claimed.value, EndpointClaim) and claimed.value.edge) == (VEHICLE_INFO, n1)
        subscriber.unsubscribe(topic)
        sites.north.wait(lambda one: (one.key, one.value) == (here.key, None), "the subscription is withdrawn at its site")
        sites.south.wait(lambda one: (one.key, one.value) == (there.key, None), "the subscription is withdrawn at the other site")


def test_a_message_reaches_local_subscribers_and_through_the_hub_other_sites(
    deployment: Deployment, sites: Sites, name: str
) -> None:
    """Figure 3: at once to local subscribers; as one record to the site, the central hub, the other site, and its subscriber."""
    # M1, M2, D1, D2, D5, D6, D9
    topic = f"{name}/road"
    s1 = deployment.edges["s1"]
    with (
        joined(deployment.edges["n1"], f"{name}-subscriber", topic) as subscriber,
        joined(s1, f"{name}-local", topic) as local,
        joined(s1, f"{name}-publisher") as publisher,
    ):
        publish_until_received(publisher, topic, subscriber)
        local.drain()
        publisher.publish(topic, b"ice", qos=1, props=[(P.CONTENT_TYPE, "text/plain"), (P.USER_PROPERTY, ("lane", "2"))])
        for one in (local.message(), subscriber.message()):
            assert (one.topic, one.payload, one.qos, one.is_dup) == (topic, b"ice", 1, False)
            assert one.one(P.CONTENT_TYPE) == "text/plain"
            assert one.all(P.USER_PROPERTY) == [("lane", "2")]
        for watch in (sites.south, sites.north):
            message_record = [one for one in messages_on(watch, topic) if one.message.body == b"ice"]
            assert [(one.sender, one.message.source) for one in message_record] == [(EdgeRef("south", "s1"), f"{name}-publisher")]
            assert {one.topic for one in watch.found if isinstance(one.value, ForwardedMessage)} == {CROSS_HUB}
        assert subscriber.drain() == []


def test_messages_without_remote_subscribers_do_not_leave_their_edge(deployment: Deployment, sites: Sites, name: str) -> None:
    # M2, D9
    n2, s1 = deployment.edges["n2"], deployment.edges["s1"]
    wanted, local, in_site = f"{name}/wanted", f"{name}/local", f"{name}/site"
    with (
        joined(deployment.edges["n1"], f"{name}-subscriber", wanted, in_site) as subscriber,
        joined(n2, f"{name}-here", local) as here,
        joined(n2, f"{name}-publisher") as publisher,
        joined(s1, f"{name}-far", wanted) as far,
    ):
        publish_until_received(publisher, wanted, far)
        subscriber.drain()
        for topic in (f"{name}/nobody", local, in_site, wanted):
            for qos in (1, 2):
                publisher.publish(topic, b"%d" % qos, qos=qos)
        assert [one.payload for one in far.messages(2)] == [b"1", b"2"]
        assert [one.topic for one in subscriber.messages(4)] == [in_site] * 2 + [wanted] * 2
        assert [one.topic for one in here.messages(2)] == [local] * 2
    for topic, in_north, in_south in ((f"{name}/nobody", 0, 0), (local, 0, 0), (in_site, 2, 0), (wanted, 2, 2)):
        for watch, count in ((sites.north, in_north), (sites.south, in_south)):
            assert len([one for one in messages_on(watch, topic) if one.message.body != b"probe"]) == count, topic


def test_messages_of_all_qos_written_at_once_arrive_in_order(deployment: Deployment, name: str) -> None:
    # D15
    topic = f"{name}/x"
    with (
        joined(deployment.edges["s1"], f"{name}-subscriber", topic) as subscriber,
        joined(deployment.edges["n1"], f"{name}-near", topic) as near,
        joined(deployment.edges["n2"], f"{name}-publisher") as publisher,
    ):
        publish_until_received(publisher, topic, subscriber)
        publish_until_received(publisher, topic, near)
        publisher.send(*(publish(topic, b"%d" % at, qos=at % 3, packet_id=at + 1 if at % 3 else 0) for at in range(30)))
        for one in (near, subscriber):
            taken: list[int] = []
            while len(taken) < 30:
                payload = one.message().payload
                taken += [int(payload)] if payload != b"probe" else []
            assert taken == list(range(30))


@pytest.mark.parametrize("level", [V4, V5])
@pytest.mark.parametrize("topic", ["$reserved/cross-hub", "$reserved/subscription-info", f"$reserved/subscription-north-{'n1'}"])
def test_ordinary_clients_may_neither_publish_nor_subscribe_below_reserved(
    deployment: Deployment, sites: Sites, name: str, level: int, topic: str
) -> None:
    # D4, D5
    with RawClient(deployment.edges["n1"].tcp, level=level) as client:
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
        client.drain()
    assert not [one for one in sites.north.of(ForwardedMessage) if one.message.topic.startswith("$")]


def test_a_wildcard_subscription_receives_no_reserved_topics(deployment: Deployment, name: str) -> None:
    n1, n2 = deployment.edges["n1"], deployment.edges["n2"]
    with joined(n1, f"{name}-all", "#") as subscriber, joined(n2, f"{name}-publisher") as publisher:
        publish_until_received(publisher, f"{name}/x", subscriber)
        assert not [one for one in subscriber.drain() if one.topic.startswith("$")]


def test_a_will_below_reserved_is_refused(deployment: Deployment, name: str) -> None:
    with RawClient(deployment.edges["n1"].tcp) as client:
        try:
            answer = client.try_join(f"{name}-c", will=Will("$reserved/cross-hub"))
        except Closed:
            return
        assert answer.reason == NOT_AUTHORIZED
