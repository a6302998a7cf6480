"""Plans: the topics, the transform and the sink of a streaming query; the runner chooses the log, the mode and the batches.

    log rows (LOG_ROW) ─▶ transform ─▶ rows for the log (OUT_ROW), or `batch_sink`, batch by batch

A pipeline is one file or a small package: its schemas, its plans, and its DataFrame transforms.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import DataFrame

OUT_ROW: Final = "topic string, key string, value string"
"""A record for the log. A record repeated after a restart must be identical, or recognisable as a duplicate by readers."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One streaming query."""

    name: str
    """Name of its checkpoint folder, metrics and progress line."""
    topics: tuple[str, ...]
    """Topics of the site's log."""
    state_version: int
    """Version of the state; a change starts the query anew, with a new checkpoint folder."""
    transform: Callable[[DataFrame], DataFrame]
    output: Literal["append", "update"] = "update"
    is_urgent: bool = False
    """Whether the query may run in real-time mode: Kafka to Kafka, without Python."""
    interval_s_min: float = 0.0
    """Minimum time between batch starts, where the settings ask for less: fewer batches update a key of the state less often."""
    batch_sink: Callable[[DataFrame, int], None] | None = None
    """Sink in place of the log, called with each batch and its number; a batch may be repeated."""
