"""The oracle of incidents: bins and incidents from reports with plain loops, without cells, sums and index."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import count
from math import cos, fsum, hypot, radians

from milepost.model.areas import Circle
from milepost.model.incidents import METRES_PER_UNIT, EventKind, Grid, Square
from milepost.model.incidents.witnesses import WitnessHash, witness_hash
from milepost.model.places import Place, distance_m
from unit.incidents.events import Event


def snapped(grid: Grid, place: Place) -> tuple[float, float]:
    """Return latitude and longitude in whole units, as reports are stored."""
    square, north, east = grid.locate(place)
    return (grid.south(square) + north) / 1e7 - 90.0, (grid.west(square) + east) / 1e7 - 180.0


@dataclass
class OracleBin:
    square: Square
    grid: Grid
    found: list[Event]
    weights: Mapping[WitnessHash, float]

    def rank(self) -> tuple[float, int, Square]:
        return -self.weight(), -len(self.found), self.square

    def witnesses(self) -> set[str]:
        return {event.endpoint for event in self.found}

    def weight(self) -> float:
        return fsum(self.weights.get(witness_hash(one), 1.0) for one in self.witnesses())

    def centre(self) -> Place:
        first, norths, easts = self.points()
        return Place(fsum(norths) / len(norths), (first + fsum(easts) / len(easts) + 180.0) % 360.0 - 180.0)

    def points(self) -> tuple[float, list[float], list[float]]:
        """Return points with longitudes relative to the first, so that the antimeridian is crossed once at most."""
        points = [snapped(self.grid, event.place) for event in self.found]
        first = points[0][1]
        return first, [point[0] for point in points], [(point[1] - first + 180.0) % 360.0 - 180.0 for point in points]

    def radius_m(self, least_m: float) -> float:
        _, norths, easts = self.points()
        high, wide = max(norths) - min(norths), max(easts) - min(easts)
        longitude_scale = cos(radians((max(norths) + min(norths)) / 2))
        return max(least_m, METRES_PER_UNIT * 1e7 * hypot(high, wide * longitude_scale) / 2)

    def values(self, field: str) -> list[float]:
        return [event.fields[field] for event in self.found if field in event.fields]


def bins_at(kind: EventKind, events: Sequence[Event], slot: int, weights: Mapping[WitnessHash, float]) -> list[OracleBin]:
    """Return the bins of a slot."""
    window = [event for event in events if slot - kind.slots < event.seen_at // kind.interval_ns <= slot]
    squares = sorted({kind.grid.locate(event.place).square for event in window})
    found = []
    for square in squares:
        block = kind.grid.block(square)
        near = [event for event in window if kind.grid.locate(event.place).square in block]
        found.append(OracleBin(square, kind.grid, near, weights))
    return found


def groups_of(kind: EventKind, hot: Sequence[OracleBin]) -> list[list[OracleBin]]:
    """Group bins: each belongs to the greatest it touches, transitively; leaders first, the greatest first."""

    def greatest_near(one: OracleBin) -> OracleBin:
        block = set(kind.grid.block(one.square))
        return min((other for other in hot if block & set(kind.grid.block(other.square))), key=OracleBin.rank)

    found: dict[Square, list[OracleBin]] = {}
    for one in sorted(hot, key=OracleBin.rank):
        leader = one
        while (above := greatest_near(leader)) is not leader:
            leader = above
        found.setdefault(leader.square, []).append(one)
    return list(found.values())


@dataclass
class OracleIncident:
    id: str
    raised: int
    squares: set[Square]
    hot: int
    alert_area: Circle
    alerted_slot: int


OracleChange = tuple[str, str, int]
"""Phase, id, slot."""


class IncidentOracle:
    """The life cycle of incidents of one kind, slot by slot."""

    def __init__(self, kind: EventKind, is_hot: Callable[[OracleBin], bool], weights: Mapping[WitnessHash, float]) -> None:
        self.kind = kind
        self.is_hot = is_hot
        self.weights = weights
        self.active: list[OracleIncident] = []
        self.changes: list[OracleChange] = []

    def run(self, events: Sequence[Event]) -> list[OracleChange]:
        """Evaluate slots from the first event until no incident is active and no window has an event.

        A bin may become hot without a new event: when an older event that kept it cold has left the window.
        """
        if not events:
            return []
        slots = [event.seen_at // self.kind.interval_ns for event in events]
        for slot in count(min(slots)):
            if slot >= max(slots) + self.kind.slots and not self.active:
                return self.changes
            self.evaluate_slot(events, slot)
        raise AssertionError

    def evaluate_slot(self, events: Sequence[Event], slot: int) -> None:
        hot = [one for one in bins_at(self.kind, events, slot, self.weights) if self.is_hot(one)]
        groups = groups_of(self.kind, hot)
        carried = self.matched(groups)
        for number, group in enumerate(groups):
            if number in carried:
                self.continue_incident(carried[number], group, slot)
            else:
                self.raise_new(group, groups, slot)
        for incident in self.active:
            if any(self.touch(incident, group) for group in groups):
                incident.hot = slot
        self.clear(slot)

    def matched(self, groups: Sequence[Sequence[OracleBin]]) -> dict[int, OracleIncident]:
        carried: dict[int, OracleIncident] = {}
        pairs = [
            (-len({one.square for one in group} & incident.squares), incident.raised, incident.id, number, incident)
            for number, group in enumerate(groups)
            for incident in self.active
            if self.touch(incident, group)
        ]
        for *_, number, incident in sorted(pairs, key=lambda pair: pair[:4]):
            if number not in carried and incident not in carried.values():
                carried[number] = incident
        return carried

    def touch(self, incident: OracleIncident, group: Sequence[OracleBin]) -> bool:
        reach = {near for square in incident.squares for near in self.kind.grid.block(square)}
        return any(near in reach for one in group for near in self.kind.grid.block(one.square))

    def circle(self, group: Sequence[OracleBin]) -> tuple[Place, float]:
        centre = group[0].centre()
        reaches = [distance_m(centre, one.centre()) + one.radius_m(self.kind.radius_m_min) for one in group]
        return centre, max(reaches)

    def first_square(self, group: Sequence[OracleBin], groups: Sequence[Sequence[OracleBin]]) -> Square:
        """Return the square of the first report of a bin, unless a greater bin of another group counts that report, too."""

        def is_own(event: Event) -> bool:
            bins = [(one.rank(), number) for number, some in enumerate(groups) for one in some if event in one.found]
            return groups[min(bins)[1]] is group

        firsts = [min(one.found, key=self.time_and_square) for one in group]
        return self.time_and_square(min(filter(is_own, firsts), key=self.time_and_square))[1]

    def time_and_square(self, event: Event) -> tuple[int, Square]:
        return event.seen_at, self.kind.grid.locate(event.place).square

    def raise_new(self, group: Sequence[OracleBin], groups: Sequence[Sequence[OracleBin]], slot: int) -> None:
        row, column = self.first_square(group, groups)
        centre, radius_m = self.circle(group)
        name = f"{self.kind.name}-{slot}-{row}-{column}"
        alert_area = Circle(centre, radius_m + self.kind.margin_m)
        self.active.append(OracleIncident(name, slot, {one.square for one in group}, slot, alert_area, slot))
        self.changes.append(("raised", name, slot))

    def continue_incident(self, incident: OracleIncident, group: Sequence[OracleBin], slot: int) -> None:
        centre, radius_m = self.circle(group)
        incident.squares = {one.square for one in group}
        room_m = incident.alert_area.radius_m - self.kind.margin_m / 2 + 0.01
        phase = ""
        if radius_m > room_m:
            phase = "grown"
        elif distance_m(incident.alert_area.centre, centre) + radius_m > room_m:
            phase = "moved"
        elif (slot - incident.alerted_slot) * self.kind.interval_s >= self.kind.valid_s / 2:
            phase = "lasting"
        if phase:
            incident.alert_area, incident.alerted_slot = Circle(centre, radius_m + self.kind.margin_m), slot
            self.changes.append((phase, incident.id, slot))

    def clear(self, slot: int) -> None:
        for incident in sorted(self.active, key=lambda one: (one.raised, one.id)):
            quiet_s = (slot - incident.hot) * self.kind.interval_s
            if incident.hot < slot and quiet_s >= self.kind.clear_after_s:
                self.active.remove(incident)
                self.changes.append(("cleared", incident.id, slot))
