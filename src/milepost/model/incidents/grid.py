"""The grid: squares of the Earth by which reports are aggregated, bit for bit the same in Python, numpy and SQL.

    up      = trunc((latitude + 90) × 10⁷)                              whole ten-millionths of a degree, about 1 cm
    over    = trunc((longitude + 180) × 10⁷) mod 3,600,000,000
    row     = min(up div height, rows - 1)                              height = trunc(side_m × 89.932)
    columns = max(1, trunc(around × (32400 - 4x²) / (32400 + x²)))      around = 3,600,000,000 div height
    column  = over × columns div 3,600,000,000                          x = the latitude of the row's middle

Invariants:
- only integers and + - × ÷ of doubles in this order, which every machine rounds alike. The quotient approximates the
  cosine, which is not rounded alike everywhere; squares are therefore up to 2 % narrower or wider than high;
- each row is divided into equal columns all around the Earth: the antimeridian is a border like any other;
- positions in a square are relative to its south-west corner, in integer units, so that sums are exact in any order.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from math import pi
from typing import Final, NamedTuple

import numpy as np

from milepost.model.places import EARTH_RADIUS_M, Place, Vectors, vectors

UNITS_PER_DEGREE: Final = 10_000_000
METRES_PER_UNIT: Final = pi * EARTH_RADIUS_M / 180 / UNITS_PER_DEGREE

SIDE_M_MIN: Final = 10.0
SIDE_M_MAX: Final = 50_000.0

_UNITS_A_METRE: Final = 89.932
_TURN: Final = 360 * UNITS_PER_DEGREE
_BLOCKS_KEPT: Final = 65_536


class Square(NamedTuple):
    """A square of a grid: rows from the south pole northward, columns from the antimeridian eastward."""

    row: int
    column: int


class GridPosition(NamedTuple):
    """Position of a place in the grid: its square, and the distances north and east of the corner, in units."""

    square: Square
    north: int
    east: int


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid with squares of one size."""

    side_m: float
    height: int = field(init=False, repr=False)
    """Height of each row, in units."""
    rows: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        if not SIDE_M_MIN <= self.side_m <= SIDE_M_MAX:
            raise ValueError(f"side_m is {self.side_m}, not in {SIDE_M_MIN}..{SIDE_M_MAX}")
        object.__setattr__(self, "height", int(self.side_m * _UNITS_A_METRE))
        object.__setattr__(self, "rows", -(-_TURN // 2 // self.height))

    def locate(self, place: Place) -> GridPosition:
        """Return the position of a place in the grid."""
        up = int((place.latitude + 90.0) * 1e7)
        over = int((place.longitude + 180.0) * 1e7) % _TURN
        row = min(up // self.height, self.rows - 1)
        square = Square(row, over * self.columns(row) // _TURN)
        return GridPosition(square, up - self.south(square), over - self.west(square))

    def place(self, up: float, over: float) -> Place:
        """Return the place *up* units north of the south pole and *over* east of the antimeridian, rounded for display."""
        return Place(min(round(up / 1e7 - 90.0, 7), 90.0), round(over % _TURN / 1e7 - 180.0, 7))

    def columns(self, row: int) -> int:
        """Return the number of squares in a row."""
        middle = (2 * row + 1) * self.height / 2e7 - 90.0
        narrower = (32400.0 - 4.0 * middle * middle) / (32400.0 + middle * middle)
        return max(1, int(_TURN // self.height * narrower))

    def south(self, square: Square) -> int:
        """Return the units from the south pole to the corner."""
        return square.row * self.height

    def west(self, square: Square) -> int:
        """Return the units from the antimeridian to the corner."""
        return square.column * _TURN // self.columns(square.row)

    def middles(self, squares: Sequence[Square]) -> Vectors:
        """Return the approximate middles of squares."""
        rows, columns = np.array(squares, np.float64).T
        latitudes = np.minimum((rows + 0.5) * self.height / 1e7 - 90.0, 90.0)
        squared = latitudes * latitudes
        widths = 360.0 / np.maximum(1.0, np.floor(_TURN // self.height * (32400.0 - 4.0 * squared) / (32400.0 + squared)))
        return vectors(latitudes, (columns + 0.5) * widths - 180.0)

    def holds(self, square: Square, north: int, east: int) -> bool:
        """Return whether the square exists and extends *north* and *east* units from its corner."""
        if not 0 <= square.row < self.rows:
            return False
        columns = self.columns(square.row)
        return 0 <= square.column < columns and 0 <= north <= self.height and 0 <= east <= _TURN // columns + 1

    def block(self, square: Square) -> tuple[Square, ...]:
        """Return the square and those around it: in three rows, the column abreast of the square's middle and its neighbours."""
        return _block(self, square)


def units_between(west: int, other: int) -> int:
    """Return the units eastward from *west* to *other*, the shorter way round; negative if it is to the west."""
    return (other - west + _TURN // 2) % _TURN - _TURN // 2


@lru_cache(_BLOCKS_KEPT)
def _block(grid: Grid, square: Square) -> tuple[Square, ...]:
    twice, columns = 2 * square.column + 1, grid.columns(square.row)
    found: dict[Square, None] = {}
    for row in range(max(0, square.row - 1), min(grid.rows, square.row + 2)):
        here = grid.columns(row)
        abreast = twice * here // (2 * columns)
        found |= dict.fromkeys(Square(row, (abreast + step) % here) for step in (-1, 0, 1))
    return tuple(found)
