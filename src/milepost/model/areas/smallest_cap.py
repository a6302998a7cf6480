"""The smallest cap around many points, found by pivoting: two or three of the points determine a cap.

Invariants:
- a returned cap contains all points, also by the test `points @ centre >= cosine`. The rounding of that test is why
  caps are a little wider than necessary: 0.6 m around a single point, less than a millimetre from 1 km up;
- how close a cap comes to the smallest one affects speed, never correctness.
"""

from itertools import combinations
from math import hypot, pi
from typing import Final

import numpy as np

from milepost.model.areas.arcs import angles_between_rad
from milepost.model.areas.bounds import SLACK_RAD, Cap
from milepost.model.places import Vectors

HALF_GLOBE_RAD: Final = pi / 2 - 1e-6
"""Maximum angle of a cap that counts as fitting into half the globe: 6 m less than a right angle."""

_BLUR_RAD: Final = 1e-7
_PIVOTS_MAX: Final = 100
_LOOSE: Final = 1 + 1e-9


def cap_around(points: Vectors) -> Cap | None:
    """Return the smallest cap that contains the points; None if they do not fit into half the globe."""
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
    """Return a cap that contains the points, found fast but not the smallest; None if it does not fit into half the globe."""
    middle = points.mean(axis=0)
    length = float(np.linalg.norm(middle))
    if length < _BLUR_RAD:
        return None
    centre: Vectors = middle / length
    angle = float(angles_between_rad(points, centre).max())
    return Cap(centre, blurred(angle)) if angle < HALF_GLOBE_RAD else None


def cap_around_caps(caps: tuple[Cap, ...]) -> Cap:
    """Return a cap that contains all the caps, close to the smallest where they fit into half the globe."""
    largest = max(caps, key=lambda cap: cap.angle_rad)
    centre = largest.centre
    if largest.angle_rad < HALF_GLOBE_RAD:
        around = cap_around(np.vstack([_rim(cap) for cap in caps]))
        centre = centre if around is None else around.centre
    reaches = [float(angles_between_rad(cap.centre, centre)) + cap.angle_rad for cap in caps]
    return Cap(centre, blurred(max(reaches)))


def blurred(angle_rad: float) -> float:
    """Return the angle with a margin for rounding, also that of a cosine near 1."""
    return min(pi, hypot(angle_rad + SLACK_RAD, _BLUR_RAD))


def _smallest(points: Vectors) -> tuple[Vectors, Vectors] | None:
    """Return centre and support of the smallest cap around up to four points, with the last of them on its boundary."""
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
    """Return the place equally far from two or three points, on their side of the globe."""
    first = support[0]
    away = first + support[1] if len(support) == 2 else np.cross(support[1] - first, support[2] - first)
    length = np.linalg.norm(away)
    if length == 0:
        return None
    centre: Vectors = away / length
    return centre if centre @ first >= 0 else -centre


def _rim(cap: Cap) -> Vectors:
    """Return eight points on the boundary of a cap."""
    aside = np.cross(cap.centre, np.eye(3)[np.argmin(np.abs(cap.centre))])
    aside /= np.linalg.norm(aside)
    ahead = np.cross(cap.centre, aside)
    turns = np.arange(8)[:, None] * (pi / 4)
    rim: Vectors = np.cos(cap.angle_rad) * cap.centre + np.sin(cap.angle_rad) * (np.cos(turns) * aside + np.sin(turns) * ahead)
    return rim
