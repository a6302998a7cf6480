"""Bins, incidents and their changes; and the current conditions in an area (M23-M25)."""

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
"""KIND-SLOT-ROW-COLUMN: when it was first hot, and the square of its first report: the same cells give the same id everywhere."""


@dataclass(frozen=True, slots=True)
class Bin:
    """Aggregate of the reports in the 3 x 3 squares around one, over the last slots."""

    square: Square
    reports: int
    witnesses: int
    weight: float
    """The sum of the witnesses' weights, each by its reputation."""
    centre: Place
    """The mean of the reports."""
    radius_m: float
    """Half the diagonal of the box around the reports, at least the kind's minimum."""
    first_at: Instant
    last_at: Instant
    tallies: Mapping[str, Tally]
    first_square: Square
    """The square of the first report; of several, the lowest."""

    @property
    def rank(self) -> tuple[float, int, Square]:
        """Sort key, largest bin first: by weight, then reports, then the lowest square."""
        return -self.weight, -self.reports, self.square


class IncidentPhase(Enum):
    """Kind of change of an incident."""

    EARLY = "early"
    """It will be raised if its place is still hot when the slot has ended: an early warning, not counted as a change."""
    RAISED = "raised"
    MOVED = "moved"
    GROWN = "grown"
    LASTING = "lasting"
    """It is unchanged; its alert is repeated before the last one expires."""
    CLEARED = "cleared"


@dataclass(frozen=True, slots=True)
class Incident:
    """A group of adjacent hot bins, one of which leads; the id stays the same while it is active."""

    id: IncidentId
    kind: str
    centre: Place
    """Centre of the leading bin."""
    radius_m: float
    """All bins are within this distance of the centre."""
    reports: int
    """Of the leading bin, like the next two."""
    witnesses: int
    weight: float
    squares: frozenset[Square]
    """Squares of the bins that were hot at `hot_at`."""
    raised_at: Instant
    hot_at: Instant
    """When it was last hot."""
    alert_area: Circle
    """Area of the last alert."""
    alerted_at: Instant

    def __post_init__(self) -> None:
        check_distance("radius_m", self.radius_m)

    @property
    def circle(self) -> Circle:
        """The area of the incident."""
        return Circle(self.centre, self.radius_m)


@dataclass(frozen=True, slots=True)
class IncidentChange:
    """A change of an incident, at the end of a slot."""

    phase: IncidentPhase
    incident: Incident
    at: Instant


@dataclass(frozen=True, slots=True)
class EarlyWarning:
    """An early warning and its outcome."""

    incident: Incident
    """The incident as announced."""
    slot: int
    """The outcome is known when this slot has ended."""
    successor: IncidentId | None = None
    """The incident that has replaced the warning; None while unknown."""


@dataclass(frozen=True, slots=True)
class Conditions:
    """Incidents and reports of one kind in an area."""

    kind: str
    incidents: tuple[Incident, ...]
    """Incidents that touch the area, the oldest first."""
    bin: Bin | None
    """The hottest bin that touches the area; None if there are no reports."""
    is_hot: bool
    """Whether the predicate holds for that bin."""


@dataclass(frozen=True, slots=True)
class TrackerState:
    """State of `Incidents` that cannot be recomputed from the cells of the last slots: needed to resume after a restart."""

    slots: Mapping[str, int]
    """The last evaluated slot, by kind."""
    incidents: tuple[Incident, ...]
