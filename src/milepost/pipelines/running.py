"""Running plans: several queries in one session, each watched, restarted when it fails, and stopped when all are.

What must hold:
- a query has one folder of checkpoints, named for its plan and contract, and one name by which the log knows its batches;
- one query's failure stops no other;
- real-time mode is taken for plans that allow it where the log does, unless told otherwise: the transform is the same.
"""

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.streaming.readwriter import DataStreamWriter

from milepost.pipelines.pace import Mode, Pace
from milepost.pipelines.plans import Plan
from milepost.pipelines.progress import Progress, progress_from_json
from milepost.pipelines.restarts import Restarts
from milepost.pipelines.sources.source import Source

FAULT_CHARACTERS_MAX: Final = 300

Tell = Callable[[str, Plan, str], None]
"""Takes what happened to a query, and why."""


def checkpoint_of(folder: str, plan: Plan) -> str:
    """Where a query remembers how far it is."""
    return str(Path(folder) / "checkpoints" / query_name(plan))


def query_name(plan: Plan) -> str:
    """By which the log knows its batches."""
    return f"{plan.name}-{plan.contract}"


def is_real_time(plan: Plan, source: Source, mode: Mode) -> bool:
    """Whether a plan runs in real-time mode."""
    may = plan.is_urgent and plan.into is None and source.is_real_time
    return may and mode is not Mode.MICRO_BATCH


class Running:
    """One query."""

    def __init__(self, plan: Plan, restarts: Restarts, *, is_real_time: bool) -> None:
        self.plan = plan
        self.restarts = restarts
        self.is_real_time = is_real_time
        self.progress: Progress | None = None
        self.query: StreamingQuery | None = None
        self.is_stopped = False

    @property
    def state(self) -> str:
        """In a word or two."""
        if self.is_stopped:
            return "stopped"
        if self.restarts.is_given_up:
            return "given up"
        return "waiting" if self.query is None else "running"


class Runner:
    """All queries of a process."""

    def __init__(
        self, session: SparkSession, source: Source, plans: Sequence[Plan], pace: Pace, *, folder: str, tell: Tell
    ) -> None:
        self._session = session
        self._source = source
        self._pace = pace
        self._folder = folder
        self._tell = tell
        self.queries = [
            Running(plan, Restarts(pace.restarts_max), is_real_time=is_real_time(plan, source, pace.mode)) for plan in plans
        ]

    @property
    def is_over(self) -> bool:
        """Whether no query is left."""
        return all(one.restarts.is_given_up for one in self.queries)

    def start(self, now_s: float) -> None:
        """Start all."""
        for one in self.queries:
            self._start(one, now_s)

    def tick(self, now_s: float) -> None:
        """Look after all: learn how far they are, start those again that failed and have waited."""
        for one in self.queries:
            if one.query is not None:
                self._look(one, one.query, now_s)
            elif one.restarts.is_due(now_s):
                one.restarts.started()
                self._start(one, now_s)

    def stop(self) -> None:
        """Stop all; what they have not finished comes again."""
        for one in self.queries:
            one.is_stopped = True
            if one.query is None:
                continue
            try:
                one.query.stop()
            except PySparkException as fault:  # the end of the session stops it
                self._tell("query did not stop at once", one.plan, _short(fault))

    def _start(self, one: Running, now_s: float) -> None:
        plan = one.plan
        try:
            one.query = self._made(one).queryName(plan.name).start()
        except PySparkException as fault:
            self._failed(one, _short(fault), now_s)
        else:
            self._tell("query runs", plan, "real-time" if one.is_real_time else "micro-batch")

    def _made(self, one: Running) -> DataStreamWriter:
        plan, pace = one.plan, self._pace
        limit = None if one.is_real_time else pace.records_max
        rows = plan.transform(self._source.stream(self._session, plan.topics, records_max=limit))
        sink = self._source.sink(rows, query_name(plan)) if plan.into is None else rows.writeStream.foreachBatch(plan.into)
        sink = sink.outputMode(plan.output).option("checkpointLocation", checkpoint_of(self._folder, plan))
        if one.is_real_time:
            in_real_time: DataStreamWriter = sink.trigger(realTime=_spelled(pace.real_time_s))  # type: ignore[call-overload]
            return in_real_time  # which PySpark's types do not know of yet
        return sink.trigger(processingTime=_spelled(pace.urgent_s if plan.is_urgent else pace.other_s))

    def _look(self, one: Running, query: StreamingQuery, now_s: float) -> None:
        if not query.isActive:
            fault = query.exception()
            one.query = None
            self._failed(one, "it ended" if fault is None else _short(fault), now_s)
            return
        told = query.lastProgress
        if told is None:
            return
        progress = progress_from_json(told.json, prefix=self._source.prefix)
        if one.progress is None or progress.batch != one.progress.batch:
            one.restarts.did_a_batch()
        one.progress = progress

    def _failed(self, one: Running, fault: str, now_s: float) -> None:
        one.restarts.failed(fault, now_s)
        self._tell("query given up" if one.restarts.is_given_up else "query failed, starts again", one.plan, fault)


def cores_needed(plans: Sequence[Plan], source: Source, pace: Pace, *, partitions: int) -> int:
    """Tasks that run at a time: those of real-time queries never end, and the others need room beside them."""
    lasting = [len(plan.topics) + partitions for plan in plans if is_real_time(plan, source, pace.mode)]
    others = partitions if len(lasting) < len(plans) else 0
    return max(2, sum(lasting) + others)


def _spelled(seconds: float) -> str:
    return f"{round(seconds * 1000)} milliseconds"


def _short(fault: Exception) -> str:
    """The first lines say what is wrong; the rest is Spark's own."""
    lines: Iterator[str] = (line.strip() for line in str(fault).splitlines())
    text = " ".join(line for line in lines if line and not line.startswith(("at ", "===")))
    return text.partition(" Identifier: ")[0][:FAULT_CHARACTERS_MAX]
