"""Plans: what a streaming query reads, makes of it, and where that goes; who runs them decides on what and how often.

    log rows (LOG_ROW) ─▶ transform ─▶ rows for the log (OUT_ROW), or `into`, batch by batch

A pipeline is a folder: `schema.py` its columns, `transform.py` functions from rows to rows, `job.py` its plans.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Literal

from pyspark.sql import DataFrame

OUT_ROW: Final = "topic string, key string, value string"
"""A record for the log. A record that is made again after a restart must be the same record, or one that readers know as such."""


@dataclass(frozen=True, slots=True)
class Plan:
    """One streaming query."""

    name: str
    """Of its folder of checkpoints, its figures and its line of progress."""
    topics: tuple[str, ...]
    """Of the site's log."""
    contract: int
    """Raised when what the query remembers changes its meaning: the query then begins anew, beside the old checkpoints."""
    transform: Callable[[DataFrame], DataFrame]
    output: Literal["append", "update"] = "update"
    is_urgent: bool = False
    """Whether it may run in real-time mode: Kafka to Kafka, without Python."""
    into: Callable[[DataFrame, int], None] | None = None
    """Takes each batch and its number, in place of the log; the same batch may come again."""
