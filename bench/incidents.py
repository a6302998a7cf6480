"""How many cells a second become incidents: reading, taking, telling early, looking at bins when a slot ends, questions.

`python -m bench.incidents` prints a table. There are 10,000 live cells, spread over the slots that a bin looks back to; in each
slot as many cells come as 5,000 a second are, each told again and again with more reports. Goal: 5,000 cells a second (M24).
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
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Cell, EventKind, Extent, Square
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.wire.incidents import cell_from_json, cell_to_json

LIVE: Final = 10_000
A_SECOND: Final = 5_000
SLOTS: Final = 9
ROUNDS: Final = 3
START: Final = 189_349_920
HOME: Final = Place(40.7608, -111.891)


class Town:
    """Squares around a place, and the cells of each slot in the order in which they come."""

    def __init__(self, kind: EventKind, *, witnesses: int, seed: int = 1) -> None:
        self._kind = kind
        self._witnesses = witnesses
        row, column = kind.grid.spot(HOME).square
        count = LIVE // kind.slots
        side = round((count * 4) ** 0.5)  # a quarter of the town has something to report
        everywhere = [Square(row + north, column + east) for north in range(side) for east in range(side)]
        self._squares = Random(seed).sample(everywhere, count)
        self._names = {square: _names(square, witnesses) for square in self._squares}

    def slot(self, slot: int) -> list[Cell]:
        """As many cells as come in a slot, each square's with ever more reports."""
        total = round(A_SECOND * self._kind.interval_s)
        return [self._cell(slot, self._squares[one % len(self._squares)], one // len(self._squares)) for one in range(total)]

    def _cell(self, slot: int, square: Square, told: int) -> Cell:
        reports = told + self._witnesses
        names = self._names[square]
        at = Instant(slot * self._kind.interval_ns + SECOND_NS)
        return Cell(
            self._kind.name,
            slot,
            square,
            reports,
            names,
            len(names),
            5_000 * reports,
            6_000 * reports,
            Extent(2_000, 2_000, 9_000, 9_000),
            at,
            at,
        )


def _names(square: Square, witnesses: int) -> frozenset[EndpointId]:
    return frozenset(EndpointId(f"car-{square.row}-{square.column}-{one}") for one in range(witnesses))


def best_s(work: Callable[[], object]) -> float:
    """The best of a few: noise only adds."""
    found = []
    for _ in range(ROUNDS):
        began = time.process_time()
        work()
        found.append(time.process_time() - began)
    return min(found)


def run(kind: EventKind, *, witnesses: int) -> list[str]:
    """Cells a second: read from JSON, taken one by one with a look around each, and both with that when a slot ends; ms of it,
    and of a question.
    """
    town = Town(kind, witnesses=witnesses)
    incidents = Incidents([kind])
    early = EarlyWarnings(incidents, late_ns=0, since=Instant(0))
    told = [cell_to_json(cell) for cell in town.slot(START)]
    read_s = best_s(lambda: [cell_from_json(text) for text in told]) / len(told)
    takes_s, looks_s = [], []
    for number in range(SLOTS):
        cells = town.slot(START + number)
        began = time.process_time()
        for cell in cells:
            incidents.take(cell)
            early.look([cell], cell.last_at)
        taken = time.process_time()
        early.settle(incidents.advance(Instant((START + number + 1) * kind.interval_ns)))
        takes_s.append((taken - began) / len(cells))
        looks_s.append(time.process_time() - taken)
    take_s, look_s = min(takes_s[kind.slots :]), min(looks_s[kind.slots :])
    whole_s = read_s + take_s + look_s / len(told)
    now = Instant((START + SLOTS) * kind.interval_ns)
    ask_s = best_s(lambda: incidents.around(Circle(HOME, 500.0), now))
    assert incidents.counts.cells <= LIVE
    assert not incidents.counts.dropped
    figures = f"{1 / read_s:,.0f}", f"{1 / take_s:,.0f}", f"{look_s * 1e3:,.0f}", f"{1 / whole_s:,.0f}"
    return [*figures, f"{ask_s * 1e3:.1f}", f"{len(incidents.living):,}", "yes" if 1 / whole_s >= A_SECOND else "NO"]


def main() -> None:
    table = Table(title=f"bench incidents: {LIVE:,} live cells, {A_SECOND:,} a second", title_justify="left")
    headings = (
        "bins",
        "read, cells/s",
        "take and look, cells/s",
        "a slot's end, ms",
        "all, cells/s",
        "a question, ms",
        "incidents",
        "held",
    )
    for heading in headings:
        table.add_column(heading, justify="left" if heading == "bins" else "right")
    for title, predicate, witnesses in (
        ("none hot", "weight >= 1000", 3),
        ("none hot, all with reports enough", "weight >= 1 and mean_v < 0", 3),
        ("all hot", "weight >= 1", 3),
        ("none hot, 64 witnesses a cell", "weight >= 100000", 64),
    ):
        table.add_row(title, *run(EventKind("Bench", "Bench", predicate, "Alert/Bench"), witnesses=witnesses))
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
