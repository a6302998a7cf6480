"""Vehicles: real clients over MQTT or UDP that connect to the edge that covers them, and receive a numbered stream.

    SUMO's second ─▶ place ─▶ covering edge? ─▶ the same: report │ another: move there, then report

Over MQTT a vehicle connects to the next edge; over UDP its network routes it there, and the client library detects it. Neither
subscribes again (D8); over UDP the library does, since its session is a new one.
"""

import asyncio
import time
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from typing import Final

from milepost.client import ClientFault, Edge, EdgeClosed, Inbox, connect
from milepost.model.places import Place
from milepost_experiments.papers.load.region import Cover, Region
from milepost_experiments.papers.load.relay import Relay

STREAM: Final = "papers/stream"
_CONNECT_S_MAX: Final = 15.0


@dataclass(eq=False)
class Vehicle:
    """One vehicle; records when it entered each coverage, and the numbers it received."""

    name: str
    is_udp: bool
    came_at: list[float] = field(default_factory=list)
    covers: list[str] = field(default_factory=list)
    heard: list[tuple[int, bool]] = field(default_factory=list)
    """Numbers of the stream, each with whether it was marked as a duplicate."""
    faults: list[str] = field(default_factory=list)
    left_at: float = 0.0
    last_due: int = -1
    """The last number that it must have received."""
    _edge: Edge | None = None
    _at: Cover | None = None
    _relay: Relay | None = None
    _listening: asyncio.Task[None] | None = None
    _is_busy: bool = False

    async def be_at(self, place: Place, going: tuple[float, float], region: Region) -> None:
        """Report a place to the edge that covers it."""
        cover = region.edge_at(place)
        if not self.covers or cover.name != self.covers[-1]:
            self.came_at.append(time.time())
            self.covers.append(cover.name)
        if self._is_busy:
            return  # still connecting
        self._is_busy = True
        try:
            await self._go(cover, place)
            assert self._edge is not None
            await self._edge.report(place.latitude, place.longitude, heading_deg=going[0] % 360.0, speed_mps=going[1])
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

    async def _go(self, cover: Cover, place: Place) -> None:
        if self._at is not None and self._at.name == cover.name:
            return
        is_first, self._at = self._at is None, cover
        if self.is_udp:
            await self._go_by_udp(cover, place)
        else:
            await self._disconnect()
            await self._connect(_client(f"mqtt://127.0.0.1:{cover.mqtt_port}", self.name, None), is_first=is_first)

    async def _go_by_udp(self, cover: Cover, place: Place) -> None:
        if self._relay is not None:
            await self._relay.turn(cover.udp_port)
            return
        self._relay = Relay(cover.udp_port)
        await self._relay.open()
        await self._connect(_client(f"udp://127.0.0.1:{self._relay.port}", self.name, place), is_first=True)

    async def _connect(self, edge: Edge, *, is_first: bool) -> None:
        await edge.open()
        self._edge = edge
        inbox = edge.subscribe(STREAM, qos=1) if is_first else edge.messages()
        await inbox.__aenter__()  # never exited: that would unsubscribe
        self._listening = asyncio.create_task(self._listen(inbox))

    async def _listen(self, inbox: Inbox) -> None:
        try:
            async for message in inbox:
                self.heard.append((int(message.body), message.is_again))
        except EdgeClosed:
            return
        except ClientFault as fault:
            self.faults.append(f"{self.name}: {fault}")

    async def _disconnect(self) -> None:
        edge, self._edge = self._edge, None
        if edge is not None:
            await edge.close()
        if self._listening is not None:
            self._listening.cancel()
            await asyncio.gather(self._listening, return_exceptions=True)
            self._listening = None


def _client(url: str, name: str, place: Place | None) -> Edge:
    return connect(url, client_id=name, place=place, connect_within_s=_CONNECT_S_MAX)


class Stream:
    """Numbers published at QoS 1 at one edge, at a constant rate."""

    def __init__(self, port: int, per_s: float) -> None:
        self._port, self._per_s = port, per_s
        self.said_at: list[float] = []
        """When each number was acknowledged."""

    async def run(self) -> None:
        """Publish until cancelled."""
        async with AsyncExitStack() as stack:
            edge = await stack.enter_async_context(connect(f"mqtt://127.0.0.1:{self._port}", client_id="papers-stream"))
            began = time.monotonic()
            while True:
                await edge.publish(STREAM, b"%d" % len(self.said_at), qos=1)
                self.said_at.append(time.time())
                await asyncio.sleep(max(0.0, began + len(self.said_at) / self._per_s - time.monotonic()))

    def last_before(self, at: float) -> int:
        """Return the last number acknowledged before a time."""
        return sum(said_at <= at for said_at in self.said_at) - 1
