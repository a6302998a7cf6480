"""Incidents: cells go in as they come, time goes on, and what became of incidents comes out; the same live and in a backtest.

    for each record of the log:   take(cell_from_json(record.value))
    now and then:                 advance(now less the time that cells need to arrive) ─▶ changes ─▶ `maybe_alert`
    on a question:                around(area, now)
    after a restart:              Incidents(kinds, state=…), then take the cells since `cells_since` again

What must hold:
- the order in which cells come, and how often, is of no matter as long as they come before `advance` has passed the end of their
  slot; later ones count from the next slot on, as long as bins look back to theirs;
- how far each `advance` goes is of no matter either: slots are looked at one by one;
- the same cells give the same incidents, ids and changes, whoever asks and whenever.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from milepost.hub.incidents.asking import conditions
from milepost.hub.incidents.bins import Weights
from milepost.hub.incidents.ledger import Dropped, Ledger, Limits
from milepost.model.areas import Area
from milepost.model.incidents import Cell, Change, Conditions, EventKind, Incident, State
from milepost.model.instants import Instant

NO_LIMITS_SAID: Final = Limits()


@dataclass(frozen=True, slots=True)
class IncidentCounts:
    """What there is, and what was left out so far."""

    cells: int
    late: int
    """Cells that came after their slot was looked at, and counted from the next one on."""
    dropped: Mapping[Dropped, int]
    beyond_limit: int
    """How often a group of hot bins was not raised because there were too many incidents."""


class Incidents:
    """All kinds of event; `weights` says how far endpoints are believed, and may change at any time."""

    def __init__(
        self,
        kinds: Sequence[EventKind],
        *,
        weights: Weights | None = None,
        limits: Limits = NO_LIMITS_SAID,
        state: State | None = None,
    ) -> None:
        if len({kind.name for kind in kinds}) != len(kinds):
            raise ValueError(f"two kinds have one name: {', '.join(sorted(kind.name for kind in kinds))}")
        self.weights: Weights = {} if weights is None else weights
        self._unknown = 0
        self._kinds = {
            kind.name: Ledger(
                kind,
                limits,
                slot=None if state is None else state.slots.get(kind.name),
                living=() if state is None else [one for one in state.incidents if one.kind == kind.name],
            )
            for kind in kinds
        }

    @property
    def kinds(self) -> tuple[EventKind, ...]:
        """The rules."""
        return tuple(ledger.kind for ledger in self._kinds.values())

    @property
    def living(self) -> tuple[Incident, ...]:
        """The incidents there are, by kind, the oldest first."""
        return tuple(incident for ledger in self._kinds.values() for incident in ledger.lives.living)

    @property
    def counts(self) -> IncidentCounts:
        """What there is, and what was left out."""
        ledger = self._kinds.values()
        dropped = sum((one.dropped for one in ledger), Counter({Dropped.KIND_UNKNOWN: self._unknown}))
        beyond = sum(one.lives.beyond_limit for one in ledger)
        return IncidentCounts(sum(map(len, ledger)), sum(one.late for one in ledger), dropped, beyond)

    @property
    def ledgers(self) -> Mapping[str, Ledger]:
        """Each kind by its name."""
        return self._kinds

    def maybe_next_end(self) -> Instant | None:
        """When the next slot ends in which something can happen."""
        ends = [end for ledger in self._kinds.values() if (end := ledger.maybe_next_end()) is not None]
        return min(ends, default=None)

    def take(self, cell: Cell) -> Dropped | None:
        """A cell, new or told again; says why it was not taken, if it was not, and counts it."""
        ledger = self._kinds.get(cell.kind)
        if ledger is None:
            self._unknown += 1
            return Dropped.KIND_UNKNOWN
        return ledger.take(cell)

    def advance(self, now: Instant) -> list[Change]:
        """All cells of slots that have ended by now are there: what became of incidents, in order of time."""
        changes = [change for ledger in self._kinds.values() for change in ledger.advance(now, self.weights)]
        return sorted(changes, key=lambda change: change.at)

    def around(self, area: Area, now: Instant) -> tuple[Conditions, ...]:
        """What is going on in an area, for each kind; what was reported in the slot that has not ended counts too (M25)."""
        return tuple(conditions(ledger, area, now, self.weights) for ledger in self._kinds.values())

    def state(self) -> State:
        """What to go on from after a restart."""
        slots = {name: ledger.slot for name, ledger in self._kinds.items() if ledger.slot is not None}
        return State(slots, self.living)

    @property
    def cells_since(self) -> Instant | None:
        """From when on cells must be taken again after a restart; nothing before the first `advance`: all of them."""
        starts = [
            (ledger.slot + 2 - ledger.kind.slots) * ledger.kind.interval_ns
            for ledger in self._kinds.values()
            if ledger.slot is not None
        ]
        return Instant(max(0, min(starts))) if starts else None
