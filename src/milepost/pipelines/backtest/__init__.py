"""Backtests: what a rule would have said about traffic that is in the archive, and how two rules differ."""
