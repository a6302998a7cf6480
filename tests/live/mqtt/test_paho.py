"""Foreign clients: paho-mqtt for Python, 3.1.1 and 5."""

import time
from typing import Any

import pytest
from paho.mqtt.packettypes import PacketTypes
from paho.mqtt.subscribeoptions import SubscribeOptions

from live.mqtt.brokers import Broker, deviates
from live.mqtt.packets import V4, V5
from live.mqtt.paho_client import Paho, paho, props, value

BOTH = pytest.mark.parametrize("level", [V4, V5])


@BOTH
@pytest.mark.parametrize("qos", [0, 1, 2])
def test_messages_pass_with_their_qos(broker: Broker, name: str, level: int, qos: int) -> None:
    with paho(broker.tcp, f"{name}t", level) as subscriber, paho(broker.tcp, f"{name}p", level) as publisher:
        assert subscriber.subscribe(f"{name}/#", 2) == [2]
        for number in range(100):
            publisher.publish(f"{name}/x", str(number), qos)
        found = [subscriber.message() for _ in range(100)]
    assert [int(one.payload) for one in found] == list(range(100))
    assert {one.qos for one in found} == {qos}


@BOTH
def test_retained_messages_are_marked(broker: Broker, name: str, level: int) -> None:
    with paho(broker.tcp, f"{name}p", level) as publisher, paho(broker.tcp, f"{name}t", level) as subscriber:
        publisher.publish(name, "kept", 1, retain=True)
        subscriber.subscribe(name, 1)
        first = subscriber.message()
        publisher.publish(name, "live", 1)
        second = subscriber.message()
    assert (first.payload, first.retain, second.payload, second.retain) == (b"kept", True, b"live", False)


@BOTH
@pytest.mark.parametrize("qos", [1, 2])
def test_a_session_is_resumed_with_its_queued_messages(broker: Broker, name: str, level: int, qos: int) -> None:
    with paho(broker.tcp, f"{name}t", level, clean=False, session_s=300) as subscriber:
        subscriber.subscribe(name, 2)
    with paho(broker.tcp, f"{name}p", level) as publisher:
        for number in range(30):
            publisher.publish(name, str(number), qos)
    back = Paho(f"{name}t", level, clean=False, session_s=300)
    session_present, _ = back.connect(broker.tcp)
    assert session_present
    assert [int(payload) for payload in back.payloads(30)] == list(range(30))
    back.leave()


def test_an_expired_session_is_not_present(broker: Broker, name: str) -> None:
    """Session Expiry Interval 0 at the end of the connection."""
    with paho(broker.tcp, f"{name}t", V5, clean=False, session_s=0) as subscriber:
        subscriber.subscribe(name, 1)
    back = Paho(f"{name}t", V5, clean=False)
    session_present, _ = back.connect(broker.tcp)
    back.leave()
    assert not session_present


def test_properties_of_a_message_arrive_as_they_were_set(broker: Broker, name: str) -> None:
    pairs = [("a", "1"), ("b", "2"), ("a", "3")]
    sent: dict[str, Any] = {
        "ContentType": "text/plain",
        "ResponseTopic": "answers",
        "CorrelationData": b"\x00\x01",
        "PayloadFormatIndicator": 1,
    }
    with paho(broker.tcp, f"{name}t", V5) as subscriber, paho(broker.tcp, f"{name}p", V5) as publisher:
        subscriber.subscribe(name, 1)
        publisher.publish(name, "x", 1, **sent, UserProperty=pairs, MessageExpiryInterval=60)
        found = subscriber.message()
    assert {key: value(found, key) for key in sent} == sent
    assert value(found, "UserProperty") == pairs
    assert value(found, "MessageExpiryInterval") in (59, 60)


def test_a_request_is_answered_on_the_response_topic_with_the_correlation_data(broker: Broker, name: str) -> None:
    """4.10"""
    with paho(broker.tcp, f"{name}s", V5) as service, paho(broker.tcp, f"{name}c", V5) as client:
        service.subscribe(f"{name}/ask", 1)
        client.subscribe(f"{name}/answer/{name}c", 1)
        client.publish(f"{name}/ask", "6 * 7", 1, ResponseTopic=f"{name}/answer/{name}c", CorrelationData=b"one")
        request = service.message()
        service.publish(value(request, "ResponseTopic"), "42", 1, CorrelationData=value(request, "CorrelationData"))
        answer = client.message()
    assert (answer.payload, value(answer, "CorrelationData")) == (b"42", b"one")


def test_topic_aliases_are_understood(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}t", V5) as subscriber, paho(broker.tcp, f"{name}p", V5) as publisher:
        subscriber.subscribe(f"{name}/#", 1)
        publisher.publish(f"{name}/long/topic", "named", 1, TopicAlias=1)
        publisher.publish("", "short", 1, TopicAlias=1)
        assert [(one.topic, one.payload) for one in (subscriber.message(), subscriber.message())] == [
            (f"{name}/long/topic", b"named"),
            (f"{name}/long/topic", b"short"),
        ]


