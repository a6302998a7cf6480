"""Great-circle arcs: how far a point is from one, and how far one reaches north, south, east and west.

Rules of this file:
- an arc is the shorter way between two places that are neither the same nor antipodes;
- arcs are rows of arrays, and nothing here loops over rows;
- tables of points by arcs are made in blocks of `PAIRS_MAX`, so that scratch memory stays under about 4 MB.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.bounds import SLACK_RAD, Bounds
from milepost.model.places import Place, Vectors, vectors
from milepost.model.reasons import Malformed, Reason

TOUCH_RAD: Final = 1e-10
"""Places this near to each other (0.6 mm) are taken for one."""

ANTIPODE_RAD: Final = 1e-6
"""Places this near to being antipodes (6 m) have no one shortest way between them."""

PAIRS_MAX: Final = 16_384
"""Cells of a table of points by arcs; each costs up to some 200 bytes while it is worked on."""

Angles = NDArray[np.float64]
"""Radians, one for each row of a `Vectors` or an `Arcs`."""

Rows = NDArray[np.intp]
"""Indices of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Arcs:
    """Many arcs: where each starts and ends, and the unit normal to the left of the way."""

    starts: Vectors
    ends: Vectors
    normals: Vectors

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths_rad(self) -> Angles:
        """How long each arc is, as an angle."""
        return angles_between_rad(self.starts, self.ends)

    def take(self, rows: Rows | slice) -> "Arcs":
        """Some of the arcs, in the order asked for."""
        return Arcs(self.starts[rows], self.ends[rows], self.normals[rows])


def arcs_along(points: Vectors) -> Arcs:
    """The arcs from each point to the next."""
    starts, ends = points[:-1], points[1:]
    # Twice starts x ends, written so that nothing cancels where the two are metres apart.
    normals = np.cross(starts - ends, starts + ends)
    return Arcs(starts, ends, normals / np.linalg.norm(normals, axis=1, keepdims=True))


def vectors_of(places: tuple[Place, ...]) -> Vectors:
    """The places as unit vectors, one a row."""
    return vectors([place.latitude for place in places], [place.longitude for place in places])


def check_steps(points: Vectors, reason: Reason, name: str) -> None:
    """Refuse neighbours that are the same place, or antipodes."""
    gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    if (gaps <= TOUCH_RAD).any():
        first = int(np.argmax(gaps <= TOUCH_RAD))
        raise Malformed(reason, f"{name} stands still: points {first} and {first + 1} (counted from 0) are the same place")
    sums = np.linalg.norm(points[:-1] + points[1:], axis=1)
    if (sums <= ANTIPODE_RAD).any():
        first = int(np.argmax(sums <= ANTIPODE_RAD))
        raise Malformed(reason, f"{name} has no one way from point {first} to {first + 1} (counted from 0): they are antipodes")


def angles_between_rad(ones: Vectors, others: Vectors) -> Angles:
    """The angle between the vectors of each row, precise from nanometres to antipodes."""
    angles: Angles = 2 * np.arctan2(np.linalg.norm(ones - others, axis=-1), np.linalg.norm(ones + others, axis=-1))
    return angles


def distances_rad(points: Vectors, arcs: Arcs) -> Angles:
    """How far the point of each row is from the arc of the same row, as an angle."""
    onward = np.cross(arcs.normals, arcs.starts)
    ahead = _dot(points, onward)
    beside = (ahead >= 0) & (_dot(points, np.cross(arcs.ends, arcs.normals)) >= 0)
    across = np.arctan2(np.abs(_dot(points, arcs.normals)), np.hypot(ahead, _dot(points, arcs.starts)))
    to_ends = np.minimum(angles_between_rad(points, arcs.starts), angles_between_rad(points, arcs.ends))
    return np.where(beside, across, to_ends)


