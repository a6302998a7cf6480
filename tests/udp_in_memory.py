"""An edge without sockets whose endpoints speak datagrams: its doors in memory, in a time that the test moves."""

from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

import numpy as np

from door_in_memory import SMALL, START, EdgeInMemory
from milepost.doors.udp.addresses import sockaddr_of
from milepost.doors.udp.door import UdpDoor
from milepost.doors.udp.sending import Octets
from milepost.doors.udp.settings import Identity, UdpSettings
from milepost.edge.limits import Limits
from milepost.model import EndpointId, Instant, Place
from milepost.model.instants import SECOND_NS
from milepost.model.reports import Report
from milepost.model.sessions import Acknowledge, Datagram, Init, SessionToken
from milepost.trust.authority import Authority
from milepost.trust.certificates import EDGE, Certificate, issue
from milepost.trust.macs import Macs
from milepost.trust.noise import Initiator, Keys, public_of
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import Hello, Kind, counter_of, data_head, hello_to_bytes, nonce_of

AUTHORITY_KEY = bytes(range(32))
EDGE_STATIC = bytes(range(32, 64))
EDGE_SIGNING = bytes(range(64, 96))
YEAR_NS = 365 * 86_400 * SECOND_NS
HOME = Place(40.7608, -111.891)


def certificate_of(name: str, static: bytes, role: str = "vehicle", serial: int = 7, signing: bytes = b"") -> Certificate:
    return issue(
        AUTHORITY_KEY,
        id=EndpointId(name),
        role=role,
        key=public_of(static),
        not_before=Instant(START - YEAR_NS),
        not_after=Instant(START + YEAR_NS),
        serial=serial,
        signing_key=signing_public_of(signing) if signing else b"",
    )


EDGE_CERTIFICATE = certificate_of("edge-1", EDGE_STATIC, EDGE, 1, EDGE_SIGNING)


def identity() -> Identity:
    return Identity(EDGE_STATIC, EDGE_CERTIFICATE, Authority(signing_public_of(AUTHORITY_KEY)))


