"""Unions of areas."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Final

import numpy as np

from milepost.model.areas.bounds import Bounds, Cap
from milepost.model.areas.box import Box
from milepost.model.areas.circle import Circle
from milepost.model.areas.corridor import Corridor
from milepost.model.areas.polygon import Polygon
from milepost.model.areas.smallest_cap import cap_around_caps
from milepost.model.areas.upstream import Upstream
from milepost.model.places import Flags, Vectors
from milepost.model.reasons import Malformed, Reason

UNION_PARTS_MAX: Final = 64
"""Maximum parts that are not unions themselves, counted through all levels."""

UNION_POINTS_MAX: Final = 5000
"""Maximum points of all parts together: a circle has 1, a box 2, a polygon, a corridor and an upstream as many as were given."""

UNION_DEPTH_MAX: Final = 4
"""Maximum levels of nested unions; a union of shapes alone has 1."""


@dataclass(frozen=True)  # without slots: bounds are computed on first use
class Union:
    """All places inside any of the parts, which may overlap and may be unions."""

    parts: "tuple[Circle | Box | Polygon | Corridor | Upstream | Union, ...]"
    size: "AreaSize" = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not self.parts:
            raise Malformed(Reason.AREA_EMPTY, "the union has no parts")
        # Before the sums: those of a few million parts would take long.
        check_size(AreaSize(parts=len(self.parts), points=0, depth=1))
        sizes = [size_of(part) for part in self.parts]
        size = AreaSize(
            parts=sum(each.parts for each in sizes),
            points=sum(each.points for each in sizes),
            depth=1 + max(each.depth for each in sizes),
        )
        check_size(size)
        object.__setattr__(self, "size", size)

    @cached_property
    def cap(self) -> Cap:
        """A cap around all of the area."""
        return cap_around_caps(tuple(part.cap for part in self.parts))

    @cached_property
    def boxes(self) -> tuple[Bounds, ...]:
        """Boxes around all of the area."""
        return tuple(box for part in self.parts for box in part.boxes)

    def contains(self, points: Vectors) -> Flags:
        """Return which points lie inside at least one of the parts."""
        inside = np.zeros(len(points), np.bool_)
        for part in self.parts:
            rest = np.flatnonzero(~inside)
            inside[rest] = part.contains(points[rest])
        return inside


@dataclass(frozen=True, slots=True, kw_only=True)
class AreaSize:
    """Complexity of an area: shapes, points, and levels of unions."""

    parts: int
    points: int
    depth: int


def size_of(area: Circle | Box | Polygon | Corridor | Upstream | Union) -> AreaSize:
    """Return the complexity of the area."""
    match area:
        case Union():
            return area.size
        case Polygon():
            return AreaSize(parts=1, points=area.points, depth=0)
        case Corridor():
            return AreaSize(parts=1, points=len(area.path), depth=0)
        case Upstream():
            return AreaSize(parts=1, points=len(area.columns.latitudes), depth=0)
        case Box():
            return AreaSize(parts=1, points=2, depth=0)
        case Circle():
            return AreaSize(parts=1, points=1, depth=0)


def check_size(size: AreaSize) -> None:
    """Raise `Malformed` if a union has too many parts, points or levels."""
    for count, limit, name in (
        (size.parts, UNION_PARTS_MAX, "parts"),
        (size.points, UNION_POINTS_MAX, "points"),
        (size.depth, UNION_DEPTH_MAX, "levels"),
    ):
        if count > limit:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"the union has {count} {name}, more than {limit}")


@dataclass(slots=True)
class ShapeCounter:
    """Shapes and points read so far: parsers count before they construct, so that a refusal is cheap."""

    parts: int = 0
    points: int = 0

    def add(self, *, points: int) -> None:
        """Count one more shape; raises `Malformed` over the limits."""
        self.parts += 1
        self.points += points
        check_size(AreaSize(parts=self.parts, points=self.points, depth=0))

    def check_depth(self, depth: int) -> None:
        """Raise `Malformed` if a union is nested too deep."""
        check_size(AreaSize(parts=0, points=0, depth=depth))
