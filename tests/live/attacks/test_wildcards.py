"""Attack: a wildcard subscription that covers a denied topic: it is served in part; one that is wholly denied is refused."""

import pytest

from live.attacks.edge_rules import rule
from live.mqtt.connections import ConnectTo, MakeBroker
from live.mqtt.packets import V4, V5
from live.mqtt.paho_client import paho

NOT_AUTHORIZED = 0x87


@pytest.mark.parametrize("level", [V4, V5])
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_one_denied_topic_is_filtered_from_a_wildcard_subscription(
    make_broker: MakeBroker, connect_to: ConnectTo, level: int, qos: int
) -> None:
    connections = connect_to(make_broker(more=rule("secret/#")))
    spy, sender = connections.join("spy", level), connections.join("sender", level)
    assert spy.subscribe(("#", qos), ("+/plan", qos)).codes == (qos, qos)
    for topic in ("secret/plan", "open/plan", "secret", "open"):
        sender.publish(topic, topic.encode(), qos=qos)
    assert [spy.message().payload for _ in range(2)] == [b"open/plan", b"open"]
    assert spy.drain() == []


def test_a_subscription_that_can_match_nothing_allowed_is_refused(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    connections = connect_to(make_broker(more=rule("secret/open", allow=True) + rule("secret/#")))
    client = connections.join("spy")
    refused = client.subscribe(("secret/plan", 0), ("secret/plan/#", 0), ("$share/g/secret/plan", 0), ("secret/+", 0))
    assert refused.codes == (NOT_AUTHORIZED, NOT_AUTHORIZED, NOT_AUTHORIZED, 0), "secret/+ matches secret/open"


def test_a_client_library_gets_all_but_the_denied_topics(make_broker: MakeBroker) -> None:
    broker = make_broker(more=rule("secret/#"))
    with paho(broker.tcp, "spy", V5) as spy, paho(broker.tcp, "sender", V5) as sender:
        assert spy.subscribe("#", 1) == [1]
        for topic in ("secret/plan", "open"):
            sender.publish(topic, topic, 1)
        assert spy.payloads(1) == [b"open"]