def test_subscription_identifiers_say_which_subscription_matched(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}t", V5) as subscriber, paho(broker.tcp, f"{name}p", V5) as publisher:
        subscriber.subscribe(f"{name}/a", 1, number=11)
        subscriber.subscribe(f"{name}/b", 1, number=12)
        publisher.publish(f"{name}/b", "x", 1)
        publisher.publish(f"{name}/a", "x", 1)
        found = [subscriber.message() for _ in range(2)]
    assert [value(one, "SubscriptionIdentifier") for one in found] == [[12], [11]]


def test_a_shared_subscription_delivers_each_message_to_one_client(broker: Broker, name: str) -> None:
    with (
        paho(broker.tcp, f"{name}1", V5) as one,
        paho(broker.tcp, f"{name}2", V5) as other,
        paho(broker.tcp, f"{name}p", V5) as publisher,
    ):
        one.inbox = other.inbox
        for member in (one, other):
            member.subscribe(f"$share/g/{name}", 1)
        for number in range(40):
            publisher.publish(name, str(number), 1)
        assert sorted(int(payload) for payload in one.payloads(40)) == list(range(40))


def test_a_message_expires_before_the_client_reconnects(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}t", V5, clean=False, session_s=300) as subscriber:
        subscriber.subscribe(name, 1)
    watcher = Paho(f"{name}w", V5)
    watcher.connect(broker.tcp)
    watcher.subscribe(f"{name}/clock")
    with paho(broker.tcp, f"{name}p", V5) as publisher:
        publisher.publish(name, "short", 1, MessageExpiryInterval=1)
        publisher.publish(name, "long", 1, MessageExpiryInterval=1000)
    leave_delayed_will(broker, name)
    assert watcher.message().payload == b"tick"
    watcher.leave()
    with paho(broker.tcp, f"{name}t", V5, clean=False, session_s=300) as back:
        assert back.message().payload == b"long"


def leave_delayed_will(broker: Broker, name: str, delay_s: int = 2) -> None:
    """Leave a delayed will behind: a timer that the broker itself runs."""
    client = Paho(f"{name}ticks", V5, session_s=300)
    client.client.will_set(f"{name}/clock", "tick", properties=props(PacketTypes.WILLMESSAGE, WillDelayInterval=delay_s))
    client.connect(broker.tcp)
    client.vanish()


def test_a_delayed_will_is_published_after_its_delay(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}w", V5) as watcher:
        watcher.subscribe(f"{name}/clock")
        vanished_at = time.monotonic()
        leave_delayed_will(broker, name, 1)
        assert watcher.message().payload == b"tick"
        assert time.monotonic() - vanished_at > 0.9


def test_a_small_receive_maximum_slows_delivery_and_loses_nothing(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}t", V5, ReceiveMaximum=1) as subscriber, paho(broker.tcp, f"{name}p", V5) as publisher:
        subscriber.subscribe(name, 2)
        for number in range(50):
            publisher.publish(name, str(number), 2)
        assert [int(payload) for payload in subscriber.payloads(50)] == list(range(50))


def test_the_client_respects_the_receive_maximum_of_the_broker(broker: Broker, name: str) -> None:
    """A burst of hundreds, far above the receive maximum in CONNACK."""
    with paho(broker.tcp, f"{name}t", V5) as subscriber, paho(broker.tcp, f"{name}p", V5) as publisher:
        subscriber.subscribe(name, 1)
        infos = [publisher.client.publish(name, str(number), 2) for number in range(300)]
        for info in infos:
            info.wait_for_publish(10)
        assert [int(payload) for payload in subscriber.payloads(300)] == list(range(300))


@pytest.mark.parametrize(("handling", "expected"), [(0, [b"kept", b"kept"]), (1, [b"kept"]), (2, [])])
def test_retain_handling_is_obeyed(broker: Broker, name: str, handling: int, expected: list[bytes]) -> None:
    with paho(broker.tcp, f"{name}p", V5) as publisher, paho(broker.tcp, f"{name}t", V5) as subscriber:
        publisher.publish(name, "kept", 1, retain=True)
        for _ in range(2):
            subscriber.subscribe(name, options=SubscribeOptions(qos=1, retainHandling=handling))
        publisher.publish(name, "live", 1)
        assert subscriber.payloads(len(expected) + 1) == [*expected, b"live"]


def test_no_local_and_retain_as_published_are_obeyed(broker: Broker, name: str) -> None:
    with paho(broker.tcp, f"{name}a", V5) as one, paho(broker.tcp, f"{name}b", V5) as other:
        for client in (one, other):
            client.subscribe(name, options=SubscribeOptions(qos=1, noLocal=True, retainAsPublished=True))
        one.publish(name, "from one", 1, retain=True)
        other.publish(name, "from other", 1)
        found = [one.message(), other.message()]
        assert [(message.payload, message.retain) for message in found] == [(b"from other", False), (b"from one", True)]
        assert one.inbox.empty()


@deviates("does not tell the old client why it is closed")
def test_a_client_whose_session_is_taken_over_receives_the_reason(broker: Broker, name: str) -> None:
    old = Paho(name, V5)
    old.connect(broker.tcp)
    with paho(broker.tcp, name, V5):
        reason = old.disconnected.get(timeout=5)
        old.client.loop_stop()
        assert reason.value == 0x8E
