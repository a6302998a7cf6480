"""Vehicles: each a client over UDP or MQTT that reports its position and receives messages.

Over MQTT an edge redirects a client that has left its coverage, and the library follows. Over UDP a vehicle chooses its edge
itself: it opens a session at the next one under the same name, and its previous session is handed over there.

Invariants:
- every message that the library delivers is recorded in the ledger, duplicates included;
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

from milepost.client import Client, ClientFault, ClientState, Inbox, ReceivedMessage, connect
from milepost.client.udp.credentials import Credentials
from milepost.model.places import Place
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.demo.city_config import CONTROL, EVENT, Tile

PREVIOUS_SESSION_S: Final = 3.0
"""Time for which the session at the previous edge stays open after a move."""
REMEMBERED_MAX: Final = 2_000
SESSION_EXPIRY_S: Final = 12
"""Session expiry: longer than a move takes, but short, for vehicles that have arrived."""
CONNECT_S: Final = 20.0

Emit = Callable[..., None]


@dataclass(frozen=True, slots=True)
class Motion:
    """The position of a vehicle by its receiver, and whether it sees a collision."""

    latitude: float
    longitude: float
    heading_deg: float
    speed_mps: float
    sees_collision: bool

    @property
    def place(self) -> Place:
        """The position."""
        return Place(self.latitude, self.longitude)


class FleetServices(Protocol):
    """The services that a vehicle uses."""

    @property
    def tiles(self) -> Sequence[Tile]:
        """All edges."""

    @property
    def emit(self) -> Emit:
        """The function that sends an event to the demo's ledger."""

    def issue_trust(self, name: str) -> Credentials:
        """Return a new certificate for a vehicle."""


def tile_at(tiles: Sequence[Tile], motion: Motion) -> Tile:
    """Return the first edge that covers a place; the first of all if none does."""
    return next((tile for tile in tiles if tile.covers(motion.latitude, motion.longitude)), tiles[0])


@dataclass(slots=True)
class Vehicle:
    """One vehicle, from departure to arrival."""

    name: str
    fleet: FleetServices
    motion: Motion
    changed: asyncio.Event = field(default_factory=asyncio.Event)
    is_over: bool = False
    _may_have_two_sessions: bool = False
    """Whether the vehicle may have two sessions at a time."""
    _tasks: list["asyncio.Task[None]"] = field(default_factory=list)
    _seen_keys: set[Any] = field(default_factory=set)
    _order: deque[Any] = field(default_factory=deque)

    def move_to(self, motion: Motion) -> None:
        """Set the next position."""
        self.motion = motion
        self.changed.set()

    def end(self) -> None:
        """End the trip."""
        self.is_over = True
        self.changed.set()

    async def run(self) -> None:
        """Connect, drive, leave; a client fault is recorded and ends the trip."""
        try:
            await self._drive()
        except ClientFault as fault:
            self.fleet.emit(fleet_protocol.FAULT, self.name, f"{type(fault).__name__}: {fault}")
        finally:
            for task in self._tasks:
                task.cancel()

    async def _drive(self) -> None:
        raise NotImplementedError

    async def _open_session(self, client: Client) -> None:
        """Open a session and receive all messages."""
        loop = asyncio.get_running_loop()
        all_messages = await client.messages().__aenter__()
        await client.open()
        control = await client.subscribe(CONTROL, qos=1).__aenter__()
        self._tasks += [loop.create_task(self._receive_all(all_messages)), loop.create_task(self._drain(control))]

    async def _receive_all(self, inbox: Inbox) -> None:
        with suppress(ClientFault):
            async for message in inbox:
                self._on_message(message)

    async def _drain(self, inbox: Inbox) -> None:
        """Drain the subscription: its messages also arrive in the inbox of all messages."""
        with suppress(ClientFault):
            async for _ in inbox:
                pass

    def _on_message(self, message: ReceivedMessage) -> None:
        is_duplicate = message.is_redelivery or self._is_duplicate(message)
        if message.topic == CONTROL:
            self.fleet.emit(fleet_protocol.NUMBERED, self.name, message.received_at, int(message.body), is_duplicate)
            return
        properties = dict(message.properties)
        self.fleet.emit(
            fleet_protocol.ALERTED,
            self.name,
            message.received_at,
            properties.get("incident", ""),
            properties.get("phase", ""),
            message.seen_at,
            is_duplicate,
        )

    def _is_duplicate(self, message: ReceivedMessage) -> bool:
        """Return whether a message is a duplicate from the other session."""
        key = message.source, message.id
        if not self._may_have_two_sessions:
            return False
        if key in self._seen_keys:
            return True
        self._seen_keys.add(key)
        self._order.append(key)
        if len(self._order) > REMEMBERED_MAX:
            self._seen_keys.discard(self._order.popleft())
        return False

    async def _report(self, client: Client) -> None:
        """Report the position, and publish the event if the vehicle sees it."""
        motion, at = self.motion, time_ns()
        row = (motion.latitude, motion.longitude, motion.heading_deg, motion.speed_mps)
        self.fleet.emit(fleet_protocol.REPORTED, self.name, at, *row)
        await client.report(*row[:2], heading_deg=motion.heading_deg, speed_mps=motion.speed_mps)
        if motion.sees_collision:
            await client.publish(EVENT, place=motion.place, seen_at=None, qos=1)
            self.fleet.emit(fleet_protocol.SIGHTED, self.name, at)

    async def _wait_for_next_position(self) -> bool:
        """Wait for the next position; return whether the trip continues."""
        await self.changed.wait()
        self.changed.clear()
        return not self.is_over


