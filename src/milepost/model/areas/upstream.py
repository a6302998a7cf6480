"""Upstream: the stretches of road on which traffic comes towards a place (M26).

    ────▶────┐                 a stretch is driven from its first point to its last; the remaining seconds and
             ▼                 metres to the place are known at each point
    ────▶────●───▶───✕ here    ✕ the end: 0 s and 0 m remain

Invariants:
- a place is inside if it is within `half_width_m` of a stretch; a moving endpoint must also move in its driving direction;
- the area is self-contained: deciding which endpoints are inside does not need the road network;
- along a stretch, the remaining time and distance decrease linearly from its start to its end.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, fields
from functools import cached_property
from itertools import pairwise
from math import pi
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.arcs import PAIRS_MAX, TOUCH_RAD, Angles, Arcs, Rows, angles_between_rad, blocks, distances_rad
from milepost.model.areas.bounds import SLACK_RAD, Bounds, Cap, bounds_of_cap
from milepost.model.areas.circle import RADIUS_M_MAX, check_distance
from milepost.model.areas.smallest_cap import blurred, cap_around_middle
from milepost.model.places import EARTH_RADIUS_M, Flags, Place, Vectors, vectors
from milepost.model.reasons import Malformed, Reason, shown

_CLUSTER: Final = 32
_FEW_PAIRS: Final = 4 * _CLUSTER * _CLUSTER
"""Maximum pairs of a point and a segment that are compared without clusters, unless those were made already."""
_BLUR: Final = 4e-15
"""Upper bound for the rounding of a scalar product."""
_BLUR_RAD: Final = 1e-7
"""Rounding of a cosine near 1, as an angle."""


@dataclass(frozen=True, slots=True, eq=False)
class Strips:
    """Arcs, each with its own width, in clusters of neighbours; `order` maps them to the original arcs.

    A point is compared with the clusters, then with the arcs of those clusters whose cap contains it; distances are computed only
    for the remaining pairs. No loop runs over points, arcs or clusters; tables are computed in blocks (`arcs.PAIRS_MAX`).
    """

    arcs: Arcs
    widths_rad: Angles
    order: Rows
    middles: Vectors
    reaches: Angles
    """For each arc, the cosine of the maximum distance of a near point from its middle."""
    centres: Vectors
    angles_rad: Angles
    """Centres and angles of the caps around clusters."""

    @property
    def caps(self) -> list[Cap]:
        """A cap around all places near the arcs of each cluster."""
        return [Cap(centre, angle) for centre, angle in zip(self.centres, self.angles_rad.tolist(), strict=True)]

    def near(self, points: Vectors) -> tuple[Rows, Rows, Angles]:
        """Return all pairs of a point and an arc that it is near, by point: rows of both, and their distances."""
        cosines = np.cos(np.minimum(pi, self.angles_rad)) - _BLUR
        found = [self._near(points, block, cosines) for block in blocks(len(points), len(self.centres))]
        rows, arcs, distances = (
            (np.concatenate(some) for some in zip(*found, strict=True)) if found else (_NO_ROWS, _NO_ROWS, _NO_ANGLES)
        )
        return rows, self.order[arcs], distances

    def _near(self, points: Vectors, block: slice, cosines: Angles) -> tuple[Rows, Rows, Angles]:
        rows, clusters = np.nonzero(points[block] @ self.centres.T >= cosines)
        rows += block.start
        step = PAIRS_MAX // _CLUSTER
        parts = [self._measured(points, rows[at : at + step], clusters[at : at + step]) for at in range(0, len(rows), step)]
        if not parts:
            return _NO_ROWS, _NO_ROWS, _NO_ANGLES
        near_rows, near_arcs, distances = (np.concatenate(some) for some in zip(*parts, strict=True))
        return near_rows, near_arcs, distances

    def _measured(self, points: Vectors, rows: Rows, clusters: Rows) -> tuple[Rows, Rows, Angles]:
        arcs = (clusters[:, None] * _CLUSTER + np.arange(_CLUSTER)).ravel()
        rows = np.repeat(rows, _CLUSTER)[arcs < len(self.arcs)]
        arcs = arcs[arcs < len(self.arcs)]
        may = np.flatnonzero(np.einsum("ij,ij->i", points[rows], self.middles[arcs]) >= self.reaches[arcs])
        rows, arcs = rows[may], arcs[may]
        distances = distances_rad(points[rows], self.arcs.take(arcs))
        is_near = distances <= self.widths_rad[arcs]
        return rows[is_near], arcs[is_near], distances[is_near]


_NO_ROWS: Final[Rows] = np.empty(0, np.intp)
_NO_ANGLES: Final[Angles] = np.empty(0)


def strips_of(arcs: Arcs, widths_rad: Angles) -> Strips:
    """Return the arcs in clusters."""
    middles = arcs.starts + arcs.ends
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    order = _near_each_other(middles)
    arcs, widths_rad, middles = arcs.take(order), widths_rad[order], middles[order]
    reaches_rad = arcs.lengths_rad / 2 + widths_rad
    firsts = np.arange(0, len(arcs), _CLUSTER)
    centres = np.add.reduceat(middles, firsts, axis=0)
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    # Middles spread around the whole globe have no mean direction: then the cap is the whole Earth.
    centres = np.where(lengths > _BLUR_RAD, centres / np.maximum(lengths, _BLUR_RAD), [0.0, 0.0, 1.0])
    own = np.repeat(centres, np.diff(np.append(firsts, len(arcs))), axis=0)
    angles = np.maximum.reduceat(angles_between_rad(middles, own) + reaches_rad, firsts)
    angles = np.where(lengths[:, 0] > _BLUR_RAD, np.minimum(pi, np.hypot(angles + SLACK_RAD, _BLUR_RAD)), pi)
    return Strips(arcs, widths_rad, order, middles, np.cos(np.minimum(pi, reaches_rad)) - _BLUR, centres, angles)


def _near_each_other(middles: Vectors) -> Rows:
    """Return an order that makes clusters about as wide as high: by slices from south to north, in each from west to east."""
    slices = max(1, round((len(middles) / _CLUSTER) ** 0.5))
    by_height: NDArray[np.intp] = np.argsort(middles[:, 2], kind="stable")
    slice_of = np.empty(len(middles), np.intp)
    slice_of[by_height] = np.arange(len(middles)) * slices // len(middles)
    order: Rows = np.lexsort((np.arctan2(middles[:, 1], middles[:, 0]), slice_of))
    return order


UPSTREAM_STRETCHES_MAX: Final = 1000
UPSTREAM_POINTS_MAX: Final = 4000
"""Maximum points of all stretches together."""
SECONDS_LEFT_MAX: Final = 86_400.0
METRES_LEFT_MAX: Final = 1_000_000.0

HEADING_OFF_DEG_MAX: Final = 60.0
"""Maximum difference between an endpoint's heading and its stretch: less than a right turn, more than the error of receivers."""
MOVING_MPS_MIN: Final = 2.0
"""Minimum speed of a moving endpoint: the headings of stationary receivers are meaningless."""


