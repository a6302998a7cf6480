"""Counts: what happened at the centre, so that nothing disappears unnoticed."""

from collections import Counter
from dataclasses import dataclass, field
from enum import Enum


class Drop(Enum):
    """Why a record was not dealt with, or not whole."""

    UNREADABLE = "unreadable"
    """No JSON, or not what a record looks like."""
    FALSE = "false"
    """It speaks for a site whose log it does not stand in."""
    ENDPOINT_UNKNOWN = "endpoint unknown"
    """Addressed to an endpoint that no site has."""
    SITE_UNKNOWN = "site unknown"
    """For an edge of a site that this centre does not join."""
    REGISTER_FULL = "register full"
    """A claim for which there was no room."""
    TOO_OLD = "too old"
    """Of a move: what was said before it could not be read again."""


@dataclass(slots=True)
class Counts:
    """Totals since the start."""

    copied: Counter[tuple[str, str]] = field(default_factory=Counter)
    """Messages and letters, by the sites they went from and to."""
    repeated: int = 0
    """Records that were there already, and not copied again."""
    dropped: Counter[Drop] = field(default_factory=Counter)
    moves_started: int = 0
    """Handovers between sites."""
    moves_finished: int = 0
    """Handovers between sites that were taken."""
    extras: int = 0
    """Messages that went to an endpoint on the move alone."""
    claims_told: int = 0
    """Times that an edge was told that its endpoint is elsewhere."""
    questions_answered: int = 0
    """Times that an edge was told where an endpoint was before."""
