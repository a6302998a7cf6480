"""Index of the areas of subscriptions, fixed or around their owners: find the subscriptions whose area contains a place.

Areas are grouped into size classes, each four times as wide as the one before. In a class of radius R every area that contains
a place has its centre within R of it: the index looks up the centres within R in a point index (the class's own for fixed areas,
that of the endpoints for areas around their owners) and tests only these areas.

Circles are stored in columns and tested together (vectorized); any other shape is an object and tested individually.
"""

from math import log2, nextafter
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import NO_LIST, ListPool, Rows, column, element_view
from milepost.matching.points import PointIndex
from milepost.model.areas import Area, Around, Circle
from milepost.model.areas.circle import RADIUS_M_MAX, chord_squared
from milepost.model.places import EARTH_RADIUS_M, Flags, Place

SMALLEST_M: Final = 64.0
CLASSES: Final = 11
"""Number of size classes: from 64 m, by factors of four, up to the whole Earth."""

DIRECT_MAX: Final = 2_000
"""Number of areas up to which testing each costs less than looking up the centres of one class."""


class _SizeClass:
    """Areas of one size class."""

    def __init__(self, radius_m: float, rows_max: int, owners_max: int) -> None:
        self.radius_m = radius_m
        self.fixed = PointIndex(rows_max)
        self.rows_around = column(owners_max, np.int32)
        self.around = 0


class AreaIndex:
    """The areas of at most `rows_max` subscriptions, by row; `endpoints` has the positions of their owners."""

    def __init__(self, rows_max: int, owners_max: int, endpoints: PointIndex) -> None:
        self._rows_max, self._owners_max = rows_max, owners_max
        self._endpoints = endpoints
        self._lists = ListPool(rows_max, rows_max)
        self._size_classes: dict[int, _SizeClass] = {}
        self._centre = column(3, np.float64, rows_max)
        self._chord = column(rows_max, np.float64)  # squared
        self._owner = column(rows_max, np.int32)
        self._class_of = element_view(column(rows_max, np.int8))
        self._is_around = column(rows_max, np.bool_)
        self._shapes: dict[int, Area] = {}

    @property
    def direct_max(self) -> int:
        """Number of areas up to which testing each is cheaper than a lookup."""
        return DIRECT_MAX * (len(self._size_classes) + 1)

    def add(self, row: int, owner: int, area: Area | Around) -> None:
        """Add the area of a subscription that had none."""
        angle = area.radius_m / EARTH_RADIUS_M if isinstance(area, Around) else area.cap.angle_rad
        number = _class_number(angle * EARTH_RADIUS_M)
        size_class = self._size_classes.get(number)
        if size_class is None:
            radius_m = SMALLEST_M * 4.0**number
            size_class = self._size_classes[number] = _SizeClass(radius_m, self._rows_max, self._owners_max)
        self._class_of[row] = number
        self._chord[row] = chord_squared(angle)
        self._owner[row] = owner
        self._is_around[row] = isinstance(area, Around)
        if isinstance(area, Around):
            size_class.around += 1
            list_id = size_class.rows_around[owner] = int(size_class.rows_around[owner]) or self._lists.new()
            self._lists.append(list_id, row)
            return
        self._centre[:, row] = area.cap.centre
        latitude, longitude = _degrees(area.cap.centre)
        size_class.fixed.move([row], [latitude], [longitude])
        if not isinstance(area, Circle):
            self._shapes[row] = area

    def remove(self, row: int) -> None:
        """Remove the area of a subscription."""
        size_class = self._size_classes[self._class_of[row]]
        if self._is_around[row]:
            self._remove_around(row, size_class)
        else:
            size_class.fixed.remove([row])
            self._shapes.pop(row, None)

    def candidates_near(self, place: Place) -> Rows:
        """Return candidate subscriptions whose area may contain a place; `contains` tests them exactly."""
        found = [np.empty(0, np.int32)]
        for size_class in self._size_classes.values():
            circle = Circle(place, min(size_class.radius_m, _HALF_EARTH_M))
            if len(size_class.fixed):
                found.append(size_class.fixed.inside(circle))
            if size_class.around:
                owners = self._endpoints.inside(circle)
                found.append(self._lists.gather(size_class.rows_around[owners]))
        return np.concatenate(found)

    def contains(self, rows: Rows, place: Place) -> Flags:
        """Return a flag per subscription: whether its area contains the place."""
        centres = self._centre[:, rows]
        is_around = self._is_around[rows]
        is_known = np.ones(rows.size, np.bool_)
        if is_around.any():
            known, places = self._endpoints.positions_of(self._owner[rows[is_around]])
            centres[:, is_around] = places.T
            is_known[is_around] = known
        vector = place.vector
        centres -= vector[:, None]
        is_near: Flags = (np.einsum("ij,ij->j", centres, centres) <= self._chord[rows]) & is_known
        if self._shapes:
            point = vector.reshape(1, 3)
            for at in np.flatnonzero(is_near & ~is_around).tolist():
                shape = self._shapes.get(int(rows[at]))
                if shape is not None:
                    is_near[at] = bool(shape.contains(point)[0])
        return is_near

    def _remove_around(self, row: int, size_class: _SizeClass) -> None:
        size_class.around -= 1
        owner = self._owner[row]
        list_id = int(size_class.rows_around[owner])
        self._lists.remove(list_id, int(np.flatnonzero(self._lists.view(list_id) == row)[0]))
        if not self._lists.length(list_id):
            self._lists.drop(list_id)
            size_class.rows_around[owner] = NO_LIST


_HALF_EARTH_M: Final = nextafter(RADIUS_M_MAX, 0.0)


def _class_number(radius_m: float) -> int:
    steps = log2(max(radius_m * (1 + 1e-6), SMALLEST_M) / SMALLEST_M) / 2
    return min(CLASSES - 1, -int(-steps // 1))


def _degrees(vector: NDArray[np.float64]) -> tuple[float, float]:
    x, y, z = vector.tolist()
    return float(np.degrees(np.arctan2(z, np.hypot(x, y)))), float(np.degrees(np.arctan2(y, x)))
