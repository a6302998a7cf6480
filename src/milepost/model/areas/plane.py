"""Rings laid flat: seen from the middle of the Earth, great circles within half the globe are straight lines on a plane.

Rules of this file:
- all points and arcs lie in the open half globe around the centre; the caller sees to it;
- a point is inside where a line from it meets the edges an odd number of times, so rings inside rings are holes;
- which of its ends are above the point decides whether an edge is met at all, and a corner is above or below for both its
  edges alike; on which side it passes is decided by its ends where both are on one side, by its normal otherwise: an error
  of rounding can therefore only concern points that are within nanometres of the edge itself.
"""

from dataclasses import dataclass

import numpy as np

from milepost.model.areas.arcs import Angles, Arcs, Rows, blocks
from milepost.model.places import Flags, Vectors


@dataclass(frozen=True, slots=True, eq=False)
class Plane:
    """Closed rings of arcs on the plane that touches the Earth at `axes[2]`."""

    axes: Vectors
    arcs: Arcs
    starts_y: Angles
    ends_y: Angles
    lefts: Angles
    rights: Angles

    def are_inside(self, points: Vectors) -> Flags:
        """Which points lie inside an odd number of the rings."""
        inside = np.zeros(len(points), np.bool_)
        for block in blocks(len(points), len(self.arcs)):
            inside[block] = self._odd(points[block])
        return inside

    def _odd(self, points: Vectors) -> Flags:
        x, y = _laid_flat(points, self.axes)
        rows, edges = np.nonzero((self.starts_y > y[:, None]) != (self.ends_y > y[:, None]))
        met = np.bincount(rows[self._are_to_the_right(points, x, rows, edges)], minlength=len(points))
        odd: Flags = met % 2 == 1
        return odd

    def _are_to_the_right(self, points: Vectors, x: Angles, rows: Rows, edges: Rows) -> Flags:
        """Which edges pass to the right of which points, of those pairs where it passes at the point's height."""
        is_left = np.einsum("ij,ij->i", points[rows], self.arcs.normals[edges]) > 0
        is_upward = self.ends_y[edges] > self.starts_y[edges]
        beyond = x[rows]
        to_the_right: Flags = (beyond < self.lefts[edges]) | ((beyond <= self.rights[edges]) & (is_left == is_upward))
        return to_the_right


def plane_at(centre: Vectors, arcs: Arcs) -> Plane:
    """The rings on the plane that touches the Earth at the centre."""
    aside = np.cross(centre, np.eye(3)[np.argmin(np.abs(centre))])
    aside /= np.linalg.norm(aside)
    axes = np.vstack([aside, np.cross(centre, aside), centre])
    starts_x, starts_y = _laid_flat(arcs.starts, axes)
    ends_x, ends_y = _laid_flat(arcs.ends, axes)
    return Plane(axes, arcs, starts_y, ends_y, np.minimum(starts_x, ends_x), np.maximum(starts_x, ends_x))


def _laid_flat(points: Vectors, axes: Vectors) -> tuple[Angles, Angles]:
    """Where the plane meets the line from the middle of the Earth through each point."""
    # Row by row, not by a matrix product, whose rounding may depend on how many points are asked about at once.
    x, y, height = (points[:, 0] * axis[0] + points[:, 1] * axis[1] + points[:, 2] * axis[2] for axis in axes)
    return x / height, y / height
