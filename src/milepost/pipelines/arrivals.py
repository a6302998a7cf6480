"""Events of the past in the order in which the log received them, and the cells that were published after each.

    archive ─▶ arrivals: ARRIVAL_ROW, in order of `appended_us` ─▶ GrowingCells: the cells that have changed ─▶ incident engine

*Invariants:*
- a cell equals that of `hazards.cells` over the events that have arrived by then;
- events that were appended at one instant arrive together, in one batch: neither their order nor their topic matters.
"""

from bisect import bisect_left
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import Cell, EventKind, Extent, Square, Tally
from milepost.model.incidents.witnesses import THETA_MAX, WITNESSES_MAX, Witnesses, WitnessHash, witness_hash
from milepost.model.instants import Instant
from milepost.pipelines.hazards import in_parts, tallied_fields, with_slot, with_square

ARRIVAL_ROW: Final = """
    appended_us bigint, kind string, slot bigint, row bigint, column bigint, endpoint string, seen_at_us bigint, north bigint,
    east bigint, values array<bigint>
"""
"""An event at the time at which it was appended; `values` are the tallied fields, in order, in whole thousandths."""

Arrival = tuple[int, str, int, int, int, str, int, int, int, Sequence[int | None]]
"""An ARRIVAL_ROW."""

_MICRO_NS: Final = 1_000

_HASHES_KEPT: Final = 65_536
_hash_of: Final = lru_cache(_HASHES_KEPT)(witness_hash)


def arrivals(events: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return events (EVENT_ROW, with `appended_at`) as ARRIVAL_ROW, with the `height` of their squares, in any order."""
    values = [in_parts(name, names) for name, names in tallied_fields(kinds).items()]
    return with_square(with_slot(events, kinds)).select(
        f.unix_micros("appended_at").alias("appended_us"),
        *("kind", "slot", "row", "column", "endpoint", "seen_at_us", "north", "east"),
        f.array(*values).cast("array<bigint>").alias("values"),
        "height",
    )


class GrowingCells:
    """The cells of the last slots, which grow as events arrive."""

    def __init__(self, kinds: Sequence[EventKind]) -> None:
        self._lengths_ns = {kind.name: kind.interval_ns for kind in kinds}
        self._fields = tuple(tallied_fields(kinds))
        self._cells: dict[tuple[str, int], dict[Square, _GrowingCell]] = {}

    def add(self, arrivals: Iterable[Arrival]) -> list[Cell]:
        """Add events that arrived together; return the cells that have changed."""
        changed: dict[tuple[str, int, Square], _GrowingCell] = {}
        for _, kind, slot, row, column, endpoint, seen_at_us, north, east, values in arrivals:
            square = Square(row, column)
            cells = self._cells.setdefault((kind, slot), {})
            cell = cells.get(square)
            if cell is None:
                cell = cells[square] = _GrowingCell(seen_at_us, north, east)
            cell.add(endpoint, seen_at_us, north, east, zip(self._fields, values, strict=True))
            changed[kind, slot, square] = cell
        return [cell.cell(*key) for key, cell in changed.items()]

    def forget(self, before: Instant) -> None:
        """Drop the cells of slots that began before an instant; the engine must refuse them from now on."""
        for kind, slot in [key for key in self._cells if key[1] * self._lengths_ns[key[0]] < before]:
            del self._cells[kind, slot]


class _GrowingCell:
    """The sums of one cell."""

    __slots__ = ("_east_sum", "_extent", "_first_us", "_hashes", "_last_us", "_north_sum", "_reports", "_tallies")

    def __init__(self, seen_at_us: int, north: int, east: int) -> None:
        self._reports = self._north_sum = self._east_sum = 0
        self._extent = (north, east, north, east)
        self._first_us = self._last_us = seen_at_us
        self._hashes: list[WitnessHash] = []
        """The smallest hashes of witnesses: those that a cell lists, and the next."""
        self._tallies: dict[str, Tally] = {}

    def add(self, endpoint: str, seen_at_us: int, north: int, east: int, values: Iterable[tuple[str, int | None]]) -> None:
        """Add an event."""
        self._reports += 1
        self._north_sum += north
        self._east_sum += east
        south, west, north_most, east_most = self._extent
        self._extent = (min(south, north), min(west, east), max(north_most, north), max(east_most, east))
        self._first_us, self._last_us = min(self._first_us, seen_at_us), max(self._last_us, seen_at_us)
        witness = _hash_of(endpoint)
        at = bisect_left(self._hashes, witness)
        if self._hashes[at : at + 1] != [witness]:
            self._hashes.insert(at, witness)
            del self._hashes[WITNESSES_MAX + 1 :]
        for name, value in values:
            if value is not None:
                tally = self._tallies.get(name)
                self._tallies[name] = (
                    Tally(1, value, value, value)
                    if tally is None
                    else Tally(tally.count + 1, tally.total + value, min(tally.least, value), max(tally.greatest, value))
                )

    def cell(self, kind: str, slot: int, square: Square) -> Cell:
        """Return the cell of all added events."""
        return Cell(
            kind,
            slot,
            square,
            reports=self._reports,
            witnesses=Witnesses(frozenset(self._hashes[:WITNESSES_MAX]), next(iter(self._hashes[WITNESSES_MAX:]), THETA_MAX)),
            north_sum=self._north_sum,
            east_sum=self._east_sum,
            extent=Extent(*self._extent),
            first_at=Instant(self._first_us * _MICRO_NS),
            last_at=Instant(self._last_us * _MICRO_NS),
            tallies=dict(self._tallies),
        )
