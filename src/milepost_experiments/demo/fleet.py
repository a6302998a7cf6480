"""The fleet: all vehicles in one process, controlled over standard input; and the control tower.

The tower publishes a number to all vehicles each second, at QoS 1, from one edge: gaps and repetitions show loss and duplicates.
"""

import asyncio
import secrets
import sys
from contextlib import suppress
from pathlib import Path
from time import time_ns
from typing import Any, Final

from milepost.client import ClientFault, connect
from milepost.client.udp.credentials import Credentials
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.runtime.trust_files import read_authority, read_authority_key
from milepost.trust.certificates import SERIAL_MAX, issue
from milepost.trust.noise import public_of
from milepost.wire.sealed import KEY_BYTES
from milepost_experiments.demo import fleet_protocol
from milepost_experiments.demo.city_config import CONTROL, PATH_TEST, Tile
from milepost_experiments.demo.vehicles import Motion, MqttVehicle, UdpVehicle, Vehicle

FLUSH_S: Final = 0.05
LINE_BYTES_MAX: Final = 16_000_000
_DAY_NS: Final = 86_400 * SECOND_NS


class Fleet:
    """All vehicles, and their events for the ledger of the demo."""

    def __init__(self, setup: dict[str, Any]) -> None:
        self.tiles = [Tile(*row) for row in setup["tiles"]]
        self._authority_key = read_authority_key(Path(setup["authority_key"]))
        self._authority = read_authority(Path(setup["authority"]))
        self._vehicles: dict[str, tuple[Vehicle, asyncio.Task[None]]] = {}
        self._ending: set[asyncio.Task[None]] = set()
        self._events: list[tuple[Any, ...]] = []
        self._is_publishing = True
        self.tower = connect(f"mqtt://127.0.0.1:{self.tiles[0].mqtt}", client_id="control-tower")

    def emit(self, *event: Any) -> None:
        """Queue an event for the ledger."""
        self._events.append(event)

    def flush(self) -> None:
        """Write the queued events."""
        if self._events:
            events, self._events = self._events, []
            sys.stdout.buffer.write(fleet_protocol.line_of(events))
            sys.stdout.buffer.flush()

    def issue_trust(self, name: str) -> Credentials:
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
        return Credentials(self._authority, certificate, key)

    def update(self, rows: list[list[Any]], arrived: list[str]) -> None:
        """Update the positions of all vehicles, and end those that have arrived."""
        for name, protocol, *motion in rows:
            entry = self._vehicles.get(name)
            if entry is not None:
                entry[0].move_to(Motion(*motion))
                continue
            kind = UdpVehicle if protocol == "udp" else MqttVehicle
            vehicle = kind(name, self, Motion(*motion))
            self._vehicles[name] = vehicle, asyncio.create_task(vehicle.run())
        for name in arrived:
            entry = self._vehicles.pop(name, None)
            if entry is not None:
                entry[0].end()
                self._ending.add(entry[1])
                entry[1].add_done_callback(self._ending.discard)

    async def publish_numbers(self) -> None:
        """Publish the numbers of the control stream until `stop_numbers` is called."""
        number = 0
        while self._is_publishing:
            number += 1
            at = time_ns()
            await self.tower.publish(CONTROL, str(number), qos=1)
            self.emit(fleet_protocol.PUBLISHED, number, at)
            await asyncio.sleep(max(0.0, 1.0 - (time_ns() - at) / 1e9))

    async def send_test_reports(self, places: list[Place]) -> None:
        """Publish an event at each edge, to test the path through the pipelines."""
        for tile, place in zip(self.tiles, places, strict=True):
            with suppress(ClientFault):
                async with connect(f"mqtt://127.0.0.1:{tile.mqtt}") as edge:
                    await edge.publish(PATH_TEST, place=place, qos=1)

    def stop_numbers(self) -> None:
        """Stop publishing numbers."""
        self._is_publishing = False

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
    publishing: asyncio.Task[None] | None = None
    async with fleet.tower:
        while line := await reader.readline():
            request = fleet_protocol.value_of(line)
            if "cars" in request:
                fleet.update(request["cars"], request["arrived"])
            elif "test_reports" in request:
                await fleet.send_test_reports([Place(*one) for one in request["test_reports"]])
            elif request.get("numbers"):
                publishing = asyncio.create_task(fleet.publish_numbers())
            else:
                fleet.stop_numbers()
        await fleet.end()
        if publishing is not None:
            publishing.cancel()
    flushing.cancel()
    fleet.flush()


if __name__ == "__main__":
    asyncio.run(main())
