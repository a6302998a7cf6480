"""Fuzz driver: many connections at a time with mutated packets, each driven until the broker closes it.

A connection sends a CONNECT and a few packets in one write, and then no more. The broker may reject any of them; it must close
the connection, and everything it sends before must be complete packets that a server may send.
"""

import errno
import select
import socket
import time
from collections import Counter
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import Final

from fuzz.mutations import mutated_bytes
from live.mqtt.packets import (
    PINGREQ,
    V4,
    V5,
    Kind,
    P,
    Packet,
    Properties,
    Will,
    ack,
    auth,
    connect,
    disconnect,
    maybe_split,
    packet,
    parse,
    publish,
    subscribe,
    unsubscribe,
)

WIDTH: Final = 128
PACKETS_EACH: Final = 6
SESSIONS: Final = 64
CANARY_EVERY: Final = 100
END_S: Final = 20.0
HOSTS: Final = [f"127.0.0.{number}" for number in range(2, 10)]  # more client ports than one address has

MESSAGE: Final[Properties] = [
    (P.PAYLOAD_FORMAT, 1),
    (P.MESSAGE_EXPIRY, 30),
    (P.CONTENT_TYPE, "text/plain"),
    (P.RESPONSE_TOPIC, "a/answers"),
    (P.CORRELATION_DATA, b"\x01\x02"),
    (P.USER_PROPERTY, ("key", "value")),
]


def seeds(level: int) -> list[bytes]:
    """Return valid packets of every type that a client may send."""
    props: Properties = MESSAGE if level == V5 else ()
    aliased: Properties = [(P.TOPIC_ALIAS, 3)] if level == V5 else ()
    found = [
        publish("a/b", b"payload", level, props=props),
        publish("a/c", b"x" * 300, level, qos=1, packet_id=1, retain=True),
        publish("a/b/c", b"", level, qos=2, packet_id=2, props=aliased),
        publish("a/b", b"\x00\xff", level, qos=1, packet_id=3, dup=True, props=props),
        *(ack(kind, 2, level=level) for kind in (Kind.PUBACK, Kind.PUBREC, Kind.PUBREL, Kind.PUBCOMP)),
        subscribe(4, ("a/+", 1), ("a/#", 2), level=level),
        subscribe(5, ("$share/group/a/b", 1), level=level),
        unsubscribe(6, "a/+", "a/b", level=level),
        PINGREQ,
    ]
    if level == V5:
        found += [
            ack(Kind.PUBACK, 1, 0x10, [(P.REASON_STRING, "fine")]),
            ack(Kind.PUBREC, 2, 0x97, [(P.USER_PROPERTY, ("a", "b"))]),
            subscribe(7, ("a/b", 0x2D), props=[(P.SUBSCRIPTION_ID, 200)]),
            unsubscribe(8, "a/#", props=[(P.USER_PROPERTY, ("a", "b"))]),
            auth(0x18, [(P.AUTH_METHOD, "x"), (P.AUTH_DATA, b"y")]),
            disconnect(0x04, [(P.SESSION_EXPIRY, 5), (P.REASON_STRING, "tired")]),
        ]
    return found


SEEDS: Final = {level: seeds(level) for level in (V4, V5)}


@dataclass
class FuzzConnection:
    """One connection: the bytes to send and the bytes received."""

    sends: bytes
    level: int | None
    """None if the CONNECT itself is mutated: then only the framing of replies is checked."""
    is_canary: bool = False
    packets: int = PACKETS_EACH
    received: bytearray = field(default_factory=bytearray)
    until: float = 0.0
    sent: bytes = b""


def make_connection(random: Random, number: int) -> FuzzConnection:
    """Return one connection; every `CANARY_EVERY`-th is valid and must be served."""
    level = random.choice((V4, V5))
    if number % CANARY_EVERY == 0:
        return _canary(level, number)
    is_connect_mutated = random.random() < 0.1
    connect_packet = _connect_packet(random, level)
    if is_connect_mutated:
        connect_packet = _mutated(random, [connect_packet, connect("fuzz", V4), connect("fuzz", V5)])
    rest = b"".join(_one(random, level) for _ in range(PACKETS_EACH - 1))
    return FuzzConnection(connect_packet + rest, None if is_connect_mutated else level)


def _connect_packet(random: Random, level: int) -> bytes:
    name = random.choice(["", f"fuzz{random.randrange(SESSIONS)}"])
    is_durable = bool(name) and random.random() < 0.5
    props: Properties = [(P.SESSION_EXPIRY, 60), (P.RECEIVE_MAXIMUM, 3)] if is_durable and level == V5 else ()
    will = Will("a/will", b"gone", qos=random.randrange(3)) if random.random() < 0.2 else None
    return connect(name, level, clean=not is_durable, props=props, will=will)


