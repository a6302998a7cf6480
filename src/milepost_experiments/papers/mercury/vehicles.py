"""Vehicles: real clients over MQTT or UDP that connect to the edge that covers them, and receive a numbered stream.

    SUMO's second ─▶ place ─▶ covering edge? ─▶ unchanged: report │ another: move there, then report

Over MQTT a vehicle connects to the next edge; over UDP its network routes it there, and the client library detects it. No
vehicle subscribes again (D8); over UDP the library does, because its session is a new one.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from milepost.client import Client, ClientClosed, ClientFault, Inbox, connect
from milepost.model.places import Place
from milepost_experiments.papers.load.region import Region, RegionEdge
from milepost_experiments.papers.load.relay import Relay

STREAM: Final = "papers/stream"
_CONNECT_S_MAX: Final = 15.0


@dataclass(eq=False)
class TrackedVehicle:
    """One vehicle; records when it entered each coverage, and the numbers it received."""

    name: str
    is_udp: bool
    entered_at: list[float] = field(default_factory=list)
    edges_entered: list[str] = field(default_factory=list)
    received: list[tuple[int, bool]] = field(default_factory=list)
    """Numbers of the stream, each with whether it was marked as a duplicate."""
    faults: list[str] = field(default_factory=list)
    left_at: float = 0.0
    last_expected: int = -1
    """The last number that it must have received."""
    _client: Client | None = None
    _current: RegionEdge | None = None
    _relay: Relay | None = None
    _receiving: asyncio.Task[None] | None = None
    _is_busy: bool = False

    async def move_to(self, place: Place, motion: tuple[float, float], region: Region) -> None:
        """Report a place to the edge that covers it."""
        edge = region.edge_at(place)
        if not self.edges_entered or edge.name != self.edges_entered[-1]:
            self.entered_at.append(time.time())
            self.edges_entered.append(edge.name)
        if self._is_busy:
            return  # still connecting
        self._is_busy = True
        try:
            await self._connect_at(edge, place)
            assert self._client is not None
            await self._client.report(place.latitude, place.longitude, heading_deg=motion[0] % 360.0, speed_mps=motion[1])
        except ClientFault as fault:
            self.faults.append(f"{self.name}: {fault}")
        finally:
            self._is_busy = False

    async def leave(self) -> None:
        """End the trip."""
        self.left_at = time.time()
        await self._disconnect()
        if self._relay is not None:
            self._relay.close()

    async def _connect_at(self, edge: RegionEdge, place: Place) -> None:
        if self._current is not None and self._current.name == edge.name:
            return
        is_first, self._current = self._current is None, edge
        if self.is_udp:
            await self._connect_by_udp(edge, place)
        else:
            await self._disconnect()
            await self._connect(_make_client(f"mqtt://127.0.0.1:{edge.mqtt_port}", self.name, None), is_first=is_first)

    async def _connect_by_udp(self, edge: RegionEdge, place: Place) -> None:
        if self._relay is not None:
            await self._relay.switch_to(edge.udp_port)
            return
        self._relay = Relay(edge.udp_port)
        await self._relay.open()
        await self._connect(_make_client(f"udp://127.0.0.1:{self._relay.port}", self.name, place), is_first=True)

    async def _connect(self, client: Client, *, is_first: bool) -> None:
        await client.open()
        self._client = client
        inbox = client.subscribe(STREAM, qos=1) if is_first else client.messages()
        await inbox.__aenter__()  # never exited: that would unsubscribe
        self._receiving = asyncio.create_task(self._receive(inbox))

    async def _receive(self, inbox: Inbox) -> None:
        try:
            async for message in inbox:
                self.received.append((int(message.body), message.is_redelivery))
        except ClientClosed:
            return
        except ClientFault as fault:
            self.faults.append(f"{self.name}: {fault}")

    async def _disconnect(self) -> None:
        client, self._client = self._client, None
        if client is not None:
            await client.close()
        if self._receiving is not None:
            self._receiving.cancel()
            await asyncio.gather(self._receiving, return_exceptions=True)
            self._receiving = None


def _make_client(url: str, name: str, place: Place | None) -> Client:
    return connect(url, client_id=name, place=place, connect_within_s=_CONNECT_S_MAX)


class Stream:
    """Numbers published at QoS 1 at one edge, at a constant rate."""

    def __init__(self, port: int, per_s: float) -> None:
        self._port, self._per_s = port, per_s
        self.acknowledged_at: list[float] = []
        """When each number was acknowledged."""

    async def run(self) -> None:
        """Publish until cancelled."""
        async with AsyncExitStack() as stack:
            client = await stack.enter_async_context(connect(f"mqtt://127.0.0.1:{self._port}", client_id="papers-stream"))
            began = time.monotonic()
            while True:
                await client.publish(STREAM, b"%d" % len(self.acknowledged_at), qos=1)
                self.acknowledged_at.append(time.time())
                await asyncio.sleep(max(0.0, began + len(self.acknowledged_at) / self._per_s - time.monotonic()))

    def last_before(self, at: float) -> int:
        """Return the last number acknowledged before a time."""
        return sum(acknowledged_at <= at for acknowledged_at in self.acknowledged_at) - 1
