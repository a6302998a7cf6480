"""Endpoints over UDP for load generation: each opens a session, encrypted or plain, and exports it for the programs in C.

INIT ─▶ ACK ─▶ first report       over sockets (`open_all`), or in process: the caller passes the bytes
record ─▶ a line of the file that udp-source and udp-sink read (c/encryption.h)
"""

import os
import select
import socket
import struct
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from milepost.model import EndpointId, Instant, Place
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Malformed
from milepost.model.reports import Report
from milepost.model.session_datagrams import AcknowledgeDatagram, Datagram, Init, ReportSent, SessionToken
from milepost.trust.certificates import issue
from milepost.trust.cookies import Macs
from milepost.trust.noise import NoiseInitiator, SessionKeys, public_of
from milepost.wire.datagrams import decode, encode
from milepost.wire.sealed import Hello, SealedType, counter_of, data_head, hello_to_bytes, nonce_of

SPEED_MPS = 5.0
"""Slow enough that a source that restarts from its first place passes the plausibility check."""

PARALLEL_MAX = 64
RETRY_S = 1.0
TRIES_MAX = 5
DAY_NS = 86_400 * SECOND_NS
SOUTH_WEST = Place(40.5, -112.0)
SPREAD_DEG = 0.2
NO_KEYS = SessionKeys(bytes(32), bytes(32))
REPORT_TAIL_BYTES = 44
SEEN_AT_IN_TAIL = 18
RECORD = struct.Struct("<Q32sHHH")


class SessionOpenFailed(Exception):
    """Sessions could not be opened."""


@dataclass(frozen=True, slots=True)
class Realm:
    """The key of the certificate authority, and the public key of the edge."""

    authority_key: bytes
    edge_key: bytes


class Endpoint:
    """One vehicle that drives north."""

    __slots__ = ("_initiator", "certificate", "counter", "init", "keys", "name", "place", "realm", "static", "token")

    def __init__(self, number: int, realm: Realm | None, place: Place | None = None) -> None:
        self.name = EndpointId(f"car-{number:06}")
        self.place = place or place_of(number)
        self.token = SessionToken(0)
        self.keys = NO_KEYS
        self.counter = 0
        self.init = b""
        self.realm = realm
        self._initiator: NoiseInitiator | None = None
        self.static = self.certificate = b""
        if realm is not None:
            self.static = os.urandom(32)
            self.certificate = self._issue_certificate(realm, number + 1)

    def _issue_certificate(self, realm: Realm, serial: int) -> bytes:
        now = time.time_ns()
        return issue(
            realm.authority_key,
            id=self.name,
            role="vehicle",
            key=public_of(self.static),
            not_before=Instant(now - DAY_NS),
            not_after=Instant(now + DAY_NS),
            serial=serial,
        ).data

    def begin(self, now: Instant) -> bytes:
        """Return the INIT datagram."""
        plain = encode(Init(self._report(now)))
        if self.realm is None:
            self.init = plain
            return plain
        self._initiator = NoiseInitiator(self.static, self.realm.edge_key, os.urandom(32))
        data = bytes((SealedType.INIT,)) + self._initiator.write(hello_to_bytes(Hello(now, self.certificate, plain)))
        self.init = data + Macs(self.realm.edge_key).stamp(data)
        return self.init

    def read_ack(self, data: bytes) -> None:
        """Process the edge's answer, which opens the session."""
        if self._initiator is not None:
            data, self.keys = self._initiator.read(data[1:])
            self._initiator = None
        answer = decode(data)
        if not isinstance(answer, AcknowledgeDatagram):
            raise SessionOpenFailed(f"{self.name}: expected ACK, received {answer}")
        self.token = answer.session

    def report(self, now: Instant) -> bytes:
        """Return a report as a datagram."""
        return self.seal(ReportSent(self.token, self._report(now)))

    def seal(self, value: Datagram) -> bytes:
        """Return a value as a datagram of the session."""
        plain = encode(value)
        if self.realm is None:
            return plain
        counter, self.counter = self.counter, self.counter + 1
        return data_head(self.token, counter) + AESGCM(self.keys.send).encrypt(nonce_of(counter), plain, None)

    def open(self, data: bytes) -> Datagram:
        """Decrypt and decode a datagram of the edge."""
        if self.realm is None:
            return decode(data)
        return decode(AESGCM(self.keys.receive).decrypt(nonce_of(counter_of(data)), data[17:], None))

    def record(self) -> bytes:
        """Return the session in the format of the programs in C, which continue it."""
        plain = encode(ReportSent(self.token, self._report(Instant(0))))
        latitude_at = len(plain) - REPORT_TAIL_BYTES
        head = RECORD.pack(self.token, self.keys.send, latitude_at + SEEN_AT_IN_TAIL, latitude_at, len(plain))
        return head + plain

    def _report(self, now: Instant) -> Report:
        return Report(self.name, self.place, now, 0.0, SPEED_MPS)