class Motion(NamedTuple):
    """Headings and speeds of points, one row each; NaN where unknown."""

    headings_deg: NDArray[np.floating]
    speeds_mps: NDArray[np.floating]

    def only(self, rows: NDArray[np.integer] | NDArray[np.bool_]) -> "Motion":
        """Return the headings and speeds of *rows*."""
        return Motion(self.headings_deg[rows], self.speeds_mps[rows])


@dataclass(frozen=True, slots=True)
class Stretch:
    """A piece of road in the driving direction, with the remaining time and distance to the place from its start and its end."""

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


@dataclass(frozen=True, slots=True, eq=False)
class StretchColumns:
    """Stretches as columns, as datagrams carry them: the points of one stretch after the other, and a row for each stretch."""

    counts: Rows
    """Points of each stretch."""
    latitudes: Angles
    longitudes: Angles
    half_widths_m: Angles
    start_s: Angles
    end_s: Angles
    start_m: Angles
    end_m: Angles

    @classmethod
    def of(cls, stretches: Sequence[Stretch]) -> Self:
        """Return the columns of valid stretches."""
        places = [place for stretch in stretches for place in stretch.path]
        numbers = [(one.half_width_m, one.start_s, one.end_s, one.start_m, one.end_m) for one in stretches]
        return cls(
            np.array([len(stretch.path) for stretch in stretches], np.intp),
            np.array([place.latitude for place in places], np.float64),
            np.array([place.longitude for place in places], np.float64),
            *np.array(numbers, np.float64).reshape(-1, 5).T,
        )

    def check(self) -> None:
        """Raise `Malformed` unless all stretches are valid; there are as many points as `counts` says."""
        is_valid = bool(
            (self.counts >= 2).all()
            and (np.abs(self.latitudes) <= 90.0).all()
            and (np.abs(self.longitudes) <= 180.0).all()
            and ((self.half_widths_m > 0) & (self.half_widths_m < RADIUS_M_MAX)).all()
            and _may_be_left(self.start_s, self.end_s, SECONDS_LEFT_MAX)
            and _may_be_left(self.start_m, self.end_m, METRES_LEFT_MAX)
        )
        if not is_valid:
            self.stretches()
            raise AssertionError("one of the stretches is invalid")

    def stretches(self) -> tuple[Stretch, ...]:
        """Return the stretches; raise `Malformed` for the first invalid one, with the reason."""
        places = list(map(Place, self.latitudes.tolist(), self.longitudes.tolist()))
        ends = np.cumsum(self.counts).tolist()
        paths = [tuple(places[first:end]) for first, end in pairwise([0, *ends])]
        numbers = (self.half_widths_m, self.start_s, self.end_s, self.start_m, self.end_m)
        return tuple(map(Stretch, paths, *(column.tolist() for column in numbers)))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, StretchColumns) and all(
            np.array_equal(one, another) for one, another in zip(self._columns(), other._columns(), strict=True)
        )

    def __hash__(self) -> int:
        return hash((self.latitudes.tobytes(), self.longitudes.tobytes()))

    def _columns(self) -> tuple[NDArray[np.generic], ...]:
        return tuple(getattr(self, one.name) for one in fields(self))


