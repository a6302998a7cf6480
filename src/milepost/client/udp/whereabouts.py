"""Where the endpoint is, as it last said, and how that is said again.

What must hold: each report that goes out is later than the one before, or the edge would pass over it; but one that was ahead of
the clock does not pull those after it along.
"""

from dataclasses import replace
from typing import Final

from milepost.model.instants import BEGINNING, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reports import Report

AHEAD_NS: Final = SECOND_NS
"""So far ahead of the clock a report counts as being in order."""


class Whereabouts:
    """The last report."""

    def __init__(self) -> None:
        self._report: Report | None = None
        self._said_at = BEGINNING

    @property
    def place(self) -> Place:
        """Where the endpoint is."""
        return self._known.place

    def change(self, report: Report) -> None:
        """The endpoint is elsewhere."""
        self._report = report

    def as_of(self, seen_at: Instant, now: Instant) -> Report:
        """The report to be sent: that it is still there is what an endpoint says by saying nothing else."""
        said = replace(self._known, seen_at=Instant(max(seen_at, self._said_at + 1)))
        self._said_at = min(said.seen_at, Instant(now + AHEAD_NS))
        return said

    @property
    def _known(self) -> Report:
        assert self._report is not None, "a session begins with a report"
        return self._report
