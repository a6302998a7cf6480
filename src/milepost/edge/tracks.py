"""Tracks: the last report of every endpoint, as columns by session number (M13: current telemetry, no history)."""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.model.areas import Going
from milepost.model.places import Place, Vectors, vectors
from milepost.vetting import Batch, Before

LONG_AGO: Final = 1
"""When a place was seen of which only that is known: anything can have been reached since."""


class Tracks:
    """Where each endpoint is, where it goes, and since when that is known."""

    def __init__(self, limit: int) -> None:
        self._latitudes = column(limit, np.float64)
        self._longitudes = column(limit, np.float64)
        self._seen_at = column(limit, np.int64)
        self._headings = column(limit, np.float32)
        self._speeds = column(limit, np.float32)
        self._reports = column(limit, np.uint32)
        self._seen = numbers_of(self._seen_at)  # 0: nothing is known

    def is_known(self, number: int) -> bool:
        """Whether it is known where an endpoint is."""
        return bool(self._seen[number])

    def before(self, numbers: NDArray[np.int32]) -> Before:
        """The last reports of some endpoints."""
        return Before(self._latitudes.take(numbers), self._longitudes.take(numbers), self._seen_at.take(numbers))

    def put(self, batch: Batch) -> None:
        """Newer reports, of each endpoint one."""
        numbers = batch.numbers
        self._latitudes[numbers] = batch.latitudes
        self._longitudes[numbers] = batch.longitudes
        self._seen_at[numbers] = batch.seen_at
        self._headings[numbers] = batch.headings
        self._speeds[numbers] = batch.speeds
        self._reports[numbers] += np.uint32(1)

    def put_place(self, number: int, place: Place) -> None:
        """Where an endpoint was when it was last heard of, by an earlier process."""
        self._latitudes[number], self._longitudes[number] = place.latitude, place.longitude
        self._headings[number] = self._speeds[number] = np.nan
        self._seen[number] = LONG_AGO

    def forget(self, number: int) -> None:
        """Nothing is known any more."""
        self._seen[number] = 0
        self._reports[number] = 0

    def seen_at(self, number: int) -> int:
        """When the last report was made; 0 if there is none."""
        return int(self._seen[number])

    def maybe_place(self, number: int) -> Place | None:
        """Where an endpoint is, if it is known."""
        return Place(float(self._latitudes[number]), float(self._longitudes[number])) if self._seen[number] else None

    def maybe_heading(self, number: int) -> float | None:
        """Which way an endpoint goes, if it is known."""
        heading = float(self._headings[number]) % 360.0  # just under 360 is 360 in so few digits
        return heading if self._seen[number] and heading == heading else None  # NaN is unequal to itself

    def maybe_speed(self, number: int) -> float | None:
        """How fast an endpoint goes, in metres a second, if it is known."""
        speed = float(self._speeds[number])
        return speed if self._seen[number] and speed == speed else None

    def going(self, numbers: NDArray[np.int32]) -> tuple[Vectors, Going]:
        """Where endpoints whose places are known are, and which way they go."""
        where = vectors(self._latitudes.take(numbers), self._longitudes.take(numbers))
        return where, Going(self._headings.take(numbers), self._speeds.take(numbers))

    def reports_of(self, number: int) -> int:
        """How many reports of an endpoint were let in."""
        return int(self._reports[number])
