"""Discovery of an edge (M20) by configuration, DNS or multicast, and of the key that identifies it.

udp://HOST[:PORT]
udp+srv://DOMAIN                                          DNS: SRV records of _milepost._udp.DOMAIN
udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]   multicast: ASK (request), the first valid HERE (reply)

Invariants:
- with a certificate authority, an answer is valid only if an edge certified by it signed it, with the nonce of this request;
- an invalid answer is ignored, and does not suppress a valid one.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, field, replace
from itertools import count
from random import random
from secrets import token_bytes
from time import monotonic, time_ns
from typing import Final
from urllib.parse import parse_qsl, urlsplit

from milepost.client.errors import EdgeUnreachable
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.retry import RetryPolicy
from milepost.trust.certificates import CertificateAuthority, read_certificate
from milepost.trust.signing import Verifier
from milepost.wire.sealed import (
    NONCE_BYTES,
    DiscoveryReply,
    DiscoveryRequest,
    SealedType,
    discovery_reply_from_bytes,
    discovery_request_to_bytes,
)

PORT: Final = 4242
DISCOVERY_GROUP: Final = "239.192.76.80"
DISCOVERY_PORT: Final = 4244

FIXED, BY_DNS, BY_MULTICAST = "udp", "udp+srv", "udp+find"


@dataclass(frozen=True, slots=True)
class UdpTarget:
    """A decoded URL."""

    scheme: str
    host: str
    """A host, a domain, or a multicast group."""
    port: int
    interface: str = ""
    """The local address of the network to search; empty: the system's choice."""

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}" + ("" if self.scheme == BY_DNS else f":{self.port}")


def udp_target_of(url: str) -> UdpTarget:
    """Decode a URL; raise `ValueError` with the reason if it is invalid."""
    parts = urlsplit(url)
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535") from None
    if parts.username is not None or parts.password is not None:
        raise ValueError(f"the URL {url!r} has a user, which udp does not support: clients authenticate with a certificate")
    if parts.path not in ("", "/") or parts.fragment or (parts.query and parts.scheme != BY_MULTICAST):
        raise ValueError(f"the URL {url!r} is not {parts.scheme}://HOST[:PORT]")
    if parts.scheme == BY_MULTICAST:
        return _by_multicast(url, parts.query, is_bare=parts.hostname is None)
    if not parts.hostname or port == 0 or (port is not None and parts.scheme == BY_DNS):
        raise ValueError(f"the URL {url!r} is not udp://HOST[:PORT] or udp+srv://DOMAIN")
    return UdpTarget(parts.scheme, parts.hostname, port or PORT)


def _by_multicast(url: str, query: str, *, is_bare: bool) -> UdpTarget:
    options = dict(parse_qsl(query))
    if not is_bare or not set(options) <= {"group", "port", "interface"}:
        raise ValueError(f"the URL {url!r} is not udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]")
    port = options.get("port", str(DISCOVERY_PORT))
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535")
    return UdpTarget(BY_MULTICAST, options.get("group", DISCOVERY_GROUP), int(port), options.get("interface", ""))


BUFFER_BYTES: Final = 4_000_000
"""Receive buffer requested from the system, which may grant less."""

OnDatagram = Callable[[bytes, str], None]
"""Receives a datagram and the host that sent it."""


class DatagramSocket(asyncio.DatagramProtocol):
    """One UDP socket."""

    def __init__(self, on_datagram: OnDatagram, on_fault: Callable[[OSError], None] | None = None) -> None:
        self._on_datagram = on_datagram
        self._on_fault = on_fault

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """Forward a datagram."""
        self._on_datagram(data, addr[0])

    def error_received(self, exc: Exception) -> None:
        """Report that the system could not send, or that the port has no listener."""
        if self._on_fault is not None and isinstance(exc, OSError):
            self._on_fault(exc)


