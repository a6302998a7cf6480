"""Honest traffic, and what an edge and the pipeline of reputation make of what is said in it."""
