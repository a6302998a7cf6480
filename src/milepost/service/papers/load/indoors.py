"""A UDP door in this process, without sockets: for what only the door is to be measured by."""

import os
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import numpy as np

from milepost.doors.keeper import Keeper
from milepost.doors.rules import Rules
from milepost.doors.settling import Settling
from milepost.doors.udp.addresses import ADDRESS_BYTES, sockaddr_of
from milepost.doors.udp.door import UdpDoor
from milepost.doors.udp.sending import Octets, Post
from milepost.doors.udp.settings import Identity, UdpSettings
from milepost.edge.corridor import Corridor
from milepost.edge.limits import Limits
from milepost.model import EndpointId, Instant
from milepost.model.instants import SECOND_NS
from milepost.service.logs import Level, Log
from milepost.service.papers.load.endpoints import DAY_NS, Endpoint, Realm
from milepost.storage import Survives, open_storage
from milepost.trust.authority import Authority
from milepost.trust.certificates import EDGE, issue
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of

PLENTY = 100_000_000
NAME = EndpointId("edge-1")
OPEN_AT_ONCE = 64
FIRST_PORT = 10_000
HOSTS = 250
"""Endpoints are spread over so many addresses of loopback."""


class Kept:
    """A post that keeps what it is given, in order."""

    def __init__(self) -> None:
        self.datagrams: list[bytes] = []

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Each head, followed by the same tail."""
        del addresses
        self.datagrams += [head.tobytes() + tail for head in heads]
        return len(heads)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Each datagram to its address."""
        del addresses
        self.datagrams += datagrams
        return len(datagrams)

    def take(self) -> list[bytes]:
        """What has come since the last time."""
        found, self.datagrams = self.datagrams, []
        return found


class Indoors(AbstractContextManager["Indoors"]):
    """Corridor and door, joined as the service joins them."""

    def __init__(self, *, is_sealed: bool, openers_max: int = 20_000) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="udp-")
        self._storage = open_storage(Path(self._folder.name), Survives.NOTHING)
        self._storage.load()
        self.corridor = Corridor(Limits(reports_per_s=PLENTY, reports_burst=PLENTY), NAME)
        identity: Identity | None = None
        self.realm: Realm | None = None
        if is_sealed:
            identity, self.realm, self.corridor.alerts.signer = _trust()
        log = Log(Level.ERROR)
        settings = UdpSettings(
            reporting_interval_ns=3_600 * SECOND_NS,
            handshakes_per_s=PLENTY,
            openers_max=openers_max,
            messages_per_s=PLENTY,
            messages_burst=PLENTY,
            prefix_per_s=PLENTY,
            prefix_burst=PLENTY,
            total_per_s=PLENTY,
            total_burst=PLENTY,
        )
        self.kept = Kept()
        self.post: Post = self.kept
        self.door = UdpDoor(self.corridor, settings, identity, Rules(), self, log, draw=os.urandom, clock=time.monotonic_ns)
        self.settling = Settling(self.corridor, Keeper(self.corridor, self._storage, log), self.door)

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Pass on to the post that is in use."""
        return self.post.send_shared(heads, tail, addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Pass on to the post that is in use."""
        return self.post.send_many(datagrams, addresses)

    def open_all(self, endpoints: list[Endpoint], addresses: Octets) -> float:
        """Open a session for each endpoint; gives the seconds that the door took for both of its turns of all of them."""
        taken_s = 0.0
        for start in range(0, len(endpoints), OPEN_AT_ONCE):
            part = endpoints[start : start + OPEN_AT_ONCE]
            where = addresses[start : start + OPEN_AT_ONCE]
            now = Instant(time.time_ns())
            taken_s += self.hear([one.begin(now) for one in part], where)
            for one, answer in zip(part, self.kept.take(), strict=True):
                one.read_ack(answer)
            now = Instant(time.time_ns())
            taken_s += self.hear([one.report(now) for one in part], where)
        return taken_s

    def hear(self, datagrams: list[bytes], addresses: Octets) -> float:
        """One turn; gives the seconds it took."""
        now = Instant(time.time_ns())
        began = time.process_time()
        self.door.on_batch(datagrams, addresses, now)
        self.settling.settle(now)
        return time.process_time() - began

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._storage.close()
        self._folder.cleanup()


def _trust() -> tuple[Identity, Realm, Signer]:
    authority_key, static, signing = os.urandom(32), os.urandom(32), os.urandom(32)
    now = time.time_ns()
    certificate = issue(
        authority_key,
        id=NAME,
        role=EDGE,
        key=public_of(static),
        not_before=Instant(now - DAY_NS),
        not_after=Instant(now + DAY_NS),
        serial=2**63,
        signing_key=signing_public_of(signing),
    )
    identity = Identity(static, certificate, Authority(signing_public_of(authority_key)))
    return identity, Realm(authority_key, public_of(static)), Signer(signing, certificate)


def spread_addresses(count: int) -> Octets:
    """An address for each endpoint."""
    rows = b"".join(sockaddr_of(f"127.0.0.{2 + number % HOSTS}", FIRST_PORT + number // HOSTS) for number in range(count))
    return np.frombuffer(rows, np.uint8).reshape(count, ADDRESS_BYTES)


def handshakes_per_s(count: int) -> float:
    """How many sessions the door opens in a second of its own time: certificate checked, first report taken."""
    with Indoors(is_sealed=True) as indoors:
        endpoints = [Endpoint(number, indoors.realm) for number in range(count)]
        taken_s = indoors.open_all(endpoints, spread_addresses(count))
        assert len(indoors.door.tenants) == count
        assert not indoors.corridor.counts.refused, indoors.corridor.counts.refused
    return count / taken_s
