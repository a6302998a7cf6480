"""Runs the tests of the client, each with a deadline, without sleeps."""

import asyncio
from collections.abc import Coroutine
from typing import Any, Final, Protocol, TypeVar

from live.mqtt.brokers import Broker
from milepost.client import ClientState, ClientStateChange, ClientStateChanges

Result = TypeVar("Result")

DEADLINE_S: Final = 60.0


class MakeEdge(Protocol):
    """The `make_edge` fixture."""

    def __call__(self, *, more: str = "", users: dict[str, str] | None = None, is_reference: bool = False) -> Broker: ...


def run(work: Coroutine[Any, Any, Result]) -> Result:
    """Run a test's coroutine to its end, within the deadline."""

    async def limited() -> Result:
        async with asyncio.timeout(DEADLINE_S):
            return await work

    return asyncio.run(limited())


def url_of(broker: Broker) -> str:
    return f"mqtt://127.0.0.1:{broker.tcp}"


async def wait_state(changes: ClientStateChanges, wanted: ClientState) -> ClientStateChange:
    """Follow changes until there is one to this state."""
    async for change in changes:
        if change.state is wanted:
            return change
    raise AssertionError(f"the client was closed and never {wanted}")
