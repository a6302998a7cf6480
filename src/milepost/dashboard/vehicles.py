"""Vehicles: the last position of every reporting endpoint, as columns indexed by small numbers.

Invariants:
- an older report never replaces a newer one;
- the number of a removed vehicle is reused only after a diff has reported the removal;
- there are at most `limit` vehicles: others are counted and not shown.
"""

from dataclasses import dataclass, field
from enum import IntFlag
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas import Area, Motion, contains_moving
from milepost.model.places import vectors

ROW: Final = np.dtype(
    [
        ("number", "<u4"),
        ("latitude_e7", "<i4"),
        ("longitude_e7", "<i4"),
        ("heading_cdeg", "<u2"),
        ("speed_cmps", "<u2"),
        ("edge", "<u2"),
        ("flags", "<u2"),
    ]
)
"""A vehicle in the binary frame: five 32-bit words."""
UNKNOWN: Final = 0xFFFF
"""Placeholder for an unreported heading or speed."""

Rows = NDArray[Any]


class VehicleFlag(IntFlag):
    """Flags of a vehicle."""

    WARNED = 1
    """It has a valid alert."""
    UNCONFIRMED = 2
    """It was inside an alert's area, and the delivery is not confirmed."""
    ROAMED = 4
    """It recently came from another edge."""


@dataclass(frozen=True, slots=True)
class Sighting:
    """A reported position of a vehicle."""

    name: str
    latitude: float
    longitude: float
    heading_deg: float | None
    speed_mps: float | None
    edge: int
    seen_at_us: int


@dataclass(slots=True)
class VehicleChanges:
    """Changes of vehicles, to be applied in this order: remove `removed`, add `names`, update `rows`."""

    removed: list[int] = field(default_factory=list)
    names: dict[int, str] = field(default_factory=dict)
    rows: Rows = field(default_factory=lambda: np.empty(0, ROW))


class Vehicles:
    """All shown vehicles."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._rows = np.zeros(min(limit, 1_024), ROW)
        self._seen_at_us = np.zeros(self._rows.size, np.int64)
        self._changed = np.zeros(self._rows.size, np.bool_)
        self._numbers: dict[str, int] = {}
        self._names: dict[int, str] = {}
        self._free: list[int] = []
        self._removed: list[int] = []
        self._added: list[int] = []
        self._next = 0
        self.hidden = 0
        """Reports of vehicles beyond the limit."""

    def __len__(self) -> int:
        return len(self._numbers)

    def update(self, sighting: Sighting) -> int | None:
        """Update a vehicle's position; return its previous edge if it differs."""
        number = self._numbers.get(sighting.name)
        if number is None:
            number = self._allocate_number(sighting.name)
            if number is None:
                self.hidden += 1
                return None
            self._rows["edge"][number] = sighting.edge
        elif sighting.seen_at_us < self._seen_at_us[number]:
            return None
        before = int(self._rows["edge"][number])
        flags = self._rows["flags"][number]
        heading = UNKNOWN if sighting.heading_deg is None else round(sighting.heading_deg * 100) % 36_000
        speed = UNKNOWN if sighting.speed_mps is None else min(round(sighting.speed_mps * 100), UNKNOWN - 1)
        place = (round(sighting.latitude * 1e7), round(sighting.longitude * 1e7))
        self._rows[number] = (number, *place, heading, speed, sighting.edge, flags)
        self._seen_at_us[number] = sighting.seen_at_us
        self._changed[number] = True
        return before if before != sighting.edge else None

    def set_flag(self, name: str, flag: VehicleFlag, *, is_set: bool) -> None:
        """Set or clear a flag if the vehicle is shown."""
        number = self._numbers.get(name)
        if number is None:
            return
        flags = int(self._rows["flags"][number])
        changed = flags | flag if is_set else flags & ~flag
        if changed != flags:
            self._rows["flags"][number] = changed
            self._changed[number] = True

    def forget(self, before_us: int) -> None:
        """Remove the vehicles not seen since *before_us*."""
        used = np.fromiter(self._numbers.values(), np.int64, len(self._numbers))
        for number in used[self._seen_at_us[used] < before_us].tolist():
            del self._numbers[self._names.pop(number)]
            self._changed[number] = False
            self._rows["flags"][number] = 0
            self._removed.append(number)
        removed = set(self._removed)
        self._added = [number for number in self._added if number not in removed]

    def inside(self, area: Area, since_us: int = 0) -> set[str]:
        """Return the vehicles inside an area, seen since *since_us*; for an area on roads, only those in its direction."""
        known = [number for number in self._names if self._seen_at_us[number] >= since_us]
        if not known:
            return set()
        rows, names = self._rows[known], [self._names[number] for number in known]
        points = vectors(rows["latitude_e7"] / 1e7, rows["longitude_e7"] / 1e7)
        motion = Motion(_reported(rows["heading_cdeg"]), _reported(rows["speed_cmps"]))
        return {names[row] for row in contains_moving(area, points, motion).nonzero()[0].tolist()}

    def find_place(self, name: str) -> tuple[float, float] | None:
        """Return the position of a vehicle, latitude first, or None."""
        number = self._numbers.get(name)
        if number is None:
            return None
        return float(self._rows["latitude_e7"][number]) / 1e7, float(self._rows["longitude_e7"][number]) / 1e7

    def count_by_edge(self) -> dict[int, int]:
        """Return the number of vehicles at each edge."""
        edges, counts = np.unique(self._rows["edge"][list(self._names)], return_counts=True)
        return dict(zip(edges.tolist(), counts.tolist(), strict=True))

    def count_flagged(self, flag: VehicleFlag) -> int:
        """Return the number of vehicles with a flag."""
        return int(np.count_nonzero(self._rows["flags"][list(self._names)] & flag))

    def whole(self) -> VehicleChanges:
        """Return all vehicles, as changes to an empty state."""
        return VehicleChanges([], dict(self._names), self._rows[sorted(self._names)].copy())

    def take_changes(self) -> VehicleChanges:
        """Return the changes since the last call."""
        numbers = self._changed.nonzero()[0]
        found = VehicleChanges(self._removed, {number: self._names[number] for number in self._added}, self._rows[numbers])
        self._changed[numbers] = False
        self._free += self._removed
        self._removed, self._added = [], []
        return found

    def _allocate_number(self, name: str) -> int | None:
        if self._free:
            number = self._free.pop()
        elif self._next < self._limit:
            number, self._next = self._next, self._next + 1
            if number >= self._rows.size:
                self._grow()
        else:
            return None
        self._numbers[name], self._names[number] = number, name
        self._added.append(number)
        return number

    def _grow(self) -> None:
        size = min(self._limit, self._rows.size * 2)
        for column in ("_rows", "_seen_at_us", "_changed"):
            old = getattr(self, column)
            new = np.zeros(size, old.dtype)
            new[: old.size] = old
            setattr(self, column, new)


def _reported(hundredths: Rows) -> NDArray[np.float64]:
    """Return the reported values, NaN where none was reported."""
    return np.where(hundredths == UNKNOWN, np.nan, hundredths / 100)
