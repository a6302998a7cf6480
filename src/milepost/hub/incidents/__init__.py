"""From cells to incidents, and from what becomes of them to alerts; and what is going on around a place (M21-M25)."""

from milepost.hub.incidents.alerts import maybe_alert
from milepost.hub.incidents.bins import Weights
from milepost.hub.incidents.incidents import IncidentCounts, Incidents
from milepost.hub.incidents.ledger import Dropped, Limits

__all__ = ["Dropped", "IncidentCounts", "Incidents", "Limits", "Weights", "maybe_alert"]
