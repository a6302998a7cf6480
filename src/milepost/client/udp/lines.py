"""An open session: its channel, and what is due when.

What must hold:
- a report goes out at least every reporting interval; until the edge was heard, sooner, for a session is pending there until the
  first report arrived, and that one may be lost like any other;
- half an interval after each report goes a HEARTBEAT: an edge ends a session after three intervals in silence, and where a fifth
  of all datagrams is lost, three in a row soon are;
- the edge is silent if it was not heard for three times as long as it may take to say HEARTBEAT.
"""

from typing import Final

from milepost.client.udp.seals import Channel, Opened
from milepost.client.udp.waits import Draw, wait_ns
from milepost.model.instants import FOREVER, Instant

HEARTBEAT_INTERVALS: Final = 3
"""An edge says HEARTBEAT at least every so many reporting intervals."""

SILENCES: Final = 3
"""So many of those in silence, and the edge is away."""

SETTLED_NS: Final = 5_000_000_000
"""A session that lasts so long was a good one."""

INTERVAL_NS_MIN: Final = 20_000_000
"""Nobody has to report more often, whatever the edge asks for."""

_UNHEARD_NS: Final = 300_000_000


class Line:
    """A session that the edge acknowledged."""

    def __init__(self, opened: Opened, now: Instant, draw: Draw) -> None:
        keys_ns = opened.said.keys_ns
        self.channel: Channel = opened.channel
        self.cells = opened.said.cells
        """Where messages to an area are multicast."""
        self.opened_at = now
        self.renew_at = FOREVER if keys_ns is None else Instant(now + keys_ns * 2 // 3)
        """When to ask for new keys."""
        self.worn_at = FOREVER if keys_ns is None else Instant(now + keys_ns)
        """When the keys are not good any more."""
        self.report_at = now
        self._alive_at = FOREVER
        self._draw = draw
        self._interval_ns = max(INTERVAL_NS_MIN, opened.said.reporting_interval_ns)
        self._is_heard = False
        self._reports = 0
        self.silent_at = self._silent_after(now)

    @property
    def next_at(self) -> Instant:
        """When something is due."""
        return min(self.renew_at, self.worn_at, self.report_at, self._alive_at, self.silent_at)

    def heard(self, now: Instant) -> None:
        """The edge said something."""
        self._is_heard = True
        self.silent_at = self._silent_after(now)

    def reported(self, now: Instant) -> None:
        """A report was sent."""
        wait = self._interval_ns
        if not self._is_heard:
            wait = min(wait, wait_ns(_UNHEARD_NS, self._interval_ns, self._reports, self._draw))
        self._reports += 1
        self.report_at = Instant(now + wait)
        self._alive_at = Instant(now + self._interval_ns // 2)

    def is_alive_due(self, now: Instant) -> bool:
        """Whether it is time to say HEARTBEAT; once for each report."""
        is_due = now >= self._alive_at
        self._alive_at = FOREVER if is_due else self._alive_at
        return is_due

    def is_settled(self, now: Instant) -> bool:
        """Whether it has lasted."""
        return now - self.opened_at >= SETTLED_NS

    def _silent_after(self, now: Instant) -> Instant:
        return Instant(now + SILENCES * HEARTBEAT_INTERVALS * self._interval_ns)
