"""Asking for an edge: ASK out, the first right HERE in (M20).

What must hold:
- with an authority an answer counts only if an edge of that authority signed it, for this very question;
- who answers wrongly is passed over, and does not keep a right answer away.
"""

import asyncio
import socket
from dataclasses import dataclass
from time import time_ns
from typing import Final

from milepost.client.udp.ports import Port, Said
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.trust.authority import Authority
from milepost.trust.certificates import read_certificate
from milepost.trust.signing import Verifier
from milepost.wire.sealed import NONCE_BYTES, Ask, Here, Kind, ask_to_bytes, here_from_bytes

FIRST_S: Final = 0.25
MOST_S: Final = 2.0
"""ASK is repeated after waits that double from the one to the other."""

TTL: Final = 4
"""So many routers a multicast ASK may pass."""


@dataclass(frozen=True, slots=True)
class Found:
    """Where an edge is, and by which key it is known."""

    host: str
    port: int
    key: bytes = b""
    """Empty if nothing is sealed."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def question(nonce: bytes, place: Place) -> bytes:
    """ASK."""
    assert len(nonce) == NONCE_BYTES, "nonces have one size"
    return ask_to_bytes(Ask(nonce, place.latitude, place.longitude))


def read_here(data: bytes, nonce: bytes, authority: Authority | None, now: Instant) -> tuple[Here, bytes]:
    """A right answer, and the key of the edge that gave it; anything else is `Malformed`."""
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


async def ask(address: tuple[str, int], nonce: bytes, place: Place, authority: Authority | None, *, interface: str = "") -> Found:
    """The first edge that answers rightly; asks until it is cancelled. `OSError` if the question cannot be sent."""
    answers: asyncio.Queue[Said] = asyncio.Queue()
    transport = await _open(address, answers, interface)
    try:
        wait_s = FIRST_S
        while True:
            transport.sendto(question(nonce, place), address)
            found = await _maybe_answer(answers, nonce, authority, wait_s)
            if found is not None:
                return found
            wait_s = min(MOST_S, 2 * wait_s)
    finally:
        transport.close()


async def _open(address: tuple[str, int], answers: "asyncio.Queue[Said]", interface: str) -> asyncio.DatagramTransport:
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
        transport, _ = await loop.create_datagram_endpoint(lambda: Port(answers.put_nowait), sock=bound)
    except BaseException:
        bound.close()
        raise
    return transport


async def _maybe_answer(answers: "asyncio.Queue[Said]", nonce: bytes, authority: Authority | None, wait_s: float) -> Found | None:
    """An edge that answers before the wait is over."""
    try:
        async with asyncio.timeout(wait_s):
            while True:
                data, address = await answers.get()
                try:
                    here, key = read_here(data, nonce, authority, Instant(time_ns()))
                except Malformed:
                    continue
                return Found(address, here.port, key)
    except TimeoutError:
        return None
