"""Incidents: from cells to incidents and alerts, and the conditions around a place (M21-M25)."""

from milepost.incidents.alerts import maybe_alert
from milepost.incidents.bins import Weights
from milepost.incidents.tracker import CellDropReason, IncidentCounts, IncidentLimits, Incidents

__all__ = ["CellDropReason", "IncidentCounts", "IncidentLimits", "Incidents", "Weights", "maybe_alert"]
