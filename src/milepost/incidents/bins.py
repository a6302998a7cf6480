"""From cells to bins: the cells of a square over the last slots are summed once, then each bin sums its 3 x 3 squares.

    cells ─▶ SquareTotals per square ─▶ LazyBin per square: predicate true? ─▶ Bin ─▶ BinGroup of touching hot bins

Invariants:
- sums are integers and witnesses are sketches, so that the order of the cells does not matter;
- where a cell has more witnesses than it lists, the bin's count is the estimate of the union of its sketches, at least the number
  of listed ones and at most that of reports; the others have the average weight of the listed ones;
- an aggregate that no predicate needs is not computed: of ten thousand bins, few are hot.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from math import cos, fsum, hypot, radians
from typing import Final, NamedTuple, Self

from milepost.model.incidents import METRES_PER_UNIT, TALLY_PARTS, Bin, Cell, EventKind, Grid, Square, Tally
from milepost.model.incidents.grid import units_between
from milepost.model.incidents.witnesses import THETA_MAX, WitnessHash, estimated_count
from milepost.model.instants import SECOND_NS, Instant

Weights = Mapping[WitnessHash, float]
"""The weight of witnesses by `witness_hash`, 0 to 1; the default is 1, also that of services."""

_FULL_WEIGHT: Final = 1.0


@dataclass(slots=True)
class SquareTotals:
    """The reports of one square over some slots, relative to the square's corner like its cells."""

    square: Square
    south: int
    west: int
    reports: int
    north_sum: int
    east_sum: int
    extent: tuple[int, int, int, int]
    witnesses: set[WitnessHash]
    theta: int
    """The minimum over the cells: of all witnesses, those with a smaller hash are in `witnesses`."""
    first_at: Instant
    last_at: Instant
    tallies: dict[str, list[int]]
    """By field, the members of a `Tally`, accumulated in place."""

    @classmethod
    def of(cls, grid: Grid, cell: Cell) -> Self:
        """Return the totals of one cell."""
        return cls(
            cell.square,
            grid.south(cell.square),
            grid.west(cell.square),
            cell.reports,
            cell.north_sum,
            cell.east_sum,
            cell.extent,
            set(cell.witnesses.hashes),
            cell.witnesses.theta,
            cell.first_at,
            cell.last_at,
            {name: [tally.count, tally.total, tally.least, tally.greatest] for name, tally in cell.tallies.items()},
        )

    def add(self, cell: Cell) -> None:
        """Add another cell of the same square."""
        self.reports += cell.reports
        self.north_sum += cell.north_sum
        self.east_sum += cell.east_sum
        south, west, north, east = self.extent
        box = cell.extent
        self.extent = (min(south, box.south), min(west, box.west), max(north, box.north), max(east, box.east))
        self.witnesses |= cell.witnesses.hashes
        self.theta = min(self.theta, cell.witnesses.theta)
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


TotalsBySquare = Mapping[Square, SquareTotals]


def totals_of(grid: Grid, cells: Iterable[Cell]) -> dict[Square, SquareTotals]:
    """Return the totals of *cells* by square."""
    found: dict[Square, SquareTotals] = {}
    for cell in cells:
        totals = found.get(cell.square)
        if totals is None:
            found[cell.square] = SquareTotals.of(grid, cell)
        else:
            totals.add(cell)
    return found


