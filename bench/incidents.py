"""Cells per second that become incidents: decoding, taking, early warning, the evaluation at the end of a slot, and queries.

`python -m bench.incidents` prints a table. There are 10,000 live cells, spread over the slots of a bin; in each slot 5,000 cells
per second arrive, the same ones repeatedly with more reports. Goal: 5,000 cells per second (M24).
"""

import time
from collections.abc import Callable
from random import Random
from typing import Final

from rich.console import Console
from rich.table import Table

from milepost.incidents import Incidents
from milepost.incidents.engine import EarlyWarnings
from milepost.model.areas import Circle
from milepost.model.incidents import Cell, EventKind, Extent, Square
from milepost.model.incidents.witnesses import Witnesses, witnesses_of
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.wire.incidents import cell_from_json, cell_to_json

LIVE: Final = 10_000
CELLS_PER_S: Final = 5_000
SLOTS: Final = 9
ROUNDS: Final = 3
START: Final = 189_349_920
HOME: Final = Place(40.7608, -111.891)


class SimulatedCity:
    """Squares around a place, and the cells of each slot in the order of their arrival."""

    def __init__(self, kind: EventKind, *, witnesses: int, seed: int = 1) -> None:
        self._kind = kind
        self._witnesses = witnesses
        row, column = kind.grid.locate(HOME).square
        count = LIVE // kind.slots
        side = round((count * 4) ** 0.5)  # a quarter of the squares has reports
        everywhere = [Square(row + north, column + east) for north in range(side) for east in range(side)]
        self._squares = Random(seed).sample(everywhere, count)
        self._found = {square: _witnesses_in(square, witnesses) for square in self._squares}

    def slot(self, slot: int) -> list[Cell]:
        """Return the cells of a slot; those of one square have more and more reports."""
        total = round(CELLS_PER_S * self._kind.interval_s)
        return [self._cell(slot, self._squares[one % len(self._squares)], one // len(self._squares)) for one in range(total)]

    def _cell(self, slot: int, square: Square, repetition: int) -> Cell:
        reports = repetition + self._witnesses
        at = Instant(slot * self._kind.interval_ns + SECOND_NS)
        return Cell(
            self._kind.name,
            slot,
            square,
            reports,
            self._found[square],
            5_000 * reports,
            6_000 * reports,
            Extent(2_000, 2_000, 9_000, 9_000),
            at,
            at,
        )


def _witnesses_in(square: Square, count: int) -> Witnesses:
    return witnesses_of(f"car-{square.row}-{square.column}-{one}" for one in range(count))


def best_s(call: Callable[[], object]) -> float:
    """Return the best of a few rounds: noise only adds time."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        call()
        found.append(time.process_time() - began)
    return min(found)


def run(kind: EventKind, *, witnesses: int) -> list[str]:
    """Return cells per second, decoded, taken with early warning, and in all; and the ms of the end of a slot and of a query."""
    city = SimulatedCity(kind, witnesses=witnesses)
    incidents = Incidents([kind])
    early = EarlyWarnings(incidents, lateness_ns=0, since=Instant(0))
    cells_json = [cell_to_json(cell) for cell in city.slot(START)]
    read_s = best_s(lambda: [cell_from_json(text) for text in cells_json]) / len(cells_json)
    takes_s, slot_ends_s = [], []
    for number in range(SLOTS):
        cells = city.slot(START + number)
        began = time.process_time()
        for cell in cells:
            incidents.add(cell)
            early.find_early([cell], cell.last_at)
        taken = time.process_time()
        early.resolve(incidents.advance(Instant((START + number + 1) * kind.interval_ns)))
        takes_s.append((taken - began) / len(cells))
        slot_ends_s.append(time.process_time() - taken)
    take_s, slot_end_s = min(takes_s[kind.slots :]), min(slot_ends_s[kind.slots :])
    total_s = read_s + take_s + slot_end_s / len(cells_json)
    now = Instant((START + SLOTS) * kind.interval_ns)
    query_s = best_s(lambda: incidents.around(Circle(HOME, 500.0), now))
    assert incidents.counts.cells <= LIVE
    assert not incidents.counts.dropped
    rates = f"{1 / read_s:,.0f}", f"{1 / take_s:,.0f}", f"{slot_end_s * 1e3:,.0f}", f"{1 / total_s:,.0f}"
    return [*rates, f"{query_s * 1e3:.1f}", f"{len(incidents.active):,}", "yes" if 1 / total_s >= CELLS_PER_S else "NO"]


def main() -> None:
    table = Table(title=f"Benchmark: incidents, {LIVE:,} live cells, {CELLS_PER_S:,} per second", title_justify="left")
    headings = (
        "bins",
        "decode, cells/s",
        "take and warn early, cells/s",
        "end of slot, ms",
        "all, cells/s",
        "query, ms",
        "incidents",
        "goal met",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "bins" else "right")
    for title, predicate, witnesses in (
        ("none hot", "weight >= 1000", 3),
        ("none hot, all with enough reports", "weight >= 1 and mean_v < 0", 3),
        ("all hot", "weight >= 1", 3),
        ("none hot, 64 witnesses per cell", "weight >= 100000", 64),
    ):
        table.add_row(title, *run(EventKind("Bench", "Bench", predicate, "Alert/Bench"), witnesses=witnesses))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
