"""One kind of event: its cells of the last slots, and what becomes of its incidents as slots end.

    slots   … ┃ n-k+1 │ … │   n   ┃  n+1  │ n+2 …        n: the last slot that was looked at
      too old ┃ late, but counts  ┃ on time, until too far ahead

What must hold:
- a slot is looked at once, when it has ended; slots are looked at in their order, and those in which nothing can happen are not;
- of cells with one key the latest counts, in whatever order they come;
- there are never more than `limits.cells_max` cells: what is not taken is counted by why.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence, Set
from dataclasses import dataclass
from enum import Enum

from milepost.hub.incidents.bins import Block, Weights, piles_of
from milepost.hub.incidents.groups import grouped
from milepost.hub.incidents.lives import Lives
from milepost.model.incidents import Cell, Change, EventKind, Incident, Square, holds, reports_at_least
from milepost.model.instants import SECOND_NS, Instant


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of each kind is held."""

    cells_max: int = 100_000
    incidents_max: int = 1_000
    ahead_s_max: int = 600
    """So far after the last slot looked at, cells are believed."""


class Dropped(Enum):
    """Why a cell was not taken."""

    KIND_UNKNOWN = "kind unknown"
    NO_SUCH_SQUARE = "no such square"
    NOT_IN_SLOT = "not in slot"
    TOO_OLD = "too old"
    TOO_FAR_AHEAD = "too far ahead"
    TOO_MANY = "too many"


class Ledger:
    """Cells and incidents of one kind."""

    def __init__(self, kind: EventKind, limits: Limits, *, slot: int | None = None, living: Iterable[Incident] = ()) -> None:
        self.kind = kind
        self.slot = slot
        """The last one that was looked at; nothing before the first."""
        self.lives = Lives(kind, limits.incidents_max, living)
        self.late = 0
        self.dropped: Counter[Dropped] = Counter()
        self._limits = limits
        self._slots_ahead_max = limits.ahead_s_max * SECOND_NS // kind.interval_ns
        self.reports: Counter[Square] = Counter()
        """By square, of all cells there are: no bin has more of it."""
        self._floor = reports_at_least(kind.condition)
        self._cells: dict[int, dict[Square, Cell]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def take(self, cell: Cell) -> Dropped | None:
        """Keep a cell, unless a later one of its key is there; says why not, if it cannot."""
        dropped = self._maybe_dropped(cell)
        if dropped is not None:
            self.dropped[dropped] += 1
            return dropped
        cells = self._cells.setdefault(cell.slot, {})
        former = cells.get(cell.square)
        if former is None:
            self._count += 1
        elif not cell.is_after(former):
            return None
        self.late += self.slot is not None and cell.slot <= self.slot
        self.reports[cell.square] += cell.reports - (0 if former is None else former.reports)
        cells[cell.square] = cell
        return None

    def advance(self, now: Instant, weights: Weights) -> list[Change]:
        """Look at all slots that have ended by now."""
        ended = now // self.kind.interval_ns - 1
        changes = []
        while (slot := self._maybe_next()) is not None and slot <= ended:
            changes += self._look(slot, weights)
        if self.slot is None or ended > self.slot:
            self._forget(ended)
        return changes

    def blocks(self, slot: int, at: Instant, weights: Weights, squares: Sequence[Square] | None = None) -> Iterator[Block]:
        """The bins of all squares, or of some, over the last slots up to one, as of a time."""
        grid = self.kind.grid
        needed = None if squares is None else {near for square in squares for near in grid.block(square)}
        piles = piles_of(grid, self._window(slot, needed))
        for square in piles if squares is None else squares:
            if square in piles:
                yield Block(self.kind, square, piles, weights, at)

    def squares(self, slot: int) -> list[Square]:
        """Those with reports in the last slots up to one, lowest first."""
        return sorted({cell.square for cell in self._window(slot)})

    def maybe_next_end(self) -> Instant | None:
        """When the next slot ends in which something can happen."""
        slot = self._maybe_next()
        return None if slot is None else Instant((slot + 1) * self.kind.interval_ns)

    def _maybe_dropped(self, cell: Cell) -> Dropped | None:
        interval_ns = self.kind.interval_ns
        if not self.kind.grid.holds(cell.square, cell.extent.north, cell.extent.east):
            return Dropped.NO_SUCH_SQUARE
        if not cell.first_at // interval_ns == cell.slot == cell.last_at // interval_ns:
            return Dropped.NOT_IN_SLOT
        if self.slot is not None and cell.slot < self._oldest(self.slot + 1):
            return Dropped.TOO_OLD
        if self.slot is not None and cell.slot - self.slot > self._slots_ahead_max + 1:
            return Dropped.TOO_FAR_AHEAD
        is_new = cell.square not in self._cells.get(cell.slot, ())
        return Dropped.TOO_MANY if is_new and self._count >= self._limits.cells_max else None

    def _maybe_next(self) -> int | None:
        """The next slot in which something can happen."""
        first_end = self.lives.maybe_first_end()
        soonest = [*self._cells] if first_end is None else [*self._cells, -(-first_end // self.kind.interval_ns) - 1]
        if not soonest:
            return None
        return min(soonest) if self.slot is None else max(min(soonest), self.slot + 1)

    def _look(self, slot: int, weights: Weights) -> list[Change]:
        condition, at = self.kind.condition, Instant((slot + 1) * self.kind.interval_ns)
        blocks = self.blocks(slot, at, weights, self._maybe_hot(slot))
        hot = [block.bin() for block in blocks if holds(condition, block.value_of)]
        changes = self.lives.step(grouped(self.kind.grid, hot), slot, at)
        self._forget(slot)
        return changes

    def _maybe_hot(self, slot: int) -> list[Square]:
        """The squares whose bins have as many reports as the predicate needs: most have not, and are not looked at."""
        reports, block = self.reports, self.kind.grid.block
        squares = dict.fromkeys(cell.square for cell in self._window(slot))
        return [one for one in squares if sum([reports[near] for near in block(one) if near in reports]) >= self._floor]

    def _forget(self, slot: int) -> None:
        """The slot was looked at: what later ones do not look back to goes."""
        self.slot = slot
        for old in [old for old in self._cells if old < self._oldest(slot + 1)]:
            gone = self._cells.pop(old)
            self._count -= len(gone)
            for square, cell in gone.items():
                self.reports[square] -= cell.reports
                if not self.reports[square]:
                    del self.reports[square]

    def _window(self, slot: int, needed: Set[Square] | None = None) -> Iterator[Cell]:
        for one in range(self._oldest(slot), slot + 1):
            cells = self._cells.get(one, {})
            if needed is None:
                yield from cells.values()
            elif len(needed) < len(cells):
                yield from (cells[square] for square in needed if square in cells)
            else:
                yield from (cell for square, cell in cells.items() if square in needed)

    def _oldest(self, slot: int) -> int:
        """The first slot that a look at one goes back to."""
        return slot - self.kind.slots + 1
