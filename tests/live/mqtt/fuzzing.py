"""Connections full of packets that are almost right, many at a time, each driven to its end: the broker's close.

A connection sends a CONNECT and a few packets in one go, and then no more. The server may object at any of them; it must end
the connection, and whatever it says until then must be whole packets that a server may send.
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
    """Good packets of every kind a client may send."""
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
class Talk:
    """One connection: what it sends, what came back."""

    sends: bytes
    level: int | None
    """Nothing if the CONNECT itself is doubtful: then only the framing of answers is checked."""
    is_canary: bool = False
    packets: int = PACKETS_EACH
    came: bytearray = field(default_factory=bytearray)
    until: float = 0.0
    sent: bytes = b""


def make_talk(random: Random, number: int) -> Talk:
    """The bytes of one connection; every so often one that makes no mistake and must be served."""
    level = random.choice((V4, V5))
    if number % CANARY_EVERY == 0:
        return _canary(level, number)
    is_bold = random.random() < 0.1
    hello = _hello(random, level)
    if is_bold:
        hello = _mutated(random, [hello, connect("fuzz", V4), connect("fuzz", V5)])
    rest = b"".join(_one(random, level) for _ in range(PACKETS_EACH - 1))
    return Talk(hello + rest, None if is_bold else level)


def _hello(random: Random, level: int) -> bytes:
    name = random.choice(["", f"fuzz{random.randrange(SESSIONS)}"])
    is_lasting = bool(name) and random.random() < 0.5
    props: Properties = [(P.SESSION_EXPIRY, 60), (P.RECEIVE_MAXIMUM, 3)] if is_lasting and level == V5 else ()
    will = Will("a/will", b"gone", qos=random.randrange(3)) if random.random() < 0.2 else None
    return connect(name, level, clean=not is_lasting, props=props, will=will)


def _one(random: Random, level: int) -> bytes:
    """A third of them good, so that those after them are looked at too."""
    return random.choice(SEEDS[level]) if random.random() < 0.33 else _mutated(random, SEEDS[level])


def _mutated(random: Random, whole: list[bytes]) -> bytes:
    """Changed as it is, or changed inside with a length that is right again: the latter gets past the framing."""
    found = mutated_bytes(random, whole)
    if random.random() < 0.3 or len(found) < 2:
        return found
    first = random.choice(whole)[0] if random.random() < 0.5 else found[0]
    return packet(first, found[2:])


def _canary(level: int, number: int) -> Talk:
    topic = f"canary/{number}"
    asks = [subscribe(1, (topic, 1), level=level), publish(topic, b"sings", level, qos=1, packet_id=2), PINGREQ]
    return Talk(connect("", level) + b"".join(asks), level, is_canary=True, packets=4)


def read_answers(talk: Talk, *, is_whole: bool) -> list[Packet]:
    """The packets that came; an assertion if they are none, or, where the stream ended in order, if it ended within one."""
    stream, found = bytes(talk.came), []
    while (place := maybe_split(stream)) is not None:
        begin, end = place
        if talk.level is not None:
            found.append(parse(stream[0], stream[begin:end], end, talk.level))
        stream = stream[end:]
    assert not stream or not is_whole, f"the last packet is cut off: {stream[:40]!r}"
    return found


@dataclass
class Outcome:
    """What a run has seen."""

    connections: int = 0
    packets: int = 0
    answers: Counter[str] = field(default_factory=Counter)
    ends: Counter[str] = field(default_factory=Counter)

    def note(self, talk: Talk, end: str) -> None:
        answers = read_answers(talk, is_whole=end == "closed")
        self.packets += talk.packets
        self.ends[end] += 1
        self.answers.update(one.kind.name for one in answers)
        if talk.is_canary:
            kinds = sorted(one.kind for one in answers)
            assert kinds == [Kind.CONNACK, Kind.PUBLISH, Kind.PUBACK, Kind.SUBACK, Kind.PINGRESP], f"not served: {answers}"


class Driver:
    """Runs many talks at once over one selector, and notes how each ends."""

    def __init__(self, port: int, random: Random) -> None:
        self._port = port
        self._random = random
        self._poll = select.epoll()
        self._talks: dict[int, tuple[socket.socket, Talk]] = {}
        self.outcome = Outcome()

    def run(self, packets: int) -> Outcome:
        """Send so many packets, and see every connection to its end."""
        try:
            self._run(packets)
        finally:
            self._poll.close()
            for one, _ in self._talks.values():
                one.close()
        return self.outcome

    def _run(self, packets: int) -> None:
        while self._talks or self.outcome.packets < packets:
            under_way = PACKETS_EACH * len(self._talks)
            while len(self._talks) < WIDTH and self.outcome.packets + under_way < packets:
                self._open()
                under_way += PACKETS_EACH
            for number, event in self._poll.poll(1.0):
                self._on_event(number, event)
            self._check_deadlines()

    def _open(self) -> None:
        talk = make_talk(self._random, self.outcome.connections)
        self.outcome.connections += 1
        talk.until = time.monotonic() + END_S
        talk.sent = talk.sends
        one = socket.socket()
        one.setblocking(False)
        one.bind((HOSTS[self.outcome.connections % len(HOSTS)], 0))
        if (code := one.connect_ex(("127.0.0.1", self._port))) not in (0, errno.EINPROGRESS):
            raise OSError(code, "no connection")
        self._talks[one.fileno()] = one, talk
        self._poll.register(one.fileno(), select.EPOLLOUT | select.EPOLLIN)

    def _on_event(self, number: int, event: int) -> None:
        one, talk = self._talks[number]
        try:
            if event & select.EPOLLOUT and talk.sends:
                talk.sends = talk.sends[one.send(talk.sends) :]
                if not talk.sends:
                    one.shutdown(socket.SHUT_WR)
                    self._poll.modify(number, select.EPOLLIN)
            if event & (select.EPOLLIN | select.EPOLLHUP | select.EPOLLERR):
                more = one.recv(1 << 18)
                talk.came += more
                if not more:
                    self._finish(number, "closed")
        except BlockingIOError:
            pass
        except (ConnectionResetError, BrokenPipeError):  # what was sent after the fault was never read
            self._finish(number, "reset")
        except OSError as fault:
            if fault.errno != errno.ENOTCONN:
                raise
            self._finish(number, "reset")

    def _finish(self, number: int, end: str) -> None:
        one, talk = self._talks.pop(number)
        one.close()
        try:
            self.outcome.note(talk, end)
        except AssertionError as fault:
            fault.add_note(f"level {talk.level}, {end}, sent {talk.sent!r}, came {bytes(talk.came)!r}")
            raise

    def _check_deadlines(self) -> None:
        now = time.monotonic()
        for _, talk in islice(self._talks.values(), 1):  # the oldest
            assert now < talk.until, f"not closed after {END_S} s, level {talk.level}: got {bytes(talk.came[:200])!r}"
