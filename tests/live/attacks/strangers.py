"""Clients that try what they have no right to, at an edge with vehicles over UDP and anonymous clients over MQTT."""

import asyncio
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from live.udp.edges import HERE, UdpEdge, edge_in
from live.udp.local_authority import LocalAuthority
from milepost.client import Client, RefusedByEdge
from milepost.model import Circle, ToArea

RETRY_S: Final = 0.2


@contextmanager
def running_edge(folder: Path, more: str = "") -> Iterator[UdpEdge]:
    """Run an edge with stock settings, but for *more*."""
    (folder / "office").mkdir()
    edge = edge_in(folder, LocalAuthority.open(folder / "office"), more=more)
    edge.start()
    try:
        yield edge
    finally:
        edge.end()
        assert edge.faults() == []


async def refusal(attempt: Coroutine[Any, Any, None]) -> str:
    """Return the name of the refusal of an attempt; empty if it was accepted."""
    try:
        await attempt
    except RefusedByEdge as refused:
        return refused.name
    return ""


async def wait_until_trusted(vehicle: Client) -> None:
    """Wait until the position of a vehicle at HERE counts for rights: it may then address the area around it."""
    near = ToArea(Circle(HERE, 1.0))
    while name := await refusal(vehicle.publish("trusted", to=near, valid_for_s=1, qos=1)):
        assert name == "POSITION_TOO_NEW"
        await asyncio.sleep(RETRY_S)
