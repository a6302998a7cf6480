"""From cells to bins: the reports of a square over the last slots are added up once, then each bin adds up its 3 x 3 squares.

What must hold:
- sums are whole numbers and witnesses are sets, so that the order of the cells does not matter;
- where a cell has more witnesses than it names, the bin has as many as it can name or as its largest cell has, whichever is more,
  and those without a name are believed as far as the others are on average;
- what no predicate asks about is not worked out: of ten thousand bins, few are hot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import cos, fsum, hypot, radians
from typing import Final, Self

from milepost.model.endpoints import EndpointId
from milepost.model.incidents import METRES_A_UNIT, TALLY_PARTS, Bin, Cell, EventKind, Grid, Square, Tally
from milepost.model.incidents.grid import units_between
from milepost.model.instants import SECOND_NS, Instant

Weights = Mapping[EndpointId, float]
"""How far endpoints are believed, 0 to 1; whoever is not there is believed."""

_FULLY: Final = 1.0


@dataclass(slots=True)
class Pile:
    """All reports of one square, over some slots; counted from the square's corner like its cells."""

    south: int
    west: int
    reports: int
    north_sum: int
    east_sum: int
    extent: tuple[int, int, int, int]
    witnesses: set[EndpointId]
    witness_count_max: int
    first_at: Instant
    last_at: Instant
    tallies: dict[str, list[int]]
    """By field, what a `Tally` has; added up in place."""

    @classmethod
    def of(cls, grid: Grid, cell: Cell) -> Self:
        """The reports of one cell."""
        return cls(
            grid.south(cell.square),
            grid.west(cell.square),
            cell.reports,
            cell.north_sum,
            cell.east_sum,
            cell.extent,
            set(cell.witnesses),
            cell.witness_count,
            cell.first_at,
            cell.last_at,
            {name: [tally.count, tally.total, tally.least, tally.greatest] for name, tally in cell.tallies.items()},
        )

    def add(self, cell: Cell) -> None:
        """Add those of another cell of the same square."""
        self.reports += cell.reports
        self.north_sum += cell.north_sum
        self.east_sum += cell.east_sum
        south, west, north, east = self.extent
        box = cell.extent
        self.extent = (min(south, box.south), min(west, box.west), max(north, box.north), max(east, box.east))
        self.witnesses |= cell.witnesses
        self.witness_count_max = max(self.witness_count_max, cell.witness_count)
        self.first_at = min(self.first_at, cell.first_at)
        self.last_at = max(self.last_at, cell.last_at)
        for name, tally in cell.tallies.items():
            if name in self.tallies:
                sums = self.tallies[name]
                sums[0] += tally.count
                sums[1] += tally.total
                sums[2] = min(sums[2], tally.least)
                sums[3] = max(sums[3], tally.greatest)
            else:
                self.tallies[name] = [tally.count, tally.total, tally.least, tally.greatest]


Piles = Mapping[Square, Pile]


def piles_of(grid: Grid, cells: Iterable[Cell]) -> dict[Square, Pile]:
    """The cells, added up by square."""
    found: dict[Square, Pile] = {}
    for cell in cells:
        pile = found.get(cell.square)
        if pile is None:
            found[cell.square] = Pile.of(grid, cell)
        else:
            pile.add(cell)
    return found


class Block:
    """The bin of a square while it is asked about: each aggregate is worked out when somebody wants it."""

    def __init__(self, kind: EventKind, square: Square, piles: Piles, weights: Weights, at: Instant) -> None:
        self._kind = kind
        self._square = square
        self._piles = [piles[near] for near in kind.grid.block(square) if near in piles]
        self._weights = weights
        self._west = piles[square].west
        self._at = at
        self._asked: dict[str, Tally | None] = {}
        """The tallies that were asked about."""
        self.reports = sum(pile.reports for pile in self._piles)

    def value_of(self, name: str) -> float | None:
        """An aggregate by the name it has in predicates; nothing if no report had it."""
        match name:
            case "reports":
                return self.reports
            case "witnesses":
                return self.witnesses()[0]
            case "weight":
                return self.witnesses()[1]
            case "radius_m":
                return self.radius_m()
            case "age_s":
                return (self._at - min(pile.first_at for pile in self._piles)) / SECOND_NS
            case _:
                how, _, field = name.partition("_")
                return _maybe_of_tally(self._maybe_tally(field), how)

    def bin(self) -> Bin:
        """All of it."""
        witnesses, weight = self.witnesses()
        west = self._west
        up = sum(pile.south * pile.reports + pile.north_sum for pile in self._piles)
        east = sum(units_between(west, pile.west) * pile.reports + pile.east_sum for pile in self._piles)
        return Bin(
            self._square,
            self.reports,
            witnesses,
            weight,
            self._kind.grid.place(up / self.reports, west + east / self.reports),
            self.radius_m(),
            min(pile.first_at for pile in self._piles),
            max(pile.last_at for pile in self._piles),
            self._tallies(),
        )

    def witnesses(self) -> tuple[int, float]:
        """How many there are, and how many when each is counted by how far it is believed."""
        named = set[EndpointId]().union(*(pile.witnesses for pile in self._piles))
        count = max(len(named), *(pile.witness_count_max for pile in self._piles))
        believed = fsum(self._weights.get(one, _FULLY) for one in named) if self._weights else float(len(named))
        return count, believed * count / len(named)

    def radius_m(self) -> float:
        """Half the diagonal of the box around the reports, never under the minimum."""
        boxes = [(pile.south, units_between(self._west, pile.west), pile.extent) for pile in self._piles]
        south = min(up + box[0] for up, _, box in boxes)
        west = min(over + box[1] for _, over, box in boxes)
        north = max(up + box[2] for up, _, box in boxes)
        east = max(over + box[3] for _, over, box in boxes)
        narrower = cos(radians((south + north) / 2e7 - 90.0))
        return max(self._kind.radius_m_min, METRES_A_UNIT * hypot(north - south, (east - west) * narrower) / 2)

    def _tallies(self) -> dict[str, Tally]:
        names = {name for pile in self._piles for name in pile.tallies}
        return {name: tally for name in sorted(names) if (tally := self._maybe_tally(name)) is not None}

    def _maybe_tally(self, field: str) -> Tally | None:
        if field not in self._asked:
            found = [pile.tallies[field] for pile in self._piles if field in pile.tallies]
            counts, totals, least, greatest = zip(*found, strict=True) if found else ((), (), (), ())
            self._asked[field] = Tally(sum(counts), sum(totals), min(least), max(greatest)) if found else None
        return self._asked[field]


def _maybe_of_tally(tally: Tally | None, how: str) -> float | None:
    if tally is None:
        return 0 if how == "count" else None
    match how:
        case "count":
            return tally.count
        case "sum":
            return tally.total / TALLY_PARTS
        case "min":
            return tally.least / TALLY_PARTS
        case "max":
            return tally.greatest / TALLY_PARTS
        case _:
            assert how == "mean", how
            return tally.total / tally.count / TALLY_PARTS
