"""An open session: its channel, its timers, and the last reported position.

Invariants:
- a report is sent at least every reporting interval; sooner until a datagram of the edge arrives, because the session is pending
  there until the first report, which may be lost like any other;
- half an interval after each report a HEARTBEAT is sent: an edge ends a session after three intervals of silence, and at 20 %
  datagram loss, three losses in a row soon occur;
- the edge counts as silent if nothing arrived for three times the interval of its own HEARTBEAT.
"""

from dataclasses import replace
from typing import Final

from milepost.client.carrier import Draw, jitter
from milepost.client.udp.seals import Channel, Opened
from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reports import Report
from milepost.model.retry import RetryPolicy

AHEAD_NS: Final = SECOND_NS
"""Maximum lead of a report over the clock for it to count in the order of reports."""


class LastPosition:
    """The last report, and its repetition.

    Invariant: each report sent is later than the one before, or the edge would ignore it; but one that was ahead of the clock
    does not shift those after it.
    """

    def __init__(self) -> None:
        self._report: Report | None = None
        self._said_at = BEGINNING

    @property
    def place(self) -> Place:
        """The last reported place."""
        return self._known.place

    def change(self, report: Report) -> None:
        """Store a new report of the application."""
        self._report = report

    def as_of(self, seen_at: Instant, now: Instant) -> Report:
        """Return the report to send: without a new one, the endpoint is still at its last place."""
        said = replace(self._known, seen_at=Instant(max(seen_at, self._said_at + 1)))
        self._said_at = min(said.seen_at, Instant(now + AHEAD_NS))
        return said

    @property
    def _known(self) -> Report:
        assert self._report is not None, "a session begins with a report"
        return self._report


HEARTBEAT_INTERVALS: Final = 3
"""Maximum reporting intervals between two HEARTBEATs of an edge."""

SILENCES: Final = 3
"""Missed HEARTBEATs after which the edge counts as unreachable."""

SETTLED_NS: Final = 5_000_000_000
"""Duration after which a session counts as stable: back-off then restarts."""

INTERVAL_NS_MIN: Final = 20_000_000
"""Minimum reporting interval, even if the edge requests a shorter one."""

_UNHEARD_FIRST_S: Final = 0.3


class OpenSession:
    """A session that the edge accepted."""

    def __init__(self, opened: Opened, now: Instant, draw: Draw) -> None:
        keys_ns = opened.said.keys_ns
        self.channel: Channel = opened.channel
        self.cells = opened.said.cells
        """The grid of multicast groups for messages to an area."""
        self.opened_at = now
        self.renew_at = FOREVER if keys_ns is None else Instant(now + keys_ns * 2 // 3)
        """When to request new keys."""
        self.worn_at = FOREVER if keys_ns is None else Instant(now + keys_ns)
        """When the keys expire."""
        self.report_at = now
        self._alive_at = FOREVER
        self._draw = draw
        self._interval_ns = max(INTERVAL_NS_MIN, opened.said.reporting_interval_ns)
        self._unheard = RetryPolicy(_UNHEARD_FIRST_S, self._interval_ns / SECOND_NS, spread=0.25)
        self._is_heard = False
        self._reports = 0
        self.silent_at = self._silent_after(now)

    @property
    def next_at(self) -> Instant:
        """When the next timer is due."""
        return min(self.renew_at, self.worn_at, self.report_at, self._alive_at, self.silent_at)

    def heard(self, now: Instant) -> None:
        """Record that a datagram of the edge arrived."""
        self._is_heard = True
        self.silent_at = self._silent_after(now)

    def reported(self, now: Instant) -> None:
        """Record that a report was sent."""
        wait = self._interval_ns
        if not self._is_heard:
            wait = min(wait, self._unheard.wait_ns(self._reports, jitter(self._draw)))
        self._reports += 1
        self.report_at = Instant(now + wait)
        self._alive_at = Instant(now + self._interval_ns // 2)

    def is_alive_due(self, now: Instant) -> bool:
        """Return whether a HEARTBEAT is due; true once per report."""
        is_due = now >= self._alive_at
        self._alive_at = FOREVER if is_due else self._alive_at
        return is_due

    def is_settled(self, now: Instant) -> bool:
        """Return whether the session is stable."""
        return now - self.opened_at >= SETTLED_NS

    def _silent_after(self, now: Instant) -> Instant:
        return Instant(now + SILENCES * HEARTBEAT_INTERVALS * self._interval_ns)
