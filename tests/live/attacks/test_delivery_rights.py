"""Attack: a message on a topic that its receiver may not read, sent by address: nobody reads what the rules deny to them."""

import json
import time
from base64 import b64encode
from pathlib import Path

import pytest

from live.attacks.edge_rules import MAY_ADDRESS, rule
from live.federation.deployment import deployment_in
from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import P, Properties
from live.mqtt.raw_client import RawClient

WAIT_S = 30.0
HERE, AREA = "48.1,11.6", "area:circle 48.1,11.6 1000"


def user(**values: str) -> Properties:
    return [(P.USER_PROPERTY, (f"milepost-{name.replace('_', '-')}", value)) for name, value in values.items()]


def payloads(client: RawClient) -> list[bytes]:
    return [one.payload for one in client.drain()]


def message_of(topic: str, address: object) -> dict[str, object]:
    return {"topic": topic, "body": b64encode(topic.encode()).decode(), "address": address}


@pytest.fixture
def attack(make_broker: MakeBroker, connect_to: ConnectTo, name: str) -> Connections:
    """Return connections to an edge that denies the topic `secret` to the client `spy`."""
    return connect_to(make_broker(more=MAY_ADDRESS + rule("secret/#", client=f"{name}spy")))


@pytest.mark.parametrize("to", [AREA, "endpoint:spy", "everyone"])
def test_an_addressed_message_does_not_reach_a_client_that_may_not_read_its_topic(attack: Connections, to: str) -> None:
    spy, reader, sender = (attack.join(one, props=user(report=HERE)) for one in ("spy", "reader", "sender"))
    to = to.replace("spy", attack.client_id("spy"))
    for topic in ("secret/plan", "open"):
        answer = sender.publish(topic, topic.encode(), qos=1, props=user(to=to, place=HERE))
        assert answer is not None
        assert answer.reason < 0x80
    assert payloads(spy) == [b"open"]
    assert payloads(reader) == ([] if "endpoint" in to else [b"secret/plan", b"open"])


def test_a_json_message_to_an_endpoint_does_not_reach_it_either(attack: Connections) -> None:
    spy, sender = attack.join("spy"), attack.join("sender")
    for topic in ("secret/plan", "open"):
        address = {"to": "endpoint", "endpoint": attack.client_id("spy")}
        sender.publish("$milepost/publish", json.dumps(message_of(topic, address)).encode(), qos=1)
    assert payloads(spy) == [b"open"]


def test_a_retained_message_does_not_reach_a_wildcard_subscriber_that_may_not_read_it(attack: Connections) -> None:
    spy, reader, sender = (attack.join(one) for one in ("spy", "reader", "sender"))
    for topic in ("secret/plan", "open"):
        sender.publish(topic, topic.encode(), qos=1, retain=True)
    for client in (spy, reader):
        client.subscribe(("#", 0))
    assert payloads(spy) == [b"open"]
    assert sorted(payloads(reader)) == [b"open", b"secret/plan"]


def test_an_active_alert_is_not_delivered_on_entry_to_a_client_that_may_not_read_it(attack: Connections) -> None:
    sender = attack.join("sender", props=user(report=HERE))
    until = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() + 600))
    for topic in ("secret/plan", "open"):
        address = user(to=AREA, incident=f"of-{topic}", place=HERE, valid_until=until)
        sender.publish(topic, topic.encode(), qos=1, props=address)
    spy, reader = (attack.join(one, props=user(report=HERE)) for one in ("spy", "reader"))
    assert sorted(one.payload for one in reader.messages(2)) == [b"open", b"secret/plan"]
    assert spy.message().payload == b"open"
    assert payloads(spy) == []


def test_a_message_from_another_edge_does_not_reach_a_client_that_may_not_read_it(tmp_path: Path) -> None:
    with deployment_in(tmp_path) as deployment:
        deployment.add_site("north")
        near, far = (
            deployment.add_edge("north", edge, more=MAY_ADDRESS + rule("secret/#", client="spy")) for edge in ("n1", "n2")
        )
        with RawClient(near.tcp) as sender, RawClient(far.tcp) as spy, RawClient(far.tcp) as reader:
            sender.join("sender", props=user(report=HERE))
            for client, client_id in ((spy, "spy"), (reader, "reader")):
                client.join(client_id, props=user(report=HERE))
                assert client.subscribe(("#", 1)).codes == (1,)
            found: set[bytes] = set()
            until = time.monotonic() + WAIT_S
            while not found.issuperset({b"secret", b"secret to everyone", b"open"}):  # until n1 knows the subscriptions at n2
                assert time.monotonic() < until, found
                sender.publish("secret/plan", b"secret", qos=1)
                sender.publish("secret/plan", b"secret to everyone", qos=1, props=user(to="everyone", place=HERE))
                sender.publish("open", b"open", qos=1)
                found |= set(received(reader))
            assert set(received(spy)) == {b"open"}
        assert deployment.faults() == []


def received(client: RawClient) -> list[bytes]:
    """Return the payloads received, and acknowledge them."""
    found = client.drain()
    for message in found:
        client.finish(message)
    return [one.payload for one in found]