def blocks(count: int, width: int) -> Iterator[slice]:
    """Slices of `count` points, each small enough for a table of points by `width` arcs."""
    step = max(1, PAIRS_MAX // max(1, width))
    return (slice(first, first + step) for first in range(0, count, step))


def cut(arcs: Arcs, length_rad: float) -> Arcs:
    """The same arcs in equal pieces no longer than `length_rad`."""
    lengths = arcs.lengths_rad
    counts = np.maximum(1, np.ceil(lengths / length_rad)).astype(np.intp)
    which = np.repeat(np.arange(len(arcs)), counts)
    steps = np.arange(len(which)) - np.repeat(np.cumsum(counts) - counts, counts)
    whole, piece = arcs.take(which), (lengths / counts)[which]
    onward = np.cross(whole.normals, whole.starts)

    def at(angles: Angles) -> Vectors:
        reached: Vectors = whole.starts * np.cos(angles)[:, None] + onward * np.sin(angles)[:, None]
        return reached

    return Arcs(at(piece * steps), at(piece * (steps + 1)), whole.normals)


def latitudes_rad(arcs: Arcs) -> tuple[Angles, Angles]:
    """The southernmost and northernmost latitude of each arc, which may lie between its ends."""
    first, last = _latitudes_of(arcs.starts), _latitudes_of(arcs.ends)
    lowest, highest = np.minimum(first, last), np.maximum(first, last)
    x, y, z = arcs.normals.T
    top = np.arctan2(np.hypot(x, y), np.abs(z))
    climbs_at_start = np.cross(arcs.normals, arcs.starts)[:, 2] > 0
    climbs_at_end = np.cross(arcs.normals, arcs.ends)[:, 2] > 0
    highest = np.where(climbs_at_start & ~climbs_at_end, np.maximum(highest, top), highest)
    lowest = np.where(~climbs_at_start & climbs_at_end, np.minimum(lowest, -top), lowest)
    return lowest, highest


def turns_rad(arcs: Arcs) -> Angles:
    """How far east (or, negative, west) each arc goes around the axis."""
    (x, y), (ends_x, ends_y) = arcs.starts.T[:2], arcs.ends.T[:2]
    turns: Angles = np.arctan2(x * ends_y - y * ends_x, x * ends_x + y * ends_y)
    return turns


def bounds_around(arcs: Arcs, margin_rad: float) -> tuple[Bounds, ...]:
    """A box for each arc that holds all within `margin_rad` of it."""
    lowest, highest = latitudes_rad(arcs)
    wests = np.arctan2(arcs.starts[:, 1], arcs.starts[:, 0])
    turns = turns_rad(arcs)
    easts, wests = wests + np.maximum(turns, 0), wests + np.minimum(turns, 0)
    rows = zip(lowest.tolist(), wests.tolist(), highest.tolist(), easts.tolist(), strict=True)
    return tuple(widened(south, west, north, east, margin_rad) for south, west, north, east in rows)


def widened(south: float, west: float, north: float, east: float, margin_rad: float) -> Bounds:
    """The box, from radians to degrees, with room for all within `margin_rad` of it."""
    steepest = max(abs(south), abs(north))
    south, north = south - margin_rad, north + margin_rad
    if steepest + margin_rad >= pi / 2:
        return Bounds(max(-90.0, float(np.degrees(south))), -180.0, min(90.0, float(np.degrees(north))), 180.0)
    aside = float(np.arcsin(min(1.0, np.sin(margin_rad) / np.cos(steepest))))
    west, east = west - aside, east + aside
    if east - west >= 2 * pi - SLACK_RAD:
        west, east = -pi, pi
    return Bounds(float(np.degrees(south)), _longitude(west), float(np.degrees(north)), _longitude(east))


def _longitude(radians: float) -> float:
    """Degrees in -180..180; the two ends stay what they are."""
    if -pi <= radians <= pi:
        return float(np.degrees(radians))
    return float(np.degrees(radians - 2 * pi * np.floor((radians + pi) / (2 * pi))))


def _latitudes_of(points: Vectors) -> Angles:
    latitudes: Angles = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
    return latitudes


def _dot(ones: Vectors, others: Vectors) -> Angles:
    dots: Angles = np.einsum("ij,ij->i", ones, others)
    return dots
