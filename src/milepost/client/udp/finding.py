"""Finding an edge (M20): by configuration, by DNS, or by asking nearby; and the key by which it is known."""

import asyncio
import socket
from collections.abc import AsyncIterator
from dataclasses import dataclass
from random import random
from secrets import token_bytes
from typing import Final

from milepost.client.faults import EdgeUnreachable
from milepost.client.udp.asking import Found, ask
from milepost.client.udp.targets import BY_DNS, BY_MULTICAST, FIXED, UdpTarget
from milepost.model.places import Place
from milepost.trust.authority import Authority
from milepost.wire.sealed import NONCE_BYTES

EACH_S: Final = 2.0
"""So long each of several edges is asked before the next."""

AGAIN_S: Final = 0.5
"""So long after a fault of the network it is tried again."""

SERVICE: Final = "_milepost._udp"


@dataclass(frozen=True, slots=True)
class Seeker:
    """Who looks for an edge, and what it knows."""

    target: UdpTarget
    place: Place
    authority: Authority | None
    """Whose edges are believed; nothing if nothing is to be sealed."""
    edge_key: bytes = b""
    """The edge's key, if it was given."""
    resolver: tuple[str, int] | None = None
    """The DNS server to ask instead of the system's."""


@dataclass(frozen=True, slots=True)
class Record:
    """An edge as DNS names it."""

    priority: int
    weight: int
    host: str
    port: int


async def find(seeker: Seeker, within_s: float) -> Found:
    """Where an edge is; `EdgeUnreachable` if none is found in time."""
    why = "no edge answers" if seeker.authority is None else "no edge that the authority vouches for answers"
    try:
        async with asyncio.timeout(within_s):
            while True:
                try:
                    return await _find(seeker)
                except OSError as fault:  # a name may be known, a network be there, in a moment
                    why = fault.strerror or str(fault) or why
                    await asyncio.sleep(AGAIN_S)
    except TimeoutError:
        raise EdgeUnreachable(f"{seeker.target}: {why}") from None


async def _find(seeker: Seeker) -> Found:
    target = seeker.target
    if target.scheme == BY_MULTICAST:
        nonce = token_bytes(NONCE_BYTES)
        return await ask((target.host, target.port), nonce, seeker.place, seeker.authority, interface=target.interface)
    if target.scheme == FIXED and (seeker.authority is None or seeker.edge_key):
        return Found(target.host, target.port, seeker.edge_key)
    while True:
        async for host, port in _addresses(seeker):
            try:
                async with asyncio.timeout(EACH_S):
                    found = await ask((host, port), token_bytes(NONCE_BYTES), seeker.place, seeker.authority)
                    return Found(host, port, found.key)
            except TimeoutError:
                continue


async def _addresses(seeker: Seeker) -> AsyncIterator[tuple[str, int]]:
    """Where to ask, in this order."""
    target = seeker.target
    names = [(target.host, target.port)]
    if target.scheme == BY_DNS:
        records = await asyncio.get_running_loop().run_in_executor(None, _looked_up, target.host, seeker.resolver)
        names = [(record.host, record.port) for record in in_order(records, [random() for _ in records])]
    for host, port in names:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_DGRAM)
        yield str(found[0][4][0]), port


def in_order(records: list[Record], draws: list[float]) -> list[Record]:
    """Lower priorities first; among equals the heavier come sooner more often, as RFC 2782 has it."""
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
    """The edges of a domain; what goes wrong is an `OSError`."""
    try:
        from dns import exception, resolver  # noqa: PLC0415  # an extra
    except ImportError:
        raise EdgeUnreachable("udp+srv needs dnspython: pip install 'milepost[find]'") from None
    asked = resolver.Resolver(configure=resolver_at is None)
    if resolver_at is not None:
        asked.nameservers, asked.port = [resolver_at[0]], resolver_at[1]
    try:
        answers = asked.resolve(f"{SERVICE}.{domain}", "SRV")
    except exception.DNSException as fault:
        raise OSError(f"DNS has no {SERVICE}.{domain}: {fault}") from None
    return [Record(one.priority, one.weight, str(one.target).rstrip("."), one.port) for one in answers]
