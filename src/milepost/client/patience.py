"""How long a client tries, and waiting that ends when the client is closed: the same whatever protocol carries it."""

import asyncio
from collections.abc import Awaitable
from dataclasses import dataclass
from typing import TypeVar

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Patience:
    """How long to try, and how much may wait."""

    first_s: float = 10.0
    """To get the first connection; 0: one attempt."""
    lost_s: float = 300.0
    """To get a lost one back."""
    waiting_max: int = 1_000
    """Publications that are not answered; more of them wait to be taken in."""


async def unless_closing(closing: asyncio.Event, work: Awaitable[Found]) -> Found | None:
    """What work gives, or nothing if the client is closed before."""
    working, closed = asyncio.ensure_future(work), asyncio.ensure_future(closing.wait())
    try:
        await asyncio.wait([working, closed], return_when=asyncio.FIRST_COMPLETED)
        return await working if working.done() else None
    finally:
        closed.cancel()
        working.cancel()
