"""The lives of the incidents of one kind, from the groups of hot bins that each slot's end shows.

    its place is …                 what happens                                                       change
    hot, and no incident there     it gets an id and everybody within reach is told                   raised
    hot, and led by its group      it is where the group is; told if it has come out of what was      moved, grown
                                   told by half the margin, or half the validity is over              lasting
    hot, led by another incident   it waits: that one speaks for both                                 none
    not hot, for less than clear   it waits                                                           none
    not hot for so long            it is over, and all who were ever told hear it                     cleared

What must hold:
- an incident goes on in the group with which it has most squares in common, or which touches it; if two could go on in one group,
  or one in two, the more in common, then the older, then the greater group decides. Each group carries on one incident at most;
- an incident is not cleared while any hot bin touches it, so nobody hears an all-clear for a place that is still hot;
- there are never more than `limit`; groups beyond are counted, and raised when there is room and they are still hot.
"""

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from milepost.hub.incidents.groups import Group
from milepost.model.areas import Circle
from milepost.model.incidents import Change, EventKind, Incident, IncidentId, Phase, Square
from milepost.model.instants import Instant
from milepost.model.places import Place, bearing_deg, distance_m, moved

_HAIR_M: Final = 0.01
"""Room for rounding: 1 cm is no move, and a circle around others is so much larger."""


class Lives:
    """The incidents of one kind that live."""

    def __init__(self, kind: EventKind, limit: int, living: Iterable[Incident] = ()) -> None:
        self._kind = kind
        self._limit = limit
        self._living = {incident.id: incident for incident in living}
        self.beyond_limit = 0

    @property
    def living(self) -> tuple[Incident, ...]:
        """The oldest first."""
        return tuple(sorted(self._living.values(), key=_age))

    def maybe_first_end(self) -> Instant | None:
        """When the first of them is cleared if nothing is hot until then; nothing if there are none."""
        ends = [incident.hot_at + self._kind.clear_after_ns for incident in self._living.values()]
        return Instant(min(ends)) if ends else None

    def step(self, groups: Sequence[Group], slot: int, at: Instant) -> list[Change]:
        """What becomes of them at the end of a slot; the greatest groups come first."""
        carried, waiting = self._matched(groups)
        changes = []
        for number, group in enumerate(groups):
            incident = carried.get(number)
            change = self._maybe_raised(group, slot, at) if incident is None else self._carried_on(incident, group, at)
            changes += [] if change is None else [change]
        for incident in waiting:
            self._living[incident.id] = replace(incident, hot_at=at)
        return changes + self._cleared(at)

    def _matched(self, groups: Sequence[Group]) -> tuple[dict[int, Incident], list[Incident]]:
        """Which incident each group carries on, and which others have something hot at their place."""
        touching = self.touching([group.squares for group in groups])
        pairs = []
        for number, names in enumerate(touching):
            squares = groups[number].squares
            for name in names:
                incident = self._living[name]
                pairs.append((-len(squares & incident.squares), *_age(incident), number))
        carried: dict[int, Incident] = {}
        taken = set()
        for _, _, name, number in sorted(pairs):
            if number not in carried and name not in taken:
                carried[number] = self._living[name]
                taken.add(name)
        hot = set[IncidentId]().union(*touching)
        return carried, [self._living[name] for name in sorted(hot - taken)]

    def touching(self, some: Sequence[Iterable[Square]]) -> list[set[IncidentId]]:
        """The incidents that each of some groups of bins touches, by the squares of the bins."""
        block = self._kind.grid.block
        reach: defaultdict[Square, set[IncidentId]] = defaultdict(set)
        for incident in self._living.values() if some else ():
            for near in {near for square in incident.squares for near in block(square)}:
                reach[near].add(incident.id)
        return [
            set[IncidentId]().union(*(reach.get(near, ()) for square in squares for near in block(square))) for squares in some
        ]

    def _maybe_raised(self, group: Group, slot: int, at: Instant) -> Change | None:
        if len(self._living) >= self._limit:
            self.beyond_limit += 1
            return None
        incident = incident_of(self._kind, group, slot, at)
        self._living[incident.id] = incident
        return Change(Phase.RAISED, incident, at)

    def _carried_on(self, former: Incident, group: Group, at: Instant) -> Change | None:
        leader, radius_m = group.leader, _radius_m(group)
        incident = replace(
            former,
            centre=leader.centre,
            radius_m=radius_m,
            reports=leader.reports,
            witnesses=leader.witnesses,
            weight=leader.weight,
            squares=group.squares,
            hot_at=at,
        )
        phase = self._maybe_phase(former, leader.centre, radius_m, at)
        if phase is not None:
            told = Circle(leader.centre, radius_m + self._kind.margin_m)
            incident = replace(incident, told=told, told_at=at)
        self._living[former.id] = incident
        return None if phase is None else Change(phase, incident, at)

    def _maybe_phase(self, former: Incident, centre: Place, radius_m: float, at: Instant) -> Phase | None:
        if not is_told(self._kind, former.told, Circle(former.told.centre, radius_m)):
            return Phase.GROWN
        if not is_told(self._kind, former.told, Circle(centre, radius_m)):
            return Phase.MOVED
        return Phase.LASTING if at - former.told_at >= self._kind.valid_ns // 2 else None

    def _cleared(self, at: Instant) -> list[Change]:
        over = [one for one in self.living if one.hot_at < at and at - one.hot_at >= self._kind.clear_after_ns]
        for incident in over:
            del self._living[incident.id]
        return [Change(Phase.CLEARED, incident, at) for incident in over]


def incident_of(kind: EventKind, group: Group, slot: int, at: Instant) -> Incident:
    """The incident that begins with a group, by which everybody within reach is told."""
    leader, radius_m = group.leader, _radius_m(group)
    circle = Circle(leader.centre, radius_m + kind.margin_m)
    name = IncidentId(f"{kind.name}-{slot}-{leader.square.row}-{leader.square.column}")
    found = (leader.reports, leader.witnesses, leader.weight, group.squares)
    return Incident(name, kind.name, leader.centre, radius_m, *found, at, at, circle, at)


def is_told(kind: EventKind, told: Circle, circle: Circle) -> bool:
    """Whether those in a circle, and some way around it, were told."""
    return distance_m(told.centre, circle.centre) + circle.radius_m <= told.radius_m - kind.margin_m / 2 + _HAIR_M


def circle_around(one: Circle, other: Circle) -> Circle:
    """The smallest circle that holds both, but for a hair."""
    apart_m = distance_m(one.centre, other.centre)
    if apart_m + other.radius_m <= one.radius_m:
        return one
    if apart_m + one.radius_m <= other.radius_m:
        return other
    radius_m = (one.radius_m + other.radius_m + apart_m) / 2
    centre = moved(one.centre, bearing_deg(one.centre, other.centre), radius_m - one.radius_m)
    return Circle(centre, radius_m + _HAIR_M)


def _radius_m(group: Group) -> float:
    """How far the circles of all its bins reach from the leader's centre."""
    centre, others = group.leader.centre, group.members[1:]
    return max(group.leader.radius_m, *(distance_m(centre, one.centre) + one.radius_m for one in others), 0.0)


def _age(incident: Incident) -> tuple[Instant, IncidentId]:
    return incident.raised_at, incident.id
