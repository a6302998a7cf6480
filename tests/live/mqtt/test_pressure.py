"""Robustness: a thousand reconnects, a subscriber that never reads, ten thousand silent connections."""

import select
import socket
import time
from random import Random

import pytest

from live.mqtt.brokers import IS_REFERENCE, Broker, ours_only
from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import V4, V5, Kind, P, connect, publish, subscribe
from live.mqtt.raw_client import RawClient

LASTING = [(P.SESSION_EXPIRY, 300)]
HALF_OPEN = 10_000
MANY_MAY_WAIT = "[limits]\nhandshakes_max = 20_000\n[mqtt]\nhandshake_s_max = 600\n"
HANDSHAKES_MAX = 1_000  # by default
GROWTH_BYTES_MAX = 64_000_000
BOTH = pytest.mark.parametrize("level", [V4, V5])


@BOTH
def test_a_thousand_fast_reconnects_with_one_identifier_leave_one_session(connections: Connections, level: int) -> None:
    """By take-over, by DISCONNECT, by close and by reset: afterwards only the last client is there, and gets a message once."""
    random = Random(1)
    older: list[RawClient] = []
    client = connections.dial(level)
    client.join(connections.client_id("a"), clean=False, props=LASTING)
    client.subscribe((connections.name, 1))
    for _ in range(1000):
        match random.randrange(4):
            case 0:
                client.leave()
            case 1:
                client.reset()
            case 2:
                client.close()
            case _:
                older.append(client)
        client = RawClient(connections.broker.tcp, level=level)
        assert client.join(connections.client_id("a"), clean=False, props=LASTING).session_present
    connections.opened += [*older, client]
    connections.join("p", level).publish(connections.name, b"once", qos=1)
    assert [one.payload for one in client.drain()] == [b"once"]
    for one in older:
        one.until_closed()


@BOTH
def test_reconnects_that_do_not_wait_for_the_answer_leave_one_session(connections: Connections, level: int) -> None:
    """Two hundred connections with one identifier, opened before any is answered."""
    crowd = [connections.dial(level) for _ in range(200)]
    with connections.broker.paused():
        for one in crowd:
            one.send(
                connect(connections.client_id("a"), level, clean=False, props=LASTING),
                subscribe(1, (connections.name, 0), level=level),
            )
    survivors = [one for one in crowd if one.is_open()]
    assert len(survivors) == 1
    connections.join("p", level).publish(connections.name, b"once")
    assert survivors[0].take(Kind.PUBLISH).payload == b"once"


def come_and_go(port: int, count: int, name: str) -> None:
    """Let clients subscribe, publish and disconnect or break off, one after the other."""
    for number in range(count):
        with RawClient(port, level=V4 + number % 2) as client:
            hello = connect(f"{name}{number}", client.level, keep_alive=65_535)
            asks = subscribe(1, ("a/+", 1), level=client.level), publish("a/b", b"x", client.level, qos=1, packet_id=2)
            client.send(hello, *asks)
            client.take(Kind.PUBACK)
            if number % 3:
                client.leave()


def test_clients_that_connect_and_disconnect_leak_no_memory(make_broker: MakeBroker) -> None:
    """Not even until their keep alive times out, which may be a day."""
    broker = make_broker(more="[mqtt]\nhandshake_s_max = 1\n")
    come_and_go(broker.tcp, 3_000, "first")
    before = broker.resident_bytes()
    come_and_go(broker.tcp, 8_000, "second")
    assert broker.resident_bytes() - before < 4_000_000


def stalled(broker: Broker, level: int, name: str, topic: str, qos: int) -> RawClient:
    """Return a client with a small buffer that subscribes and never reads again."""
    client = RawClient(broker.tcp, level=level)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.join(name, clean=False, props=LASTING, keep_alive=0)
    client.subscribe((topic, qos))
    return client


@BOTH
@pytest.mark.parametrize("qos", [0, 1])
def test_a_subscriber_that_never_reads_uses_bounded_memory_and_affects_no_one_else(
    make_broker: MakeBroker, connect_to: ConnectTo, level: int, qos: int
) -> None:
    """100 MB are published; the one that reads gets every message, the other's share of memory is bounded."""
    broker = make_broker()
    connections = connect_to(broker)
    asleep = stalled(broker, level, "asleep", "flood", qos)
    connections.opened.append(asleep)
    awake, publisher = connections.join("awake", level), connections.join("p", level)
    awake.subscribe(("flood", 0))
    payload = b"f" * 10_000
    flood(publisher, awake, payload, 20, qos)
    before = broker.resident_bytes()
    flood(publisher, awake, payload, 980, qos)
    assert broker.resident_bytes() - before < GROWTH_BYTES_MAX
    began_at = time.monotonic()
    other = connections.join("other", level)
    other.subscribe(("quiet", 1))
    other.publish("quiet", b"still here", qos=1)
    assert other.message().payload == b"still here"
    assert time.monotonic() - began_at < 5