def place_of(number: int) -> Place:
    """Return a place in the city, the same in each run."""
    east, north = number * 0.6180339887 % 1.0, number * 0.7548776662 % 1.0
    return Place(SOUTH_WEST.latitude + SPREAD_DEG * north, SOUTH_WEST.longitude + SPREAD_DEG * east)


def write_sessions(path: Path, endpoints: Iterable[Endpoint]) -> None:
    """Write the file of sessions for the programs in C."""
    with path.open("wb") as file:
        file.writelines(one.record() for one in endpoints)


def open_all(endpoints: list[Endpoint], port: int) -> None:
    """Open sessions at the edge on this port, some at a time, each on its own socket: an answer does not name its session."""
    pending = deque(endpoints)
    poll = select.epoll()
    slots: dict[int, _Slot] = {}
    try:
        for _ in range(min(PARALLEL_MAX, len(endpoints))):
            slot = _Slot(port)
            slots[slot.fd] = slot
            poll.register(slot.fd, select.EPOLLIN)
            slot.begin(pending.popleft())
        left = len(endpoints)
        while left:
            for fd, _ in poll.poll(RETRY_S / 10):
                if slots[fd].finish():
                    left -= 1
                    if pending:
                        slots[fd].begin(pending.popleft())
            for slot in slots.values():
                slot.retransmit_if_due()
    finally:
        poll.close()
        for slot in slots.values():
            slot.close()


class _Slot:
    """A socket, and the endpoint that is opening its session on it."""

    def __init__(self, port: int) -> None:
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.connect(("127.0.0.1", port))
        self._socket.setblocking(False)
        self.fd = self._socket.fileno()
        self._endpoint: Endpoint | None = None
        self._tries, self._due = 0, 0.0

    def begin(self, endpoint: Endpoint) -> None:
        self._endpoint, self._tries = endpoint, 0
        endpoint.begin(Instant(time.time_ns()))
        self._send()

    def finish(self) -> bool:
        """Receive a datagram; if it is the answer, send the first report and return true."""
        data, endpoint = self._socket.recv(2048), self._endpoint
        if endpoint is None or not _is_ack(data, endpoint):
            return False  # a late duplicate, or a heartbeat to the previous endpoint of this socket
        try:
            endpoint.read_ack(data)
        except Malformed:  # a late answer to the previous endpoint of this socket
            return False
        self._socket.send(endpoint.report(Instant(time.time_ns())))
        self._endpoint = None
        return True

    def retransmit_if_due(self) -> None:
        """Retransmit after a timeout."""
        if self._endpoint is not None and time.monotonic() > self._due:
            if self._tries >= TRIES_MAX:
                raise SessionOpenFailed(f"{self._endpoint.name}: no answer from the edge")
            self._send()

    def _send(self) -> None:
        assert self._endpoint is not None
        self._tries, self._due = self._tries + 1, time.monotonic() + RETRY_S
        self._socket.send(self._endpoint.init)

    def close(self) -> None:
        self._socket.close()


def _is_ack(data: bytes, endpoint: Endpoint) -> bool:
    return isinstance(decode(data), AcknowledgeDatagram) if endpoint.realm is None else data[0] == SealedType.ACK
