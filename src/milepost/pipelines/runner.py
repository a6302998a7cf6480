"""Run the queries of a process in one Spark session: monitor each, restart it when it fails, and stop it at the end.

    state      failure                              batch finished           wait over
    running    waiting, if it may be restarted      running
    waiting                                                                  running
    given up   (does not run)

*Invariants:*
- a query has one checkpoint folder, named after its plan and contract, and one name under which the log records its batches;
- the failure of one query stops no other. It is restarted with back-off, at most `restarts_max` times in a row; a finished
  batch resets the count;
- real-time mode is used where plan and log support it, unless configured otherwise: the transform is the same.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from milepost.model.pipeline_records import REPORTS
from milepost.model.retry import RetryPolicy
from milepost.pipelines.plan import Plan
from milepost.pipelines.progress import Progress, RunningBatch, Totals, progress_from_json
from milepost.pipelines.running_batch import RunningBatchReader
from milepost.pipelines.settings import BatchSettings, Mode
from milepost.pipelines.sources import Source

RESTART_POLICY: Final = RetryPolicy(first_s=1.0, limit_s=60.0)

REPORTS_WEIGHT: Final = 10
"""How many other records a record of reports counts for in the limit of a batch."""

FAULT_CHARACTERS_MAX: Final = 300

OnQueryEvent = Callable[[str, Plan, str], None]
"""Called with an event of a query, its plan, and the reason."""


@dataclass(slots=True)
class Restarts:
    """The failures of one query."""

    restarts_max: int
    """Maximum restarts in a row."""
    in_a_row: int = 0
    total: int = 0
    fault: str = ""
    """The last fault."""
    starts_at_s: float | None = None
    """When it is restarted; `None`: it runs, or was given up."""
    is_given_up: bool = False

    def failed(self, fault: str, now_s: float) -> None:
        """Record a failure: schedule a restart, or give the query up."""
        self.fault = fault
        if self.in_a_row >= self.restarts_max:
            self.is_given_up = True
            return
        self.starts_at_s = now_s + RESTART_POLICY.wait_s(self.in_a_row)
        self.in_a_row += 1

    def is_due(self, now_s: float) -> bool:
        """Return whether the query is due to be restarted."""
        return self.starts_at_s is not None and now_s >= self.starts_at_s

    def started(self) -> None:
        """Record that the query runs again."""
        self.starts_at_s = None
        self.total += 1

    def batch_finished(self) -> None:
        """Record a finished batch: it resets the failures in a row."""
        self.in_a_row = 0


class RunningQuery:
    """One query."""

    def __init__(self, plan: Plan, restarts: Restarts, *, is_real_time: bool) -> None:
        self.plan = plan
        self.restarts = restarts
        self.is_real_time = is_real_time
        self.progress: Progress | None = None
        """The last finished batch."""
        self.totals = Totals()
        self.running_batch: RunningBatch | None = None
        """In real-time mode: the batch that runs, if its counts are known."""
        self.query: StreamingQuery | None = None
        self.reader: RunningBatchReader | None = None
        self.is_stopped = False

    @property
    def state(self) -> str:
        """The state of the query, for the operator."""
        if self.is_stopped:
            return "stopped"
        if self.restarts.is_given_up:
            return "given up"
        return "waiting" if self.query is None else "running"


class Runner:
    """All queries of a process."""

    def __init__(
        self,
        session: SparkSession,
        source: Source,
        plans: Sequence[Plan],
        batches: BatchSettings,
        *,
        folder: str,
        on_event: OnQueryEvent,
    ) -> None:
        self._session = session
        self._source = source
        self._batches = batches
        self._folder = folder
        self._on_event = on_event
        self.queries = [
            RunningQuery(plan, Restarts(batches.restarts_max), is_real_time=is_real_time(plan, source, batches.mode))
            for plan in plans
        ]

    @property
    def is_given_up(self) -> bool:
        """Whether all queries were given up."""
        return all(one.restarts.is_given_up for one in self.queries)

    def start(self, now_s: float) -> None:
        """Start all queries."""
        for one in self.queries:
            self._start(one, now_s)

    def tick(self, now_s: float) -> None:
        """Read the progress of all queries, and restart those that failed and have waited."""
        for one in self.queries:
            if one.query is not None:
                self._check(one, one.query, now_s)
            elif one.restarts.is_due(now_s):
                one.restarts.started()
                self._start(one, now_s)

    def stop(self) -> None:
        """Stop all queries; an unfinished batch is repeated at the next start."""
        for one in self.queries:
            one.is_stopped = True
            if one.query is None:
                continue
            try:
                self._note_progress(one, one.query)
                one.query.stop()
            except PySparkException as fault:  # the end of the session will stop it
                self._on_event("query did not stop cleanly", one.plan, _fault_text(fault))

    def _start(self, one: RunningQuery, now_s: float) -> None:
        plan = one.plan
        one.reader = RunningBatchReader(self._session, self._source.prefix) if one.is_real_time else None
        try:
            one.query = self._build(one).queryName(plan.name).start()
        except PySparkException as fault:
            self._failed(one, _fault_text(fault), now_s)
        else:
            self._on_event("query runs", plan, "real-time" if one.is_real_time else "micro-batch")

    def _build(self, one: RunningQuery) -> DataStreamWriter:
        plan, batches = one.plan, self._batches
        limit = None if one.is_real_time else batch_limit(plan, batches.records_max)
        rows = plan.transform(self._source.stream(self._session, plan.topics, records_max=limit))
        sink = (
            self._source.sink(rows, query_name(plan))
            if plan.batch_sink is None
            else rows.writeStream.foreachBatch(plan.batch_sink)
        )
        sink = sink.outputMode(plan.output).option("checkpointLocation", checkpoint_of(self._folder, plan))
        if one.is_real_time:
            in_real_time: DataStreamWriter = sink.trigger(realTime=_milliseconds(batches.real_time_batch_s))  # type: ignore[call-overload]
            return in_real_time  # PySpark's type stubs lack realTime
        interval_s = batches.alert_interval_s if plan.is_urgent else batches.batch_interval_s
        return sink.trigger(processingTime=_milliseconds(max(interval_s, plan.interval_s_min)))

    def _check(self, one: RunningQuery, query: StreamingQuery, now_s: float) -> None:
        is_active = query.isActive
        self._note_progress(one, query)
        if not is_active:
            fault = query.exception()
            one.query = None
            one.running_batch = None
            self._failed(one, "the query ended without an error" if fault is None else _fault_text(fault), now_s)
            return
        batch = None if one.reader is None else one.reader.read(query, now_s)
        is_counted = batch is None or (one.totals.batch is not None and batch.number <= one.totals.batch)
        one.running_batch = None if is_counted else batch

    def _note_progress(self, one: RunningQuery, query: StreamingQuery) -> None:
        """Add the batches that have finished since the last call."""
        recent = [progress_from_json(text, prefix=self._source.prefix) for text in _progress_after(query, one.totals.batch)]
        finished = [progress for progress in recent if progress.is_finished]
        if not finished:
            return
        one.totals.add(finished)
        one.progress = finished[-1]
        one.restarts.batch_finished()

    def _failed(self, one: RunningQuery, fault: str, now_s: float) -> None:
        one.restarts.failed(fault, now_s)
        self._on_event("query given up" if one.restarts.is_given_up else "query failed, will be restarted", one.plan, fault)


def _progress_after(query: StreamingQuery, batch: int | None) -> list[str]:
    """Return the progress of the batches after *batch* that Spark still has; `recentProgress` would convert all of them."""
    recent = query._jsq.recentProgress()
    found: list[str] = []
    for at in reversed(range(len(recent))):
        if batch is not None and recent[at].batchId() <= batch:
            break
        found.insert(0, recent[at].json())
    return found


def checkpoint_of(folder: str, plan: Plan) -> str:
    """Return the checkpoint folder of a query."""
    return str(Path(folder) / "checkpoints" / query_name(plan))


def query_name(plan: Plan) -> str:
    """Return the name under which the log records the batches of a query."""
    return f"{plan.name}-{plan.state_version}"


def is_real_time(plan: Plan, source: Source, mode: Mode) -> bool:
    """Return whether a plan runs in real-time mode."""
    may = plan.is_urgent and plan.batch_sink is None and source.is_real_time
    return may and mode is not Mode.MICRO_BATCH


def batch_limit(plan: Plan, records_max: int) -> int:
    """Return the maximum records per batch of a plan; records of reports hold many rows each."""
    return max(1, records_max // REPORTS_WEIGHT) if REPORTS in plan.topics else records_max


def cores_needed(plans: Sequence[Plan], source: Source, batches: BatchSettings, *, partitions: Mapping[str, int]) -> int:
    """Return the number of simultaneous tasks that Spark must allow, given the shuffle partitions of each query.

    The tasks of a real-time query never end, and its batch fails unless all of them can start at once: so all tasks that others
    may run at that moment need slots beside them. A slot is a thread, not a core.
    """
    lasting = [plan for plan in plans if is_real_time(plan, source, batches.mode)]
    if not lasting:
        return max([2, *partitions.values()])
    others = [plan for plan in plans if plan not in lasting]
    reserved = sum(len(plan.topics) + partitions[plan.name] for plan in lasting)
    return reserved + sum(len(plan.topics) ** 2 + partitions[plan.name] for plan in others)


def _milliseconds(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"


def _fault_text(fault: Exception) -> str:
    """Return the text of a fault without Spark's stack trace, shortened."""
    lines: Iterator[str] = (line.strip() for line in str(fault).splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(("at ", "===")))
    return text.partition(" Identifier: ")[0][:FAULT_CHARACTERS_MAX]
