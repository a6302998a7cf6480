"""The fleet: all vehicles in one process, controlled over standard input; and the control tower.

The tower publishes a number to all vehicles each second, at QoS 1, from one edge: these reveal loss and duplicates.
"""

import asyncio
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Any, Final

from milepost.client import ClientFault, connect
from milepost.client.udp.trust import Trust
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.runtime.trust_files import read_authority, read_authority_key
from milepost.trust.certificates import SERIAL_MAX, issue
from milepost.trust.noise import public_of
from milepost.wire.sealed import KEY_BYTES
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.demo.city_config import CONTROL, REHEARSAL, Tile
from milepost_experiments.demo.vehicles import Motion, MqttVehicle, UdpVehicle, Vehicle

FLUSH_S: Final = 0.05
LINE_BYTES_MAX: Final = 16_000_000
_DAY_NS: Final = 86_400 * SECOND_NS


class Fleet:
    """All vehicles, and their events for the books."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.tiles = [Tile(*row) for row in setup["tiles"]]
        self._authority_key = read_authority_key(Path(setup["authority_key"]))
        self._authority = read_authority(Path(setup["authority"]))
        self._vehicles: dict[str, tuple[Vehicle, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._events: list[tuple[Any, ...]] = []
        self._is_numbering = True
        self.tower = connect(f"mqtt://127.0.0.1:{self.tiles[0].mqtt}", client_id="control-tower")

    def tell(self, *event: Any) -> None:
        """Queue an event for the books."""
        self._events.append(event)

    def flush(self) -> None:
        """Write the queued events."""
        if self._events:
            events, self._events = self._events, []
            sys.stdout.buffer.write(fleet_protocol.line_of(events))
            sys.stdout.buffer.flush()

    def trust_of(self, name: str) -> Trust:
        """Return a new certificate for a vehicle, valid for a day."""
        key = secrets.token_bytes(KEY_BYTES)
        now = time_ns() // SECOND_NS * SECOND_NS
        certificate = issue(
            self._authority_key,
            id=name,
            role="vehicle",
            key=public_of(key),
            not_before=Instant(now - 300 * SECOND_NS),
            not_after=Instant(now + _DAY_NS),
            serial=1 + secrets.randbelow(SERIAL_MAX),
        )
        return Trust(self._authority, certificate, key)

    def drive(self, rows: list[list[Any]], gone: list[str]) -> None:
        """Update the positions of all vehicles, and end those that have arrived."""
        for name, carrier, *motion in rows:
            known = self._vehicles.get(name)
            if known is not None:
                known[0].go(Motion(*motion))
                continue
            kind = UdpVehicle if carrier == "udp" else MqttVehicle
            vehicle = kind(name, self, Motion(*motion))
            self._vehicles[name] = vehicle, asyncio.create_task(vehicle.live())
        for name in gone:
            known = self._vehicles.pop(name, None)
            if known is not None:
                known[0].end()
                self._ending.add(known[1])
                known[1].add_done_callback(self._ending.discard)

    async def number(self) -> None:
        """Publish numbers until `be_quiet` is called."""
        number = 0
        while self._is_numbering:
            number += 1
            at = time_ns()
            await self.tower.publish(CONTROL, str(number), qos=1)
            self.tell(fleet_protocol.SAID, number, at)
            await asyncio.sleep(max(0.0, 1.0 - (time_ns() - at) / 1e9))

    async def rehearse(self, places: list[Place]) -> None:
        """Publish an event at each edge, to test the path through the pipelines."""
        for tile, place in zip(self.tiles, places, strict=True):
            with suppress(ClientFault):
                async with connect(f"mqtt://127.0.0.1:{tile.mqtt}") as edge:
                    await edge.publish(REHEARSAL, place=place, qos=1)

    def be_quiet(self) -> None:
        """Stop publishing numbers."""
        self._is_numbering = False

    async def end(self) -> None:
        """Disconnect all vehicles."""
        for vehicle, _ in self._vehicles.values():
            vehicle.end()
        tasks = [task for _, task in self._vehicles.values()] + list(self._ending)
        if tasks:
            await asyncio.wait(tasks, timeout=5.0)


async def _read_lines() -> asyncio.StreamReader:
    reader = asyncio.StreamReader(limit=LINE_BYTES_MAX)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin.buffer)
    return reader


async def main() -> None:
    """Process commands until the end of the input."""
    reader = await _read_lines()
    fleet = Fleet(fleet_protocol.value_of(await reader.readline()))

    async def flush() -> None:
        while True:
            await asyncio.sleep(FLUSH_S)
            fleet.flush()

    flushing = asyncio.create_task(flush())
    numbering: asyncio.Task[None] | None = None
    async with fleet.tower:
        while line := await reader.readline():
            asked = fleet_protocol.value_of(line)
            if "cars" in asked:
                fleet.drive(asked["cars"], asked["gone"])
            elif "rehearse" in asked:
                await fleet.rehearse([Place(*one) for one in asked["rehearse"]])
            elif asked.get("numbers"):
                numbering = asyncio.create_task(fleet.number())
            else:
                fleet.be_quiet()
        await fleet.end()
        if numbering is not None:
            numbering.cancel()
    flushing.cancel()
    fleet.flush()


if __name__ == "__main__":
    asyncio.run(main())