async def open_socket(
    address: tuple[str, int], on_datagram: OnDatagram, on_fault: Callable[[OSError], None]
) -> asyncio.DatagramTransport:
    """Open a socket connected to one address; a host name is resolved now."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: DatagramSocket(on_datagram, on_fault), remote_addr=address)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return transport


REQUEST_RETRY: Final = RetryPolicy(first_s=0.25, limit_s=2.0)

TTL: Final = 4
"""Maximum hops of a multicast ASK."""


@dataclass(frozen=True, slots=True)
class EdgeAddress:
    """The address of an edge, and its public key."""

    host: str
    port: int
    key: bytes = b""
    """Empty if datagrams are not encrypted."""
    serial: int | None = field(default=None, compare=False)
    """The serial number of its certificate; None: the edge has shown none."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def discovery_request_datagram(nonce: bytes, place: Place) -> bytes:
    """Return an ASK datagram."""
    assert len(nonce) == NONCE_BYTES, "nonces have one size"
    return discovery_request_to_bytes(DiscoveryRequest(nonce, place.latitude, place.longitude))


def read_discovery_reply(
    data: bytes, nonce: bytes, ca: CertificateAuthority | None, now: Instant
) -> tuple[DiscoveryReply, bytes]:
    """Decode a valid answer and return it with the edge's key; raise `Malformed` for any other datagram."""
    if data[:1] != bytes([SealedType.HERE]):
        raise Malformed(Reason.MALFORMED, "not a HERE datagram")
    reply = discovery_reply_from_bytes(data)
    if reply.nonce != nonce:
        raise Malformed(Reason.REPLAYED, "an answer to another request")
    if ca is None:
        return reply, b""
    certificate = read_certificate(reply.certificate)
    refused = Verifier(ca).check_discovery_reply(reply.signed, certificate, reply.signature, now)
    if refused is not None:
        raise Malformed(refused.reason, refused.detail)
    return reply, certificate.key


async def query_edge(
    address: tuple[str, int], nonce: bytes, place: Place, ca: CertificateAuthority | None, *, interface: str = ""
) -> EdgeAddress:
    """Return the first edge with a valid answer; repeat ASK until cancelled. `OSError` if ASK cannot be sent."""
    answers: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()
    transport = await _open(address, answers, interface)
    try:
        for repeats in count():
            transport.sendto(discovery_request_datagram(nonce, place), address)
            found = await _maybe_answer(answers, nonce, ca, REQUEST_RETRY.wait_s(repeats))
            if found is not None:
                return found
        raise AssertionError("requests are repeated until cancelled")
    finally:
        transport.close()


async def _open(
    address: tuple[str, int], answers: "asyncio.Queue[tuple[bytes, str]]", interface: str
) -> asyncio.DatagramTransport:
    family, any_address = (socket.AF_INET6, "::") if ":" in address[0] else (socket.AF_INET, "0.0.0.0")
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind((any_address, 0))
        if family == socket.AF_INET:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, TTL)
        if interface:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: DatagramSocket(lambda data, host: answers.put_nowait((data, host))), sock=bound
        )
    except BaseException:
        bound.close()
        raise
    return transport


async def _maybe_answer(
    answers: "asyncio.Queue[tuple[bytes, str]]", nonce: bytes, ca: CertificateAuthority | None, wait_s: float
) -> EdgeAddress | None:
    """Return the first edge with a valid answer within the wait, or None."""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                data, address = await answers.get()
                try:
                    reply, key = read_discovery_reply(data, nonce, ca, Instant(time_ns()))
                    serial = read_certificate(reply.certificate).serial if key else None
                except Malformed:
                    continue
                return EdgeAddress(address, reply.port, key, serial)
    except TimeoutError:
        return None


PER_EDGE_S: Final = 2.0
"""Time per edge before the next of several is tried."""

RETRY_S: Final = 0.5
"""Wait after a network error."""

SERVICE: Final = "_milepost._udp"


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How to find an edge."""

    target: UdpTarget
    place: Place
    ca: CertificateAuthority | None
    """The certificate authority of the edges; None if datagrams are not encrypted."""
    edge_key: bytes = b""
    """The edge's configured public key, if any."""
    resolver: tuple[str, int] | None = None
    """The DNS server to use instead of the system's."""


@dataclass(frozen=True, slots=True)
class SrvRecord:
    """An SRV record."""

    priority: int
    weight: int
    host: str
    port: int


async def find_edge(settings: DiscoverySettings, within_s: float) -> EdgeAddress:
    """Return the address of an edge; raise `EdgeUnreachable` if none is found in time."""
    failure = "no edge answered" if settings.ca is None else "no edge certified by the certificate authority answered"
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    return await _find_once(settings)
                except OSError as fault:  # name resolution or the network may recover in a moment
                    failure = fault.strerror or str(fault) or failure
                    await asyncio.sleep(RETRY_S)
    except TimeoutError:
        raise EdgeUnreachable(f"{settings.target}: {failure}") from None


