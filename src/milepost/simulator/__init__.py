"""Rehearsal: the traffic of a town, driven by SUMO, and the books by which is judged what the system made of it."""
