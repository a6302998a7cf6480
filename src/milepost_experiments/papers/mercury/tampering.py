"""Tampering: a man in the middle that alters one datagram in four between client and edge, and a false edge."""

import asyncio
import os
import time
from dataclasses import dataclass
from random import Random
from typing import Final

from milepost.client import Client, ClientFault, Credentials, connect
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.trust.certificates import issue
from milepost.trust.noise import public_of
from milepost.trust.signing import signing_public_of
from milepost_experiments.papers.load.edges import EdgeProcess, running_edge
from milepost_experiments.papers.load.endpoints import DAY_NS, Realm
from milepost_experiments.papers.load.relay import Relay

_PLACE: Final = Place(40.6, -111.9)
_TOPIC: Final = "papers/echo"
_SHARE: Final = 0.25
_LURED_CLIENTS: Final = 2
_LURED_CONNECT_S: Final = 1.0
_RECEIVE_S_MAX: Final = 30.0


@dataclass(frozen=True, slots=True)
class TamperingResult:
    """The results of tampering."""

    published: int
    failed: int
    """Published messages whose sender was notified of the failure."""
    forwarded: int
    altered: int
    unaltered: int
    received_altered: int
    duplicated: int
    lured: int
    lured_of: int


class TamperingRelay(Relay):
    """A relay that alters one datagram in four, in both directions, while `is_tampering`."""

    def __init__(self, edge_port: int, seed: int = 1) -> None:
        super().__init__(edge_port)
        self._rng = Random(seed)
        self.altered = 0
        self.is_tampering = False

    def transform(self, data: bytes) -> bytes:
        """Flip one bit of some datagrams."""
        if not self.is_tampering or self._rng.random() > _SHARE:
            return data
        self.altered += 1
        altered = bytearray(data)
        altered[self._rng.randrange(len(data))] ^= 1 << self._rng.randrange(8)
        return bytes(altered)


def measure_tampering(edge: EdgeProcess, *, messages: int) -> TamperingResult:
    """Run a client that publishes to itself through the relay; then clients that are directed to a false edge."""
    assert edge.realm is not None
    relay, received, failed = asyncio.run(_publish_through_relay(edge.port, edge.realm, messages))
    published_bodies = {_body(number) for number in range(messages)}
    unaltered = set(received) & published_bodies
    with running_edge(is_encrypted=True) as false_edge:
        lured = asyncio.run(_count_lured(false_edge.port, edge.realm))
    return TamperingResult(
        published=messages,
        failed=failed,
        forwarded=relay.forwarded,
        altered=relay.altered,
        unaltered=len(unaltered),
        received_altered=sum(body not in published_bodies for body in received),
        duplicated=len(received) - len(set(received)),
        lured=lured,
        lured_of=_LURED_CLIENTS,
    )


async def _publish_through_relay(port: int, realm: Realm, messages: int) -> tuple[TamperingRelay, list[bytes], int]:
    received: list[bytes] = []
    relay = TamperingRelay(port)
    async with relay:
        client = _client("papers-echo", relay.port, realm)
        async with client, client.subscribe(_TOPIC, qos=1) as inbox:
            relay.is_tampering = True
            publishing = [client.publish(_TOPIC, _body(number), qos=1) for number in range(messages)]
            outcomes = await asyncio.gather(*publishing, return_exceptions=True)
            failed = sum(isinstance(one, ClientFault) for one in outcomes)
            relay.is_tampering = False  # messages in flight can arrive now
            until = time.monotonic() + _RECEIVE_S_MAX
            while len(set(received)) < messages and time.monotonic() < until:
                try:
                    received.append((await asyncio.wait_for(inbox.receive(), 2.0)).body)
                except TimeoutError:
                    break
    return relay, received, failed


async def _count_lured(port: int, realm: Realm) -> int:
    """Return the number of clients that open a session with an edge of another certificate authority."""
    lured = 0
    for number in range(_LURED_CLIENTS):
        try:
            async with _client(f"papers-lured-{number}", port, realm, connect_within_s=_LURED_CONNECT_S):
                lured += 1
        except ClientFault:
            continue
    return lured


def _client(name: str, port: int, realm: Realm, *, connect_within_s: float = 20.0) -> Client:
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
    trust = Credentials(signing_public_of(realm.authority_key), certificate, key)
    return connect(f"udp://127.0.0.1:{port}", credentials=trust, place=_PLACE, connect_within_s=connect_within_s)


def _body(number: int) -> bytes:
    return b"message %d, unaltered" % number
