"""Vehicles: each a client over UDP or MQTT that reports its position and receives messages.

Over MQTT an edge redirects a client that has left its coverage, and the library follows. Over UDP a vehicle chooses its edge
itself: it opens a session at the next one under the same name, and its former session is handed over there.

Invariants:
- every message that the library delivers is entered into the books, duplicates included;
- over UDP an endpoint has two sessions for a while after a move, and a message may arrive in both (roaming.md): there a vehicle
  recognises a duplicate by source and id, as the library does within one session. All other duplicates are faults.
"""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from time import time_ns
from typing import Any, Final, Protocol

from milepost.client import ClientFault, Edge, Inbox, Received, State, connect
from milepost.client.udp.trust import Trust
from milepost.model.places import Place
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.demo.city_config import CONTROL, EVENT, Tile

OLD_EDGE_S: Final = 3.0
"""Time for which the session at the former edge stays open after a move."""
NAMES_MAX: Final = 2_000
KEPT_S: Final = 12
"""Session expiry: longer than a move takes, but short, for vehicles that have arrived."""
CONNECT_S: Final = 20.0

Tell = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Motion:
    """The position of a vehicle by its receiver, and whether it sees a collision."""

    latitude: float
    longitude: float
    heading_deg: float
    speed_mps: float
    sees: bool

    @property
    def place(self) -> Place:
        """The position."""
        return Place(self.latitude, self.longitude)


class Setting(Protocol):
    """The services of the fleet for its vehicles."""

    @property
    def tiles(self) -> Sequence[Tile]:
        """All edges."""

    @property
    def tell(self) -> Tell:
        """The function that sends an event to the books."""

    def trust_of(self, name: str) -> Trust:
        """Return a new certificate for a vehicle."""


def tile_at(tiles: Sequence[Tile], motion: Motion) -> Tile:
    """Return the first edge that covers a place; the first of all if none does."""
    return next((tile for tile in tiles if tile.has(motion.latitude, motion.longitude)), tiles[0])


@dataclass(slots=True)
class Vehicle:
    """One vehicle, from departure to arrival."""

    name: str
    setting: Setting
    motion: Motion
    news: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    _has_two: bool = False
    """Whether the vehicle may have two sessions at a time."""
    _listening: list["asyncio.Task[None]"] = field(default_factory=list)
    _shown: set[Any] = field(default_factory=set)
    _order: deque[Any] = field(default_factory=deque)

    def go(self, motion: Motion) -> None:
        """Set the next position."""
        self.motion = motion
        self.news.set()

    def end(self) -> None:
        """End the trip."""
        self.is_over = True
        self.news.set()

    async def live(self) -> None:
        """Connect, drive, leave; a client fault is recorded and ends the trip."""
        try:
            await self._drive()
        except ClientFault as fault:
            self.setting.tell(fleet_protocol.FAULT, self.name, f"{type(fault).__name__}: {fault}")
        finally:
            for task in self._listening:
                task.cancel()

    async def _drive(self) -> None:
        raise NotImplementedError

    async def _enter(self, edge: Edge) -> None:
        """Open a session and receive all messages."""
        loop = asyncio.get_running_loop()
        everything = await edge.messages().__aenter__()
        await edge.open()
        control = await edge.subscribe(CONTROL, qos=1).__aenter__()
        self._listening += [loop.create_task(self._hear(everything)), loop.create_task(self._take(control))]

    async def _hear(self, inbox: Inbox) -> None:
        with suppress(ClientFault):
            async for message in inbox:
                self._on_message(message)

    async def _take(self, inbox: Inbox) -> None:
        """Drain the subscription: its messages also arrive in the inbox of all messages."""
        with suppress(ClientFault):
            async for _ in inbox:
                pass

    def _on_message(self, message: Received) -> None:
        is_again = message.is_again or self._is_known(message)
        if message.topic == CONTROL:
            self.setting.tell(fleet_protocol.NUMBERED, self.name, message.received_at, int(message.body), is_again)
            return
        said = dict(message.properties)
        self.setting.tell(
            fleet_protocol.ALERTED,
            self.name,
            message.received_at,
            said.get("incident", ""),
            said.get("phase", ""),
            message.seen_at,
            is_again,
        )

    def _is_known(self, message: Received) -> bool:
        """Return whether a message is a duplicate from the other session."""
        key = message.source, message.id
        if not self._has_two:
            return False
        if key in self._shown:
            return True
        self._shown.add(key)
        self._order.append(key)
        if len(self._order) > NAMES_MAX:
            self._shown.discard(self._order.popleft())
        return False

    async def _say(self, edge: Edge) -> None:
        """Report the position, and publish the event if the vehicle sees it."""
        motion, at = self.motion, time_ns()
        row = (motion.latitude, motion.longitude, motion.heading_deg, motion.speed_mps)
        self.setting.tell(fleet_protocol.REPORTED, self.name, at, *row)
        await edge.report(*row[:2], heading_deg=motion.heading_deg, speed_mps=motion.speed_mps)
        if motion.sees:
            await edge.publish(EVENT, place=motion.place, seen_at=None, qos=1)
            self.setting.tell(fleet_protocol.SIGHTED, self.name, at)

    async def _next(self) -> bool:
        """Wait for the next position; return whether the trip continues."""
        await self.news.wait()
        self.news.clear()
        return not self.is_over


