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

from milepost.client.transport import Draw, jitter
from milepost.client.udp.encryption import AcceptedHandshake, Channel
from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reports import Report
from milepost.model.retry import RetryPolicy

LEAD_NS_MAX: Final = SECOND_NS
"""Maximum lead of a report over the clock for it to count in the order of reports."""


class LastPosition:
    """The last report, and its repetition.

    Invariant: each report sent is later than the one before, or the edge would ignore it; but one that was ahead of the clock
    does not shift those after it.
    """

    def __init__(self) -> None:
        self._report: Report | None = None
        self._last_sent_at = BEGINNING

    @property
    def place(self) -> Place:
        """The last reported place."""
        return self._last_report.place

    def set(self, report: Report) -> None:
        """Store a new report of the application."""
        self._report = report

    def next_report(self, seen_at: Instant, now: Instant) -> Report:
        """Return the report to send: without a new one, the endpoint is still at its last place."""
        report = replace(self._last_report, seen_at=Instant(max(seen_at, self._last_sent_at + 1)))
        self._last_sent_at = min(report.seen_at, Instant(now + LEAD_NS_MAX))
        return report

    @property
    def _last_report(self) -> Report:
        assert self._report is not None, "a session begins with a report"
        return self._report


HEARTBEAT_INTERVALS: Final = 3
"""Maximum reporting intervals between two HEARTBEATs of an edge."""

MISSED_HEARTBEATS_MAX: Final = 3
"""Missed HEARTBEATs after which the edge counts as unreachable."""

STABLE_NS: Final = 5_000_000_000
"""Duration after which a session counts as stable: back-off then restarts."""

INTERVAL_NS_MIN: Final = 20_000_000
"""Minimum reporting interval, even if the edge requests a shorter one."""

_FIRST_REPEAT_S: Final = 0.3


class OpenSession:
    """A session that the edge accepted."""

    def __init__(self, accepted: AcceptedHandshake, now: Instant, draw: Draw) -> None:
        keys_ns = accepted.acknowledge.keys_ns
        self.channel: Channel = accepted.channel
        self.cells = accepted.acknowledge.cells
        """The grid of multicast groups for messages to an area."""
        self.opened_at = now
        self.renew_at = FOREVER if keys_ns is None else Instant(now + keys_ns * 2 // 3)
        """When to request new keys."""
        self.keys_expire_at = FOREVER if keys_ns is None else Instant(now + keys_ns)
        """When the keys expire."""
        self.report_at = now
        self._heartbeat_at = FOREVER
        self._draw = draw
        self._interval_ns = max(INTERVAL_NS_MIN, accepted.acknowledge.reporting_interval_ns)
        self._until_first_answer = RetryPolicy(_FIRST_REPEAT_S, self._interval_ns / SECOND_NS, spread=0.25)
        self._has_received = False
        self._reports = 0
        self.timeout_at = self._timeout_after(now)

    @property
    def next_at(self) -> Instant:
        """When the next timer is due."""
        return min(self.renew_at, self.keys_expire_at, self.report_at, self._heartbeat_at, self.timeout_at)

    def on_received(self, now: Instant) -> None:
        """Record that a datagram of the edge arrived."""
        self._has_received = True
        self.timeout_at = self._timeout_after(now)

    def on_report_sent(self, now: Instant) -> None:
        """Record that a report was sent."""
        wait = self._interval_ns
        if not self._has_received:
            wait = min(wait, self._until_first_answer.wait_ns(self._reports, jitter(self._draw)))
        self._reports += 1
        self.report_at = Instant(now + wait)
        self._heartbeat_at = Instant(now + self._interval_ns // 2)

    def is_heartbeat_due(self, now: Instant) -> bool:
        """Return whether a HEARTBEAT is due; true once per report."""
        is_due = now >= self._heartbeat_at
        self._heartbeat_at = FOREVER if is_due else self._heartbeat_at
        return is_due

    def is_stable(self, now: Instant) -> bool:
        """Return whether the session is stable."""
        return now - self.opened_at >= STABLE_NS

    def _timeout_after(self, now: Instant) -> Instant:
        return Instant(now + MISSED_HEARTBEATS_MAX * HEARTBEAT_INTERVALS * self._interval_ns)
