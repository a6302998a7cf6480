"""Upstream: the stretches of road on which traffic comes towards a place (M26).

    ────▶────┐                 a stretch is driven from its first point to its last; at each point it is known
             ▼                 how many seconds and metres are left to the place
    ────▶────●───▶───✕ here    ✕ the end: nothing is left

What must hold:
- a place is inside if it is within `half_width_m` of a stretch; who moves is inside if it goes the way the stretch goes, too;
- the area is all there is to know: nobody needs the road network to tell who is inside;
- along a stretch, what is left gets less, evenly from its start to its end.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.arcs import TOUCH_RAD, Angles, Arcs, Rows, angles_between_rad
from milepost.model.areas.bounds import Bounds, Cap, bounds_of_cap
from milepost.model.areas.caps import blurred, cap_around_middle
from milepost.model.areas.circle import check_distance
from milepost.model.areas.strips import Strips, strips_of
from milepost.model.places import EARTH_RADIUS_M, Flags, Place, Vectors, vectors
from milepost.model.reasons import Malformed, Reason, shown

UPSTREAM_STRETCHES_MAX: Final = 1000
UPSTREAM_POINTS_MAX: Final = 4000
"""Points of all stretches together."""
SECONDS_LEFT_MAX: Final = 86_400.0
METRES_LEFT_MAX: Final = 1_000_000.0

HEADING_OFF_DEG_MAX: Final = 60.0
"""Who goes the way a stretch goes has a heading no farther from it: less than a right turn, more than receivers are off by."""
MOVING_MPS_MIN: Final = 2.0
"""Who is slower stands: headings of receivers that stand say nothing."""


class Going(NamedTuple):
    """Which way and how fast points go, one row each; NaN where that is not known."""

    headings_deg: NDArray[np.floating]
    speeds_mps: NDArray[np.floating]

    def only(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> "Going":
        """Those of some points."""
        return Going(self.headings_deg[rows], self.speeds_mps[rows])


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of road in the driving direction, and what is left to the place from its start and from its end."""

    path: tuple[Place, ...]
    half_width_m: float
    start_s: float
    end_s: float
    start_m: float
    end_m: float

    def __post_init__(self) -> None:
        if len(self.path) < 2:
            raise Malformed(Reason.AREA_EMPTY, f"the stretch has {len(self.path)} points, fewer than 2")
        check_distance("half_width_m", self.half_width_m)
        _check_left("seconds", self.start_s, self.end_s, SECONDS_LEFT_MAX)
        _check_left("metres", self.start_m, self.end_m, METRES_LEFT_MAX)


@dataclass(frozen=True, slots=True)
class Upstream:
    """All places on some stretches of road, each as wide as it says."""

    stretches: tuple[Stretch, ...]
    cap: Cap = field(init=False, repr=False, compare=False)
    boxes: tuple[Bounds, ...] = field(init=False, repr=False, compare=False)
    arcs: Arcs = field(init=False, repr=False, compare=False)
    """The segments of all stretches, one after the other."""
    widths_m: Angles = field(init=False, repr=False, compare=False)
    """The half width of each segment."""
    _strips: Strips = field(init=False, repr=False, compare=False)
    _bearings_deg: Angles = field(init=False, repr=False, compare=False)
    _left_s: tuple[Angles, Angles] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        counts = np.array([len(stretch.path) for stretch in self.stretches], np.intp)
        if not len(counts):
            raise Malformed(Reason.AREA_EMPTY, "there are no stretches")
        check_upstream_size(len(counts), int(counts.sum()))
        places = [place for stretch in self.stretches for place in stretch.path]
        points = vectors([place.latitude for place in places], [place.longitude for place in places])
        joints = np.cumsum(counts)[:-1] - 1
        is_segment = np.ones(len(points) - 1, np.bool_)
        is_segment[joints] = False
        arcs = _arcs(points, np.flatnonzero(is_segment))
        of_arc = np.repeat(np.arange(len(counts)), counts - 1)
        widths_m = np.array([stretch.half_width_m for stretch in self.stretches])[of_arc]
        strips = strips_of(arcs, widths_m / EARTH_RADIUS_M)
        object.__setattr__(self, "arcs", arcs)
        object.__setattr__(self, "widths_m", widths_m)
        object.__setattr__(self, "_strips", strips)
        object.__setattr__(self, "_bearings_deg", _bearings_deg(arcs))
        object.__setattr__(self, "_left_s", self._seconds_left(arcs.lengths_rad, of_arc, counts - 1))
        object.__setattr__(self, "cap", _cap(points, float(widths_m.max()) / EARTH_RADIUS_M))
        object.__setattr__(self, "boxes", tuple(map(bounds_of_cap, strips.caps)))

    def contains(self, points: Vectors) -> Flags:
        """Which points lie on one of the stretches, the rim included, whichever way they go."""
        rows, _, _ = self._near(points)
        return _flags(rows, len(points))

    def holds(self, points: Vectors, going: Going) -> Flags:
        """Which points lie on a stretch and do not go another way; who stands or has no heading counts by its place."""
        rows, arcs, _ = self._near(points)
        return _flags(rows[self._are_along(rows, arcs, going)], len(points))

    def seconds_to_reach(self, points: Vectors, going: Going | None = None) -> Angles:
        """How long it takes from each point, as roads allow: by the nearest stretch that it is on; NaN for those outside."""
        rows, arcs, distances = self._near(points)
        if going is not None:
            is_along = self._are_along(rows, arcs, going)
            rows, arcs, distances = rows[is_along], arcs[is_along], distances[is_along]
        order = np.lexsort((distances, rows))
        rows, arcs = rows[order], arcs[order]
        is_nearest = np.append(True, rows[1:] != rows[:-1])[: len(rows)]
        rows, arcs = rows[is_nearest], arcs[is_nearest]
        starts, ends = self._left_s
        found = np.full(len(points), np.nan)
        found[rows] = starts[arcs] + (ends - starts)[arcs] * _shares(points[rows], self.arcs.take(arcs))
        return found

    def _near(self, points: Vectors) -> tuple[Rows, Rows, Angles]:
        inside = np.flatnonzero(points @ self.cap.centre >= self.cap.cosine)
        rows, arcs, distances = self._strips.near(points[inside])
        return inside[rows], arcs, distances

    def _are_along(self, rows: Rows, arcs: Rows, going: Going) -> Flags:
        """Which pairs of a point and a segment go the same way, or may."""
        off_deg = np.abs((going.headings_deg[rows] - self._bearings_deg[arcs] + 180.0) % 360.0 - 180.0)
        stands = going.speeds_mps[rows] < MOVING_MPS_MIN
        along: Flags = stands | ~(off_deg > HEADING_OFF_DEG_MAX)  # also where the heading is NaN
        return along

    def _seconds_left(self, lengths: Angles, of_arc: Rows, counts: Rows) -> tuple[Angles, Angles]:
        """What is left at the start and at the end of each segment."""
        start_s = np.array([stretch.start_s for stretch in self.stretches])
        lost_s = start_s - np.array([stretch.end_s for stretch in self.stretches])
        behind = np.cumsum(lengths)
        firsts = np.cumsum(counts) - counts
        before = (behind - lengths)[firsts]
        whole = behind[firsts + counts - 1] - before
        shares = (behind - before[of_arc]) / whole[of_arc]
        share = lengths / whole[of_arc]
        return start_s[of_arc] - lost_s[of_arc] * (shares - share), start_s[of_arc] - lost_s[of_arc] * shares


