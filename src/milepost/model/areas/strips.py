"""Strips: many arcs, each with a width of its own. Which points are near which of them?

Rules of this file:
- arcs lie in clusters of some that are near each other; a point is compared with the clusters, then with the arcs of those whose
  cap it is in, and only what is left is measured;
- nothing here loops over points, arcs or clusters; tables are made in blocks (`arcs.PAIRS_MAX`).
"""

from dataclasses import dataclass
from math import pi
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.model.areas.arcs import PAIRS_MAX, Angles, Arcs, Rows, angles_between_rad, blocks, distances_rad
from milepost.model.areas.bounds import SLACK_RAD, Cap
from milepost.model.places import Vectors

_CLUSTER: Final = 32
_BLUR: Final = 4e-15
"""Rounding of a scalar product, with room to spare."""
_BLUR_RAD: Final = 1e-7
"""Rounding of a cosine near 1, as an angle."""


@dataclass(frozen=True, slots=True, eq=False)
class Strips:
    """Arcs in clusters, and how far each reaches to its sides; `order` says which arc of those given stands where."""

    arcs: Arcs
    widths_rad: Angles
    order: Rows
    middles: Vectors
    reaches: Angles
    """Cosines of how far from the middle of an arc a point can be and yet near enough."""
    centres: Vectors
    angles_rad: Angles
    """Centres and angles of the caps around clusters."""

    @property
    def caps(self) -> list[Cap]:
        """A cap around all that is near the arcs of each cluster."""
        return [Cap(centre, angle) for centre, angle in zip(self.centres, self.angles_rad.tolist(), strict=True)]

    def near(self, points: Vectors) -> tuple[Rows, Rows, Angles]:
        """All pairs of a point and an arc that it is near enough to, by point: rows of both, and how far apart they are."""
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
    """The arcs in clusters."""
    middles = arcs.starts + arcs.ends
    middles /= np.linalg.norm(middles, axis=1, keepdims=True)
    order = _near_each_other(middles)
    arcs, widths_rad, middles = arcs.take(order), widths_rad[order], middles[order]
    reaches_rad = arcs.lengths_rad / 2 + widths_rad
    firsts = np.arange(0, len(arcs), _CLUSTER)
    centres = np.add.reduceat(middles, firsts, axis=0)
    lengths = np.linalg.norm(centres, axis=1, keepdims=True)
    # Middles all around the globe have no middle: then the cap is the whole Earth.
    centres = np.where(lengths > _BLUR_RAD, centres / np.maximum(lengths, _BLUR_RAD), [0.0, 0.0, 1.0])
    own = np.repeat(centres, np.diff(np.append(firsts, len(arcs))), axis=0)
    angles = np.maximum.reduceat(angles_between_rad(middles, own) + reaches_rad, firsts)
    angles = np.where(lengths[:, 0] > _BLUR_RAD, np.minimum(pi, np.hypot(angles + SLACK_RAD, _BLUR_RAD)), pi)
    return Strips(arcs, widths_rad, order, middles, np.cos(np.minimum(pi, reaches_rad)) - _BLUR, centres, angles)


def _near_each_other(middles: Vectors) -> Rows:
    """An order in which each cluster is about as wide as it is high: by slices from south to north, in each from west to east."""
    slices = max(1, round((len(middles) / _CLUSTER) ** 0.5))
    by_height: NDArray[np.intp] = np.argsort(middles[:, 2], kind="stable")
    slice_of = np.empty(len(middles), np.intp)
    slice_of[by_height] = np.arange(len(middles)) * slices // len(middles)
    order: Rows = np.lexsort((np.arctan2(middles[:, 1], middles[:, 0]), slice_of))
    return order
