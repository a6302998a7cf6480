"""What reputation looks at, what it finds, and what it says.

    reports, event messages ─▶ SIGHT_ROW ─▶ parts of a minute ─▶ EVIDENCE_ROW ─▶ ledger ─▶ REPUTATION_ROW

A part is all that was seen in one minute of some endpoints (to judge each by itself), or in one square (to judge them by each
other). `docs/reference/reputation.md` has the record.
"""

from enum import StrEnum
from typing import Final

MINUTE_US: Final = 60_000_000
LEAD_US: Final = 30_000_000
"""So much of the minute before is looked at with each: what happens at its start is known by what was before."""
SIDE_M: Final = 500.0
"""Of the squares in which endpoints are judged by each other."""

SIGHT_ROW: Final = """
    endpoint string, seen_at_us bigint, latitude double, longitude double, heading_deg double, speed_mps double, verdict int,
    kind string
"""
"""A report, or with a kind an event that an endpoint says there is."""

EVIDENCE_ROW: Final = "minute bigint, endpoint string, what string, count double"
"""So often something was found of an endpoint in a minute."""

REPUTATION_ROW: Final = "endpoint string, score double, at_us bigint, reasons array<struct<what: string, count: bigint>>"


class What(StrEnum):
    """What is found of endpoints; the first four only say how much there was to judge by."""

    REPORTS = "reports"
    MOVES = "moves"
    PLACES = "places"
    """Small squares that were judged by whether there is a way."""
    CONFIRMED = "confirmed"
    """Events that others reported too."""
    FLOOD = "flood"
    """Reports over what an endpoint may send in a minute."""
    REFUSED = "refused"
    """Reports that an edge did not let in, for another reason than those two below."""
    IMPOSSIBLE_MOVE = "impossible_move"
    """Refused because nothing moves so."""
    MISFIT = "misfit"
    """Moves that do not fit the speed and heading that were said."""
    STANDS_STILL = "stands_still"
    """No move at all at a speed that was said."""
    SUDDEN_STOP = "sudden_stop"
    """More than brakes can do."""
    DRIVEN_THROUGH = "driven_through"
    """Others that passed through where it says to stand."""
    OVERLAP = "overlap"
    """Seconds in the place of another that moves too."""
    IN_STEP = "in_step"
    """Others that moved exactly as it did."""
    REPLAY = "replay"
    """Places in which another was before, to the decimetre, on and on."""
    OFF_WAYS = "off_ways"
    """Small squares in which nobody else drives."""
    CONTRADICTED = "contradicted"
    """Events that nobody else reported, though others passed."""


GROUNDS: Final = frozenset({What.REPORTS, What.MOVES, What.PLACES, What.CONFIRMED})
