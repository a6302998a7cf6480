"""MQTT 5, 4.8.2 shared subscriptions: each message to one of the group."""

from collections import Counter

import pytest

from live.mqtt.brokers import deviates
from live.mqtt.packets import V4, V5, Kind, P, subscribe
from live.mqtt.raw import Raw
from live.mqtt.visitors import Visitors

MALFORMED, PROTOCOL_ERROR, FILTER_INVALID = 0x81, 0x82, 0x8F
LASTING = [(P.SESSION_EXPIRY, 300)]
NO_LOCAL = 0x04
TAKEN = deviates("takes it")


def group_of(visitors: Visitors, size: int, qos: int = 1, share: str = "g") -> list[Raw]:
    found = [visitors.join(f"{share}{number}") for number in range(size)]
    for one in found:
        assert one.subscribe((f"$share/{share}/{visitors.name}/#", qos)).codes == (qos,)
    return found


def publish_many(visitors: Visitors, count: int, qos: int = 1) -> list[bytes]:
    publisher = visitors.join("p")
    payloads = [b"%d" % number for number in range(count)]
    for payload in payloads:
        publisher.publish(f"{visitors.name}/x", payload, qos=qos)
    publisher.settle()
    return payloads


def drained(client: Raw) -> list[bytes]:
    """Everything that comes to a client, acknowledged, until nothing comes any more."""
    found: list[bytes] = []
    while batch := [one for one in client.settle() if one.kind == Kind.PUBLISH]:
        for one in batch:
            found.append(one.payload)
            client.finish(one)
    return found


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_each_message_goes_to_one_of_the_group(visitors: Visitors, qos: int) -> None:
    """4.8.2: none twice, none lost, and everybody gets a share."""
    group = group_of(visitors, 3, qos)
    sent = publish_many(visitors, 60, qos)
    shares = [drained(one) for one in group]
    assert Counter(payload for share in shares for payload in share) == Counter(sent)
    assert all(shares)


def test_messages_reach_one_member_in_the_order_they_were_sent(visitors: Visitors) -> None:
    """4.6: an Ordered Topic for each member's share."""
    group = group_of(visitors, 2)
    publish_many(visitors, 40)
    for one in group:
        numbers = [int(payload) for payload in drained(one)]
        assert numbers == sorted(numbers)


def test_groups_and_ordinary_subscribers_each_get_every_message(visitors: Visitors) -> None:
    first, second = group_of(visitors, 2, share="g"), group_of(visitors, 2, share="h")
    alone = visitors.join("t")
    alone.subscribe((f"{visitors.name}/#", 1))
    sent = publish_many(visitors, 20)
    for members in (first, second, [alone]):
        assert Counter(payload for one in members for payload in drained(one)) == Counter(sent)


def test_a_member_that_unsubscribes_gets_no_more(visitors: Visitors) -> None:
    """[MQTT-3.10.4-1]; 3.11.3 says whether there was a subscription."""
    stays, goes = group_of(visitors, 2)
    assert goes.unsubscribe(f"$share/g/{visitors.name}/#", f"$share/other/{visitors.name}/#").codes == (0, 0x11)
    sent = publish_many(visitors, 10)
    assert drained(stays) == sent
    assert drained(goes) == []


def test_a_member_that_goes_away_leaves_its_share_to_the_others(visitors: Visitors) -> None:
    stays, goes = group_of(visitors, 2)
    goes.drop()
    sent = publish_many(visitors, 10)
    assert drained(stays) == sent


def test_what_a_departed_session_had_not_acknowledged_goes_to_another_member_or_stays(visitors: Visitors) -> None:
    """[MQTT-4.8.2-4]: QoS 2 stays with the member; [MQTT-4.8.2-5]: QoS 1 may move when its session ends. Neither is doubled."""
    group = group_of(visitors, 2)
    sent = publish_many(visitors, 10)
    kept = drained(group[0])
    unfinished = [one.payload for one in group[1].settle()]
    assert Counter(kept + unfinished) == Counter(sent)
    group[1].drop()
    assert set(drained(group[0])) <= set(unfinished)