@dataclass
class PostInMemory:
    """What was sent to each address; `room` is how many datagrams it still takes, None for all."""

    sent: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    order: list[tuple[bytes, bytes]] = field(default_factory=list)
    room: int | None = None

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        return self.send_many([head.tobytes() + tail for head in heads], addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        count = len(datagrams) if self.room is None else min(self.room, len(datagrams))
        for data, address in zip(datagrams[:count], addresses[:count], strict=True):
            self.sent[address.tobytes()].append(data)
            self.order.append((address.tobytes(), data))
        if self.room is not None:
            self.room -= count
        return count


class UdpEdge(EdgeInMemory):
    """An edge with both doors; sealed unless told otherwise."""

    def __init__(self, *, is_sealed: bool = True, udp: UdpSettings | None = None, seed: int = 1, limits: Limits = SMALL) -> None:
        super().__init__(limits=limits)
        self.corridor.name = EndpointId("edge-1")
        self.random = Random(seed)
        self.beat = 10**15
        self.post = PostInMemory()
        self.identity = identity() if is_sealed else None
        self.udp_settings = udp or UdpSettings()
        self.udp = self._new_udp_door()
        if self.identity is not None:
            self.corridor.alerts.signer = Signer(EDGE_SIGNING, EDGE_CERTIFICATE)

    def _new_udp_door(self) -> UdpDoor:
        door = UdpDoor(
            self.corridor,
            self.udp_settings,
            self.identity,
            self.rules,
            self.post,
            self.log,
            draw=self.random.randbytes,
            clock=lambda: self.beat,
        )
        self.settling.join(door)
        return door

    def pass_time(self, seconds: float) -> None:
        self.beat += int(seconds * SECOND_NS)
        super().pass_time(seconds)

    def hear(self, *arrived: tuple[bytes, bytes]) -> None:
        """Datagrams come in, each with its address, and the turn ends."""
        addresses = np.frombuffer(b"".join(address for _, address in arrived), np.uint8).reshape(-1, 28)
        self.udp.on_batch([data for data, _ in arrived], addresses, self.now)
        self.settle()

    def vehicle(
        self, name: str, place: Place = HOME, *, host: str = "10.0.0.1", role: str = "vehicle", serial: int = 7
    ) -> "Vehicle":
        vehicle = Vehicle(self, name, host, role, serial)
        vehicle.open(place)
        return vehicle


class Vehicle:
    """One endpoint that does only what it is told."""

    PORTS = iter(range(20_000, 10**9))

    def __init__(self, edge: UdpEdge, name: str, host: str = "10.0.0.1", role: str = "vehicle", serial: int = 7) -> None:
        self.edge, self.name = edge, EndpointId(name)
        self.static = edge.random.randbytes(32)
        self.certificate = certificate_of(name, self.static, role, serial)
        self.address = sockaddr_of(host, 20_000 + next(self.PORTS) % 40_000)
        self.token: SessionToken | None = None
        self.keys: Keys | None = None
        self.counter = 0
        self.ack: Acknowledge | None = None
        self._read = 0

    def report_at(self, place: Place, *, heading: float | None = 90.0, speed: float | None = 10.0) -> Report:
        return Report(self.name, place, self.edge.now, heading, speed)

    def init_bytes(
        self, place: Place = HOME, *, former: SessionToken | None = None, cookie: bytes = b""
    ) -> tuple[bytes, Initiator | None]:
        """An INIT and who can read the answer."""
        plain = encode(Init(self.report_at(place), former))
        if self.edge.identity is None:
            return plain, None
        initiator = Initiator(self.static, public_of(EDGE_STATIC), self.edge.random.randbytes(32))
        data = bytes((Kind.INIT,)) + initiator.write(hello_to_bytes(Hello(self.edge.now, self.certificate.data, plain)))
        return data + Macs(public_of(EDGE_STATIC)).stamp(data, cookie), initiator

    def ask_to_open(self, place: Place = HOME, *, former: SessionToken | None = None) -> Datagram:
        """Send INIT; gives what the edge answers."""
        data, initiator = self.init_bytes(place, former=former)
        self.edge.hear((data, self.address))
        (answer,) = self.taken_raw()
        if initiator is None:
            return decode(answer)
        payload, self.keys = initiator.read(answer[1:])
        return decode(payload)

    def open(self, place: Place = HOME, *, former: SessionToken | None = None) -> None:
        """Open a session and speak in it."""
        self.ack = self._acknowledged(self.ask_to_open(place, former=former))
        self.token, self.counter = self.ack.session, 0
        self.report(place)

    def _acknowledged(self, answer: Datagram) -> Acknowledge:
        assert isinstance(answer, Acknowledge), answer
        return answer

    def sealed(self, plain: bytes, counter: int | None = None) -> bytes:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        assert self.token is not None
        if self.keys is None:
            return plain
        if counter is None:
            counter, self.counter = self.counter, self.counter + 1
        return data_head(self.token, counter) + AESGCM(self.keys.send).encrypt(nonce_of(counter), plain, None)

    def say_bytes(self, value: Datagram) -> bytes:
        return self.sealed(encode(value))

    def say(self, *values: Datagram) -> None:
        """Say something inside the session."""
        self.edge.hear(*((self.say_bytes(value), self.address) for value in values))

    def report(self, place: Place, *, heading: float | None = 90.0, speed: float | None = 10.0) -> None:
        from milepost.model.sessions import ReportSent  # noqa: PLC0415

        assert self.token is not None
        self.edge.now = Instant(self.edge.now + 1)
        self.say(ReportSent(self.token, self.report_at(place, heading=heading, speed=speed)))

    def taken_raw(self) -> list[bytes]:
        """What was sent to the address and nobody looked at yet."""
        sent = self.edge.post.sent[self.address]
        found, self._read = sent[self._read :], len(sent)
        return found

    def opened(self, data: bytes) -> Datagram:
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        if self.keys is None:
            return decode(data)
        assert data[0] == Kind.DATA, data[0]
        return decode(AESGCM(self.keys.receive).decrypt(nonce_of(counter_of(data)), data[17:], None))

    def taken(self) -> list[Datagram]:
        """The same, opened and read."""
        return [self.opened(data) for data in self.taken_raw()]

    def take(self, wanted: Callable[[Datagram], bool]) -> list[Datagram]:
        return [value for value in self.taken() if wanted(value)]
