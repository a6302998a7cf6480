"""Tampering: a man in the middle that alters one datagram in four between client and edge, and a false edge."""

import asyncio
import os
import time
from dataclasses import dataclass
from random import Random
from typing import Final

from milepost.client import ClientFault, Edge, Trust, connect
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.trust.certificates import issue
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of
from milepost_experiments.papers.load.edges import Edge as EdgeProcess
from milepost_experiments.papers.load.edges import serving
from milepost_experiments.papers.load.endpoints import DAY_NS, Realm
from milepost_experiments.papers.load.relay import Relay

_PLACE: Final = Place(40.6, -111.9)
_TOPIC: Final = "papers/echo"
_SHARE: Final = 0.25
_LURES: Final = 2
_LURE_S: Final = 1.0
_HEAR_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class Meddled:
    """The results of tampering."""

    published: int
    given_up: int
    """Published messages whose sender was notified of the failure."""
    passed: int
    altered: int
    whole: int
    spoiled: int
    doubled: int
    lured: int
    lured_of: int


class Meddler(Relay):
    """A relay that alters one datagram in four, in both directions, while `is_meddling`."""

    def __init__(self, edge_port: int, seed: int = 1) -> None:
        super().__init__(edge_port)
        self._draw = Random(seed)
        self.altered = 0
        self.is_meddling = False

    def on_way(self, data: bytes) -> bytes:
        """Flip one bit of some datagrams."""
        if not self.is_meddling or self._draw.random() > _SHARE:
            return data
        self.altered += 1
        spoiled = bytearray(data)
        spoiled[self._draw.randrange(len(data))] ^= 1 << self._draw.randrange(8)
        return bytes(spoiled)


def meddle(edge: EdgeProcess, *, messages: int) -> Meddled:
    """Run a client that publishes to itself through the relay; then clients that are directed to a false edge."""
    assert edge.realm is not None
    meddler, heard, given_up = asyncio.run(_published(edge.port, edge.realm, messages))
    said = {_body(number) for number in range(messages)}
    whole = set(heard) & said
    with serving(is_sealed=True) as false_edge:
        lured = asyncio.run(_lured(false_edge.port, edge.realm))
    return Meddled(
        published=messages,
        given_up=given_up,
        passed=meddler.passed,
        altered=meddler.altered,
        whole=len(whole),
        spoiled=sum(body not in said for body in heard),
        doubled=len(heard) - len(set(heard)),
        lured=lured,
        lured_of=_LURES,
    )


async def _published(port: int, realm: Realm, messages: int) -> tuple[Meddler, list[bytes], int]:
    heard: list[bytes] = []
    meddler = Meddler(port)
    async with meddler:
        client = _client("papers-echo", meddler.port, realm)
        async with client, client.subscribe(_TOPIC, qos=1) as inbox:
            meddler.is_meddling = True
            saying = [client.publish(_TOPIC, _body(number), qos=1) for number in range(messages)]
            outcomes = await asyncio.gather(*saying, return_exceptions=True)
            given_up = sum(isinstance(one, ClientFault) for one in outcomes)
            meddler.is_meddling = False  # messages in flight can arrive now
            until = time.monotonic() + _HEAR_S_MAX
            while len(set(heard)) < messages and time.monotonic() < until:
                try:
                    heard.append((await asyncio.wait_for(inbox.receive(), 2.0)).body)
                except TimeoutError:
                    break
    return meddler, heard, given_up


async def _lured(port: int, realm: Realm) -> int:
    """Return the number of clients that open a session with an edge of another certificate authority."""
    lured = 0
    for number in range(_LURES):
        try:
            async with _client(f"papers-lured-{number}", port, realm, connect_within_s=_LURE_S):
                lured += 1
        except ClientFault:
            continue
    return lured


def _client(name: str, port: int, realm: Realm, *, connect_within_s: float = 20.0) -> Edge:
    key, now = os.urandom(32), time.time_ns()
    certificate = issue(
        realm.authority_key,
        id=name,
        role="vehicle",
        key=public_of(key),
        not_before=Instant(now - DAY_NS),
        not_after=Instant(now + DAY_NS),
        serial=int.from_bytes(os.urandom(6)) + 1,
    )
    trust = Trust(signing_public_of(realm.authority_key), certificate, key)
    return connect(f"udp://127.0.0.1:{port}", trust=trust, place=_PLACE, connect_within_s=connect_within_s)


def _body(number: int) -> bytes:
    return b"message %d, as it was said" % number
