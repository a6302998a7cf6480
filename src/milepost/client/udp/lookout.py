"""Looking for an edge anew while the one that was there is away: it may have moved, have another key, or be gone."""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from time import monotonic
from typing import Final

from milepost.client.faults import EdgeUnreachable
from milepost.client.udp.asking import Found
from milepost.client.udp.finding import Seeker, find
from milepost.model.places import Place

AFTER_S: Final = 3.0
"""So long the old edge alone is asked; and so long the looking takes, and the pause between two looks."""


class Lookout:
    """One look after the other, beside what else is done."""

    def __init__(self, seeker: Seeker, wake: Callable[[], None]) -> None:
        self._seeker = seeker
        self._wake = wake
        self._looking: asyncio.Task[Found] | None = None
        self._next_s = 0.0

    def begin(self) -> None:
        """The edge went away."""
        self._next_s = monotonic() + AFTER_S

    def end(self) -> None:
        """It is back, or it is over."""
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    def maybe_found(self, place: Place) -> Found | None:
        """What was found, if a look is over; begins one if it is time."""
        if self._looking is None and monotonic() >= self._next_s:
            self._looking = asyncio.create_task(find(replace(self._seeker, place=place), AFTER_S))
            self._looking.add_done_callback(lambda _: self._wake())
        if self._looking is None or not self._looking.done():
            return None
        done, self._looking = self._looking, None
        self._next_s = monotonic() + AFTER_S
        with contextlib.suppress(EdgeUnreachable):
            return done.result()
        return None
