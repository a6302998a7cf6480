"""Counters of an edge, so that no message is lost unnoticed."""

from collections import Counter
from dataclasses import dataclass, field

from milepost.model.reasons import Reason


@dataclass(slots=True)
class BrokerCounters:
    """Totals since the start."""

    accepted: int = 0
    """Messages accepted."""
    delivered: int = 0
    """Messages passed to a listener, counted once for each receiver."""
    refused: Counter[Reason] = field(default_factory=Counter)
    """Refusals, by reason."""
    dropped: Counter[Reason] = field(default_factory=Counter)
    """Messages accepted but not delivered, by reason, once for each receiver."""
    sessions_opened: int = 0
    sessions_resumed: int = 0
    sessions_replaced: int = 0
    """Sessions that ended because a client with another, stronger or equal identity opened a new one."""
    reports: int = 0
    """Reports accepted."""
    reports_outside: int = 0
    """Accepted reports from outside the coverage."""
    faults: int = 0
    """Internal errors that cost a connection."""