async def _find_once(settings: DiscoverySettings) -> EdgeAddress:
    target = settings.target
    if target.scheme == BY_MULTICAST:
        nonce = token_bytes(NONCE_BYTES)
        return await query_edge((target.host, target.port), nonce, settings.place, settings.ca, interface=target.interface)
    if target.scheme == FIXED and (settings.ca is None or settings.edge_key):
        return EdgeAddress(target.host, target.port, settings.edge_key)
    while True:
        async for host, port in _addresses(settings):
            try:
                async with asyncio.timeout(PER_EDGE_S):
                    found = await query_edge((host, port), token_bytes(NONCE_BYTES), settings.place, settings.ca)
                    return EdgeAddress(host, port, found.key, found.serial)
            except TimeoutError:
                continue


async def _addresses(settings: DiscoverySettings) -> AsyncIterator[tuple[str, int]]:
    """Yield the addresses to try, in order."""
    target = settings.target
    names = [(target.host, target.port)]
    if target.scheme == BY_DNS:
        records = await asyncio.get_running_loop().run_in_executor(None, _look_up_srv, target.host, settings.resolver)
        names = [(record.host, record.port) for record in srv_order(records, [random() for _ in records])]
    for host, port in names:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        yield str(found[0][4][0]), port


def srv_order(records: list[SrvRecord], draws: list[float]) -> list[SrvRecord]:
    """Sort by priority; order equal priorities at random by weight (RFC 2782)."""
    left = sorted(records, key=lambda record: (record.priority, record.weight > 0))
    ordered = []
    for draw in draws:
        group = [record for record in left if record.priority == left[0].priority]
        at = draw * sum(record.weight for record in group)
        chosen = group[-1]
        for record in group:
            at -= record.weight
            if at <= 0:
                chosen = record
                break
        left.remove(chosen)
        ordered.append(chosen)
    return ordered


def _look_up_srv(domain: str, resolver_at: tuple[str, int] | None) -> list[SrvRecord]:
    """Return the SRV records of a domain; every failure is an `OSError`."""
    try:
        from dns import exception, resolver  # noqa: PLC0415  # an optional dependency
    except ImportError:
        raise EdgeUnreachable("udp+srv needs the package dnspython: pip install '.[discovery]'") from None
    srv_resolver = resolver.Resolver(configure=resolver_at is None)
    if resolver_at is not None:
        srv_resolver.nameservers, srv_resolver.port = [resolver_at[0]], resolver_at[1]
    try:
        answers = srv_resolver.resolve(f"{SERVICE}.{domain}", "SRV")
    except exception.DNSException as fault:
        raise OSError(f"DNS has no SRV records of {SERVICE}.{domain}: {fault}") from None
    return [SrvRecord(one.priority, one.weight, str(one.target).rstrip("."), one.port) for one in answers]


REDISCOVERY_S: Final = 3.0
"""Time in which only the old edge is tried; also the duration of a search, and the pause between two."""


class Rediscovery:
    """Background search for an edge while the last one is unreachable: it may have moved, have another key, or be gone."""

    def __init__(self, settings: DiscoverySettings, wake: Callable[[], None]) -> None:
        self._settings = settings
        self._wake = wake
        self._search: asyncio.Task[EdgeAddress] | None = None
        self._next_s = 0.0

    def begin(self) -> None:
        """Schedule a search after the loss of the edge."""
        self._next_s = monotonic() + REDISCOVERY_S

    def end(self) -> None:
        """Stop searching: the edge is back, or the client ends."""
        if self._search is not None:
            self._search.cancel()
            self._search = None

    def poll(self, place: Place) -> EdgeAddress | None:
        """Return the edge that a finished search found; start a search if one is due."""
        if self._search is None and monotonic() >= self._next_s:
            self._search = asyncio.create_task(find_edge(replace(self._settings, place=place), REDISCOVERY_S))
            self._search.add_done_callback(lambda _: self._wake())
        if self._search is None or not self._search.done():
            return None
        done, self._search = self._search, None
        self._next_s = monotonic() + REDISCOVERY_S
        with contextlib.suppress(EdgeUnreachable):
            return done.result()
        return None
