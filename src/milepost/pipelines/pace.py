"""How queries run: in which mode, how often, how much at a time, and how often again after a failure."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

REAL_TIME_S_MIN: Final = 5.0
"""Spark takes no less."""


class Mode(Enum):
    """How queries run."""

    AUTO = "auto"
    """Urgent ones in real-time mode where the log allows it, the others batch by batch."""
    REAL_TIME = "real-time"
    """The same, and a log that does not allow it is a fault."""
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often queries look, and how much they take."""

    mode: Mode = Mode.AUTO
    urgent_s: float = 0.1
    """Batches of urgent queries begin no sooner one after the other."""
    other_s: float = 2.0
    real_time_s: float = 300.0
    """How long a batch lasts in real-time mode: after a crash so much is read again."""
    records_max: int = 20_000
    """A batch has no more."""
    restarts_max: int = 100

    def __post_init__(self) -> None:
        if self.real_time_s < REAL_TIME_S_MIN:
            raise ValueError(f"real_time_s is {self.real_time_s:g}: Spark takes {REAL_TIME_S_MIN:g} or more")
        if self.records_max < 1:
            raise ValueError("records_max is 0: a batch has at least one record")
