"""From reports to incidents: squares and cells, the rules of each kind of event, bins, and active incidents (M21-M25)."""

from milepost.model.incidents.cells import TALLIES_MAX, TALLY_PARTS, WITNESSES_MAX, Cell, CellKey, Extent, Tally
from milepost.model.incidents.grid import METRES_A_UNIT, Grid, Spot, Square
from milepost.model.incidents.incidents import Bin, Change, Conditions, Incident, IncidentId, Phase, State, Warned
from milepost.model.incidents.kinds import EVENT_KINDS, EventKind
from milepost.model.incidents.predicates import BadPredicate, Predicate, fields_of, holds, parse_predicate, reports_at_least

__all__ = [
    "EVENT_KINDS",
    "METRES_A_UNIT",
    "TALLIES_MAX",
    "TALLY_PARTS",
    "WITNESSES_MAX",
    "BadPredicate",
    "Bin",
    "Cell",
    "CellKey",
    "Change",
    "Conditions",
    "EventKind",
    "Extent",
    "Grid",
    "Incident",
    "IncidentId",
    "Phase",
    "Predicate",
    "Spot",
    "Square",
    "State",
    "Tally",
    "Warned",
    "fields_of",
    "holds",
    "parse_predicate",
    "reports_at_least",
]