class MqttVehicle(Vehicle):
    """A vehicle over MQTT, which follows the redirects of edges."""

    async def _drive(self) -> None:
        tile = tile_at(self.setting.tiles, self.motion)
        edge = connect(_mqtt_url(tile), client_id=self.name, session_expiry_s=KEPT_S, connect_within_s=CONNECT_S)
        await self._enter(edge)
        self.setting.tell(fleet_protocol.JOINED, self.name, time_ns(), "mqtt", tile.name)
        following = asyncio.create_task(self._follow(edge))
        self._listening.append(following)
        await self._say(edge)
        while await self._next():
            await self._say(edge)
        self.setting.tell(fleet_protocol.LEFT, self.name, time_ns())
        await edge.close()

    async def _follow(self, edge: Edge) -> None:
        """Record moves between edges."""
        by_url, away_at, url = {_mqtt_url(tile): tile.name for tile in self.setting.tiles}, time_ns(), edge.url
        async for change in edge.changes():
            if change.state is State.AWAY:
                away_at = time_ns()
            elif change.state is State.CONNECTED:
                if edge.url == url:
                    self.setting.tell(fleet_protocol.FAULT, self.name, "came back to the same edge")
                url = edge.url
                self.setting.tell(fleet_protocol.MOVED, self.name, time_ns(), by_url.get(url, url), (time_ns() - away_at) / 1e9)


class UdpVehicle(Vehicle):
    """A vehicle over UDP, which has a certificate and chooses its edge itself."""

    async def _drive(self) -> None:
        tile = tile_at(self.setting.tiles, self.motion)
        trust = self.setting.trust_of(self.name)
        edge = self._edge_of(tile, trust)
        self._has_two = True
        await self._enter(edge)
        self.setting.tell(fleet_protocol.JOINED, self.name, time_ns(), "udp", tile.name)
        await self._say(edge)
        while await self._next():
            if not tile.has(self.motion.latitude, self.motion.longitude):
                new = tile_at(self.setting.tiles, self.motion)
                if new is not tile:
                    began = time_ns()
                    before, edge, tile = edge, self._edge_of(new, trust), new
                    await self._enter(edge)
                    self._listening.append(asyncio.create_task(self._close_later(before)))
                    self.setting.tell(fleet_protocol.MOVED, self.name, time_ns(), tile.name, (time_ns() - began) / 1e9)
            await self._say(edge)
        self.setting.tell(fleet_protocol.LEFT, self.name, time_ns())
        await edge.close()

    def _edge_of(self, tile: Tile, trust: Trust) -> Edge:
        """Return a connection to an edge; the session begins with a report without heading and speed."""
        self.setting.tell(fleet_protocol.REPORTED, self.name, time_ns(), self.motion.latitude, self.motion.longitude, None, None)
        return connect(f"udp://127.0.0.1:{tile.udp}", place=self.motion.place, trust=trust, connect_within_s=CONNECT_S)

    async def _close_later(self, edge: Edge) -> None:
        await asyncio.sleep(OLD_EDGE_S)
        await edge.close()


def _mqtt_url(tile: Tile) -> str:
    return f"mqtt://127.0.0.1:{tile.mqtt}"
