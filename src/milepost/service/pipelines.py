"""`milepost pipeline run`: the pipelines of a site in one process, from its settings to the last batch.

settings ─▶ log: topics, what is wanted of edges ─▶ session ─▶ queries ─▶ turns: watch, tell … SIGTERM ─▶ queries stop

What must hold: killed at any moment it loses nothing. What it reads is in the log, how far it is in its folder of checkpoints.
"""

import os
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from time import monotonic, time_ns
from typing import Final

from pyspark.sql import SparkSession

from milepost.backbone.log import Log, LogUnavailable
from milepost.doors.asking import HttpEntrance
from milepost.doors.listening import Listener, listen_at
from milepost.doors.turns import Turns
from milepost.model.telling import PIPELINES
from milepost.pipelines.catalogue import JOBS, TOPICS, plans_of
from milepost.pipelines.pace import Mode
from milepost.pipelines.plans import Plan
from milepost.pipelines.running import Runner, cores_needed
from milepost.pipelines.session import SPARK_ENDED, SparkDoesNotStart, open_session
from milepost.pipelines.settings import PipelineSettings
from milepost.pipelines.sources.embedded import EmbeddedSource
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.pipelines.sources.source import Source
from milepost.service.addresses import host_and_port
from milepost.service.faults import STATUS_FAILED, StartFault, UsageFault, cannot_listen
from milepost.service.logs import Log as Told
from milepost.service.pipeline_figures import PipelineFigures, figures_of, progress_line, write_status
from milepost.service.services.spark_jars import kafka_jars
from milepost.service.settings import Settings
from milepost.service.site_logs import open_log
from milepost.service.site_settings import Backbone
from milepost.service.wanting import have_brought

TICK_S: Final = 1.0
TELL_S: Final = 60.0
"""So often the line of progress is written where it cannot be written over."""
EVERYTHING: Final = "all"
WORDS: Final = "spark.log"
"""In the folder of pipelines: what Spark itself has printed since its last start."""


def run(settings: Settings, names: Sequence[str], *, is_submitted: bool) -> int:
    """Run pipelines until told to stop; gives the exit status. If submitted, master and jars are what `spark-submit` was told."""
    plans = plans_of(checked_names(names), pipeline_settings(settings))
    source = source_of(settings)
    if settings.pipelines.pace.mode is Mode.REAL_TIME and not source.is_real_time:
        raise UsageFault('[pipelines] mode is "real-time", which needs Kafka; take "auto"')
    told = Told(settings.log.level, settings.log.line_format)
    log = open_log(settings.site.log, settings.keep.survives, PIPELINES)
    try:
        return PipelineService(settings, plans, source, log, told).run(is_submitted=is_submitted)
    finally:
        log.close()


def checked_names(names: Sequence[str]) -> list[str]:
    """The pipelines that are meant, each once."""
    if unknown := next((name for name in names if name not in (*JOBS, EVERYTHING)), None):
        raise UsageFault(f"there is no pipeline {unknown}; there are {', '.join(JOBS)}, and {EVERYTHING}")
    return [name for name in JOBS if name in names or EVERYTHING in names]


def pipeline_settings(settings: Settings) -> PipelineSettings:
    """What pipelines are told."""
    ours = settings.pipelines
    return PipelineSettings(folder=ours.folder, topics=ours.topics, late_s=ours.late_s, kinds=settings.incidents.kinds)


def source_of(settings: Settings) -> Source:
    """What pipelines read and write."""
    site = settings.site.log
    if not site.name:
        raise UsageFault("[site] has no name: pipelines are those of a site; see milepost.example.toml")
    if site.backbone is Backbone.EMBEDDED:
        return EmbeddedSource(Path(site.folder), settings.keep.survives)
    return KafkaSource(site.address, site.prefix, dict(one.split("=", 1) for one in site.options))


