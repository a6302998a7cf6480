"""MQTT 5, 3.1.2.11 and 3.2.2.3: limits both ways, Receive Maximum, Maximum Packet Size, Topic Alias; 3.3.2.3.3 expiry; 4.9."""

import time

import pytest

from live.mqtt.brokers import PACKET_BYTES_MAX, RECEIVE_MAXIMUM, TOPIC_ALIAS_MAXIMUM, deviates, ours_only
from live.mqtt.packets import PINGREQ, V4, V5, Kind, P, Will, ack, connect, packet, publish, text, varint
from live.mqtt.raw import Raw
from live.mqtt.visitors import Visitors

TOO_LARGE, ALIAS_INVALID, TOO_MANY, PROTOCOL_ERROR = 0x95, 0x94, 0x93, 0x82
NOT_COUNTED = deviates("does not count the fixed header")
LASTING = (P.SESSION_EXPIRY, 300)


def taker_of(visitors: Visitors, *props: tuple[P, int], qos: int = 2) -> Raw:
    taker = visitors.join("t", props=props)
    taker.subscribe((f"{visitors.name}/#", qos))
    return taker


@pytest.mark.parametrize(
    "maximum", [1, *(pytest.param(one, marks=deviates("sends more after the first PUBACK")) for one in (2, 7))]
)
@pytest.mark.parametrize("qos", [1, 2])
def test_no_more_messages_are_under_way_than_the_client_allows(visitors: Visitors, maximum: int, qos: int) -> None:
    """[MQTT-3.3.4-9]: the rest waits, and follows one for one as the client acknowledges."""
    taker = taker_of(visitors, (P.RECEIVE_MAXIMUM, maximum))
    publisher = visitors.join("p")
    for number in range(20):
        publisher.publish(f"{visitors.name}/x", b"%d" % number, qos=qos)
    waiting = taker.settle()
    assert [one.payload for one in waiting] == [b"%d" % number for number in range(maximum)]
    for number in range(20):
        message = waiting.pop(0)
        assert message.payload == b"%d" % number
        taker.finish(message)
        if number + maximum < 20:
            waiting.append(taker.message())
        waiting += taker.settle()
        assert len(waiting) == min(maximum, 19 - number)


def test_a_pubrec_does_not_free_a_place_but_one_with_an_error_does(visitors: Visitors) -> None:
    """4.9: the quota grows by PUBACK, PUBCOMP, or a PUBREC of 0x80 and more."""
    taker = taker_of(visitors, (P.RECEIVE_MAXIMUM, 1))
    publisher = visitors.join("p")
    for payload in (b"one", b"two", b"three"):
        publisher.publish(f"{visitors.name}/x", payload, qos=2)
    first = taker.message().packet_id
    taker.acknowledge(Kind.PUBREC, first)
    assert [one.kind for one in taker.settle()] == [Kind.PUBREL]
    taker.acknowledge(Kind.PUBCOMP, first)
    second = taker.message()
    taker.acknowledge(Kind.PUBREC, second.packet_id, 0x80)
    assert taker.message().payload == b"three"


def test_a_full_receive_maximum_holds_back_messages_only(visitors: Visitors) -> None:
    """[MQTT-4.9.0-3]: all else is answered; QoS 0 may pass or wait, and comes in the end."""
    taker = taker_of(visitors, (P.RECEIVE_MAXIMUM, 1))
    publisher = visitors.join("p")
    for _ in range(3):
        publisher.publish(f"{visitors.name}/x", b"waits", qos=1)
    publisher.publish(f"{visitors.name}/x", b"passes")
    assert taker.subscribe(("other", 0)).codes == (0,)
    assert taker.publish("another", b"x", qos=1) is not None
    found = []
    for _ in range(4):
        message = taker.message()
        taker.finish(message)
        found.append(message.payload)
    assert sorted(found) == [b"passes", b"waits", b"waits", b"waits"]


@deviates("closes without saying why")
def test_a_client_that_exceeds_the_receive_maximum_is_disconnected(visitors: Visitors) -> None:
    """[MQTT-3.3.4-7], [MQTT-3.3.4-8]: 0x93. PUBREC frees no place."""
    publisher = visitors.join("p")
    publisher.send(*(publish(visitors.name, b"x", qos=2, packet_id=1 + one) for one in range(RECEIVE_MAXIMUM)))
    assert [one.kind for one in publisher.settle()] == [Kind.PUBREC] * RECEIVE_MAXIMUM
    publisher.send(publish(visitors.name, b"x", qos=2, packet_id=100))
    assert publisher.last_words() == TOO_MANY