def _one(random: Random, level: int) -> bytes:
    """Return a packet; a third are valid, so that packets after them are read too."""
    return random.choice(SEEDS[level]) if random.random() < 0.33 else _mutated(random, SEEDS[level])


def _mutated(random: Random, whole: list[bytes]) -> bytes:
    """Return a mutated packet, with or without a corrected length: the latter passes the framing."""
    found = mutated_bytes(random, whole)
    if random.random() < 0.3 or len(found) < 2:
        return found
    first = random.choice(whole)[0] if random.random() < 0.5 else found[0]
    return packet(first, found[2:])


def _canary(level: int, number: int) -> FuzzConnection:
    topic = f"canary/{number}"
    requests = [subscribe(1, (topic, 1), level=level), publish(topic, b"sings", level, qos=1, packet_id=2), PINGREQ]
    return FuzzConnection(connect("", level) + b"".join(requests), level, is_canary=True, packets=4)


def read_answers(connection: FuzzConnection, *, is_whole: bool) -> list[Packet]:
    """Return the received packets; fail if they are invalid, or if a stream that was closed in order ends within a packet."""
    stream, found = bytes(connection.received), []
    while (place := maybe_split(stream)) is not None:
        begin, end = place
        if connection.level is not None:
            found.append(parse(stream[0], stream[begin:end], end, connection.level))
        stream = stream[end:]
    assert not stream or not is_whole, f"the last packet is truncated: {stream[:40]!r}"
    return found


@dataclass
class Outcome:
    """The results of a run."""

    connections: int = 0
    packets: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def note(self, connection: FuzzConnection, end: str) -> None:
        answers = read_answers(connection, is_whole=end == "closed")
        self.packets += connection.packets
        self.ends[end] += 1
        self.answers.update(one.kind.name for one in answers)
        if connection.is_canary:
            kinds = sorted(one.kind for one in answers)
            assert kinds == [Kind.CONNACK, Kind.PUBLISH, Kind.PUBACK, Kind.SUBACK, Kind.PINGRESP], f"not served: {answers}"


class Driver:
    """Runs many connections at once over one epoll, and records how each ends."""

    def __init__(self, port: int, random: Random) -> None:
        self._port = port
        self._random = random
        self._poll = select.epoll()
        self._connections: dict[int, tuple[socket.socket, FuzzConnection]] = {}
        self.outcome = Outcome()

    def run(self, packets: int) -> Outcome:
        """Send *packets* packets, and drive every connection to its end."""
        try:
            self._run(packets)
        finally:
            self._poll.close()
            for one, _ in self._connections.values():
                one.close()
        return self.outcome

    def _run(self, packets: int) -> None:
        while self._connections or self.outcome.packets < packets:
            under_way = PACKETS_EACH * len(self._connections)
            while len(self._connections) < WIDTH and self.outcome.packets + under_way < packets:
                self._open()
                under_way += PACKETS_EACH
            for number, event in self._poll.poll(1.0):
                self._on_event(number, event)
            self._check_deadlines()

    def _open(self) -> None:
        connection = make_connection(self._random, self.outcome.connections)
        self.outcome.connections += 1
        connection.until = time.monotonic() + END_S
        connection.sent = connection.sends
        one = socket.socket()
        one.setblocking(False)
        one.bind((HOSTS[self.outcome.connections % len(HOSTS)], 0))
        if (code := one.connect_ex(("127.0.0.1", self._port))) not in (0, errno.EINPROGRESS):
            raise OSError(code, "no connection")
        self._connections[one.fileno()] = one, connection
        self._poll.register(one.fileno(), select.EPOLLOUT | select.EPOLLIN)

    def _on_event(self, number: int, event: int) -> None:
        one, connection = self._connections[number]
        try:
            if event & select.EPOLLOUT and connection.sends:
                connection.sends = connection.sends[one.send(connection.sends) :]
                if not connection.sends:
                    one.shutdown(socket.SHUT_WR)
                    self._poll.modify(number, select.EPOLLIN)
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                more = one.recv(1 << 18)
                connection.received += more
                if not more:
                    self._finish(number, "closed")
        except BlockingIOError:
            pass
        except (ConnectionResetError, BrokenPipeError):  # bytes after the fault were never read
            self._finish(number, "reset")
        except OSError as fault:
            if fault.errno != errno.ENOTCONN:
                raise
            self._finish(number, "reset")

    def _finish(self, number: int, end: str) -> None:
        one, connection = self._connections.pop(number)
        one.close()
        try:
            self.outcome.note(connection, end)
        except AssertionError as fault:
            fault.add_note(f"level {connection.level}, {end}, sent {connection.sent!r}, came {bytes(connection.received)!r}")
            raise

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for _, connection in islice(self._connections.values(), 1):  # the oldest
            assert now < connection.until, (
                f"not closed after {END_S} s, level {connection.level}: got {bytes(connection.received[:200])!r}"
            )
