"""An edge without sockets for UDP endpoints: its listeners in memory, in a time that the test controls."""

from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from itertools import count
from random import Random
from typing import TypeVar

import numpy as np
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from edge_in_memory import SMALL, START, EdgeInMemory
from milepost.broker.admission import AdmissionRules
from milepost.broker.effects import Storage
from milepost.broker.limits import BrokerLimits
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.udp.batch_io import ADDRESS_BYTES, sockaddr_of
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.sender import Octets
from milepost.listeners.udp.settings import EdgeIdentity, UdpSettings
from milepost.model import EndpointId, Instant, Place
from milepost.model.addresses import Address, ToContent
from milepost.model.endpoints import edge_source
from milepost.model.instants import SECOND_NS
from milepost.model.messages import NO_FIELDS, Message, MessageId, Scalar
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reports import Report
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    Close,
    Datagram,
    Init,
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.tags import Tag
from milepost.trust.certificates import EDGE, Certificate, CertificateAuthority, issue
from milepost.trust.cookies import Macs
from milepost.trust.noise import NoiseInitiator, SessionKeys, public_of
from milepost.trust.replay_window import ReplayWindow
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import Hello, SealedType, counter_of, data_head, hello_to_bytes, nonce_of

AUTHORITY_KEY = bytes(range(32))
EDGE_STATIC = bytes(range(32, 64))
EDGE_SIGNING = bytes(range(64, 96))
YEAR_NS = 365 * 86_400 * SECOND_NS
HOME = Place(40.7608, -111.891)
SERIAL = 7

DatagramT = TypeVar("DatagramT", bound=Datagram)


def certificate_of(
    name: str,
    static: bytes,
    role: str = "vehicle",
    serial: int = SERIAL,
    *,
    signing: bytes = b"",
    authority: bytes = AUTHORITY_KEY,
    from_s: int = -86_400,
    until_s: int = 86_400 * 365,
) -> Certificate:
    return issue(
        authority,
        id=EndpointId(name),
        role=role,
        key=public_of(static),
        not_before=Instant(START + from_s * SECOND_NS),
        not_after=Instant(START + until_s * SECOND_NS),
        serial=serial,
        signing_key=signing_public_of(signing) if signing else b"",
    )


EDGE_CERTIFICATE = certificate_of("edge-1", EDGE_STATIC, EDGE, 1, signing=EDGE_SIGNING)


def identity() -> EdgeIdentity:
    return EdgeIdentity(EDGE_STATIC, EDGE_CERTIFICATE, CertificateAuthority(signing_public_of(AUTHORITY_KEY)))