def test_the_receive_maximum_counts_what_is_unfinished_not_what_was_sent(visitors: Visitors) -> None:
    publisher = visitors.join("p")
    for _ in range(3):
        ids = range(1, RECEIVE_MAXIMUM + 1)
        publisher.send(*(publish(visitors.name, b"x", qos=2, packet_id=one) for one in ids))
        publisher.send(*(ack(Kind.PUBREL, one) for one in ids))
        found = publisher.settle()
        assert [one.packet_id for one in found if one.kind == Kind.PUBCOMP] == list(ids)


def test_a_client_of_3_1_1_may_have_many_messages_under_way(visitors: Visitors) -> None:
    """3.1.1 knows no Receive Maximum: a client that pipelines a hundred is not thrown out."""
    publisher = visitors.join("p", V4)
    publisher.send(*(publish(visitors.name, b"x", V4, qos=1, packet_id=1 + one) for one in range(100)))
    assert [one.packet_id for one in publisher.settle()] == list(range(1, 101))


def test_a_topic_alias_stands_for_its_topic(visitors: Visitors) -> None:
    """[MQTT-3.3.2-8] to [MQTT-3.3.2-12]: each alias of the allowed range, kept until it is given anew."""
    taker = taker_of(visitors)
    publisher = visitors.join("p")
    aliases = range(1, TOPIC_ALIAS_MAXIMUM + 1)
    for alias in aliases:
        publisher.publish(f"{visitors.name}/{alias}", b"named", props=[(P.TOPIC_ALIAS, alias)])
    for alias in aliases:
        publisher.publish("", b"short", qos=1, props=[(P.TOPIC_ALIAS, alias)])
    publisher.publish(f"{visitors.name}/other", b"renamed", props=[(P.TOPIC_ALIAS, 1)])
    publisher.publish("", b"again", qos=1, props=[(P.TOPIC_ALIAS, 1)])
    found = taker.messages(2 * len(aliases) + 2)
    topics = [f"{visitors.name}/{alias}" for alias in aliases]
    assert [one.topic for one in found] == [*topics, *topics, f"{visitors.name}/other", f"{visitors.name}/other"]
    assert all(one.one(P.TOPIC_ALIAS) is None for one in found)  # [MQTT-3.1.2-27]: this client allowed none


@pytest.mark.parametrize("alias", [pytest.param(0, marks=deviates("says 0x81")), TOPIC_ALIAS_MAXIMUM + 1, 65535])
@pytest.mark.parametrize("topic", ["named", ""])
def test_an_alias_out_of_range_is_refused(visitors: Visitors, alias: int, topic: str) -> None:
    """[MQTT-3.3.2-8], [MQTT-3.3.2-9]: 0x94"""
    publisher = visitors.join("p")
    publisher.send(publish(topic, b"x", props=[(P.TOPIC_ALIAS, alias)]))
    assert publisher.last_words() == ALIAS_INVALID


def test_an_alias_that_was_never_given_is_a_protocol_error(visitors: Visitors) -> None:
    """3.3.4"""
    publisher = visitors.join("p")
    publisher.send(publish("", b"x", props=[(P.TOPIC_ALIAS, 3)]))
    assert publisher.last_words() in (PROTOCOL_ERROR, ALIAS_INVALID)


def test_an_alias_does_not_outlive_its_connection(visitors: Visitors) -> None:
    """[MQTT-3.3.2-7]"""
    first = visitors.join("p", props=[LASTING])
    first.publish("x", b"x", qos=1, props=[(P.TOPIC_ALIAS, 3)])
    first.leave()
    second = visitors.join("p", clean=False, props=[LASTING])
    second.send(publish("", b"x", props=[(P.TOPIC_ALIAS, 3)]))
    assert second.last_words() in (PROTOCOL_ERROR, ALIAS_INVALID)


