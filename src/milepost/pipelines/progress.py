"""Progress of a query: the metrics of its batches, as Spark reports them, and their sums.

    micro-batch   recent progress, several batches for each tick ─▶ Totals
    real-time     a batch of minutes: reported at its end; while it runs, rows counted by its tasks ─▶ RunningBatch

Does not import Spark.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """Metrics of a finished batch."""

    batch: int
    rows: int
    rows_per_s: float
    """Rows processed per second."""
    took_s: float
    state_rows: int
    """Rows in the state store."""
    state_bytes: int
    late_rows: int
    """Rows of this batch dropped by the watermark."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """The offset of the next record, by topic name without prefix."""
    is_finished: bool = True
    """False: the query is idle, and the batch with this number has not begun."""


@dataclass(slots=True)
class Totals:
    """Sums over all batches of a query since its process has started."""

    batch: int | None = None
    """The last batch in the sums."""
    rows: int = 0
    late_rows: int = 0
    batches_missed: int = 0
    """Batches that Spark no longer had when they were to be added: the sums are too low by them."""

    def add(self, recent: Sequence[Progress]) -> None:
        """Add the batches of Spark's recent progress that are not in the sums yet; batches are numbered without gaps."""
        for one in recent:
            if self.batch is not None and one.batch <= self.batch:
                continue
            self.batches_missed += 0 if self.batch is None else one.batch - self.batch - 1
            self.batch = one.batch
            self.rows += one.rows
            self.late_rows += one.late_rows


@dataclass(frozen=True, slots=True)
class RunningBatch:
    """A batch in real-time mode that has not ended, as its tasks last reported it."""

    number: int
    rows: int
    """Records that it has read."""
    late_rows: int
    started_at: Mapping[str, int]
    """The offsets of its first records, by topic name without prefix."""
    changed_at_s: float
    """When the counts last changed, as they were read."""
    rows_per_s: float = 0.0
    """Records per second between the last two changes."""


def progress_from_json(text: str, *, prefix: str) -> Progress:
    """Return the metrics in the text of `StreamingQueryProgress.json`; *prefix* is removed from topic names."""
    report: dict[str, Any] = json.loads(text)
    operators: list[dict[str, Any]] = report.get("stateOperators", [])
    return Progress(
        batch=report["batchId"],
        rows=report.get("numInputRows", 0),
        rows_per_s=report.get("processedRowsPerSecond", 0.0),
        took_s=report.get("batchDuration", 0) / 1000,
        state_rows=sum(one.get("numRowsTotal", 0) for one in operators),
        state_bytes=sum(one.get("memoryUsedBytes", 0) for one in operators),
        late_rows=sum(one.get("numRowsDroppedByWatermark", 0) for one in operators),
        positions=end_offsets([source.get("endOffset") for source in report.get("sources", [])], prefix),
        is_finished="addBatch" in report.get("durationMs", {"addBatch": 0}),
    )


def end_offsets(sources: Sequence[object], prefix: str) -> dict[str, int]:
    """Return the offsets of several sources by topic; of topics in more than one, the highest."""
    found: dict[str, int] = {}
    for source in sources:
        for topic, offset in _offsets(source):
            name = topic.removeprefix(prefix)
            found[name] = max(found.get(name, 0), offset)
    return found


def _offsets(offsets: object) -> Iterator[tuple[str, int]]:
    """Yield topics and offsets. Kafka has partitions below topics, the embedded log has none; before the first batch: null."""
    for topic, where in offsets.items() if isinstance(offsets, dict) else ():
        if isinstance(where, dict):
            yield topic, sum(int(offset) for offset in where.values())
        else:
            yield topic, int(where)
