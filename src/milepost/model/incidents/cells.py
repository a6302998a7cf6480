"""Cells: aggregates of the reports of one kind in one square of the grid and one time slot (M23).

Invariants:
- all values in a cell are integers, sketches or times, so that the order in which reports are added does not matter;
- a cell may be published again as reports arrive: of two with one key, `is_after` decides which is later, by reports first.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, NamedTuple

from milepost.model.incidents.grid import Square
from milepost.model.incidents.witnesses import Witnesses, estimated_count
from milepost.model.instants import Instant, check_instant
from milepost.model.messages import FIELD_NAME_CHARACTERS_MAX
from milepost.model.reasons import Malformed, Reason, shown

TALLIES_MAX: Final = 16
"""Maximum fields of the payload that a cell has tallies of."""

TALLY_PARTS: Final = 1000
"""Values of the payload are summed in integer thousandths."""

COUNT_MAX: Final = 2**53 - 1
"""Largest integer that every JSON parser reads exactly."""


@dataclass(frozen=True, slots=True, order=True)
class Tally:
    """Aggregates of a payload field over some reports: count, and sum, minimum and maximum in thousandths."""

    count: int
    total: int
    least: int
    greatest: int


class Extent(NamedTuple):
    """The box around some reports, in units from the south-west corner of their square."""

    south: int
    west: int
    north: int
    east: int


class CellKey(NamedTuple):
    """Identity of a cell across its publications."""

    kind: str
    slot: int
    square: Square


NO_TALLIES: Final[Mapping[str, Tally]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Cell:
    """Reports of one kind in one square and slot."""

    kind: str
    slot: int
    """Number of the kind's interval since 1970."""
    square: Square
    reports: int
    witnesses: Witnesses
    north_sum: int
    """Sum of the reports' distances north of the corner, in units."""
    east_sum: int
    extent: Extent
    first_at: Instant
    last_at: Instant
    tallies: Mapping[str, Tally] = field(default_factory=lambda: NO_TALLIES)

    def __post_init__(self) -> None:
        _check_witnesses(self)
        _check_extent(self)
        check_instant("first_at", self.first_at)
        check_instant("last_at", self.last_at)
        if self.last_at < self.first_at:
            raise Malformed(Reason.FIELD_RANGE, "last_at is before first_at")
        if len(self.tallies) > TALLIES_MAX:
            raise Malformed(Reason.TOO_MANY_FIELDS, f"tallies of {len(self.tallies)} fields, {TALLIES_MAX} are allowed")
        for name, tally in self.tallies.items():
            _check_tally(self, name, tally)

    @property
    def witness_count(self) -> int:
        """Number of witnesses: exact, or estimated if not all are listed."""
        return min(self.reports, estimated_count(len(self.witnesses.hashes), self.witnesses.theta))

    @property
    def key(self) -> CellKey:
        """Identity of the cell across its publications."""
        return CellKey(self.kind, self.slot, self.square)

    def is_after(self, former: "Cell") -> bool:
        """Return whether this is the later of two cells with one key; of any two that differ, exactly one is."""
        if self.reports != former.reports:
            return self.reports > former.reports
        return self != former and _order(self) > _order(former)


def _order(cell: Cell) -> tuple[object, ...]:
    numbers = (len(cell.witnesses.hashes), cell.last_at, -cell.first_at, cell.north_sum, cell.east_sum, cell.extent)
    return (*numbers, -cell.witnesses.theta, sorted(cell.witnesses.hashes), sorted(cell.tallies.items()))


def _check_witnesses(cell: Cell) -> None:
    if not 1 <= cell.reports <= COUNT_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"reports is {shown(cell.reports)}: a cell has at least one")
    if len(cell.witnesses.hashes) > cell.reports:
        raise Malformed(Reason.FIELD_RANGE, f"{len(cell.witnesses.hashes)} witnesses are listed, of {cell.reports} reports")


def _check_extent(cell: Cell) -> None:
    if min(cell.square) < 0:
        raise Malformed(Reason.FIELD_RANGE, f"row and column are {shown(tuple(cell.square))}: both count from 0")
    south, west, north, east = cell.extent
    if not (0 <= south <= north and 0 <= west <= east):
        raise Malformed(Reason.FIELD_RANGE, f"extent is {shown(tuple(cell.extent))}, not south, west, north, east in order")
    for name, total, least, greatest in (("north_sum", cell.north_sum, south, north), ("east_sum", cell.east_sum, west, east)):
        if not least * cell.reports <= total <= greatest * cell.reports:
            raise Malformed(Reason.FIELD_RANGE, f"{name} is {shown(total)}, not that of {cell.reports} reports in that extent")


def _check_tally(cell: Cell, name: str, tally: Tally) -> None:
    if not 0 < len(name) <= FIELD_NAME_CHARACTERS_MAX or not name.isprintable():
        raise Malformed(
            Reason.FIELD_RANGE, f"a tally is of {name[:20]!r}: a field has 1 to {FIELD_NAME_CHARACTERS_MAX} printable characters"
        )
    if not 1 <= tally.count <= cell.reports or not tally.least * tally.count <= tally.total <= tally.greatest * tally.count:
        raise Malformed(Reason.FIELD_RANGE, f"the tally of {name!r} is not one of {cell.reports} reports: {shown(tally)}")