def test_aliases_to_a_client_stay_below_its_maximum_and_lead_to_the_right_topics(visitors: Visitors) -> None:
    """[MQTT-3.1.2-26], [MQTT-3.1.2-27]: whether any are used is the server's choice; what they say must be true."""
    taker = taker_of(visitors, (P.TOPIC_ALIAS_MAXIMUM, 3))
    publisher = visitors.join("p")
    wanted = [f"{visitors.name}/{number % 5}" for number in range(50)]
    for topic in wanted:
        publisher.publish(topic, topic.encode(), qos=1)
    known: dict[int, str] = {}
    for topic in wanted:
        message = taker.message()
        taker.finish(message)
        alias = message.one(P.TOPIC_ALIAS)
        if alias is not None:
            assert isinstance(alias, int)
            assert 1 <= alias <= 3
            known[alias] = message.topic or known[alias]
            assert known[alias] == topic
        else:
            assert message.topic == topic
        assert message.payload == topic.encode()


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_message_larger_than_the_client_takes_is_skipped(visitors: Visitors, qos: int) -> None:
    """[MQTT-3.1.2-24], [MQTT-3.1.2-25]: as if it had been sent; the next one follows."""
    taker = taker_of(visitors, (P.MAXIMUM_PACKET_SIZE, 200))
    publisher = visitors.join("p")
    publisher.publish(f"{visitors.name}/x", b"x" * 200, qos=qos)
    publisher.publish(f"{visitors.name}/x", b"small", qos=qos)
    found = taker.message()
    assert found.payload == b"small"
    taker.finish(found)
    assert taker.settle() == []


@deviates("sends one byte more")
def test_the_largest_packet_a_client_takes_is_counted_to_the_byte(visitors: Visitors) -> None:
    """3.1.2.11.4: the whole packet, with its fixed header."""
    taker = taker_of(visitors, (P.MAXIMUM_PACKET_SIZE, 200))
    publisher = visitors.join("p")
    topic = f"{visitors.name}/x"
    publisher.publish(topic, b"", qos=0)
    room = 200 - taker.message().size - 1  # one more for a length of two bytes
    for length in range(room - 3, room + 4):
        publisher.publish(topic, b"y" * length, qos=0)
    publisher.publish(topic, b"end", qos=0)
    publisher.settle()
    found = taker.settle()
    assert [one.size for one in found[:-1]] == [197, 198, 199, 200]


def test_a_skipped_message_frees_no_place_it_never_took(visitors: Visitors) -> None:
    """[MQTT-3.1.2-25] with Receive Maximum: the quota stays right."""
    taker = taker_of(visitors, (P.MAXIMUM_PACKET_SIZE, 100), (P.RECEIVE_MAXIMUM, 2))
    publisher = visitors.join("p")
    for number in range(12):
        publisher.publish(f"{visitors.name}/x", b"%d" % number + b"." * (200 if number % 2 else 1), qos=1)
    found = []
    for _ in range(6):
        found.append(taker.message())
        taker.finish(found[-1])
    assert [one.payload for one in found] == [b"%d." % number for number in range(0, 12, 2)]


@pytest.mark.parametrize("level", [V4, V5])
def test_a_packet_of_the_largest_size_is_taken(visitors: Visitors, level: int) -> None:
    """3.2.2.3.6: to the byte."""
    taker = visitors.join("t", level)
    taker.subscribe((f"{visitors.name}/#", 0))
    publisher = visitors.join("p", level)
    head = len(publish(f"{visitors.name}/x", b"", level, qos=1, packet_id=1)) + 3  # a length of four bytes instead of one
    publisher.publish(f"{visitors.name}/x", b"z" * (PACKET_BYTES_MAX - head), qos=1)
    assert len(taker.message().payload) == PACKET_BYTES_MAX - head


@pytest.mark.parametrize("size", [pytest.param(PACKET_BYTES_MAX + 1, marks=NOT_COUNTED), 100_000_000, 268_435_460])
def test_a_packet_above_the_largest_size_is_refused_by_its_length_alone(visitors: Visitors, size: int) -> None:
    """[MQTT-3.2.2-15]: 0x95, before the body has come."""
    publisher = visitors.join("p")
    whole = packet(0x30, text("x") + b"\x00" + b"")
    header = 1 + len(varint(size - 4))
    publisher.send(whole[:1] + varint(size - header) + whole[2:])
    assert publisher.last_words() == TOO_LARGE


