"""Incidents of all kinds: cells in, changes out; the same live and in a backtest.

    for each record of the log:   add(cell_from_json(record.value))
    periodically:                 advance(now less the time that cells need to arrive) ─▶ changes ─▶ `maybe_alert`
    on a question:                around(area, now)
    after a restart:              Incidents(kinds, state=…), then add the cells since `cells_since` again

    Incidents ─▶ EventMonitor, one per kind: cells ─▶ hot bins ─▶ IncidentTracker: groups ─▶ changes

Invariants:
- the order and repetition of cells do not matter if they arrive before `advance` has passed the end of their slot; later ones
  count from the next slot on, while their slot is within the window of a bin;
- the step of `advance` does not matter: slots are evaluated one by one;
- the same cells yield the same incidents, ids and changes, on every run.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from enum import Enum
from math import pi
from typing import Final

import numpy as np

from milepost.incidents.bins import BinGroup, LazyBin, Weights, grouped, totals_of
from milepost.model.areas import Area, Circle, touches
from milepost.model.incidents import (
    Bin,
    Cell,
    Conditions,
    EventKind,
    Incident,
    IncidentChange,
    IncidentId,
    IncidentPhase,
    Square,
    TrackerState,
    holds,
    min_reports,
)
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import EARTH_RADIUS_M, Place, bearing_deg, distance_m, moved
from milepost.model.reasons import Malformed, Reason

CONDITIONS_MAX: Final = 500
"""Maximum incidents, and squares with reports, of one kind in an answer: alerts wait while it is computed."""
_TOLERANCE_M: Final = 0.01
"""Tolerance for rounding (1 cm): a smaller shift is no move, and a circle around others is larger by it."""
_SIDES: Final = 4.0
"""Maximum distance of a bin's centre or circle from the middle of its square, in sides, apart from the minimum radius."""


@dataclass(frozen=True, slots=True)
class IncidentLimits:
    """Limits per kind of event."""

    cells_max: int = 100_000
    incidents_max: int = 1_000
    ahead_s_max: int = 600
    """Maximum time by which a cell may be ahead of the last evaluated slot."""


class CellDropReason(Enum):
    """Reason for the rejection of a cell."""

    KIND_UNKNOWN = "kind unknown"
    NO_SUCH_SQUARE = "no such square"
    NOT_IN_SLOT = "not in slot"
    TOO_OLD = "too old"
    TOO_FAR_AHEAD = "too far ahead"
    TOO_MANY = "too many"


DEFAULT_LIMITS: Final = IncidentLimits()


@dataclass(frozen=True, slots=True)
class IncidentCounts:
    """Counters: stored cells, late and rejected ones, and groups beyond the limit."""

    cells: int
    late: int
    """Cells that arrived after the evaluation of their slot; they count from the next one on."""
    dropped: Mapping[CellDropReason, int]
    beyond_limit: int
    """Groups of hot bins that were not raised because the limit of incidents was reached."""


