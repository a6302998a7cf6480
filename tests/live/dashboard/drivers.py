"""Drivers: real clients that drive in circles and report their positions, in a thread of their own."""

import asyncio
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import cos, radians, sin
from typing import Any, Final

from milepost.client import Client, connect
from milepost.model.places import Place, moved

EVERY_S: Final = 0.25
DEGREES_A_STEP: Final = 2.0


@dataclass
class Driver:
    """A client that drives around a place."""

    name: str
    urls: list[str]
    """Edges; `change` makes it reconnect to the next one."""
    around: Place
    radius_m: float
    angle_deg: float = 0.0
    received: list[str] = field(default_factory=list)
    """Topics of received messages."""
    change: asyncio.Event = field(default_factory=asyncio.Event)

    async def drive(self) -> None:
        """Drive until cancelled, from one edge to the next."""
        for at in range(1_000):
            async with connect(self.urls[at % len(self.urls)], client_id=self.name) as edge:
                receiving = asyncio.ensure_future(self._receive(edge))
                try:
                    await self._report_until_change(edge)
                finally:
                    receiving.cancel()

    async def _report_until_change(self, edge: Client) -> None:
        while not self.change.is_set():
            place = moved(self.around, self.angle_deg, self.radius_m)
            speed = radians(DEGREES_A_STEP) * self.radius_m / EVERY_S
            await edge.report(
                place.latitude, place.longitude, heading_deg=(self.angle_deg + 90) % 360, speed_mps=min(speed, 80.0)
            )
            self.angle_deg = (self.angle_deg + DEGREES_A_STEP) % 360
            await asyncio.sleep(EVERY_S)
        self.change.clear()

    async def _receive(self, edge: Client) -> None:
        async with edge.messages() as messages:
            async for message in messages:
                self.received.append(message.topic)


class Traffic:
    """All drivers, in one thread."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._tasks: list[asyncio.Future[None]] = []
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()

    def add(self, driver: Driver) -> Driver:
        """Start a driver."""
        self._call(self._begin(driver))
        return driver

    def change_edge(self, driver: Driver) -> None:
        """Make a driver reconnect to its next edge."""
        self._loop.call_soon_threadsafe(driver.change.set)

    def do(self, url: str, act: Callable[[Client], Coroutine[Any, Any, None]], *, name: str = "operator") -> None:
        """Connect as a client, run *act*, and disconnect."""

        async def once() -> None:
            async with connect(url, client_id=name) as edge:
                await act(edge)

        self._call(once())

    def end(self) -> None:
        """Stop all drivers and the thread."""
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def _call(self, work: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(work, self._loop).result(60)

    async def _begin(self, driver: Driver) -> None:
        self._tasks.append(asyncio.ensure_future(driver.drive()))

    async def _stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)


@contextmanager
def traffic() -> Iterator[Traffic]:
    """Traffic that is stopped at the end of the block."""
    made = Traffic()
    try:
        yield made
    finally:
        made.end()


def ring(around: Place, count: int, urls: list[str], *, prefix: str = "car") -> Iterator[Driver]:
    """Yield drivers spread over a few circles."""
    for number in range(count):
        radius_m = 150.0 + 220.0 * (number % 6) + 40 * abs(sin(number)) + 40 * abs(cos(number))
        yield Driver(f"{prefix}-{number}", urls, around, radius_m, (number * 137.5) % 360)
