"""Spark pipelines: messages and reports become hazard cells, positions, reputations, an archive and proof of coverage."""
