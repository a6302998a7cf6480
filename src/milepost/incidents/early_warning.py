"""Early warnings: a place that is hot before its slot has ended is announced at once, and resolved at the end of the slot.

    cells ─▶ look: hot, and touches no incident ─▶ announced early, under the id that an incident would get there
    the slot has ended, and an incident …
      was raised there, under that id, in the notified circle    nothing more is published: the early warning suffices
      was raised there, otherwise                                `raised` also goes to all endpoints that were warned early
      existed there, or has moved there                          it covers the place: its all-clear goes to them, too
      is not there                                               an all-clear goes to all endpoints that were warned early

Invariants:
- incidents and their changes are the same as without early warnings: monitors are read and never changed;
- each place is announced early once, and an endpoint that received it receives an incident there or an all-clear;
- the outcome is decided at the ends of slots, so that a process that resumes from the state decides alike. That process announces
  nothing early in slots that began before it did: the previous process may have;
- a cell costs little where nothing can be hot: a bin is evaluated when it has the minimum number of reports of the predicate, and
  again when they have grown by an eighth.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from milepost.incidents.bins import grouped
from milepost.incidents.tracker import EventMonitor, Incidents, incident_of, is_told
from milepost.model.incidents import Cell, Change, Incident, IncidentId, Phase, Square, Warned, holds, reports_at_least
from milepost.model.instants import Instant

WARNED_MAX: Final = 1_000
"""Maximum places with an unresolved early warning."""

_GROWTH: Final = 9 / 8


class Announcement(NamedTuple):
    """A change to publish, and the early warnings of the same incident."""

    change: Change
    early: tuple[Incident, ...] = ()


@dataclass(slots=True)
class _KindScene:
    """State of one kind between the ends of two slots."""

    monitor: EventMonitor
    slot: int | None
    """The last evaluated slot."""
    floor: float
    """Minimum reports of a hot bin."""
    reach: set[Square] = field(default_factory=set)
    """Squares of incidents and early warnings, with a margin: a bin whose block has one of them touches one of those."""
    looked: dict[Square, float] = field(default_factory=dict)
    """Reports of a bin when it was evaluated last and was not hot."""
    in_vain: dict[Square, int] = field(default_factory=dict)
    """Places of false early warnings, each with the slot until which no further early warning is issued there."""

    def close(self, squares: Iterable[Square]) -> None:
        """Exclude all bins that touch *squares* from early warnings."""
        block = self.monitor.kind.grid.block
        self.reach |= {near for square in squares for near in block(square)}

    def touches(self, square: Square) -> bool:
        """Return whether the bin of a square touches an announced place."""
        return not self.reach.isdisjoint(self.monitor.kind.grid.block(square))


class EarlyWarnings:
    """The early warnings of all kinds that have alerts."""

    def __init__(self, incidents: Incidents, *, late_ns: int, since: Instant, warned: Iterable[Warned] = ()) -> None:
        self._incidents = incidents
        self._late_ns = late_ns
        self._since = since
        self._scenes = {
            name: _KindScene(monitor, None, reports_at_least(monitor.kind.condition))
            for name, monitor in incidents.monitors.items()
            if monitor.kind.alert is not None
        }
        self._warned = {one.incident.id: one for one in warned if one.incident.kind in self._scenes}
        for scene in self._scenes.values():
            self._set(scene)

    @property
    def warned(self) -> tuple[Warned, ...]:
        """The active early warnings."""
        return tuple(self._warned.values())

    def maybe_next_end(self) -> Instant | None:
        """Return the end of the next slot with an unresolved early warning, or `None`."""
        return min((self._end(one) for one in self._warned.values() if one.successor is None), default=None)

    def look(self, cells: Sequence[Cell], now: Instant) -> list[Change]:
        """Return the changes to publish at once for hot places around *cells*, which were just added."""
        came: defaultdict[tuple[str, int], set[Square]] = defaultdict(set)
        for cell in cells:
            scene = self._scenes.get(cell.kind)
            if scene is not None:
                slot = scene.monitor.slot
                came[cell.kind, cell.slot if slot is None else max(cell.slot, slot + 1)].add(cell.square)
        found = []
        for (kind, slot), squares in came.items():
            scene = self._scenes[kind]
            interval_ns = scene.monitor.kind.interval_ns
            if slot * interval_ns >= self._since and (slot + 1) * interval_ns > now - self._late_ns:
                found += self._look_at(scene, slot, squares, now)
        return found

    def _look_at(self, scene: _KindScene, slot: int, squares: set[Square], now: Instant) -> list[Change]:
        monitor, kind = scene.monitor, scene.monitor.kind
        if scene.slot != monitor.slot:
            self._set(scene)
        worth = _worth(scene, slot, squares)
        if not worth:
            return []
        bins = monitor.bins(slot, now, self._incidents.weights, worth)
        hot = [one.bin() for one in bins if holds(kind.condition, one.value_of)]
        found = []
        for group in grouped(kind.grid, hot):
            if len(self._warned) < WARNED_MAX and not any(map(scene.touches, group.squares)):
                incident = incident_of(kind, group, slot, now)
                self._warned[incident.id] = Warned(incident, slot)
                scene.close(group.squares)
                found.append(Change(Phase.EARLY, incident, now))
        return found

    def settle(self, changes: Sequence[Change]) -> list[Announcement]:
        """Return the announcements after the evaluation of the slots that end at one time, all-clears of false warnings first."""
        told = [Announcement(Change(Phase.CLEARED, one.incident, self._end(one))) for one in self._find_successors()]
        successors: defaultdict[IncidentId, list[Warned]] = defaultdict(list)
        for one in self._warned.values():
            if one.successor is not None:
                successors[one.successor].append(one)
        for change in changes:
            mine = successors.get(change.incident.id, [])
            if change.phase is Phase.RAISED and any(self._stands(one, change.incident) for one in mine):
                continue
            is_for_all = change.phase in (Phase.RAISED, Phase.CLEARED)
            told.append(Announcement(change, tuple(one.incident for one in mine) if is_for_all else ()))
            if change.phase is Phase.CLEARED:
                for one in mine:
                    del self._warned[one.incident.id]
        return told

    def _find_successors(self) -> list[Warned]:
        """Find the incident that covers each early warning; return the warnings that are over without one."""
        over = []
        for name, scene in self._scenes.items():
            monitor = scene.monitor
            open_ = [one for one in self._warned.values() if one.incident.kind == name and one.successor is None]
            touching = monitor.tracker.touching([one.incident.squares for one in open_])
            for one, names in zip(open_, touching, strict=True):
                if names:
                    living = [incident for incident in monitor.tracker.living if incident.id in names]
                    self._warned[one.incident.id] = replace(one, successor=_nearest(one.incident, living))
                elif monitor.slot is not None and monitor.slot >= one.slot:
                    del self._warned[one.incident.id]
                    scene.in_vain |= dict.fromkeys(one.incident.squares, one.slot + monitor.kind.slots)
                    over.append(one)
        return over

    def _stands(self, one: Warned, incident: Incident) -> bool:
        """Return whether the endpoints around an incident were warned early, under its id, and not too long ago."""
        kind = self._incidents.monitors[incident.kind].kind
        is_fresh = incident.told_at - one.incident.told_at <= kind.valid_ns // 2
        return one.incident.id == incident.id and is_fresh and is_told(kind, one.incident.told, incident.circle)

    def _set(self, scene: _KindScene) -> None:
        """Reset the scene after the evaluation of a slot: incidents may have moved."""
        scene.slot, scene.reach, scene.looked = scene.monitor.slot, set(), {}
        scene.in_vain = {square: until for square, until in scene.in_vain.items() if until > (scene.slot or 0)}
        for incident in scene.monitor.tracker.living:
            scene.close(incident.squares)
        for one in self._warned.values():
            if one.incident.kind == scene.monitor.kind.name:
                scene.close(one.incident.squares)

    def _end(self, one: Warned) -> Instant:
        return Instant((one.slot + 1) * self._incidents.monitors[one.incident.kind].kind.interval_ns)


def _nearest(place: Incident, living: Sequence[Incident]) -> IncidentId:
    """Return the incident with the same id, or with most squares in common; *living* has the oldest first."""
    return min(living, key=lambda one: (one.id != place.id, -len(one.squares & place.squares))).id


def _worth(scene: _KindScene, slot: int, squares: set[Square]) -> list[Square]:
    """Return the bins around *squares* that may be hot and were not evaluated with as many reports before."""
    reports, block = scene.monitor.reports, scene.monitor.kind.grid.block
    found = []
    for square in {near for one in squares for near in block(one) if near in reports}:
        total = sum([reports[near] for near in block(square) if near in reports])
        if total < scene.floor or total < scene.looked.get(square, 0.0) * _GROWTH:
            continue
        if not scene.touches(square) and scene.in_vain.get(square, 0) < slot:
            scene.looked[square] = total
            found.append(square)
    return found