def check_upstream_size(stretches: int, points: int) -> None:
    """Refuse an upstream of too many stretches or points."""
    for count, limit, name in ((stretches, UPSTREAM_STRETCHES_MAX, "stretches"), (points, UPSTREAM_POINTS_MAX, "points")):
        if count > limit:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"there are {count} {name} upstream, more than {limit}")


def _check_left(name: str, start: float, end: float, limit: float) -> None:
    are_numbers = all(isinstance(value, float | int) and not isinstance(value, bool) for value in (start, end))
    if not are_numbers or not 0 <= end <= start <= limit:
        detail = (
            f"{name} left are {shown(start)} at the start of a stretch and {shown(end)} at its end; they get less, from {limit:g}"
        )
        raise Malformed(Reason.FIELD_RANGE, detail)


def _arcs(points: Vectors, firsts: Rows) -> Arcs:
    """The arcs from some points to the next; refuses those that stand still or lead to the antipodes."""
    starts, ends = points[firsts], points[firsts + 1]
    normals = np.cross(starts - ends, starts + ends)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    # Twice the sine of the angle: nothing where two places are the same, or antipodes.
    if (lengths <= 2 * TOUCH_RAD).any():
        first = int(np.argmin(lengths))
        raise Malformed(Reason.AREA_EMPTY, f"a stretch stands still at segment {first} (counted from 0, over all stretches)")
    return Arcs(starts, ends, normals / lengths)


def _bearings_deg(arcs: Arcs) -> Angles:
    """Which way each arc goes at its start, clockwise from north."""
    x, y, z = arcs.starts.T
    onward = np.cross(arcs.normals, arcs.starts)
    east = onward[:, 1] * x - onward[:, 0] * y
    north = onward[:, 2] * (x * x + y * y) - z * (onward[:, 0] * x + onward[:, 1] * y)
    bearings: Angles = np.degrees(np.arctan2(east, north))
    return bearings


def _cap(points: Vectors, width_rad: float) -> Cap:
    cap = cap_around_middle(points)
    return Cap(np.array([0.0, 0.0, 1.0]), np.pi) if cap is None else Cap(cap.centre, blurred(cap.angle_rad + width_rad))


def _shares(points: Vectors, arcs: Arcs) -> Angles:
    """How far along its arc the place nearest to each point is: 0 at the start, 1 at the end."""
    onward = np.cross(arcs.normals, arcs.starts)
    along = np.arctan2(np.einsum("ij,ij->i", points, onward), np.einsum("ij,ij->i", points, arcs.starts))
    shares: Angles = np.clip(along / angles_between_rad(arcs.starts, arcs.ends), 0.0, 1.0)
    return shares


def _flags(rows: Rows, count: int) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[rows] = True
    return flags
