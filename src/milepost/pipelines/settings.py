"""Settings of a site's pipelines: their inputs and the pace of their queries. Does not import Spark."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.model.incidents import EVENT_KINDS, EventKind

REAL_TIME_S_MIN: Final = 5.0
"""Spark's minimum."""


class Mode(Enum):
    """Execution mode of queries."""

    AUTO = "auto"
    """Urgent queries in real-time mode where the log supports it, the others in micro-batches."""
    REAL_TIME = "real-time"
    """Like AUTO, but a log without support is a fault."""
    MICRO_BATCH = "micro-batch"


@dataclass(frozen=True, slots=True)
class Pace:
    """How often batches start, and how large they are."""

    mode: Mode = Mode.AUTO
    urgent_s: float = 0.1
    """Minimum time between batch starts of urgent queries."""
    other_s: float = 2.0
    real_time_s: float = 300.0
    """Length of a batch in real-time mode: after a crash this much is read again."""
    records_max: int = 20_000
    """Maximum records per batch."""
    restarts_max: int = 100

    def __post_init__(self) -> None:
        if self.real_time_s < REAL_TIME_S_MIN:
            raise ValueError(f"real_time_s is {self.real_time_s:g}: Spark takes {REAL_TIME_S_MIN:g} or more")
        if self.records_max < 1:
            raise ValueError("records_max is 0: a batch has at least one record")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings of all pipelines; `kinds` are those of the site's incidents."""

    folder: str = "data/pipelines"
    """Parent folder of checkpoints and archive."""
    topics: tuple[str, ...] = ("#",)
    """Topic filters of the messages that pipelines receive."""
    late_s: float = 60.0
    """Allowed lateness of reports."""
    kinds: tuple[EventKind, ...] = EVENT_KINDS