class LazyBin:
    """The bin of a square while a predicate is evaluated: each aggregate is computed on demand."""

    def __init__(self, kind: EventKind, square: Square, totals: TotalsBySquare, weights: Weights, at: Instant) -> None:
        self._kind = kind
        self._square = square
        self._totals = [totals[near] for near in kind.grid.block(square) if near in totals]
        self._weights = weights
        self._west = totals[square].west
        self._at = at
        self._computed: dict[str, Tally | None] = {}
        """The tallies computed so far."""
        self.reports = sum(one.reports for one in self._totals)

    def value_of(self, name: str) -> float | None:
        """Return an aggregate by its name in predicates; `None` if no report had the field."""
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
                return (self._at - min(one.first_at for one in self._totals)) / SECOND_NS
            case _:
                how, _, field = name.partition("_")
                return _maybe_of_tally(self._maybe_tally(field), how)

    def bin(self) -> Bin:
        """Return the bin with all aggregates."""
        witnesses, weight = self.witnesses()
        west = self._west
        northward = sum(one.south * one.reports + one.north_sum for one in self._totals)
        east = sum(units_between(west, one.west) * one.reports + one.east_sum for one in self._totals)
        first_at, first_square = min((one.first_at, one.square) for one in self._totals)
        return Bin(
            self._square,
            self.reports,
            witnesses,
            weight,
            self._kind.grid.place(northward / self.reports, west + east / self.reports),
            self.radius_m(),
            first_at,
            max(one.last_at for one in self._totals),
            self._tallies(),
            first_square,
        )

    def witnesses(self) -> tuple[int, float]:
        """Return the number of witnesses, and the sum of their weights."""
        listed = set[WitnessHash]().union(*(one.witnesses for one in self._totals))
        weight_sum = fsum(self._weights.get(one, _FULL_WEIGHT) for one in listed) if self._weights else float(len(listed))
        theta = min(one.theta for one in self._totals)
        if theta == THETA_MAX:
            return len(listed), weight_sum
        estimate = estimated_count(sum(one < theta for one in listed), theta)
        count = max(len(listed), min(estimate, self.reports))
        return count, weight_sum * count / len(listed)

    def radius_m(self) -> float:
        """Return half the diagonal of the box around the reports, at least the minimum of the kind."""
        boxes = [(one.south, units_between(self._west, one.west), one.extent) for one in self._totals]
        south = min(northward + box[0] for northward, _, box in boxes)
        west = min(eastward + box[1] for _, eastward, box in boxes)
        north = max(northward + box[2] for northward, _, box in boxes)
        east = max(eastward + box[3] for _, eastward, box in boxes)
        longitude_scale = cos(radians((south + north) / 2e7 - 90.0))
        return max(self._kind.radius_m_min, METRES_PER_UNIT * hypot(north - south, (east - west) * longitude_scale) / 2)

    def _tallies(self) -> dict[str, Tally]:
        names = {name for one in self._totals for name in one.tallies}
        return {name: tally for name in sorted(names) if (tally := self._maybe_tally(name)) is not None}

    def _maybe_tally(self, field: str) -> Tally | None:
        if field not in self._computed:
            found = [one.tallies[field] for one in self._totals if field in one.tallies]
            counts, totals, least, greatest = zip(*found, strict=True) if found else ((), (), (), ())
            self._computed[field] = Tally(sum(counts), sum(totals), min(least), max(greatest)) if found else None
        return self._computed[field]


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


class BinGroup(NamedTuple):
    """Touching hot bins: the leader, and all members with the leader first."""

    leader: Bin
    members: tuple[Bin, ...]
    first_square: Square
    """The square of the first report of its bins: the same whichever bin leads, and in no other group of the slot."""

    @property
    def squares(self) -> frozenset[Square]:
        """The squares of its bins."""
        return frozenset(member.square for member in self.members)


def grouped(grid: Grid, hot: Iterable[Bin]) -> list[BinGroup]:
    """Return the groups of the hot bins, the greatest leader first.

    Bins touch if their 3 x 3 blocks share a square. A hot bin that touches a greater one belongs to the group of the greatest
    of those; a bin that touches no greater one is a leader. So a long jam with one worst place is one group, and a town full of
    jams is not. Each hot bin is in one group, whatever the order of *hot*, and each square in that of its greatest bin.
    """
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
    found = []
    for leader, belonging in members.items():
        # No greater bin touches the leader: its own first report belongs to the group in any case.
        own = [one for one in belonging if leaders[greatest[one.first_square]] == leader]
        first = min(own, key=lambda one: (one.first_at, one.first_square))
        found.append(BinGroup(ordered[leader], tuple(belonging), first.first_square))
    return found
