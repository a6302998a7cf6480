"""Simulation: the traffic of a town, driven by SUMO, and the observations by which the system's alerts are judged."""
