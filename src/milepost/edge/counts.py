"""Counts: what happened at an edge, so that nothing disappears unnoticed."""

from collections import Counter
from dataclasses import dataclass, field

from milepost.model.reasons import Reason


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    accepted: int = 0
    """Messages let in."""
    delivered: int = 0
    """Messages handed to a door, counted once for each receiver."""
    refused: Counter[Reason] = field(default_factory=Counter)
    """What was not let in, by reason."""
    dropped: Counter[Reason] = field(default_factory=Counter)
    """What was let in and did not reach a receiver, by reason, once for each receiver."""
    sessions_opened: int = 0
    sessions_resumed: int = 0
    reports: int = 0
    """Reports let in."""
    reports_outside: int = 0
    """Of these, those from outside the coverage."""
    faults: int = 0
    """Faults of ours that cost a connection."""
