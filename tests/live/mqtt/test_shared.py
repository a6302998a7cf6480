"""MQTT 5, 4.8.2 shared subscriptions: each message goes to one member of the group."""

from collections import Counter

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.connections import Connections
from live.mqtt.packets import V4, V5, Kind, P, subscribe
from live.mqtt.raw_client import RawClient

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID = 0x81, 0x82, 0x8F
LASTING = [(P.SESSION_EXPIRY, 300)]
NO_LOCAL = 0x04
TAKEN = deviates("takes it")


def group_of(connections: Connections, size: int, qos: int = 1, share: str = "g") -> list[RawClient]:
    found = [connections.join(f"{share}{number}") for number in range(size)]
    for one in found:
        assert one.subscribe((f"$share/{share}/{connections.name}/#", qos)).codes == (qos,)
    return found


def publish_many(connections: Connections, count: int, qos: int = 1) -> list[bytes]:
    publisher = connections.join("p")
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        publisher.publish(f"{connections.name}/x", payload, qos=qos)
    publisher.drain()
    return payloads


def drained(client: RawClient) -> list[bytes]:
    """Return all messages of a client, acknowledged, until no more arrive."""
    found: list[bytes] = []
    while batch := [one for one in client.drain() if one.kind == Kind.PUBLISH]:
        for one in batch:
            found.append(one.payload)
            client.finish(one)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_of_the_group(connections: Connections, qos: int) -> None:
    """4.8.2: no duplicates, no losses, and every member gets a share."""
    group = group_of(connections, 3, qos)
    sent = publish_many(connections, 60, qos)
    shares = [drained(one) for one in group]
    assert Counter(payload for share in shares for payload in share) == Counter(sent)
    assert all(shares)


def test_messages_reach_one_member_in_the_order_they_were_sent(connections: Connections) -> None:
    """4.6: an Ordered Topic for each member's share."""
    group = group_of(connections, 2)
    publish_many(connections, 40)
    for one in group:
        numbers = [int(payload) for payload in drained(one)]
        assert numbers == sorted(numbers)


def test_groups_and_ordinary_subscribers_each_get_every_message(connections: Connections) -> None:
    first, second = group_of(connections, 2, share="g"), group_of(connections, 2, share="h")
    alone = connections.join("t")
    alone.subscribe((f"{connections.name}/#", 1))
    sent = publish_many(connections, 20)
    for members in (first, second, [alone]):
        assert Counter(payload for one in members for payload in drained(one)) == Counter(sent)


def test_a_member_that_unsubscribes_receives_no_more_messages(connections: Connections) -> None:
    """[MQTT-3.10.4-1]; 3.11.3: whether there was a subscription."""
    stays, goes = group_of(connections, 2)
    assert goes.unsubscribe(f"$share/g/{connections.name}/#", f"$share/other/{connections.name}/#").codes == (0, 0x11)
    sent = publish_many(connections, 10)
    assert drained(stays) == sent
    assert drained(goes) == []


def test_a_member_that_disconnects_leaves_its_share_to_the_others(connections: Connections) -> None:
    stays, goes = group_of(connections, 2)
    goes.drop()
    sent = publish_many(connections, 10)
    assert drained(stays) == sent


def test_unacknowledged_messages_of_an_ended_session_are_not_duplicated_in_the_group(connections: Connections) -> None:
    """[MQTT-4.8.2-4]: QoS 2 stays with the member; [MQTT-4.8.2-5]: QoS 1 may move when its session ends. Neither is doubled."""
    group = group_of(connections, 2)
    sent = publish_many(connections, 10)
    kept = drained(group[0])
    unfinished = [one.payload for one in group[1].drain()]
    assert Counter(kept + unfinished) == Counter(sent)
    group[1].drop()
    assert set(drained(group[0])) <= set(unfinished)


def test_a_disconnected_durable_member_loses_nothing_if_it_is_the_only_one(connections: Connections) -> None:
    first = connections.join("g", props=LASTING)
    first.subscribe((f"$share/g/{connections.name}/#", 1))
    first.leave()
    sent = publish_many(connections, 10)
    assert drained(connections.join("g", clean=False, props=LASTING)) == sent


@deviates("sends them")
def test_shared_subscriptions_receive_no_retained_messages(connections: Connections) -> None:
    """4.8.2: none at the time of subscribing."""
    connections.join("p").publish(f"{connections.name}/x", b"kept", qos=1, retain=True)
    (member,) = group_of(connections, 1)
    assert drained(member) == []


def test_a_shared_subscription_carries_its_identifier(connections: Connections) -> None:
    """[MQTT-3.3.4-3]"""
    member = connections.join("g")
    member.subscribe((f"$share/g/{connections.name}/#", 1), props=[(P.SUBSCRIPTION_ID, 77)])
    publish_many(connections, 1)
    assert member.message().one(P.SUBSCRIPTION_ID) == 77


def test_a_client_with_a_shared_and_an_ordinary_subscription_receives_both_copies(connections: Connections) -> None:
    """4.8.2: they are two subscriptions."""
    member = connections.join("g")
    member.subscribe((f"$share/g/{connections.name}/#", 1), (f"{connections.name}/#", 1))
    publish_many(connections, 1)
    assert drained(member) == [b"0", b"0"]


@deviates("takes it")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(connections: Connections) -> None:
    """[MQTT-3.8.3-4]"""
    client = connections.join("a")
    client.send(subscribe(1, ("$share/g/x", NO_LOCAL)))
    assert client.close_reason() == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "wrong",
    ["$share/g+/x", "$share/#/x", *(pytest.param(one, marks=TAKEN) for one in ("$share//x", "$share/g", "$share/g/", "$share/"))],
)
def test_a_malformed_shared_filter_is_refused(connections: Connections, wrong: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]: a name of at least one character without wildcards, then a filter."""
    client = connections.join("a")
    client.send(subscribe(1, (wrong, 0)))
    found = client.receive()
    answer = found.codes[0] if found.kind == Kind.SUBACK else found.reason
    assert answer in (MALFORMED, PROTOCOL_ERROR, FILTER_INVALID)


def test_clients_of_3_1_1_may_use_shared_subscriptions(connections: Connections) -> None:
    """Not in 3.1.1, but no broker of both versions denies it, and groups mix."""
    old, new = connections.join("g1", V4), connections.join("g2", V5)
    for one in (old, new):
        one.subscribe((f"$share/g/{connections.name}/#", 1))
    sent = publish_many(connections, 20)
    assert Counter([*drained(old), *drained(new)]) == Counter(sent)


def test_the_broker_does_not_wait_for_a_member_whose_receive_maximum_is_full(connections: Connections) -> None:
    """4.8.2: the server chooses the member; nothing is lost while one of them is slow."""
    slow = connections.join("g1", props=[(P.RECEIVE_MAXIMUM, 1)])
    quick = connections.join("g2")
    for one in (slow, quick):
        one.subscribe((f"$share/g/{connections.name}/#", 1))
    sent = publish_many(connections, 20)
    assert Counter([*drained(quick), *drained(slow)]) == Counter(sent)


def test_publishing_to_a_share_name_does_not_reach_the_group(connections: Connections) -> None:
    """4.8.2: $share begins a filter, not a topic."""
    (member,) = group_of(connections, 1)
    publisher = connections.join("p")
    publisher.publish(f"$share/g/{connections.name}/x", b"odd")
    publisher.is_open()
    assert drained(member) == []
