"""Bins, incidents and what becomes of them; and the answer to "what is going on around here?" (M23-M25)."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from typing import NewType

from milepost.model.areas import Circle
from milepost.model.areas.circle import check_distance
from milepost.model.incidents.cells import Tally
from milepost.model.incidents.grid import Square
from milepost.model.instants import Instant
from milepost.model.places import Place

IncidentId = NewType("IncidentId", str)
"""KIND-SLOT-ROW-COLUMN: where and when it was first hot, so that the same cells give the same id wherever they are looked at."""


@dataclass(frozen=True, slots=True)
class Bin:
    """The reports of the 3 x 3 squares around one, over the last slots."""

    square: Square
    reports: int
    witnesses: int
    weight: float
    """The witnesses, each counted by how far it is believed."""
    centre: Place
    """The mean of the reports."""
    radius_m: float
    """Half the diagonal of the box around them, never under the kind's minimum."""
    first_at: Instant
    last_at: Instant
    tallies: Mapping[str, Tally]

    @property
    def rank(self) -> tuple[float, int, Square]:
        """The lesser, the greater the bin: by witnesses, then reports, then the lowest square."""
        return -self.weight, -self.reports, self.square


class Phase(Enum):
    """What became of an incident."""

    EARLY = "early"
    """It will be raised if its place is still hot when the slot has ended: told live, and no change that is counted."""
    RAISED = "raised"
    MOVED = "moved"
    GROWN = "grown"
    LASTING = "lasting"
    """It is as it was, and is said again before what was said is no longer valid."""
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Incident:
    """Hot bins that touch, of which one leads; the same id as long as it lives."""

    id: IncidentId
    kind: str
    centre: Place
    """Of the bin that leads."""
    radius_m: float
    """From there all bins are within it."""
    reports: int
    """Of the bin that leads, like the two that follow."""
    witnesses: int
    weight: float
    squares: frozenset[Square]
    """Those whose bins were hot, when last any was."""
    raised_at: Instant
    hot_at: Instant
    """When last it was hot."""
    told: Circle
    """Who was told last."""
    told_at: Instant

    def __post_init__(self) -> None:
        check_distance("radius_m", self.radius_m)

    @property
    def circle(self) -> Circle:
        """Where it is."""
        return Circle(self.centre, self.radius_m)


@dataclass(frozen=True, slots=True)
class Change:
    """Something that became of an incident, at the end of a slot."""

    phase: Phase
    incident: Incident
    at: Instant


@dataclass(frozen=True, slots=True)
class Warned:
    """A place that was told of early, and what it came to."""

    incident: Incident
    """As it was then."""
    slot: int
    """When it has ended, it is known what it comes to."""
    heir: IncidentId | None = None
    """The incident that speaks for it since; nothing while that is not known."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """What is known of one kind in an area."""

    kind: str
    incidents: tuple[Incident, ...]
    """Those that touch the area, the oldest first."""
    bin: Bin | None
    """The hottest that touches the area; nothing if nobody reported anything there."""
    is_hot: bool
    """Whether the predicate is true of that bin."""


@dataclass(frozen=True, slots=True)
class State:
    """What `Incidents` cannot find out again from the cells of the last slots: to go on from after a restart."""

    slots: Mapping[str, int]
    """The last slot that was looked at, by kind."""
    incidents: tuple[Incident, ...]