class PipelineService:
    """The queries of a process, and what is told of them."""

    def __init__(self, settings: Settings, plans: Sequence[Plan], source: Source, log: Log, told: Told) -> None:
        self._settings = settings
        self._plans = plans
        self._source = source
        self._log = log
        self._told = told
        self._turns = Turns()
        self._figures = PipelineFigures()
        self._told_at = 0.0
        self._is_told_to_stop = False

    def run(self, *, is_submitted: bool) -> int:
        """Take turns until told to stop, or until no query is left."""
        ours = self._settings.pipelines
        Path(ours.folder).mkdir(parents=True, exist_ok=True)
        http = self._listen_for_questions()
        try:
            for topic, kept in TOPICS.items():
                self._log.make(topic, kept)
            have_brought(self._log, self._settings.site.log.name, ours.topics)
        except LogUnavailable as fault:
            raise StartFault(f"the log of the site cannot be written: {fault}") from None
        session = self._open_session(is_submitted=is_submitted)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._turns.call_soon(lambda _: self._begin_stop()))
        runner = Runner(session, self._source, self._plans, ours.pace, folder=ours.folder, tell=self._tell_of_query)
        try:
            runner.start(monotonic())
            self._note(runner)  # who asks right after they are ready is answered
            self._turns.every(TICK_S, lambda _: self._tick(runner))
            queries = " ".join(plan.name for plan in self._plans)
            self._told.info("pipelines ready", site=self._settings.site.log.name, queries=queries, http=http)
            self._turns.run()
            self._stop(runner, session)
        except SPARK_ENDED:
            if not self._is_told_to_stop:  # who stops a whole group of processes stops Spark beside us
                raise StartFault(f"Spark has ended, see {Path(ours.folder) / WORDS}; pipelines go on where they were") from None
        self._turns.close()
        self._told.info("pipelines stopped", site=self._settings.site.log.name)
        return STATUS_FAILED if runner.is_over else 0

    def _begin_stop(self) -> None:
        self._is_told_to_stop = True
        self._turns.stop()

    def _stop(self, runner: Runner, session: SparkSession) -> None:
        self._figures.is_stopping = True
        runner.stop()
        self._note(runner)
        session.stop()

    def _open_session(self, *, is_submitted: bool) -> SparkSession:
        ours = self._settings.pipelines
        name = f"milepost-{self._settings.site.log.name}"
        if is_submitted:
            return open_session(name)
        jars: list[Path] = []
        if self._source.is_real_time:
            jars = kafka_jars(version=ours.connector, told=lambda line: self._told.info("connector", said=line))
        cores = max(os.cpu_count() or 1, cores_needed(self._plans, self._source, ours.pace, partitions=ours.partitions))
        settings = {"spark.driver.memory": ours.memory, "spark.sql.shuffle.partitions": str(ours.partitions)}
        words = Path(ours.folder) / WORDS
        try:
            return open_session(name, master=f"local[{cores}]", jars=jars, settings=settings, words=words)
        except SparkDoesNotStart as fault:
            raise StartFault(str(fault)) from None

    def _listen_for_questions(self) -> str | None:
        address = self._settings.pipelines.http
        if not address:
            return None
        asking = HttpEntrance(self._turns, self._figures.answer)
        self._turns.every(1.0, asking.tick)
        try:
            return Listener(self._turns, listen_at(*host_and_port(address)), asking.take).address
        except OSError as error:
            raise cannot_listen(address, error) from None

    def _tick(self, runner: Runner) -> None:
        runner.tick(monotonic())
        self._note(runner)
        self._tell_progress(progress_line(self._figures.latest))
        if runner.is_over:
            self._told.error("no query is left")
            self._turns.stop()

    def _note(self, runner: Runner) -> None:
        """For who asks how they are."""
        ends = self._ends()
        latest = self._figures.latest = [figures_of(one, ends) for one in runner.queries]
        folder, site = self._settings.pipelines.folder, self._settings.site.log.name
        write_status(folder, site=site, at_ns=time_ns(), figures=latest)

    def _ends(self) -> dict[str, int]:
        """Where topics end; nothing is known of those of a log that is away."""
        try:
            return {topic: self._log.ends(topic)[1] for topic in {topic for plan in self._plans for topic in plan.topics}}
        except LogUnavailable:
            return {}

    def _tell_progress(self, line: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif monotonic() >= self._told_at + TELL_S:
            self._told_at = monotonic()
            self._told.info("progress", queries=line)

    def _tell_of_query(self, event: str, plan: Plan, why: str) -> None:
        tell = self._told.info if event == "query runs" else self._told.warning
        tell(event, query=plan.name, reason=why)