def test_an_oversized_connect_is_refused(visitors: Visitors) -> None:
    """3.2.2.2 names 0x95 for CONNACK too."""
    client = visitors.dial()
    whole = connect("x")
    client.send(whole[:1] + varint(PACKET_BYTES_MAX) + whole[2:] + b"x" * 1000)
    assert client.last_words() in (None, TOO_LARGE)


def test_the_expiry_of_a_message_is_counted_down_while_it_waits(visitors: Visitors) -> None:
    """[MQTT-3.3.2-6]: what is left, in whole seconds. The wait is measured by a session that expires meanwhile."""
    taker = taker_of(visitors, LASTING)
    taker.leave()
    publisher = visitors.join("p")
    published_at = time.monotonic()
    publisher.publish(f"{visitors.name}/x", b"x", qos=1, props=[(P.MESSAGE_EXPIRY, 100)])
    publisher.publish(f"{visitors.name}/x", b"short", qos=1, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{visitors.name}/x", b"forever", qos=1)
    wait_seconds(visitors, 2)
    back = visitors.join("t", clean=False, props=[LASTING])
    first, second = back.messages(2)
    waited_s = time.monotonic() - published_at
    assert 100 - waited_s - 1 <= first.number(P.MESSAGE_EXPIRY) <= 98
    assert (second.payload, second.one(P.MESSAGE_EXPIRY)) == (b"forever", None)


def wait_seconds(visitors: Visitors, seconds: int) -> None:
    """Until a will with this delay comes: the broker's own clock says that the time has passed."""
    watcher = visitors.join("clock")
    watcher.subscribe((f"{visitors.name}-clock", 0))
    will = Will(f"{visitors.name}-clock", props=[(P.WILL_DELAY, seconds)])
    visitors.join("ticks", props=[LASTING], will=will).drop()
    watcher.message(within_s=seconds + 10)


def test_a_message_that_is_delivered_at_once_keeps_its_whole_expiry(visitors: Visitors) -> None:
    taker = taker_of(visitors)
    visitors.join("p").publish(f"{visitors.name}/x", b"x", qos=1, props=[(P.MESSAGE_EXPIRY, 50)])
    assert taker.message().number(P.MESSAGE_EXPIRY) in (49, 50)


@deviates("sends nothing more once the message at the front has expired")
def test_a_message_behind_a_full_receive_maximum_expires_too(visitors: Visitors) -> None:
    """[MQTT-3.3.2-5]: if delivery has not begun."""
    taker = taker_of(visitors, (P.RECEIVE_MAXIMUM, 1))
    publisher = visitors.join("p")
    publisher.publish(f"{visitors.name}/x", b"first", qos=1)
    publisher.publish(f"{visitors.name}/x", b"expires", qos=1, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{visitors.name}/x", b"last", qos=1)
    wait_seconds(visitors, 2)
    first = taker.message()
    taker.finish(first)
    assert taker.message().payload == b"last"


def test_a_retained_message_expires(visitors: Visitors) -> None:
    """[MQTT-3.3.2-5] for retained messages; what is left is told (3.3.2.3.3)."""
    publisher = visitors.join("p")
    publisher.publish(f"{visitors.name}/a", b"short", qos=1, retain=True, props=[(P.MESSAGE_EXPIRY, 1)])
    publisher.publish(f"{visitors.name}/b", b"long", qos=1, retain=True, props=[(P.MESSAGE_EXPIRY, 100)])
    wait_seconds(visitors, 2)
    taker = taker_of(visitors)
    found = taker.settle()
    assert [one.payload for one in found] == [b"long"]
    assert 80 < found[0].number(P.MESSAGE_EXPIRY) <= 98


@ours_only("Mosquitto does not tell")
def test_the_keep_alive_asked_for_is_the_one_granted(visitors: Visitors) -> None:
    """3.2.2.3.14: no Server Keep Alive means the client's own holds."""
    assert visitors.dial().join(visitors.client_id("a"), keep_alive=65535).one(P.SERVER_KEEP_ALIVE) in (None, 65535)


def test_a_ping_is_answered_between_other_packets(visitors: Visitors) -> None:
    """[MQTT-3.12.4-1]: one PINGRESP each."""
    client = visitors.join("a")
    client.send(PINGREQ * 5)
    assert [client.receive().kind for _ in range(5)] == [Kind.PINGRESP] * 5
