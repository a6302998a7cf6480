"""Great-circle arcs: their distances from points, and their bounds to the north, south, east and west.

Invariants:
- an arc is the shorter way between two places that are neither the same nor antipodes;
- arcs are rows of arrays, and no code here loops over rows;
- tables of points by arcs are computed in blocks of `PAIRS_MAX`, so that temporary memory stays under about 4 MB.
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
"""Places closer to each other than this (0.6 mm) count as the same."""

ANTIPODE_RAD: Final = 1e-6
"""Places this close to being antipodes (6 m) have no unique shortest way between them."""

PAIRS_MAX: Final = 16_384
"""Maximum cells of a table of points by arcs; each takes up to about 200 bytes during the computation."""

Angles = NDArray[np.float64]
"""Radians, one for each row of a `Vectors` or an `Arcs`."""

Rows = NDArray[np.intp]
"""Indices of rows."""


@dataclass(frozen=True, slots=True, eq=False)
class Arcs:
    """Arcs: the start and the end of each, and the unit normal to the left of its direction."""

    starts: Vectors
    ends: Vectors
    normals: Vectors

    def __len__(self) -> int:
        return len(self.starts)

    @property
    def lengths_rad(self) -> Angles:
        """The length of each arc, as an angle."""
        return angles_between_rad(self.starts, self.ends)

    def take(self, rows: Rows | slice) -> "Arcs":
        """Return the arcs of *rows*, in that order."""
        return Arcs(self.starts[rows], self.ends[rows], self.normals[rows])


def arcs_along(points: Vectors) -> Arcs:
    """Return the arcs from each point to the next."""
    starts, ends = points[:-1], points[1:]
    # Twice starts x ends, written so that no digits cancel where the two are metres apart.
    normals = np.cross(starts - ends, starts + ends)
    return Arcs(starts, ends, normals / np.linalg.norm(normals, axis=1, keepdims=True))


def vectors_of(places: tuple[Place, ...]) -> Vectors:
    """Return the places as unit vectors, one per row."""
    return vectors([place.latitude for place in places], [place.longitude for place in places])


def check_steps(points: Vectors, reason: Reason, name: str) -> None:
    """Raise `Malformed` if consecutive points are the same place, or antipodes."""
    gaps = np.linalg.norm(np.diff(points, axis=0), axis=1)
    if (gaps <= TOUCH_RAD).any():
        first = int(np.argmax(gaps <= TOUCH_RAD))
        raise Malformed(reason, f"{name} repeats a place: points {first} and {first + 1} (counted from 0) are the same")
    sums = np.linalg.norm(points[:-1] + points[1:], axis=1)
    if (sums <= ANTIPODE_RAD).any():
        first = int(np.argmax(sums <= ANTIPODE_RAD))
        raise Malformed(
            reason, f"{name} is ambiguous between points {first} and {first + 1} (counted from 0): they are antipodes"
        )


def angles_between_rad(ones: Vectors, others: Vectors) -> Angles:
    """Return the angle between the vectors of each row, precise from nanometres to antipodes."""
    angles: Angles = 2 * np.arctan2(np.linalg.norm(ones - others, axis=-1), np.linalg.norm(ones + others, axis=-1))
    return angles


def distances_rad(points: Vectors, arcs: Arcs) -> Angles:
    """Return the distance of the point of each row from the arc of the same row, as an angle."""
    onward = np.cross(arcs.normals, arcs.starts)
    ahead = _dot(points, onward)
    beside = (ahead >= 0) & (_dot(points, np.cross(arcs.ends, arcs.normals)) >= 0)
    across = np.arctan2(np.abs(_dot(points, arcs.normals)), np.hypot(ahead, _dot(points, arcs.starts)))
    to_ends = np.minimum(angles_between_rad(points, arcs.starts), angles_between_rad(points, arcs.ends))
    return np.where(beside, across, to_ends)


def blocks(count: int, width: int) -> Iterator[slice]:
    """Return slices of *count* points, each small enough for a table of points by *width* arcs."""
    step = max(1, PAIRS_MAX // max(1, width))
    return (slice(first, first + step) for first in range(0, count, step))


def cut(arcs: Arcs, length_rad: float) -> Arcs:
    """Return the arcs, each divided into equal pieces no longer than *length_rad*."""
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
    """Return the southernmost and northernmost latitude of each arc, which may lie between its ends."""
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
    """Return the change of longitude along each arc, positive to the east."""
    (x, y), (ends_x, ends_y) = arcs.starts.T[:2], arcs.ends.T[:2]
    turns: Angles = np.arctan2(x * ends_y - y * ends_x, x * ends_x + y * ends_y)
    return turns


def bounds_around(arcs: Arcs, margin_rad: float) -> tuple[Bounds, ...]:
    """Return a box for each arc that contains all points within *margin_rad* of it."""
    lowest, highest = latitudes_rad(arcs)
    wests = np.arctan2(arcs.starts[:, 1], arcs.starts[:, 0])
    turns = turns_rad(arcs)
    easts, wests = wests + np.maximum(turns, 0), wests + np.minimum(turns, 0)
    rows = zip(lowest.tolist(), wests.tolist(), highest.tolist(), easts.tolist(), strict=True)
    return tuple(widened(south, west, north, east, margin_rad) for south, west, north, east in rows)


def widened(south: float, west: float, north: float, east: float, margin_rad: float) -> Bounds:
    """Return the box, converted from radians to degrees, with all points within *margin_rad* of it."""
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
    """Return degrees in -180..180; both limits are left unchanged."""
    if -pi <= radians <= pi:
        return float(np.degrees(radians))
    return float(np.degrees(radians - 2 * pi * np.floor((radians + pi) / (2 * pi))))


def _latitudes_of(points: Vectors) -> Angles:
    latitudes: Angles = np.arctan2(points[:, 2], np.hypot(points[:, 0], points[:, 1]))
    return latitudes


def _dot(ones: Vectors, others: Vectors) -> Angles:
    dots: Angles = np.einsum("ij,ij->i", ones, others)
    return dots
