"""From reports to incidents: squares and cells, the rules of each kind of event, bins, and active incidents (M21-M25)."""

from milepost.model.incidents.cells import TALLIES_MAX, TALLY_PARTS, Cell, CellKey, Extent, Tally
from milepost.model.incidents.grid import METRES_PER_UNIT, Grid, GridPosition, Square
from milepost.model.incidents.incidents import (
    Bin,
    Conditions,
    EarlyWarning,
    Incident,
    IncidentChange,
    IncidentId,
    IncidentPhase,
    TrackerState,
)
from milepost.model.incidents.kinds import ALERT_TOPICS, EVENT_KINDS, EventKind
from milepost.model.incidents.predicates import BadPredicate, Predicate, fields_of, holds, min_reports, parse_predicate

__all__ = [
    "ALERT_TOPICS",
    "EVENT_KINDS",
    "METRES_PER_UNIT",
    "TALLIES_MAX",
    "TALLY_PARTS",
    "BadPredicate",
    "Bin",
    "Cell",
    "CellKey",
    "Conditions",
    "EarlyWarning",
    "EventKind",
    "Extent",
    "Grid",
    "GridPosition",
    "Incident",
    "IncidentChange",
    "IncidentId",
    "IncidentPhase",
    "Predicate",
    "Square",
    "Tally",
    "TrackerState",
    "fields_of",
    "holds",
    "min_reports",
    "parse_predicate",
]
