"""Discovery of an edge (M20) by configuration, DNS or multicast, and of the key that identifies it.

udp://HOST[:PORT]
udp+srv://DOMAIN                                          DNS: SRV records of _milepost._udp.DOMAIN
udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]   multicast: ASK out, the first valid HERE in

Invariants:
- with a certificate authority, an answer is valid only if an edge certified by it signed it, with the nonce of this request;
- an invalid answer is ignored, and does not suppress a valid one.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass, replace
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
from milepost.trust.certificates import Authority, read_certificate
from milepost.trust.signing import Verifier
from milepost.wire.sealed import NONCE_BYTES, Ask, Here, Kind, ask_to_bytes, here_from_bytes

PORT: Final = 4242
FINDING_GROUP: Final = "239.192.76.80"
FINDING_PORT: Final = 4244

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
        raise ValueError(f"the URL {url!r} has a user, which udp has not: who asks is shown by a certificate")
    if parts.path not in ("", "/") or parts.fragment or (parts.query and parts.scheme != BY_MULTICAST):
        raise ValueError(f"the URL {url!r} is not {parts.scheme}://HOST[:PORT]")
    if parts.scheme == BY_MULTICAST:
        return _by_multicast(url, parts.query, is_bare=parts.hostname is None)
    if not parts.hostname or port == 0 or (port is not None and parts.scheme == BY_DNS):
        raise ValueError(f"the URL {url!r} is not udp://HOST[:PORT] or udp+srv://DOMAIN")
    return UdpTarget(parts.scheme, parts.hostname, port or PORT)


def _by_multicast(url: str, query: str, *, is_bare: bool) -> UdpTarget:
    said = dict(parse_qsl(query))
    if not is_bare or not set(said) <= {"group", "port", "interface"}:
        raise ValueError(f"the URL {url!r} is not udp+find://[?group=ADDRESS&port=PORT&interface=ADDRESS]")
    port = said.get("port", str(FINDING_PORT))
    if not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535")
    return UdpTarget(BY_MULTICAST, said.get("group", FINDING_GROUP), int(port), said.get("interface", ""))


BUFFER_BYTES: Final = 4_000_000
"""Receive buffer requested from the system, which may grant less."""

OnDatagram = Callable[[bytes, str], None]
"""Receives a datagram and the host that sent it."""


class Port(asyncio.DatagramProtocol):
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


async def connect_port(
    address: tuple[str, int], on_datagram: OnDatagram, on_fault: Callable[[OSError], None]
) -> asyncio.DatagramTransport:
    """Open a socket connected to one address; a host name is resolved now."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Port(on_datagram, on_fault), remote_addr=address)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return transport


ASK_RETRY: Final = RetryPolicy(first_s=0.25, limit_s=2.0)

TTL: Final = 4
"""Maximum hops of a multicast ASK."""


@dataclass(frozen=True, slots=True)
class EdgeAddress:
    """The address of an edge, and its public key."""

    host: str
    port: int
    key: bytes = b""
    """Empty if datagrams are not encrypted."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def question(nonce: bytes, place: Place) -> bytes:
    """Return an ASK datagram."""
    assert len(nonce) == NONCE_BYTES, "nonces have one size"
    return ask_to_bytes(Ask(nonce, place.latitude, place.longitude))


def read_here(data: bytes, nonce: bytes, authority: Authority | None, now: Instant) -> tuple[Here, bytes]:
    """Decode a valid answer and return it with the edge's key; raise `Malformed` for any other datagram."""
    if data[:1] != bytes([Kind.HERE]):
        raise Malformed(Reason.MALFORMED, "no HERE")
    here = here_from_bytes(data)
    if here.nonce != nonce:
        raise Malformed(Reason.REPLAYED, "an answer to another question")
    if authority is None:
        return here, b""
    certificate = read_certificate(here.certificate)
    refused = Verifier(authority).check_here(here.signed, certificate, here.signature, now)
    if refused is not None:
        raise Malformed(refused.reason, refused.detail)
    return here, certificate.key


async def ask(
    address: tuple[str, int], nonce: bytes, place: Place, authority: Authority | None, *, interface: str = ""
) -> EdgeAddress:
    """Return the first edge with a valid answer; repeat ASK until cancelled. `OSError` if ASK cannot be sent."""
    answers: asyncio.Queue[tuple[bytes, str]] = asyncio.Queue()
    transport = await _open(address, answers, interface)
    try:
        for repeats in count():
            transport.sendto(question(nonce, place), address)
            found = await _maybe_answer(answers, nonce, authority, ASK_RETRY.wait_s(repeats))
            if found is not None:
                return found
        raise AssertionError("it asks until it is cancelled")
    finally:
        transport.close()


async def _open(
    address: tuple[str, int], answers: "asyncio.Queue[tuple[bytes, str]]", interface: str
) -> asyncio.DatagramTransport:
    family, anywhere = (socket.AF_INET6, "::") if ":" in address[0] else (socket.AF_INET, "0.0.0.0")
    bound = socket.socket(family, socket.SOCK_DGRAM)
    try:
        bound.setblocking(False)
        bound.bind((anywhere, 0))
        if family == socket.AF_INET:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_TTL, TTL)
        if interface:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(interface))
        loop = asyncio.get_running_loop()
        transport, _ = await loop.create_datagram_endpoint(
            lambda: Port(lambda data, host: answers.put_nowait((data, host))), sock=bound
        )
    except BaseException:
        bound.close()
        raise
    return transport


