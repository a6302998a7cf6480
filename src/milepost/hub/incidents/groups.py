"""Groups of hot bins: of those that touch, the greatest leads and the others belong to it.

What must hold:
- bins touch where their 3 x 3 blocks have a square in common;
- a hot bin that touches a greater one belongs to where the greatest of those belongs, as water runs; one that touches no greater
  one leads. So a long jam with one worst place is one group, and a town full of them is not;
- each hot bin is in one group, and how they came is of no matter.
"""

from collections.abc import Iterable
from typing import NamedTuple

from milepost.model.incidents import Bin, Grid, Square


class Group(NamedTuple):
    """A bin that leads, and all that belong to it, itself first."""

    leader: Bin
    members: tuple[Bin, ...]

    @property
    def squares(self) -> frozenset[Square]:
        """The squares of its bins."""
        return frozenset(member.square for member in self.members)


def grouped(grid: Grid, hot: Iterable[Bin]) -> list[Group]:
    """The groups of the hot bins, the greatest leader first."""
    ordered = sorted(hot, key=lambda one: one.rank)
    greatest: dict[Square, int] = {}
    leaders: list[int] = []
    members: dict[int, list[Bin]] = {}
    for number, one in enumerate(ordered):
        for square in grid.block(one.square):
            greatest.setdefault(square, number)
        upward = min(greatest[square] for square in grid.block(one.square))
        leaders.append(number if upward == number else leaders[upward])
        members.setdefault(leaders[number], []).append(one)
    return [Group(ordered[leader], tuple(belonging)) for leader, belonging in members.items()]
