"""When a query that failed is started again: after a growing wait, so often in a row, and no more.

    state      it fails                             a batch is done          the wait is over
    fine       waiting, if it may start again       fine
    waiting                                                                  fine
    given up   (it does not run)

"In a row" ends with a batch that is done: a query that works again is as good as new, one that cannot do a batch is given up.
"""

from dataclasses import dataclass
from typing import Final

FIRST_WAIT_S: Final = 1.0
WAIT_S_MAX: Final = 60.0


@dataclass(slots=True)
class Restarts:
    """The failures of one query."""

    most: int
    """So often in a row it is started again."""
    in_a_row: int = 0
    total: int = 0
    fault: str = ""
    """The last one."""
    starts_at_s: float | None = None
    """When it is started again; nothing: it runs, or was given up."""
    is_given_up: bool = False

    def failed(self, fault: str, now_s: float) -> None:
        """It has failed: wait, or give it up."""
        self.fault = fault
        if self.in_a_row >= self.most:
            self.is_given_up = True
            return
        self.starts_at_s = now_s + min(WAIT_S_MAX, FIRST_WAIT_S * 2.0 ** min(self.in_a_row, 10))
        self.in_a_row += 1

    def is_due(self, now_s: float) -> bool:
        """Whether it is to be started now."""
        return self.starts_at_s is not None and now_s >= self.starts_at_s

    def started(self) -> None:
        """It runs again."""
        self.starts_at_s = None
        self.total += 1

    def did_a_batch(self) -> None:
        """What was wrong has passed."""
        self.in_a_row = 0