class Incidents:
    """The incidents of all kinds of event; *weights* of witnesses may change at any time."""

    def __init__(
        self,
        kinds: Sequence[EventKind],
        *,
        weights: Weights | None = None,
        limits: IncidentLimits = DEFAULT_LIMITS,
        state: TrackerState | None = None,
    ) -> None:
        if len({kind.name for kind in kinds}) != len(kinds):
            raise ValueError(f"two kinds have one name: {', '.join(sorted(kind.name for kind in kinds))}")
        self.weights: Weights = {} if weights is None else weights
        self._unknown = 0
        self._kinds = {
            kind.name: EventMonitor(
                kind,
                limits,
                slot=None if state is None else state.slots.get(kind.name),
                active=() if state is None else [one for one in state.incidents if one.kind == kind.name],
            )
            for kind in kinds
        }

    @property
    def kinds(self) -> tuple[EventKind, ...]:
        """The kinds of event, with their rules."""
        return tuple(monitor.kind for monitor in self._kinds.values())

    @property
    def active(self) -> tuple[Incident, ...]:
        """The active incidents, by kind, the oldest first."""
        return tuple(incident for monitor in self._kinds.values() for incident in monitor.tracker.active)

    @property
    def counts(self) -> IncidentCounts:
        """Counters, summed over all kinds."""
        monitor = self._kinds.values()
        dropped = sum((one.dropped for one in monitor), Counter({CellDropReason.KIND_UNKNOWN: self._unknown}))
        beyond = sum(one.tracker.beyond_limit for one in monitor)
        return IncidentCounts(sum(map(len, monitor)), sum(one.late for one in monitor), dropped, beyond)

    @property
    def monitors(self) -> Mapping[str, "EventMonitor"]:
        """The monitor of each kind, by name."""
        return self._kinds

    def maybe_next_end(self) -> Instant | None:
        """Return the end of the next slot in which something can change, or `None`."""
        ends = [end for monitor in self._kinds.values() if (end := monitor.maybe_next_end()) is not None]
        return min(ends, default=None)

    def add(self, cell: Cell) -> CellDropReason | None:
        """Add a cell, new or repeated; return and count the reason if it is rejected."""
        monitor = self._kinds.get(cell.kind)
        if monitor is None:
            self._unknown += 1
            return CellDropReason.KIND_UNKNOWN
        return monitor.add(cell)

    def advance(self, now: Instant) -> list[IncidentChange]:
        """Evaluate the slots that have ended by *now*, whose cells must have arrived; return the changes, oldest first."""
        changes = [change for monitor in self._kinds.values() for change in monitor.advance(now, self.weights)]
        return sorted(changes, key=lambda change: change.at)

    def around(self, area: Area, now: Instant) -> tuple[Conditions, ...]:
        """Return the conditions in an area for each kind; reports of the current slot count, too (M25)."""
        return tuple(conditions(monitor, area, now, self.weights) for monitor in self._kinds.values())

    def state(self) -> TrackerState:
        """Return the state to resume from after a restart."""
        slots = {name: monitor.slot for name, monitor in self._kinds.items() if monitor.slot is not None}
        return TrackerState(slots, self.active)

    @property
    def cells_since(self) -> Instant | None:
        """The time from which cells must be read again after a restart; `None` before the first `advance`: all of them."""
        starts = [
            (monitor.slot + 2 - monitor.kind.slots) * monitor.kind.interval_ns
            for monitor in self._kinds.values()
            if monitor.slot is not None
        ]
        return Instant(max(0, min(starts))) if starts else None


