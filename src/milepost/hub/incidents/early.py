"""Early warnings: a place that is hot before its slot has ended is told at once, and what was told is made good when it has.

    cells ─▶ look: hot, and touches no incident ─▶ told early, under the id that an incident would get there
    the slot has ended, and an incident …
      was raised there, under that id, in the circle that was told    nothing more is said: the early warning stands
      was raised there, otherwise                                     `raised` also goes to all who were warned early
      was there, or has come there                                    it speaks for the place: its all-clear goes to them too
      is not there                                                    an all-clear goes to all who were warned early

What must hold:
- incidents and their changes are the same as without this: it reads ledgers and changes nothing in them;
- each place is told early once, and whoever hears it hears of an incident there or an all-clear;
- what becomes of it is decided at the ends of slots, so that a process that goes on from the state decides alike. That one tells
  nothing early in slots that began before it did: the process before it may have;
- a cell costs little where nothing can be hot: a bin is looked at if it has as many reports as the predicate needs, and again
  when they have grown by an eighth.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from milepost.hub.incidents.groups import grouped
from milepost.hub.incidents.incidents import Incidents
from milepost.hub.incidents.ledger import Ledger
from milepost.hub.incidents.lives import incident_of, is_told
from milepost.model.incidents import Cell, Change, Incident, IncidentId, Phase, Square, Warned, holds, reports_at_least
from milepost.model.instants import Instant

WARNED_MAX: Final = 1_000
"""So many places are remembered as told early; then no others are."""

_GROWTH: Final = 9 / 8


class Tell(NamedTuple):
    """A change to tell of, and what was told early of the same."""

    change: Change
    early: tuple[Incident, ...] = ()


@dataclass(slots=True)
class _Scene:
    """One kind between the ends of two slots."""

    ledger: Ledger
    slot: int | None
    """The last that was looked at."""
    floor: float
    """A bin with fewer reports is not hot."""
    reach: set[Square] = field(default_factory=set)
    """A bin whose block has one of these touches an incident, or a place that was told early."""
    looked: dict[Square, float] = field(default_factory=dict)
    """How many reports a bin may have had when it was looked at and was not hot."""
    in_vain: dict[Square, int] = field(default_factory=dict)
    """Places that were told early for nothing, each with the slot until which only the ends of slots decide there."""

    def close(self, squares: Iterable[Square]) -> None:
        """Something is told of bins: no others that touch them are told of early."""
        block = self.ledger.kind.grid.block
        self.reach |= {near for square in squares for near in block(square)}

    def touches(self, square: Square) -> bool:
        """Whether the bin of a square touches what is told of already."""
        return not self.reach.isdisjoint(self.ledger.kind.grid.block(square))


class Early:
    """What is told before slots have ended."""

    def __init__(self, incidents: Incidents, *, late_ns: int, since: Instant, warned: Iterable[Warned] = ()) -> None:
        self._incidents = incidents
        self._late_ns = late_ns
        self._since = since
        self._scenes = {
            name: _Scene(ledger, None, reports_at_least(ledger.kind.condition))
            for name, ledger in incidents.ledgers.items()
            if ledger.kind.alert is not None
        }
        self._warned = {one.incident.id: one for one in warned if one.incident.kind in self._scenes}
        for scene in self._scenes.values():
            self._set(scene)

    @property
    def warned(self) -> tuple[Warned, ...]:
        """What was told early and is not over."""
        return tuple(self._warned.values())

    def maybe_next_end(self) -> Instant | None:
        """When the next slot ends in which something was told early."""
        return min((self._end(one) for one in self._warned.values() if one.heir is None), default=None)

    def look(self, cells: Sequence[Cell], now: Instant) -> list[Change]:
        """Cells that were taken just now: what is hot around them and is to be told at once."""
        came: defaultdict[tuple[str, int], set[Square]] = defaultdict(set)
        for cell in cells:
            scene = self._scenes.get(cell.kind)
            if scene is not None:
                slot = scene.ledger.slot
                came[cell.kind, cell.slot if slot is None else max(cell.slot, slot + 1)].add(cell.square)
        found = []
        for (kind, slot), squares in came.items():
            scene = self._scenes[kind]
            interval_ns = scene.ledger.kind.interval_ns
            if slot * interval_ns >= self._since and (slot + 1) * interval_ns > now - self._late_ns:
                found += self._look_at(scene, slot, squares, now)
        return found

    def _look_at(self, scene: _Scene, slot: int, squares: set[Square], now: Instant) -> list[Change]:
        ledger, kind = scene.ledger, scene.ledger.kind
        if scene.slot != ledger.slot:
            self._set(scene)
        worth = _worth(scene, slot, squares)
        if not worth:
            return []
        blocks = ledger.blocks(slot, now, self._incidents.weights, worth)
        hot = [block.bin() for block in blocks if holds(kind.condition, block.value_of)]
        found = []
        for group in grouped(kind.grid, hot):
            if len(self._warned) < WARNED_MAX and not any(map(scene.touches, group.squares)):
                incident = incident_of(kind, group, slot, now)
                self._warned[incident.id] = Warned(incident, slot)
                scene.close(group.squares)
                found.append(Change(Phase.EARLY, incident, now))
        return found

    def settle(self, changes: Sequence[Change]) -> list[Tell]:
        """The slots that end at one moment were looked at: what is to be told, all-clears for what came to nothing first."""
        told = [Tell(Change(Phase.CLEARED, one.incident, self._end(one))) for one in self._find_heirs()]
        heirs: defaultdict[IncidentId, list[Warned]] = defaultdict(list)
        for one in self._warned.values():
            if one.heir is not None:
                heirs[one.heir].append(one)
        for change in changes:
            mine = heirs.get(change.incident.id, [])
            if change.phase is Phase.RAISED and any(self._stands(one, change.incident) for one in mine):
                continue
            is_for_all = change.phase in (Phase.RAISED, Phase.CLEARED)
            told.append(Tell(change, tuple(one.incident for one in mine) if is_for_all else ()))
            if change.phase is Phase.CLEARED:
                for one in mine:
                    del self._warned[one.incident.id]
        return told

    def _find_heirs(self) -> list[Warned]:
        """Find for what was told early the incident that speaks for it; gives what is over without any."""
        over = []
        for name, scene in self._scenes.items():
            ledger = scene.ledger
            open_ = [one for one in self._warned.values() if one.incident.kind == name and one.heir is None]
            touching = ledger.lives.touching([one.incident.squares for one in open_])
            for one, names in zip(open_, touching, strict=True):
                if names:
                    living = [incident for incident in ledger.lives.living if incident.id in names]
                    self._warned[one.incident.id] = replace(one, heir=_nearest(one.incident, living))
                elif ledger.slot is not None and ledger.slot >= one.slot:
                    del self._warned[one.incident.id]
                    scene.in_vain |= dict.fromkeys(one.incident.squares, one.slot + ledger.kind.slots)
                    over.append(one)
        return over

    def _stands(self, one: Warned, incident: Incident) -> bool:
        """Whether those who are to hear of an incident have heard it early, under its id, and not too long ago."""
        kind = self._incidents.ledgers[incident.kind].kind
        is_fresh = incident.told_at - one.incident.told_at <= kind.valid_ns // 2
        return one.incident.id == incident.id and is_fresh and is_told(kind, one.incident.told, incident.circle)

    def _set(self, scene: _Scene) -> None:
        """Another slot was looked at: incidents may be elsewhere."""
        scene.slot, scene.reach, scene.looked = scene.ledger.slot, set(), {}
        scene.in_vain = {square: until for square, until in scene.in_vain.items() if until > (scene.slot or 0)}
        for incident in scene.ledger.lives.living:
            scene.close(incident.squares)
        for one in self._warned.values():
            if one.incident.kind == scene.ledger.kind.name:
                scene.close(one.incident.squares)

    def _end(self, one: Warned) -> Instant:
        return Instant((one.slot + 1) * self._incidents.ledgers[one.incident.kind].kind.interval_ns)


def _nearest(place: Incident, living: Sequence[Incident]) -> IncidentId:
    """The incident with the same id, or with which most squares are in common; the oldest come first."""
    return min(living, key=lambda one: (one.id != place.id, -len(one.squares & place.squares))).id


def _worth(scene: _Scene, slot: int, squares: set[Square]) -> list[Square]:
    """The bins around squares that may be hot, and were not looked at before with as many reports."""
    reports, block = scene.ledger.reports, scene.ledger.kind.grid.block
    found = []
    for square in {near for one in squares for near in block(one) if near in reports}:
        total = sum([reports[near] for near in block(square) if near in reports])
        if total < scene.floor or total < scene.looked.get(square, 0.0) * _GROWTH:
            continue
        if not scene.touches(square) and scene.in_vain.get(square, 0) < slot:
            scene.looked[square] = total
            found.append(square)
    return found
