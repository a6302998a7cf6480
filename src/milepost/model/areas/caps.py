"""The smallest cap around many points, found by pivoting: a cap rests on two or three of its points.

Rules of this file:
- a cap given out holds all points for certain, by the test `points @ centre >= cosine` too, whose rounding is why
  caps are a little wider than they need be: 0.6 m around a single point, less than a millimetre from 1 km up;
- how near it comes to the smallest cap is a matter of speed, never of correctness.
"""

from itertools import combinations
from math import hypot, pi
from typing import Final

import numpy as np

from milepost.model.areas.arcs import angles_between_rad
from milepost.model.areas.bounds import SLACK_RAD, Cap
from milepost.model.places import Vectors

HALF_GLOBE_RAD: Final = pi / 2 - 1e-6
"""What fits into half the globe fits into a cap of this angle, 6 m short of a right one."""

_BLUR_RAD: Final = 1e-7
_PIVOTS_MAX: Final = 100
_LOOSE: Final = 1 + 1e-9


def cap_around(points: Vectors) -> Cap | None:
    """The smallest cap that holds the points, nothing where they do not fit into half the globe."""
    centre = points[0]
    support = points[:1]
    for _ in range(_PIVOTS_MAX):
        angles = angles_between_rad(points, centre)
        held = angles_between_rad(support, centre).max()
        farthest = int(np.argmax(angles))
        if angles[farthest] <= held * _LOOSE:
            break
        found = _smallest(np.vstack([support, points[farthest]]))
        if found is None:
            break
        centre, support = found
    angle = float(angles_between_rad(points, centre).max())
    return Cap(centre, blurred(angle)) if angle < HALF_GLOBE_RAD else None


def cap_around_middle(points: Vectors) -> Cap | None:
    """A cap that holds the points, found fast but not the smallest; nothing where it does not fit into half the globe."""
    middle = points.mean(axis=0)
    length = float(np.linalg.norm(middle))
    if length < _BLUR_RAD:
        return None
    centre: Vectors = middle / length
    angle = float(angles_between_rad(points, centre).max())
    return Cap(centre, blurred(angle)) if angle < HALF_GLOBE_RAD else None


def cap_around_caps(caps: tuple[Cap, ...]) -> Cap:
    """A cap that holds all the caps, near the smallest where they fit into half the globe."""
    largest = max(caps, key=lambda cap: cap.angle_rad)
    centre = largest.centre
    if largest.angle_rad < HALF_GLOBE_RAD:
        around = cap_around(np.vstack([_rim(cap) for cap in caps]))
        centre = centre if around is None else around.centre
    reaches = [float(angles_between_rad(cap.centre, centre)) + cap.angle_rad for cap in caps]
    return Cap(centre, blurred(max(reaches)))


def blurred(angle_rad: float) -> float:
    """The angle with room for rounding, also for that of a cosine near 1."""
    return min(pi, hypot(angle_rad + SLACK_RAD, _BLUR_RAD))


def _smallest(points: Vectors) -> tuple[Vectors, Vectors] | None:
    """Centre and support of the smallest cap around up to four points, with the last of them on its rim."""
    last = len(points) - 1
    best: tuple[float, Vectors, Vectors] | None = None
    for others in (*combinations(range(last), 1), *combinations(range(last), 2)):
        support = points[[*others, last]]
        centre = _centre(support)
        if centre is None:
            continue
        angle = float(angles_between_rad(support, centre).max())
        holds_all = angles_between_rad(points, centre).max() <= angle * _LOOSE
        if holds_all and (best is None or angle < best[0]):
            best = angle, centre, support
    return best and (best[1], best[2])


def _centre(support: Vectors) -> Vectors | None:
    """The place as far from each of two or three points, on their side of the globe."""
    first = support[0]
    away = first + support[1] if len(support) == 2 else np.cross(support[1] - first, support[2] - first)
    length = np.linalg.norm(away)
    if length == 0:
        return None
    centre: Vectors = away / length
    return centre if centre @ first >= 0 else -centre


def _rim(cap: Cap) -> Vectors:
    """Eight points around the rim of a cap."""
    aside = np.cross(cap.centre, np.eye(3)[np.argmin(np.abs(cap.centre))])
    aside /= np.linalg.norm(aside)
    ahead = np.cross(cap.centre, aside)
    turns = np.arange(8)[:, None] * (pi / 4)
    rim: Vectors = np.cos(cap.angle_rad) * cap.centre + np.sin(cap.angle_rad) * (np.cos(turns) * aside + np.sin(turns) * ahead)
    return rim
