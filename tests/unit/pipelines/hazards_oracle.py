"""The reference model of hazards, in plain Python: cells of events by the definition in `unit.incidents.events`."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from milepost.model.incidents import Cell, CellKey, EventKind
from milepost.model.incidents.predicates import fields_of
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.pipelines.hazards import FIELD_MAX
from unit.incidents.events import Event, cells_of


@dataclass(frozen=True)
class Sighting:
    """A message that reports an event."""

    topic: str
    endpoint: str
    place: Place
    seen_at: Instant
    fields: dict[str, float] = field(default_factory=dict)


def expected_cells(kinds: Iterable[EventKind], sightings: Sequence[Sighting]) -> dict[CellKey, Cell]:
    """Return the cells of all sightings, in whatever order they arrive."""
    found: dict[CellKey, Cell] = {}
    for kind in kinds:
        used = fields_of(kind.condition)
        events = [
            Event(
                one.endpoint,
                one.place,
                Instant(one.seen_at // 1000 * 1000),
                {name: value for name, value in one.fields.items() if name in used and abs(value) <= FIELD_MAX},
            )
            for one in sightings
            if one.topic == kind.topic
        ]
        found |= {cell.key: cell for cell in cells_of(kind, events)}
    return found


def last_of(cells: Iterable[Cell]) -> dict[CellKey, Cell]:
    """Return the valid version of each cell, of all versions that were published."""
    found: dict[CellKey, Cell] = {}
    for cell in cells:
        cell = replace(cell, tallies=dict(cell.tallies))  # a plain dict, as in the oracle
        if cell.key not in found or cell.is_after(found[cell.key]):
            found[cell.key] = cell
    return found