def flood(publisher: RawClient, awake: RawClient, payload: bytes, rounds: int, qos: int) -> None:
    """Send ten messages a round, and continue when they have arrived: never faster than the active subscriber reads."""
    for _ in range(rounds):
        publisher.send(*(publish("flood", payload, publisher.level, qos=qos, packet_id=1 + one) for one in range(10)))
        for _ in range(10 if qos else 0):
            publisher.receive()
        for _ in range(10):
            assert awake.message().payload == payload


@ours_only("what waits for a session is limited by bytes")
def test_a_stalled_subscriber_that_reads_again_receives_the_newest_messages_in_order(
    make_broker: MakeBroker, connect_to: ConnectTo
) -> None:
    """What did not fit was dropped from the front; nothing is doubled or out of order."""
    broker = make_broker(more="[limits]\nqueue_messages_max = 100\n")
    connections = connect_to(broker)
    first = connections.join("a", props=LASTING)
    first.subscribe(("flood", 1))
    first.leave()
    publisher = connections.join("p")
    for number in range(300):
        publisher.publish("flood", b"%d" % number, qos=1)
    back = connections.join("a", clean=False, props=LASTING)
    numbers: list[int] = []
    while not numbers or numbers[-1] != 299:
        message = back.message()
        numbers.append(int(message.payload))
        back.finish(message)
    assert numbers == list(range(numbers[0], 300))
    assert 90 <= len(numbers) <= 110


def open_many(port: int, count: int) -> list[socket.socket]:
    """Connections from several addresses on which nothing is sent."""
    found = []
    for number in range(count):
        one = socket.socket()
        one.bind((f"127.0.0.{2 + number % 8}", 0))
        one.connect(("127.0.0.1", port))
        found.append(one)
    return found


def check_served(connections: Connections, within_s: float) -> None:
    began_at = time.monotonic()
    client = connections.join("")
    client.subscribe(("here", 1))
    client.publish("here", b"I am", qos=1)
    assert client.message().payload == b"I am"
    assert time.monotonic() - began_at < within_s


def still_open(crowd: list[socket.socket]) -> int:
    """How many of them the broker has not closed: nothing is there to be read, not even the end."""
    poll = select.poll()
    for one in crowd:
        poll.register(one, select.POLLIN | select.POLLHUP)
    return len(crowd) - len(poll.poll(0))


@pytest.mark.parametrize("limits", [MANY_MAY_WAIT, ""], ids=["many-may-wait", "by-default"])
def test_ten_thousand_half_open_connections_do_not_block_others(
    make_broker: MakeBroker, connect_to: ConnectTo, open_files: int, limits: str
) -> None:
    """A normal client connects at once and is served, whether all or only some half-open connections are tolerated."""
    assert open_files > HALF_OPEN + 500, f"only {open_files} files may be opened; fix: ulimit -n 20000"
    broker = make_broker(more=limits)
    connections = connect_to(broker)
    regular = connections.join("regular")
    crowd = open_many(broker.tcp, HALF_OPEN // 2)
    try:
        check_served(connections, 5)
        crowd += open_many(broker.tcp, HALF_OPEN // 2)
        check_served(connections, 5)
        assert regular.is_open()
        assert still_open(crowd) == HALF_OPEN if limits or IS_REFERENCE else 0 < still_open(crowd) <= HANDSHAKES_MAX
    finally:
        for one in crowd:
            one.close()
    check_served(connections, 10)


@ours_only("Mosquitto waits much longer")
def test_a_connection_that_never_sends_connect_is_closed(make_broker: MakeBroker) -> None:
    """3.1.4: within a reasonable time; also a connection that sends a CONNECT byte by byte."""
    broker = make_broker(more="[mqtt]\nhandshake_s_max = 1\n")
    silent, slow = RawClient(broker.tcp), RawClient(broker.tcp)
    began_at = time.monotonic()
    whole = connect("x" * 100)
    with silent, slow:
        for byte in whole[:10]:
            slow.send(bytes([byte]))
        silent.until_closed(within_s=5)
        slow.until_closed(within_s=5)
    assert 0.9 < time.monotonic() - began_at < 5
