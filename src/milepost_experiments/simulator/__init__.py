"""Simulation: the traffic of a city, driven by SUMO, and the observations from which the system's alerts are evaluated."""
