"""A UDP listener in this process, without sockets: to measure the listener alone."""

import os
import tempfile
import time
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType

import numpy as np

from milepost.broker.broker import Broker
from milepost.broker.limits import BrokerLimits
from milepost.config.log_format import Level
from milepost.listeners.event_loop import ChangeWriter, TickCommitter
from milepost.listeners.udp.batch_io import ADDRESS_BYTES, sockaddr_of
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.sender import DatagramOutput, Octets
from milepost.listeners.udp.settings import EdgeIdentity, UdpSettings
from milepost.model import EndpointId, Instant
from milepost.model.durability import Durability
from milepost.model.instants import SECOND_NS
from milepost.runtime.structured_log import StructuredLog
from milepost.storage import open_storage
from milepost.trust.certificates import EDGE, CertificateAuthority, issue
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of
from milepost_experiments.papers.load.endpoints import DAY_NS, Endpoint, Realm

UNLIMITED = 100_000_000
NAME = EndpointId("edge-1")
OPEN_AT_ONCE = 64
FIRST_PORT = 10_000
HOSTS = 250
"""Number of loopback addresses over which endpoints are spread."""


class CollectingSender:
    """A sender that collects datagrams, in order."""

    def __init__(self) -> None:
        self.datagrams: list[bytes] = []

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Collect each head, followed by the same tail."""
        del addresses
        self.datagrams += [head.tobytes() + tail for head in heads]
        return len(heads)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Collect the datagrams."""
        del addresses
        self.datagrams += datagrams
        return len(datagrams)

    def take(self) -> list[bytes]:
        """Return the datagrams since the last call."""
        found, self.datagrams = self.datagrams, []
        return found


class InProcessEdge(AbstractContextManager["InProcessEdge"]):
    """A broker and a UDP listener, connected as in an edge process."""

    def __init__(self, *, is_encrypted: bool, cached_ciphers_max: int = 20_000) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="udp-")
        self._storage = open_storage(Path(self._folder.name), Durability.NONE)
        self._storage.load()
        self.broker = Broker(BrokerLimits(reports_per_s=UNLIMITED, reports_burst=UNLIMITED), NAME)
        identity: EdgeIdentity | None = None
        self.realm: Realm | None = None
        if is_encrypted:
            identity, self.realm, signer = _trust()
            self.broker.sign_with(signer)
        log = StructuredLog(Level.ERROR)
        settings = UdpSettings(
            reporting_interval_ns=3_600 * SECOND_NS,
            handshakes_per_s=UNLIMITED,
            cached_ciphers_max=cached_ciphers_max,
            messages_per_s=UNLIMITED,
            messages_burst=UNLIMITED,
            prefix_per_s=UNLIMITED,
            prefix_burst=UNLIMITED,
            total_per_s=UNLIMITED,
            total_burst=UNLIMITED,
        )
        self.collected = CollectingSender()
        self.sender: DatagramOutput = self.collected
        self.listener = UdpListener(self.broker, settings, identity, self, log, random_bytes=os.urandom, clock=time.monotonic_ns)
        self.tick_loop = TickCommitter(self.broker, ChangeWriter(self.broker, self._storage, log), self.listener)

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Forward to the current sender."""
        return self.sender.send_shared(heads, tail, addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Forward to the current sender."""
        return self.sender.send_many(datagrams, addresses)

    def open_all(self, endpoints: list[Endpoint], addresses: Octets) -> float:
        """Open a session for each endpoint; return the CPU seconds of the listener for all ticks."""
        cpu_s = 0.0
        for start in range(0, len(endpoints), OPEN_AT_ONCE):
            part = endpoints[start : start + OPEN_AT_ONCE]
            part_addresses = addresses[start : start + OPEN_AT_ONCE]
            now = Instant(time.time_ns())
            cpu_s += self.run_tick([one.begin(now) for one in part], part_addresses)
            for one, answer in zip(part, self.collected.take(), strict=True):
                one.read_ack(answer)
            now = Instant(time.time_ns())
            cpu_s += self.run_tick([one.report(now) for one in part], part_addresses)
        return cpu_s

    def run_tick(self, datagrams: list[bytes], addresses: Octets) -> float:
        """Run one tick with these datagrams; return its CPU seconds."""
        now = Instant(time.time_ns())
        began = time.process_time()
        self.listener.on_batch(datagrams, addresses, now)
        self.tick_loop.commit(now)
        return time.process_time() - began

    def __exit__(self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None) -> None:
        self._storage.close()
        self._folder.cleanup()


def _trust() -> tuple[EdgeIdentity, Realm, Signer]:
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
    identity = EdgeIdentity(static, certificate, CertificateAuthority(signing_public_of(authority_key)))
    return identity, Realm(authority_key, public_of(static)), Signer(signing, certificate)


def spread_addresses(count: int) -> Octets:
    """Return an address for each endpoint."""
    rows = b"".join(sockaddr_of(f"127.0.0.{2 + number % HOSTS}", FIRST_PORT + number // HOSTS) for number in range(count))
    return np.frombuffer(rows, np.uint8).reshape(count, ADDRESS_BYTES)


def handshakes_per_s(count: int) -> float:
    """Return the sessions opened per CPU second of the listener, with certificate check and first report."""
    with InProcessEdge(is_encrypted=True) as edge:
        endpoints = [Endpoint(number, edge.realm) for number in range(count)]
        cpu_s = edge.open_all(endpoints, spread_addresses(count))
        assert len(edge.listener.session_table) == count
        assert not edge.broker.counts.refused, edge.broker.counts.refused
    return count / cpu_s
