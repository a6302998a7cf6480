"""Vehicles: where every endpoint that reports was last seen, as columns under small numbers.

What must hold:
- an older report never takes the place of a newer one;
- the number of one that is gone is given to another only after a diff has told that it is gone;
- there are at most `limit` of them: others are counted and not shown.
"""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Area, Going, holds_going
from milepost.model.places import vectors

ROW: Final = np.dtype(
    [
        ("number", "<u4"),
        ("latitude_e7", "<i4"),
        ("longitude_e7", "<i4"),
        ("heading_cdeg", "<u2"),
        ("speed_cmps", "<u2"),
        ("edge", "<u2"),
        ("marks", "<u2"),
    ]
)
"""A vehicle as browsers get it: five words of 32 bits."""
UNKNOWN: Final = 0xFFFF
"""In place of a heading or a speed that was not said."""

Rows = NDArray[Any]


class Mark(IntFlag):
    """What is so about a vehicle now."""

    WARNED = 1
    """It has an alert that is valid."""
    CONCERNED = 2
    """It was inside an area when an alert came, and it is not known that it has it."""
    ROAMED = 4
    """It has come from another edge just now."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """Where a vehicle was."""

    name: str
    latitude: float
    longitude: float
    heading_deg: float | None
    speed_mps: float | None
    edge: int
    seen_at_us: int


@dataclass(slots=True)
class VehicleChanges:
    """What became of vehicles: first those in `gone` are, then `names` are given, then `rows` hold."""

    gone: list[int] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty(0, ROW))


class Vehicles:
    """All vehicles that are shown."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows = np.zeros(min(limit, 1_024), ROW)
        self._seen_at_us = np.zeros(self._rows.size, np.int64)
        self._changed = np.zeros(self._rows.size, np.bool_)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._free: list[int] = []
        self._gone: list[int] = []
        self._new: list[int] = []
        self._next = 0
        self.hidden = 0
        """Reports of vehicles for which there was no room."""

    def __len__(self) -> int:
        return len(self._numbers)

    def see(self, sighting: Sighting) -> int | None:
        """Note where a vehicle is; gives the edge at which it was before, if that was another."""
        number = self._numbers.get(sighting.name)
        if number is None:
            number = self._maybe_number(sighting.name)
            if number is None:
                self.hidden += 1
                return None
            self._rows["edge"][number] = sighting.edge
        elif sighting.seen_at_us < self._seen_at_us[number]:
            return None
        before = int(self._rows["edge"][number])
        marks = self._rows["marks"][number]
        heading = UNKNOWN if sighting.heading_deg is None else round(sighting.heading_deg * 100) % 36_000
        speed = UNKNOWN if sighting.speed_mps is None else min(round(sighting.speed_mps * 100), UNKNOWN - 1)
        place = (round(sighting.latitude * 1e7), round(sighting.longitude * 1e7))
        self._rows[number] = (number, *place, heading, speed, sighting.edge, marks)
        self._seen_at_us[number] = sighting.seen_at_us
        self._changed[number] = True
        return before if before != sighting.edge else None

    def mark(self, name: str, mark: Mark, *, is_so: bool) -> None:
        """Set a mark or take it away, if the vehicle is shown."""
        number = self._numbers.get(name)
        if number is None:
            return
        marks = int(self._rows["marks"][number])
        wanted = marks | mark if is_so else marks & ~mark
        if wanted != marks:
            self._rows["marks"][number] = wanted
            self._changed[number] = True

    def forget(self, before_us: int) -> None:
        """Those that were not seen since are gone."""
        used = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        for number in used[self._seen_at_us[used] < before_us].tolist():
            del self._numbers[self._names.pop(number)]
            self._changed[number] = False
            self._rows["marks"][number] = 0
            self._gone.append(number)
        gone = set(self._gone)
        self._new = [number for number in self._new if number not in gone]

    def inside(self, area: Area, since_us: int = 0) -> set[str]:
        """Who is inside an area, of those that were seen since; where it is on roads, of those who go its way."""
        known = [number for number in self._names if self._seen_at_us[number] >= since_us]
        if not known:
            return set()
        rows, names = self._rows[known], [self._names[number] for number in known]
        points = vectors(rows["latitude_e7"] / 1e7, rows["longitude_e7"] / 1e7)
        going = Going(_known(rows["heading_cdeg"]), _known(rows["speed_cmps"]))
        return {names[row] for row in holds_going(area, points, going).nonzero()[0].tolist()}

    def maybe_place(self, name: str) -> tuple[float, float] | None:
        """Where a vehicle is, latitude first."""
        number = self._numbers.get(name)
        if number is None:
            return None
        return float(self._rows["latitude_e7"][number]) / 1e7, float(self._rows["longitude_e7"][number]) / 1e7

    def count_by_edge(self) -> dict[int, int]:
        """How many are at each edge."""
        edges, counts = np.unique(self._rows["edge"][list(self._names)], return_counts=True)
        return dict(zip(edges.tolist(), counts.tolist(), strict=True))

    def count_marked(self, mark: Mark) -> int:
        """How many have a mark."""
        return int(np.count_nonzero(self._rows["marks"][list(self._names)] & mark))

    def whole(self) -> VehicleChanges:
        """All of them, as a change from nothing."""
        return VehicleChanges([], dict(self._names), self._rows[sorted(self._names)].copy())

    def take_changes(self) -> VehicleChanges:
        """What changed since this was last called."""
        numbers = self._changed.nonzero()[0]
        found = VehicleChanges(self._gone, {number: self._names[number] for number in self._new}, self._rows[numbers])
        self._changed[numbers] = False
        self._free += self._gone
        self._gone, self._new = [], []
        return found

    def _maybe_number(self, name: str) -> int | None:
        if self._free:
            number = self._free.pop()
        elif self._next < self._limit:
            number, self._next = self._next, self._next + 1
            if number >= self._rows.size:
                self._grow()
        else:
            return None
        self._numbers[name], self._names[number] = number, name
        self._new.append(number)
        return number

    def _grow(self) -> None:
        size = min(self._limit, self._rows.size * 2)
        for column in ("_rows", "_seen_at_us", "_changed"):
            old = getattr(self, column)
            new = np.zeros(size, old.dtype)
            new[: old.size] = old
            setattr(self, column, new)


def _known(hundredths: Rows) -> NDArray[np.float64]:
    """What was said, NaN where nothing was."""
    return np.where(hundredths == UNKNOWN, np.nan, hundredths / 100)
