"""Time windows: a start and an end, both inclusive, each of which may be open."""

from dataclasses import dataclass

from milepost.model.instants import BEGINNING, FOREVER, Instant, check_instant
from milepost.model.reasons import Malformed, Reason


@dataclass(frozen=True, slots=True)
class TimeWindow:
    """From `start` to `end`: into the past, into the future, or across the present (T3)."""

    start: Instant = BEGINNING
    end: Instant = FOREVER

    def __post_init__(self) -> None:
        if self.start != BEGINNING or not isinstance(self.start, int):
            check_instant("start", self.start)
        check_instant("end", self.end, may_be_forever=True)
        if self.end < self.start:
            raise Malformed(Reason.TIME_WINDOW_BACKWARDS, f"it ends {self.start - self.end} ns before it starts")

    def holds(self, instant: Instant) -> bool:
        """Return whether *instant* is in the time window."""
        return self.start <= instant <= self.end

    def is_over(self, now: Instant) -> bool:
        """Return whether the time window has ended (T7)."""
        return now > self.end


ALWAYS = TimeWindow()
