"""The counts of a batch that runs in real-time mode, from Spark's status store.

    executor: counters of tasks ─ heartbeat, every 10 s ─▶ driver: status store, by SQL execution ─▶ RunningBatch

Spark publishes the progress of a batch at its end, which in real-time mode is minutes away. Its counters of rows read and of rows
dropped by the watermark reach the driver with each heartbeat, and Spark's UI shows them. They have no public interface: this file
calls Spark's classes, and a version of Spark that has changed them yields no counts, never an error.
"""

import json
from dataclasses import dataclass, replace
from typing import Any, Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from milepost.pipelines.progress import RunningBatch, end_offsets

IDLE_S: Final = 25.0
"""Time without a change after which a query counts as idle: over two heartbeats."""

_SCAN: Final = "RealTimeStreamScanExec"
_READ: Final = "numOutputRows"
_DROPPED: Final = "numRowsDroppedByWatermark"
_EXECUTIONS: Final = 50
"""Maximum executions among which that of the batch is looked for: one starts for each batch of any query."""


@dataclass(frozen=True, slots=True)
class _Counters:
    """The counters of one batch, by the ids of Spark's accumulators."""

    batch: int
    execution: int
    read: tuple[int, ...]
    dropped: tuple[int, ...]
    started_at: dict[str, int]


class RunningBatchReader:
    """Reads the counts of the running batch of one query."""

    def __init__(self, session: SparkSession, prefix: str) -> None:
        self._store: Any = session._jsparkSession.sharedState().statusStore()
        self._prefix = prefix
        self._counters: _Counters | None = None
        self._latest: RunningBatch | None = None

    def read(self, query: StreamingQuery, now_s: float) -> RunningBatch | None:
        """Return the counts of the batch that runs; None: it has just started, or Spark does not have them."""
        try:
            counts = self._counts(query)
        except (Py4JError, PySparkException, ValueError):
            return None
        if counts is None:
            return None
        counters, rows, late_rows = counts
        latest = self._latest
        if latest is None or latest.number != counters.batch:
            self._latest = RunningBatch(counters.batch, rows, late_rows, counters.started_at, now_s)
        elif (latest.rows, latest.late_rows) != (rows, late_rows):
            rows_per_s = (rows - latest.rows) / max(now_s - latest.changed_at_s, 1.0)
            self._latest = replace(latest, rows=rows, late_rows=late_rows, changed_at_s=now_s, rows_per_s=rows_per_s)
        elif latest.rows_per_s and now_s > latest.changed_at_s + IDLE_S:
            self._latest = replace(latest, rows_per_s=0.0)
        return self._latest

    def _counts(self, query: StreamingQuery) -> tuple[_Counters, int, int] | None:
        execution = query._jsq.streamingQuery().lastExecution()
        if execution is None:
            return None
        batch: int = execution.currentBatchId()
        if self._counters is None or self._counters.batch != batch:
            self._counters = self._find_counters(execution.executedPlan(), batch)
        if self._counters is None:
            return None
        values = self._store.executionMetrics(self._counters.execution)
        return self._counters, _sum(values, self._counters.read), _sum(values, self._counters.dropped)

    def _find_counters(self, plan: Any, batch: int) -> _Counters | None:
        nodes = _nodes(plan)
        scans = [node for node in nodes if node.getClass().getSimpleName() == _SCAN]
        read = tuple(node.metrics().apply(_READ).id() for node in scans)
        dropped = tuple(node.metrics().apply(_DROPPED).id() for node in nodes if node.metrics().contains(_DROPPED))
        execution = self._find_execution(read)
        if execution is None:
            return None
        started_at = end_offsets([json.loads(node.start().json()) for node in scans], self._prefix)
        return _Counters(batch, execution, read, dropped, started_at)

    def _find_execution(self, counters: tuple[int, ...]) -> int | None:
        """Return the running SQL execution with these counters."""
        count = self._store.executionsCount()
        first = max(0, count - _EXECUTIONS)
        if not count:
            return None
        executions = self._store.executionsList(first, count - first)
        for at in reversed(range(executions.size())):
            one = executions.apply(at)
            if one.completionTime().isEmpty() and _has(one.metrics(), counters):
                found: int = one.executionId()
                return found
        return None


def _nodes(plan: Any) -> list[Any]:
    children = plan.children()
    return [plan, *(node for at in range(children.size()) for node in _nodes(children.apply(at)))]


def _has(metrics: Any, counters: tuple[int, ...]) -> bool:
    return any(metrics.apply(at).accumulatorId() in counters for at in range(metrics.size()))


def _sum(values: Any, counters: tuple[int, ...]) -> int:
    """Return the sum of counters that Spark has formatted for people, such as `1,234`."""
    texts = [values.get(counter) for counter in counters]
    return sum(int(text.get().replace(",", "")) for text in texts if text.isDefined())
