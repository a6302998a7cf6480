"""The time as a session is told it: UTC, and never back, so that no wait grows longer because a clock was set."""

from time import monotonic_ns, time_ns

from milepost.model.instants import Instant


class Clock:
    """Goes forward with the system's clock, and goes on while that is behind."""

    def __init__(self) -> None:
        self._ahead_ns = time_ns() - monotonic_ns()

    def now(self) -> Instant:
        """The time."""
        steady = monotonic_ns()
        self._ahead_ns = max(self._ahead_ns, time_ns() - steady)
        return Instant(steady + self._ahead_ns)