async def _maybe_answer(
    answers: "asyncio.Queue[tuple[bytes, str]]", nonce: bytes, authority: Authority | None, wait_s: float
) -> EdgeAddress | None:
    """Return the first edge with a valid answer within the wait, or None."""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                data, address = await answers.get()
                try:
                    here, key = read_here(data, nonce, authority, Instant(time_ns()))
                except Malformed:
                    continue
                return EdgeAddress(address, here.port, key)
    except TimeoutError:
        return None


EACH_S: Final = 2.0
"""Time per edge before the next of several is tried."""

AGAIN_S: Final = 0.5
"""Wait after a network error."""

SERVICE: Final = "_milepost._udp"


@dataclass(frozen=True, slots=True)
class DiscoverySettings:
    """How to find an edge."""

    target: UdpTarget
    place: Place
    authority: Authority | None
    """The certificate authority of the edges; None if datagrams are not encrypted."""
    edge_key: bytes = b""
    """The edge's configured public key, if any."""
    resolver: tuple[str, int] | None = None
    """The DNS server to use instead of the system's."""


@dataclass(frozen=True, slots=True)
class Record:
    """An SRV record."""

    priority: int
    weight: int
    host: str
    port: int


async def find(seeker: DiscoverySettings, within_s: float) -> EdgeAddress:
    """Return the address of an edge; raise `EdgeUnreachable` if none is found in time."""
    why = "no edge answers" if seeker.authority is None else "no edge that the authority vouches for answers"
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    return await _find(seeker)
                except OSError as fault:  # name resolution or the network may recover in a moment
                    why = fault.strerror or str(fault) or why
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        raise EdgeUnreachable(f"{seeker.target}: {why}") from None


async def _find(seeker: DiscoverySettings) -> EdgeAddress:
    target = seeker.target
    if target.scheme == BY_MULTICAST:
        nonce = token_bytes(NONCE_BYTES)
        return await ask((target.host, target.port), nonce, seeker.place, seeker.authority, interface=target.interface)
    if target.scheme == FIXED and (seeker.authority is None or seeker.edge_key):
        return EdgeAddress(target.host, target.port, seeker.edge_key)
    while True:
        async for host, port in _addresses(seeker):
            try:
                async with asyncio.timeout(EACH_S):
                    found = await ask((host, port), token_bytes(NONCE_BYTES), seeker.place, seeker.authority)
                    return EdgeAddress(host, port, found.key)
            except TimeoutError:
                continue


async def _addresses(seeker: DiscoverySettings) -> AsyncIterator[tuple[str, int]]:
    """Yield the addresses to try, in order."""
    target = seeker.target
    names = [(target.host, target.port)]
    if target.scheme == BY_DNS:
        records = await asyncio.get_running_loop().run_in_executor(None, _looked_up, target.host, seeker.resolver)
        names = [(record.host, record.port) for record in in_order(records, [random() for _ in records])]
    for host, port in names:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        yield str(found[0][4][0]), port


def in_order(records: list[Record], draws: list[float]) -> list[Record]:
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


def _looked_up(domain: str, resolver_at: tuple[str, int] | None) -> list[Record]:
    """Return the SRV records of a domain; every failure is an `OSError`."""
    try:
        from dns import exception, resolver  # noqa: PLC0415  # an optional dependency
    except ImportError:
        raise EdgeUnreachable("udp+srv needs dnspython, the extra 'discovery': pip install '.[discovery]'") from None
    asked = resolver.Resolver(configure=resolver_at is None)
    if resolver_at is not None:
        asked.nameservers, asked.port = [resolver_at[0]], resolver_at[1]
    try:
        answers = asked.resolve(f"{SERVICE}.{domain}", "SRV")
    except exception.DNSException as fault:
        raise OSError(f"DNS has no {SERVICE}.{domain}: {fault}") from None
    return [Record(one.priority, one.weight, str(one.target).rstrip("."), one.port) for one in answers]


AFTER_S: Final = 3.0
"""Time in which only the old edge is tried; also the duration of a search, and the pause between two."""


class Rediscovery:
    """Background search for an edge while the last one is unreachable: it may have moved, have another key, or be gone."""

    def __init__(self, seeker: DiscoverySettings, wake: Callable[[], None]) -> None:
        self._seeker = seeker
        self._wake = wake
        self._looking: asyncio.Task[EdgeAddress] | None = None
        self._next_s = 0.0

    def begin(self) -> None:
        """Schedule a search after the loss of the edge."""
        self._next_s = monotonic() + AFTER_S

    def end(self) -> None:
        """Stop searching: the edge is back, or the client ends."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def maybe_found(self, place: Place) -> EdgeAddress | None:
        """Return the edge that a finished search found; start a search if one is due."""
        if self._looking is None and monotonic() >= self._next_s:
            self._looking = asyncio.create_task(find(replace(self._seeker, place=place), AFTER_S))
            self._looking.add_done_callback(lambda _: self._wake())
        if self._looking is None or not self._looking.done():
            return None
        done, self._looking = self._looking, None
        self._next_s = monotonic() + AFTER_S
        with contextlib.suppress(EdgeUnreachable):
            return done.result()
        return None