@dataclass(frozen=True)  # without slots: what only edges need is computed on first use
class Upstream:
    """All places on some stretches of road, each with its own width."""

    columns: StretchColumns
    cap: Cap = field(init=False, repr=False, compare=False)
    arcs: Arcs = field(init=False, repr=False, compare=False)
    """The segments of all stretches, concatenated."""
    widths_m: Angles = field(init=False, repr=False, compare=False)
    """The half width of each segment."""

    @classmethod
    def of(cls, stretches: Sequence[Stretch]) -> "Upstream":
        """Return the area of some stretches."""
        return cls(StretchColumns.of(stretches))

    def __post_init__(self) -> None:
        columns, counts = self.columns, self.columns.counts
        if not len(counts):
            raise Malformed(Reason.AREA_EMPTY, "there are no stretches")
        check_upstream_size(len(counts), int(counts.sum()))
        points = vectors(columns.latitudes, columns.longitudes)
        is_segment = np.ones(len(points) - 1, np.bool_)
        is_segment[np.cumsum(counts)[:-1] - 1] = False
        widths_m = columns.half_widths_m[self._stretch_of_arc]
        object.__setattr__(self, "arcs", _arcs(points, np.flatnonzero(is_segment)))
        object.__setattr__(self, "widths_m", widths_m)
        object.__setattr__(self, "cap", _cap(points, float(widths_m.max()) / EARTH_RADIUS_M))

    @cached_property
    def stretches(self) -> tuple[Stretch, ...]:
        """The stretches of road."""
        return self.columns.stretches()

    @cached_property
    def boxes(self) -> tuple[Bounds, ...]:
        """Boxes around all of the area."""
        return tuple(map(bounds_of_cap, self._strips.caps))

    @cached_property
    def _strips(self) -> Strips:
        return strips_of(self.arcs, self.widths_m / EARTH_RADIUS_M)

    @cached_property
    def _bearings_deg(self) -> Angles:
        return _bearings_deg(self.arcs)

    @cached_property
    def _stretch_of_arc(self) -> Rows:
        return np.repeat(np.arange(len(self.columns.counts)), self.columns.counts - 1)

    def contains(self, points: Vectors) -> Flags:
        """Return which points lie on one of the stretches, the boundary included, whatever their heading."""
        if len(points) * len(self.arcs) <= _FEW_PAIRS and "_strips" not in self.__dict__:
            return self._contains_few(points)
        rows, _, _ = self._near(points)
        return _flags(rows, len(points))

    def _contains_few(self, points: Vectors) -> Flags:
        """Return the same for a few points, without the clusters: an endpoint asks once, for its own position."""
        flags = np.asarray(points @ self.cap.centre >= self.cap.cosine, np.bool_)
        for row in np.flatnonzero(flags):
            here = np.broadcast_to(points[row], self.arcs.starts.shape)
            flags[row] = (distances_rad(here, self.arcs) <= self.widths_m / EARTH_RADIUS_M).any()
        return flags

    def holds(self, points: Vectors, motion: Motion) -> Flags:
        """Return which points lie on a stretch and do not move another way; heading is ignored where unknown or stationary."""
        rows, arcs, _ = self._near(points)
        return _flags(rows[self._are_along(rows, arcs, motion)], len(points))

    def seconds_to_reach(self, points: Vectors, motion: Motion | None = None) -> Angles:
        """Return the travel time by road from each point, on its nearest stretch; NaN for points outside."""
        rows, arcs, distances = self._near(points)
        if motion is not None:
            is_along = self._are_along(rows, arcs, motion)
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

    def _are_along(self, rows: Rows, arcs: Rows, motion: Motion) -> Flags:
        """Return which pairs of a point and a segment have the same direction, as far as known."""
        off_deg = np.abs((motion.headings_deg[rows] - self._bearings_deg[arcs] + 180.0) % 360.0 - 180.0)
        is_stationary = motion.speeds_mps[rows] < MOVING_MPS_MIN
        along: Flags = is_stationary | ~(off_deg > HEADING_OFF_DEG_MAX)  # also where the heading is NaN
        return along

    @cached_property
    def _left_s(self) -> tuple[Angles, Angles]:
        """The remaining seconds at the start and at the end of each segment."""
        lengths, of_arc, counts = self.arcs.lengths_rad, self._stretch_of_arc, self.columns.counts - 1
        start_s, lost_s = self.columns.start_s, self.columns.start_s - self.columns.end_s
        behind = np.cumsum(lengths)
        firsts = np.cumsum(counts) - counts
        before = (behind - lengths)[firsts]
        whole = behind[firsts + counts - 1] - before
        shares = (behind - before[of_arc]) / whole[of_arc]
        share = lengths / whole[of_arc]
        return start_s[of_arc] - lost_s[of_arc] * (shares - share), start_s[of_arc] - lost_s[of_arc] * shares


