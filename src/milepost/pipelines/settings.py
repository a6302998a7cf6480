"""Settings of a site's pipelines: their inputs, and the batches of their queries. Does not import Spark."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.roads.network import RoadNetwork

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
class BatchSettings:
    """How often batches start, and how large they are."""

    mode: Mode = Mode.AUTO
    alert_interval_s: float = 0.1
    """Minimum time between batch starts of urgent queries."""
    batch_interval_s: float = 2.0
    real_time_batch_s: float = 300.0
    """Length of a batch in real-time mode: after a crash this much is read again."""
    records_max: int = 200_000
    """Maximum records per batch, a tenth of it where a query reads `reports`, whose records hold up to 1,000 reports. A batch of
    this size takes longer than the interval of batches, so that a query with a backlog never waits for its next batch."""
    restarts_max: int = 100

    def __post_init__(self) -> None:
        if self.real_time_batch_s < REAL_TIME_S_MIN:
            raise ValueError(f"real_time_batch_s is {self.real_time_batch_s:g}: Spark's minimum is {REAL_TIME_S_MIN:g}")
        if self.records_max < 1:
            raise ValueError("records_max is 0: it must be at least 1")


@dataclass(frozen=True, slots=True)
class PipelineSettings:
    """Settings of all pipelines; `kinds` are those of the site's incidents."""

    folder: str = "data/pipelines"
    """Parent folder of checkpoints and archive."""
    topics: tuple[str, ...] = ("#",)
    """Topic filters of the messages that pipelines receive."""
    allowed_lateness_s: float = 60.0
    """Allowed lateness of reports."""
    kinds: tuple[EventKind, ...] = EVENT_KINDS
    roads: RoadNetwork | None = None
    """The road map of the site's incidents; `None`: reputation learns where endpoints drive."""