class MqttVehicle(Vehicle):
    """A vehicle over MQTT, which follows the redirects of edges."""

    async def _drive(self) -> None:
        tile = tile_at(self.fleet.tiles, self.motion)
        client = connect(_mqtt_url(tile), client_id=self.name, session_expiry_s=SESSION_EXPIRY_S, connect_within_s=CONNECT_S)
        await self._open_session(client)
        self.fleet.emit(fleet_protocol.JOINED, self.name, time_ns(), "mqtt", tile.name)
        following = asyncio.create_task(self._follow(client))
        self._tasks.append(following)
        await self._report(client)
        while await self._wait_for_next_position():
            await self._report(client)
        self.fleet.emit(fleet_protocol.LEFT, self.name, time_ns())
        await client.close()

    async def _follow(self, client: Client) -> None:
        """Record moves between edges."""
        by_url, away_at, url = {_mqtt_url(tile): tile.name for tile in self.fleet.tiles}, time_ns(), client.url
        async for change in client.changes():
            if change.state is ClientState.RECONNECTING:
                away_at = time_ns()
            elif change.state is ClientState.CONNECTED:
                if client.url == url:
                    self.fleet.emit(fleet_protocol.FAULT, self.name, "reconnected to the same edge")
                url = client.url
                self.fleet.emit(fleet_protocol.MOVED, self.name, time_ns(), by_url.get(url, url), (time_ns() - away_at) / 1e9)


class UdpVehicle(Vehicle):
    """A vehicle over UDP, which has a certificate and chooses its edge itself."""

    async def _drive(self) -> None:
        tile = tile_at(self.fleet.tiles, self.motion)
        trust = self.fleet.issue_trust(self.name)
        client = self._make_client(tile, trust)
        self._may_have_two_sessions = True
        await self._open_session(client)
        self.fleet.emit(fleet_protocol.JOINED, self.name, time_ns(), "udp", tile.name)
        await self._report(client)
        while await self._wait_for_next_position():
            if not tile.covers(self.motion.latitude, self.motion.longitude):
                new = tile_at(self.fleet.tiles, self.motion)
                if new is not tile:
                    began = time_ns()
                    before, client, tile = client, self._make_client(new, trust), new
                    await self._open_session(client)
                    self._tasks.append(asyncio.create_task(self._close_later(before)))
                    self.fleet.emit(fleet_protocol.MOVED, self.name, time_ns(), tile.name, (time_ns() - began) / 1e9)
            await self._report(client)
        self.fleet.emit(fleet_protocol.LEFT, self.name, time_ns())
        await client.close()

    def _make_client(self, tile: Tile, trust: Credentials) -> Client:
        """Return a connection to an edge; the session begins with a report without heading and speed."""
        self.fleet.emit(fleet_protocol.REPORTED, self.name, time_ns(), self.motion.latitude, self.motion.longitude, None, None)
        return connect(f"udp://127.0.0.1:{tile.udp}", place=self.motion.place, credentials=trust, connect_within_s=CONNECT_S)

    async def _close_later(self, client: Client) -> None:
        await asyncio.sleep(PREVIOUS_SESSION_S)
        await client.close()


def _mqtt_url(tile: Tile) -> str:
    return f"mqtt://127.0.0.1:{tile.mqtt}"