def check_upstream_size(stretches: int, points: int) -> None:
    """Raise `Malformed` if there are too many stretches or points."""
    for count, limit, name in ((stretches, UPSTREAM_STRETCHES_MAX, "stretches"), (points, UPSTREAM_POINTS_MAX, "points")):
        if count > limit:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"there are {count} {name} upstream, more than {limit}")


def _check_left(name: str, start: float, end: float, limit: float) -> None:
    are_numbers = all(isinstance(value, float | int) and not isinstance(value, bool) for value in (start, end))
    if not are_numbers or not 0 <= end <= start <= limit:
        found = f"{shown(start)} at the start of a stretch and {shown(end)} at its end"
        detail = f"the remaining {name} are {found}; they must not increase, and be at most {limit:g}"
        raise Malformed(Reason.FIELD_RANGE, detail)


def _may_be_left(starts: Angles, ends: Angles, limit: float) -> bool:
    return bool(((ends >= 0) & (ends <= starts) & (starts <= limit)).all())


def _arcs(points: Vectors, firsts: Rows) -> Arcs:
    """Return the arcs from some points to the next; raises `Malformed` for equal points and antipodes."""
    starts, ends = points[firsts], points[firsts + 1]
    normals = np.cross(starts - ends, starts + ends)
    lengths = np.linalg.norm(normals, axis=1, keepdims=True)
    # Twice the sine of the angle: 0 where two places are the same, or antipodes.
    if (lengths <= 2 * TOUCH_RAD).any():
        first = int(np.argmin(lengths))
        raise Malformed(
            Reason.AREA_EMPTY,
            f"segment {first} (counted from 0, over all stretches) has no length or ends at the antipode of its start",
        )
    return Arcs(starts, ends, normals / lengths)


def _bearings_deg(arcs: Arcs) -> Angles:
    """Return the bearing of each arc at its start, clockwise from north."""
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
    """Return the position along its arc of the place nearest to each point: 0 at the start, 1 at the end."""
    onward = np.cross(arcs.normals, arcs.starts)
    along = np.arctan2(np.einsum("ij,ij->i", points, onward), np.einsum("ij,ij->i", points, arcs.starts))
    shares: Angles = np.clip(along / angles_between_rad(arcs.starts, arcs.ends), 0.0, 1.0)
    return shares


def _flags(rows: Rows, count: int) -> Flags:
    flags = np.zeros(count, np.bool_)
    flags[rows] = True
    return flags