class EventMonitor:
    """One kind of event: its cells of the last slots, and its incidents.

        slots   … ┃ n-k+1 │ … │   n   ┃  n+1  │ n+2 …        n: the last evaluated slot
          too old ┃ late, but counts  ┃ on time, until too far ahead

    Invariants:
    - a slot is evaluated once, after it has ended; slots are evaluated in order, those in which nothing can change are skipped;
    - of cells with the same key the latest counts, in whatever order they arrive;
    - there are at most `limits.cells_max` cells: a rejected cell is counted with its reason.
    """

    def __init__(
        self, kind: EventKind, limits: IncidentLimits, *, slot: int | None = None, active: Iterable[Incident] = ()
    ) -> None:
        self.kind = kind
        self.slot = slot
        """The last evaluated slot; `None` before the first."""
        self.tracker = IncidentTracker(kind, limits.incidents_max, active)
        self.late = 0
        self.dropped: Counter[CellDropReason] = Counter()
        self._limits = limits
        self._slots_ahead_max = limits.ahead_s_max * SECOND_NS // kind.interval_ns
        self.reports: Counter[Square] = Counter()
        """Reports by square in all cells: an upper bound for every bin."""
        self._floor = min_reports(kind.condition)
        self._cells: dict[int, dict[Square, Cell]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def add(self, cell: Cell) -> CellDropReason | None:
        """Store a cell, unless a later one with its key is stored; return the reason if it is rejected."""
        dropped = self._maybe_dropped(cell)
        if dropped is not None:
            self.dropped[dropped] += 1
            return dropped
        cells = self._cells.setdefault(cell.slot, {})
        previous = cells.get(cell.square)
        if previous is None:
            self._count += 1
        elif not cell.is_after(previous):
            return None
        self.late += self.slot is not None and cell.slot <= self.slot
        self.reports[cell.square] += cell.reports - (0 if previous is None else previous.reports)
        cells[cell.square] = cell
        return None

    def advance(self, now: Instant, weights: Weights) -> list[IncidentChange]:
        """Evaluate all slots that have ended by *now*."""
        ended = now // self.kind.interval_ns - 1
        changes = []
        while (slot := self._maybe_next()) is not None and slot <= ended:
            changes += self._evaluate(slot, weights)
        if self.slot is None or ended > self.slot:
            self._forget(ended)
        return changes

    def bins(self, slot: int, at: Instant, weights: Weights, squares: Sequence[Square] | None = None) -> Iterator[LazyBin]:
        """Yield the bins of all squares, or of *squares*, over the slots up to *slot*, as of *at*."""
        grid = self.kind.grid
        needed = None if squares is None else {near for square in squares for near in grid.block(square)}
        totals = totals_of(grid, self._window(slot, needed))
        for square in totals if squares is None else squares:
            if square in totals:
                yield LazyBin(self.kind, square, totals, weights, at)

    @property
    def cells(self) -> list[Cell]:
        """The stored cells, by slot."""
        return [cell for _, cells in sorted(self._cells.items()) for cell in cells.values()]

    def squares(self, slot: int) -> list[Square]:
        """Return the squares with reports in the slots up to *slot*, lowest first."""
        return sorted({cell.square for cell in self._window(slot)})

    def maybe_next_end(self) -> Instant | None:
        """Return the end of the next slot in which something can change, or `None`."""
        slot = self._maybe_next()
        return None if slot is None else Instant((slot + 1) * self.kind.interval_ns)

    def _maybe_dropped(self, cell: Cell) -> CellDropReason | None:
        interval_ns = self.kind.interval_ns
        if not self.kind.grid.holds(cell.square, cell.extent.north, cell.extent.east):
            return CellDropReason.NO_SUCH_SQUARE
        if not cell.first_at // interval_ns == cell.slot == cell.last_at // interval_ns:
            return CellDropReason.NOT_IN_SLOT
        if self.slot is not None and cell.slot < self._oldest(self.slot + 1):
            return CellDropReason.TOO_OLD
        if self.slot is not None and cell.slot - self.slot > self._slots_ahead_max + 1:
            return CellDropReason.TOO_FAR_AHEAD
        is_new = cell.square not in self._cells.get(cell.slot, ())
        return CellDropReason.TOO_MANY if is_new and self._count >= self._limits.cells_max else None

    def _maybe_next(self) -> int | None:
        """Return the next slot in which something can change, or `None`."""
        first_end = self.tracker.maybe_first_end()
        soonest = [*self._cells] if first_end is None else [*self._cells, -(-first_end // self.kind.interval_ns) - 1]
        if not soonest:
            return None
        return min(soonest) if self.slot is None else max(min(soonest), self.slot + 1)

    def _evaluate(self, slot: int, weights: Weights) -> list[IncidentChange]:
        condition, at = self.kind.condition, Instant((slot + 1) * self.kind.interval_ns)
        bins = self.bins(slot, at, weights, self._maybe_hot(slot))
        hot = [one.bin() for one in bins if holds(condition, one.value_of)]
        changes = self.tracker.step(grouped(self.kind.grid, hot), slot, at)
        self._forget(slot)
        return changes

    def _maybe_hot(self, slot: int) -> list[Square]:
        """Return the squares whose bins have the minimum number of reports of the predicate: a cheap filter for most."""
        reports, block = self.reports, self.kind.grid.block
        squares = dict.fromkeys(cell.square for cell in self._window(slot))
        return [one for one in squares if sum([reports[near] for near in block(one) if near in reports]) >= self._floor]

    def _forget(self, slot: int) -> None:
        """Mark the slot as evaluated and drop the cells outside the windows of later slots."""
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
        """Return the first slot in the window that ends with *slot*."""
        return slot - self.kind.slots + 1


class IncidentTracker:
    """The life cycle of each incident of one kind, from the groups of hot bins at the end of each slot.

        place of the incident …          effect                                                             change
        hot, no incident there           a new id; endpoints within the margin are notified                 raised
        hot, carried on by its group     moves with the group; notified again if it left the notified       moved, grown
                                         circle by half the margin, or half the validity is over            lasting
        hot, carried on by another       waits: the other incident covers both                              none
        not hot, for less than clear     waits                                                              none
        not hot for longer               over; all endpoints that were ever notified are notified           cleared

    Invariants:
    - an incident continues in the group with which it shares most squares, or which touches it. Where two incidents could
      continue in one group, or one in two groups, the more shared squares decide, then the greater age, then the greater group.
      A group carries on one incident at most;
    - an incident is not cleared while a hot bin touches it: no all-clear is published for a place that is still hot;
    - there are at most `limit` incidents; groups beyond it are counted, and raised when there is room and they are still hot.
    """

    def __init__(self, kind: EventKind, limit: int, active: Iterable[Incident] = ()) -> None:
        self._kind = kind
        self._limit = limit
        self._active = {incident.id: incident for incident in active}
        self.beyond_limit = 0

    @property
    def active(self) -> tuple[Incident, ...]:
        """The active incidents, the oldest first."""
        return tuple(sorted(self._active.values(), key=_age))

    def maybe_first_end(self) -> Instant | None:
        """Return when the first incident is cleared if nothing is hot until then, or `None`."""
        ends = [incident.hot_at + self._kind.clear_after_ns for incident in self._active.values()]
        return Instant(min(ends)) if ends else None

    def step(self, groups: Sequence[BinGroup], slot: int, at: Instant) -> list[IncidentChange]:
        """Return the changes at the end of a slot; *groups* are ordered, the greatest first."""
        carried, waiting = self._matched(groups)
        changes = []
        for number, group in enumerate(groups):
            incident = carried.get(number)
            change = self._maybe_raised(group, slot, at) if incident is None else self._continued(incident, group, at)
            changes += [] if change is None else [change]
        for incident in waiting:
            self._active[incident.id] = replace(incident, hot_at=at)
        return changes + self._cleared(at)

    def _matched(self, groups: Sequence[BinGroup]) -> tuple[dict[int, Incident], list[Incident]]:
        """Return the incident that each group carries on, and the other incidents that a hot bin touches."""
        touching = self.touching([group.squares for group in groups])
        pairs = []
        for number, names in enumerate(touching):
            squares = groups[number].squares
            for name in names:
                incident = self._active[name]
                pairs.append((-len(squares & incident.squares), *_age(incident), number))
        carried: dict[int, Incident] = {}
        taken = set()
        for _, _, name, number in sorted(pairs):
            if number not in carried and name not in taken:
                carried[number] = self._active[name]
                taken.add(name)
        hot = set[IncidentId]().union(*touching)
        return carried, [self._active[name] for name in sorted(hot - taken)]

    def touching(self, groups: Sequence[Iterable[Square]]) -> list[set[IncidentId]]:
        """Return the incidents that each group of bins touches, by the squares of the bins."""
        block = self._kind.grid.block
        reach: defaultdict[Square, set[IncidentId]] = defaultdict(set)
        for incident in self._active.values() if groups else ():
            for near in {near for square in incident.squares for near in block(square)}:
                reach[near].add(incident.id)
        return [
            set[IncidentId]().union(*(reach.get(near, ()) for square in squares for near in block(square))) for squares in groups
        ]

    def _maybe_raised(self, group: BinGroup, slot: int, at: Instant) -> IncidentChange | None:
        if len(self._active) >= self._limit:
            self.beyond_limit += 1
            return None
        incident = incident_of(self._kind, group, slot, at)
        self._active[incident.id] = incident
        return IncidentChange(IncidentPhase.RAISED, incident, at)

    def _continued(self, previous: Incident, group: BinGroup, at: Instant) -> IncidentChange | None:
        leader, radius_m = group.leader, _radius_m(group)
        incident = replace(
            previous,
            centre=leader.centre,
            radius_m=radius_m,
            reports=leader.reports,
            witnesses=leader.witnesses,
            weight=leader.weight,
            squares=group.squares,
            hot_at=at,
        )
        phase = self._maybe_phase(previous, leader.centre, radius_m, at)
        if phase is not None:
            alert_area = Circle(leader.centre, radius_m + self._kind.margin_m)
            incident = replace(incident, alert_area=alert_area, alerted_at=at)
        self._active[previous.id] = incident
        return None if phase is None else IncidentChange(phase, incident, at)

    def _maybe_phase(self, previous: Incident, centre: Place, radius_m: float, at: Instant) -> IncidentPhase | None:
        if not is_within_alert_area(self._kind, previous.alert_area, Circle(previous.alert_area.centre, radius_m)):
            return IncidentPhase.GROWN
        if not is_within_alert_area(self._kind, previous.alert_area, Circle(centre, radius_m)):
            return IncidentPhase.MOVED
        return IncidentPhase.LASTING if at - previous.alerted_at >= self._kind.valid_ns // 2 else None

    def _cleared(self, at: Instant) -> list[IncidentChange]:
        cleared = [one for one in self.active if one.hot_at < at and at - one.hot_at >= self._kind.clear_after_ns]
        for incident in cleared:
            del self._active[incident.id]
        return [IncidentChange(IncidentPhase.CLEARED, incident, at) for incident in cleared]


def incident_of(kind: EventKind, group: BinGroup, slot: int, at: Instant) -> Incident:
    """Return the incident that begins with *group*."""
    leader, radius_m = group.leader, _radius_m(group)
    circle = Circle(leader.centre, radius_m + kind.margin_m)
    name = IncidentId(f"{kind.name}-{slot}-{group.first_square.row}-{group.first_square.column}")
    found = (leader.reports, leader.witnesses, leader.weight, group.squares)
    return Incident(name, kind.name, leader.centre, radius_m, *found, at, at, circle, at)


def is_within_alert_area(kind: EventKind, alert_area: Circle, circle: Circle) -> bool:
    """Return whether *circle* and half the margin around it lie inside the circle *alert_area*."""
    return (
        distance_m(alert_area.centre, circle.centre) + circle.radius_m <= alert_area.radius_m - kind.margin_m / 2 + _TOLERANCE_M
    )


def circle_around(one: Circle, other: Circle) -> Circle:
    """Return the smallest circle around both, up to rounding."""
    apart_m = distance_m(one.centre, other.centre)
    if apart_m + other.radius_m <= one.radius_m:
        return one
    if apart_m + one.radius_m <= other.radius_m:
        return other
    radius_m = (one.radius_m + other.radius_m + apart_m) / 2
    centre = moved(one.centre, bearing_deg(one.centre, other.centre), radius_m - one.radius_m)
    return Circle(centre, radius_m + _TOLERANCE_M)


def _radius_m(group: BinGroup) -> float:
    """Return the radius around the leader's centre that contains the circles of all bins."""
    centre, others = group.leader.centre, group.members[1:]
    return max(group.leader.radius_m, *(distance_m(centre, one.centre) + one.radius_m for one in others), 0.0)


def _age(incident: Incident) -> tuple[Instant, IncidentId]:
    return incident.raised_at, incident.id


def conditions(monitor: EventMonitor, area: Area, now: Instant, weights: Weights) -> Conditions:
    """Return the incidents of one kind that touch *area*, and the hottest bin that does; refuse too large an area (M25)."""
    kind = monitor.kind
    incidents = tuple(one for one in monitor.tracker.active if touches(one.circle, area))
    slot = now // kind.interval_ns
    near = _near(kind, monitor.squares(slot), area)
    if max(len(near), len(incidents)) > CONDITIONS_MAX:
        detail = f"more than {CONDITIONS_MAX} incidents or squares with reports touch the area: ask for a smaller one"
        raise Malformed(Reason.AREA_TOO_LARGE, detail)
    found = [(one.bin(), holds(kind.condition, one.value_of)) for one in monitor.bins(slot, now, weights, near)]
    found.sort(key=lambda one: (not one[1], one[0].rank))
    hottest, is_hot = next((one for one in found if _touches(one[0], area)), (None, False))
    return Conditions(kind.name, incidents, hottest, is_hot)


def _near(kind: EventKind, squares: Sequence[Square], area: Area) -> list[Square]:
    """Return the squares whose bins may touch the area."""
    if not squares:
        return []
    reach_rad = area.cap.angle_rad + (_SIDES * kind.side_m + max(_SIDES * kind.side_m, kind.radius_m_min)) / EARTH_RADIUS_M
    is_near = kind.grid.middles(squares) @ area.cap.centre >= np.cos(min(reach_rad, pi))
    return [square for square, near in zip(squares, is_near.tolist(), strict=True) if near]


def _touches(one: Bin, area: Area) -> bool:
    return touches(Circle(one.centre, one.radius_m), area)
