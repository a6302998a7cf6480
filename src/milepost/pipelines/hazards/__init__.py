"""Hazards: what endpoints report of events, gathered into cells (M21-M23)."""
