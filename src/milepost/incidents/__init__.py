"""Incidents: from cells to incidents and alerts, and the conditions around a place (M21-M25)."""

from milepost.incidents.bins import Weights
from milepost.incidents.engine import maybe_alert
from milepost.incidents.tracker import Dropped, IncidentCounts, Incidents, Limits

__all__ = ["Dropped", "IncidentCounts", "Incidents", "Limits", "Weights", "maybe_alert"]
