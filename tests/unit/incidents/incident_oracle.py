"""Bins and incidents from reports with plain loops: no cells, no sums, no index; what the class is held to."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import cos, fsum, hypot, radians

from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import METRES_A_UNIT, EventKind, Grid, Square
from milepost.model.places import Place, distance_m
from unit.incidents.events import Event


def snapped(grid: Grid, place: Place) -> tuple[float, float]:
    """Latitude and longitude in whole units, as reports are kept."""
    square, north, east = grid.spot(place)
    return (grid.south(square) + north) / 1e7 - 90.0, (grid.west(square) + east) / 1e7 - 180.0


@dataclass
class PlainBin:
    square: Square
    grid: Grid
    found: list[Event]
    weights: Mapping[EndpointId, float]

    def rank(self) -> tuple[float, int, Square]:
        return -self.weight(), -len(self.found), self.square

    def witnesses(self) -> set[str]:
        return {event.endpoint for event in self.found}

    def weight(self) -> float:
        return fsum(self.weights.get(EndpointId(one), 1.0) for one in self.witnesses())

    def centre(self) -> Place:
        first, norths, easts = self.points()
        return Place(fsum(norths) / len(norths), (first + fsum(easts) / len(easts) + 180.0) % 360.0 - 180.0)

    def points(self) -> tuple[float, list[float], list[float]]:
        """Longitudes are counted from the first, so that the antimeridian is crossed once at most."""
        points = [snapped(self.grid, event.place) for event in self.found]
        first = points[0][1]
        return first, [point[0] for point in points], [(point[1] - first + 180.0) % 360.0 - 180.0 for point in points]

    def radius_m(self, least_m: float) -> float:
        _, norths, easts = self.points()
        high, wide = max(norths) - min(norths), max(easts) - min(easts)
        narrower = cos(radians((max(norths) + min(norths)) / 2))
        return max(least_m, METRES_A_UNIT * 1e7 * hypot(high, wide * narrower) / 2)

    def values(self, field: str) -> list[float]:
        return [event.fields[field] for event in self.found if field in event.fields]


def bins_at(kind: EventKind, events: Sequence[Event], slot: int, weights: Mapping[EndpointId, float]) -> list[PlainBin]:
    """The bins that a look at a slot sees."""
    window = [event for event in events if slot - kind.slots < event.seen_at // kind.interval_ns <= slot]
    squares = sorted({kind.grid.spot(event.place).square for event in window})
    found = []
    for square in squares:
        block = kind.grid.block(square)
        near = [event for event in window if kind.grid.spot(event.place).square in block]
        found.append(PlainBin(square, kind.grid, near, weights))
    return found


def groups_of(kind: EventKind, hot: Sequence[PlainBin]) -> list[list[PlainBin]]:
    """Each bin goes up to the greatest it touches, until it touches none that is greater; leaders first, the greatest first."""

    def greatest_near(one: PlainBin) -> PlainBin:
        block = set(kind.grid.block(one.square))
        return min((other for other in hot if block & set(kind.grid.block(other.square))), key=PlainBin.rank)

    found: dict[Square, list[PlainBin]] = {}
    for one in sorted(hot, key=PlainBin.rank):
        top = one
        while (above := greatest_near(top)) is not top:
            top = above
        found.setdefault(top.square, []).append(one)
    return list(found.values())


@dataclass
class PlainIncident:
    id: str
    raised: int
    squares: set[Square]
    hot: int
    told: Circle
    told_slot: int


Said = tuple[str, str, int]
"""Phase, id, slot."""


class PlainIncidents:
    """The life of incidents of one kind, told in slots."""

    def __init__(self, kind: EventKind, is_hot: Callable[[PlainBin], bool], weights: Mapping[EndpointId, float]) -> None:
        self.kind = kind
        self.is_hot = is_hot
        self.weights = weights
        self.living: list[PlainIncident] = []
        self.said: list[Said] = []

    def run(self, events: Sequence[Event]) -> list[Said]:
        """From the first event until nothing lives and no bin looks back to an event.

        A bin may become hot without a new event: when an older one that spoke against it has left the window.
        """
        if not events:
            return []
        slots = [event.seen_at // self.kind.interval_ns for event in events]
        for slot in count(min(slots)):
            if slot >= max(slots) + self.kind.slots and not self.living:
                return self.said
            self.look(events, slot)
        raise AssertionError

    def look(self, events: Sequence[Event], slot: int) -> None:
        hot = [one for one in bins_at(self.kind, events, slot, self.weights) if self.is_hot(one)]
        groups = groups_of(self.kind, hot)
        carried = self.matched(groups)
        for number, group in enumerate(groups):
            if number in carried:
                self.go_on(carried[number], group, slot)
            else:
                self.raise_new(group, slot)
        for incident in self.living:
            if any(self.touch(incident, group) for group in groups):
                incident.hot = slot
        self.clear(slot)

    def matched(self, groups: Sequence[Sequence[PlainBin]]) -> dict[int, PlainIncident]:
        carried: dict[int, PlainIncident] = {}
        pairs = [
            (-len({one.square for one in group} & incident.squares), incident.raised, incident.id, number, incident)
            for number, group in enumerate(groups)
            for incident in self.living
            if self.touch(incident, group)
        ]
        for *_, number, incident in sorted(pairs, key=lambda pair: pair[:4]):
            if number not in carried and incident not in carried.values():
                carried[number] = incident
        return carried

    def touch(self, incident: PlainIncident, group: Sequence[PlainBin]) -> bool:
        reach = {near for square in incident.squares for near in self.kind.grid.block(square)}
        return any(near in reach for one in group for near in self.kind.grid.block(one.square))

    def circle(self, group: Sequence[PlainBin]) -> tuple[Place, float]:
        centre = group[0].centre()
        reaches = [distance_m(centre, one.centre()) + one.radius_m(self.kind.radius_m_min) for one in group]
        return centre, max(reaches)

    def raise_new(self, group: Sequence[PlainBin], slot: int) -> None:
        row, column = group[0].square
        centre, radius_m = self.circle(group)
        name = f"{self.kind.name}-{slot}-{row}-{column}"
        told = Circle(centre, radius_m + self.kind.margin_m)
        self.living.append(PlainIncident(name, slot, {one.square for one in group}, slot, told, slot))
        self.said.append(("raised", name, slot))

    def go_on(self, incident: PlainIncident, group: Sequence[PlainBin], slot: int) -> None:
        centre, radius_m = self.circle(group)
        incident.squares = {one.square for one in group}
        room_m = incident.told.radius_m - self.kind.margin_m / 2 + 0.01
        phase = ""
        if radius_m > room_m:
            phase = "grown"
        elif distance_m(incident.told.centre, centre) + radius_m > room_m:
            phase = "moved"
        elif (slot - incident.told_slot) * self.kind.interval_s >= self.kind.valid_s / 2:
            phase = "lasting"
        if phase:
            incident.told, incident.told_slot = Circle(centre, radius_m + self.kind.margin_m), slot
            self.said.append((phase, incident.id, slot))

    def clear(self, slot: int) -> None:
        for incident in sorted(self.living, key=lambda one: (one.raised, one.id)):
            quiet_s = (slot - incident.hot) * self.kind.interval_s
            if incident.hot < slot and quiet_s >= self.kind.clear_after_s:
                self.living.remove(incident)
                self.said.append(("cleared", incident.id, slot))