@dataclass
class OutputInMemory:
    """Datagrams sent, by address; `capacity`: datagrams that it still accepts, None: unlimited."""

    sent: dict[bytes, list[bytes]] = field(default_factory=lambda: defaultdict(list))
    order: list[tuple[bytes, bytes]] = field(default_factory=list)
    capacity: int | None = None

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        return self.send_many([head.tobytes() + tail for head in heads], addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        room = len(datagrams) if self.capacity is None else min(self.capacity, len(datagrams))
        for data, address in zip(datagrams[:room], addresses[:room], strict=True):
            self.sent[address.tobytes()].append(data)
            self.order.append((address.tobytes(), data))
        if self.capacity is not None:
            self.capacity -= room
        return room


class UdpEdge(EdgeInMemory):
    """An edge with an MQTT and a UDP listener; encrypted by default."""

    def __init__(
        self,
        storage: Storage | None = None,
        *,
        is_sealed: bool = True,
        udp: UdpSettings | None = None,
        seed: int = 1,
        limits: BrokerLimits = SMALL,
        rules: AdmissionRules | None = None,
        settings: MqttSettings | None = None,
        now: Instant = START,
    ) -> None:
        super().__init__(storage, limits=limits, rules=rules, settings=settings, now=now)
        self.broker.name = EndpointId("edge-1")
        self.broker.source = edge_source("edge-1")
        self.random = Random(seed)
        self.seed = seed
        self.monotonic_now = self._timer_at = 10**15
        self.output = OutputInMemory()
        self.identity = identity() if is_sealed else None
        self.udp_settings = udp or UdpSettings()
        self.udp = UdpListener(
            self.broker,
            self.udp_settings,
            self.identity,
            self.output,
            self.log,
            random_bytes=self.random.randbytes,
            clock=lambda: self.monotonic_now,
        )
        self.committer.add_listener(self.udp)
        if self.identity is not None:
            self.broker.sign_with(Signer(EDGE_SIGNING, EDGE_CERTIFICATE))

    def respawned(self) -> "UdpEdge":
        """Return a new process with the same keys, after this one crashed."""
        later = UdpEdge(
            is_sealed=self.identity is not None, udp=self.udp_settings, seed=self.seed + 1, limits=self.limits, now=self.now
        )
        later.monotonic_now = later._timer_at = self.monotonic_now
        return later

    @property
    def since_timer_ns(self) -> int:
        """Nanoseconds since the listener's timer last ran."""
        return self.monotonic_now - self._timer_at

    def pass_time(self, seconds: float) -> None:
        self.monotonic_now += int(seconds * SECOND_NS)
        self._timer_at = self.monotonic_now
        super().pass_time(seconds)

    def step(self, seconds: float, *, by: float = 0.5, alive: "Iterable[Vehicle]" = ()) -> None:
        """Let time pass in steps; the vehicles of *alive* report in each."""
        for _ in range(round(seconds / by)):
            self.pass_time(by)
            for vehicle in alive:
                vehicle.report()

    def receive(self, *datagrams: tuple[bytes, bytes]) -> None:
        """Receive datagrams with their addresses, and run the edge until it is idle."""
        self.on_batch(*datagrams)
        self.run_ticks()

    def on_batch(self, *datagrams: tuple[bytes, bytes]) -> None:
        addresses = np.frombuffer(b"".join(address for _, address in datagrams), np.uint8).reshape(-1, ADDRESS_BYTES)
        self.udp.on_batch([data for data, _ in datagrams], addresses, self.now)

    def vehicle(
        self, name: str, place: Place = HOME, *, host: str = "10.0.0.1", role: str = "vehicle", serial: int = SERIAL
    ) -> "Vehicle":
        vehicle = Vehicle(self, name, place, host=host, role=role, serial=serial)
        vehicle.open()
        return vehicle


class Vehicle:
    """A scripted endpoint: it sends only what the test sends."""

    PORTS = count(20_000)

    def __init__(
        self,
        edge: UdpEdge,
        name: str,
        place: Place = HOME,
        *,
        host: str = "10.0.0.1",
        role: str = "vehicle",
        serial: int = SERIAL,
    ) -> None:
        self.edge, self.name, self.place, self.host = edge, EndpointId(name), place, host
        self.static = edge.random.randbytes(32)
        self.certificate = certificate_of(name, self.static, role, serial)
        self.address = b""
        self.move_network()
        self.maybe_token: SessionToken | None = None
        self.keys: SessionKeys | None = None
        self.counter = 0
        self.ack: AcknowledgeDatagram | None = None
        self._window = ReplayWindow()
        self._read_count = 0
        self._ids = count(1)

    @property
    def token(self) -> SessionToken:
        assert self.maybe_token is not None, "there is no session"
        return self.maybe_token

    def move_network(self) -> None:
        """Send from another address from now on."""
        self.address = sockaddr_of(self.host, next(self.PORTS) % 40_000 + 20_000)
        self._read_count = len(self.edge.output.sent[self.address])

    def report_of(self, *, heading: float | None = 90.0, speed: float | None = 10.0, seen_at: int | None = None) -> Report:
        return Report(self.name, self.place, Instant(self.edge.now if seen_at is None else seen_at), heading, speed)

    def init_bytes(
        self, *, former: SessionToken | None = None, cookie: bytes = b"", sent_at: int | None = None, report: Report | None = None
    ) -> tuple[bytes, NoiseInitiator | None]:
        """Return an INIT, and the initiator that can read the reply."""
        plain = encode(Init(report or self.report_of(), former))
        if self.edge.identity is None:
            return plain, None
        initiator = NoiseInitiator(self.static, public_of(EDGE_STATIC), self.edge.random.randbytes(32))
        hello = Hello(Instant(self.edge.now if sent_at is None else sent_at), self.certificate.data, plain)
        data = bytes((SealedType.INIT,)) + initiator.write(hello_to_bytes(hello))
        return data + Macs(public_of(EDGE_STATIC)).stamp(data, cookie), initiator

    def send_init(self, *, former: SessionToken | None = None, sent_at: int | None = None) -> Datagram:
        """Send INIT and return the reply, which is no longer than the INIT."""
        data, initiator = self.init_bytes(former=former, sent_at=sent_at)
        self.edge.receive((data, self.address))
        (answer,) = self.received_raw()
        assert len(answer) <= len(data)
        return self.read_answer(answer, initiator)

    def read_answer(self, answer: bytes, initiator: NoiseInitiator | None) -> Datagram:
        if initiator is None:
            return decode(answer)
        assert answer[0] == SealedType.ACK
        payload, self.keys = initiator.read(answer[1:])
        return decode(payload)

    def open(self, *, former: SessionToken | None = None) -> None:
        """Open a session with a first report."""
        self.edge.now = Instant(self.edge.now + 1)
        self.accept(self.send_init(former=former))
        self.report()

    def accept(self, answer: Datagram) -> None:
        """Use the acknowledged session; nothing is sent in it yet."""
        assert isinstance(answer, AcknowledgeDatagram), answer
        self.ack, self.maybe_token, self.counter, self._window = answer, answer.session, 0, ReplayWindow()

    def sealed(self, plain: bytes, *, counter: int | None = None) -> bytes:
        if self.keys is None:
            return plain
        if counter is None:
            counter, self.counter = self.counter, self.counter + 1
        return data_head(self.token, counter) + AESGCM(self.keys.send).encrypt(nonce_of(counter), plain, None)

    def datagram_of(self, value: Datagram) -> tuple[bytes, bytes]:
        """Return a datagram of the session as sent to the edge, and its source address."""
        if not isinstance(value, Init) and value.session is None:
            value = replace(value, session=self.token)
        return self.sealed(encode(value)), self.address

    def send(self, *values: Datagram) -> None:
        """Send datagrams of the session."""
        self.edge.receive(*(self.datagram_of(value) for value in values))

    def report_datagram(self, *, heading: float | None = 90.0, speed: float | None = 10.0) -> tuple[bytes, bytes]:
        self.edge.now = Instant(self.edge.now + 1)
        return self.datagram_of(ReportSent(self.token, self.report_of(heading=heading, speed=speed)))

    def report(self, place: Place | None = None, *, heading: float | None = 90.0, speed: float | None = 10.0) -> None:
        self.place = place or self.place
        self.edge.receive(self.report_datagram(heading=heading, speed=speed))

    def message(
        self,
        topic: str = "t",
        body: bytes = b"",
        *,
        reliable: bool = False,
        priority: Priority = Priority.CONVENIENCE,
        to: Address | None = None,
        tags: Iterable[str] = (),
        fields: dict[str, Scalar] | None = None,
        valid_s: float = 3_600,
        number: int | None = None,
        source: str | None = None,
    ) -> Message:
        return Message(
            MessageId(next(self._ids) if number is None else number),
            EndpointId(source or self.name),
            topic,
            self.edge.now,
            tags=frozenset(map(Tag, tags)),
            address=to or ToContent(),
            valid_until=Instant(self.edge.now + int(valid_s * SECOND_NS)),
            priority=priority,
            reliable=reliable,
            fields=fields or NO_FIELDS,
            body=body,
        )

    def publish(self, message: Message) -> None:
        self.send(PublishDatagram(message))

    def subscribe(self, query: str, *, number: int = 1, qos: int = 1) -> None:
        self.send(SubscribeDatagram(Subscription(self.name, parse_query(query), id=SubscriptionId(number), qos=qos)))

    def acknowledge(self, message: Message) -> None:
        self.send(ReceivedDatagram(MessageName(message.source, message.id)))

    def close(self) -> None:
        self.send(Close(self.token))

    def received_raw(self) -> list[bytes]:
        """Return the datagrams sent to the address since the last call."""
        sent = self.edge.output.sent[self.address]
        found, self._read_count = sent[self._read_count :], len(sent)
        return found

    def decrypted(self, data: bytes) -> Datagram:
        if self.keys is None:
            return decode(data)
        assert data[0] == SealedType.DATA, data[0]
        assert self._window.is_new(counter_of(data)), "a counter was used twice"
        self._window.take(counter_of(data))
        return decode(AESGCM(self.keys.receive).decrypt(nonce_of(counter_of(data)), data[17:], None))

    def received(self) -> list[Datagram]:
        """Return the datagrams since the last call, decrypted and decoded."""
        return [self.decrypted(data) for data in self.received_raw()]

    def received_of(self, kind: type[DatagramT], condition: Callable[[DatagramT], bool] = lambda _: True) -> list[DatagramT]:
        """Return the datagrams of one type since the last call; discard the others."""
        return [value for value in self.received() if isinstance(value, kind) and condition(value)]

    def messages(self) -> list[Message]:
        return [one.message for one in self.received_of(PublishDatagram)]

    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages()]

    def refusals(self) -> list[str]:
        return [one.name for one in self.received_of(Refusal)]