def test_a_lasting_member_that_is_away_loses_nothing_if_it_is_the_only_one(visitors: Visitors) -> None:
    first = visitors.join("g", props=LASTING)
    first.subscribe((f"$share/g/{visitors.name}/#", 1))
    first.leave()
    sent = publish_many(visitors, 10)
    assert drained(visitors.join("g", clean=False, props=LASTING)) == sent


@deviates("sends them")
def test_shared_subscriptions_bring_no_retained_messages(visitors: Visitors) -> None:
    """4.8.2: none at the time of subscribing."""
    visitors.join("p").publish(f"{visitors.name}/x", b"kept", qos=1, retain=True)
    (member,) = group_of(visitors, 1)
    assert drained(member) == []


def test_a_shared_subscription_tells_its_identifier(visitors: Visitors) -> None:
    """[MQTT-3.3.4-3]"""
    member = visitors.join("g")
    member.subscribe((f"$share/g/{visitors.name}/#", 1), props=[(P.SUBSCRIPTION_ID, 77)])
    publish_many(visitors, 1)
    assert member.message().one(P.SUBSCRIPTION_ID) == 77


def test_a_client_with_a_shared_and_an_ordinary_subscription_gets_both(visitors: Visitors) -> None:
    """4.8.2: they are two subscriptions."""
    member = visitors.join("g")
    member.subscribe((f"$share/g/{visitors.name}/#", 1), (f"{visitors.name}/#", 1))
    publish_many(visitors, 1)
    assert drained(member) == [b"0", b"0"]


@deviates("takes it")
def test_no_local_on_a_shared_subscription_is_a_protocol_error(visitors: Visitors) -> None:
    """[MQTT-3.8.3-4]"""
    client = visitors.join("a")
    client.send(subscribe(1, ("$share/g/x", NO_LOCAL)))
    assert client.last_words() == PROTOCOL_ERROR


@pytest.mark.parametrize(
    "wrong",
    ["$share/g+/x", "$share/#/x", *(pytest.param(one, marks=TAKEN) for one in ("$share//x", "$share/g", "$share/g/", "$share/"))],
)
def test_a_malformed_shared_filter_is_not_granted(visitors: Visitors, wrong: str) -> None:
    """[MQTT-4.8.2-1], [MQTT-4.8.2-2]: a name of at least one character without wildcards, then a filter."""
    client = visitors.join("a")
    client.send(subscribe(1, (wrong, 0)))
    found = client.receive()
    answer = found.codes[0] if found.kind == Kind.SUBACK else found.reason
    assert answer in (MALFORMED, PROTOCOL_ERROR, FILTER_INVALID)


def test_clients_of_3_1_1_may_share_too(visitors: Visitors) -> None:
    """Not in 3.1.1, but no broker of both versions denies it, and groups mix."""
    old, new = visitors.join("g1", V4), visitors.join("g2", V5)
    for one in (old, new):
        one.subscribe((f"$share/g/{visitors.name}/#", 1))
    sent = publish_many(visitors, 20)
    assert Counter([*drained(old), *drained(new)]) == Counter(sent)


def test_the_broker_does_not_wait_for_a_member_whose_receive_maximum_is_full(visitors: Visitors) -> None:
    """4.8.2: how a member is chosen is the server's affair; nothing is lost while one of them is slow."""
    slow = visitors.join("g1", props=[(P.RECEIVE_MAXIMUM, 1)])
    quick = visitors.join("g2")
    for one in (slow, quick):
        one.subscribe((f"$share/g/{visitors.name}/#", 1))
    sent = publish_many(visitors, 20)
    assert Counter([*drained(quick), *drained(slow)]) == Counter(sent)


def test_publishing_to_a_shared_name_is_no_way_into_the_group(visitors: Visitors) -> None:
    """4.8.2: $share begins a filter, not a topic."""
    (member,) = group_of(visitors, 1)
    publisher = visitors.join("p")
    publisher.publish(f"$share/g/{visitors.name}/x", b"odd")
    publisher.is_open()
    assert drained(member) == []
