"""Events as reported by endpoints, and their cells: the reference definition for everything that makes cells."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from milepost.incidents import Incidents
from milepost.model.incidents import TALLY_PARTS, Cell, CellKey, EventKind, Extent, IncidentChange, Tally
from milepost.model.incidents.witnesses import witnesses_of
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved

HOME = Place(40.7608, -111.891)
NOON = Instant(1_893_499_200 * SECOND_NS)
"""A slot of every kind begins here."""


@dataclass(frozen=True)
class Event:
    """The parts of a report that go into cells."""

    endpoint: str
    place: Place
    seen_at: Instant
    fields: Mapping[str, float] = field(default_factory=dict)


def after(seconds: float) -> Instant:
    return Instant(NOON + round(seconds * SECOND_NS))


def away(north_m: float = 0.0, east_m: float = 0.0, of: Place = HOME) -> Place:
    return moved(moved(of, 0.0, north_m), 90.0, east_m)


def events(count: int, place: Place = HOME, seconds: float = 1.0, witnesses: int = 0) -> list[Event]:
    """Return reports of one place, by different endpoints or by *witnesses* of them in turn."""
    return [Event(f"car-{number % (witnesses or count)}", place, after(seconds)) for number in range(count)]


def cells_of(kind: EventKind, found: Iterable[Event]) -> list[Cell]:
    """Return the cells of events."""
    gathered: dict[CellKey, list[Event]] = defaultdict(list)
    for event in found:
        slot = event.seen_at // kind.interval_ns
        gathered[CellKey(kind.name, slot, kind.grid.locate(event.place).square)].append(event)
    return [cell_of(kind, key, some) for key, some in gathered.items()]


def cell_of(kind: EventKind, key: CellKey, some: Sequence[Event]) -> Cell:
    spots = [kind.grid.locate(event.place) for event in some]
    norths, easts = [spot.north for spot in spots], [spot.east for spot in spots]
    values: dict[str, list[int]] = defaultdict(list)
    for event in some:
        for name, value in event.fields.items():
            values[name].append(int(value * TALLY_PARTS))
    return Cell(
        *key,
        reports=len(some),
        witnesses=witnesses_of(event.endpoint for event in some),
        north_sum=sum(norths),
        east_sum=sum(easts),
        extent=Extent(min(norths), min(easts), max(norths), max(easts)),
        first_at=min(event.seen_at for event in some),
        last_at=max(event.seen_at for event in some),
        tallies={name: Tally(len(all_), sum(all_), min(all_), max(all_)) for name, all_ in values.items()},
    )


def incidents_from(kind: EventKind, found: Iterable[Event], **options: object) -> Incidents:
    """Return incidents of one kind with all cells added and no slot evaluated."""
    incidents = Incidents([kind], **options)  # type: ignore[arg-type]
    for cell in cells_of(kind, found):
        assert incidents.add(cell) is None
    return incidents


def phases_at(changes: Iterable[IncidentChange]) -> list[tuple[str, float]]:
    """Return phases with their times in seconds after noon."""
    return [(change.phase.value, (change.at - NOON) / SECOND_NS) for change in changes]
