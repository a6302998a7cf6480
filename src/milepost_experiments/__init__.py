"""Experiments: the demo city, the evaluations of the papers and the load generators; not part of an installed edge."""
