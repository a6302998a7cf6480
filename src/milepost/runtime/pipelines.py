"""The process of a site's pipelines: `milepost pipeline run` here, or `milepost pipeline submit` on a Spark cluster.

    settings ─▶ log: topics, subscriptions ─▶ session ─▶ queries ─▶ ticks: watch, write the status … SIGTERM ─▶ queries stop
    spark-submit --master … --jars CONNECTOR --py-files milepost.zip --conf … milepost/__main__.py pipeline run NAME… --submitted

Invariant: a process that is killed at any moment loses nothing. Its input is in the log, its position in the checkpoints of its
folder. A submitted process has its driver here and its tasks on the cluster.
"""

import os
import re
import shlex
import signal
import sys
import zipfile
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from time import monotonic, time_ns
from typing import Final

import pyspark
from pyspark.sql import SparkSession

import milepost
from milepost.config.errors import STATUS_FAILED, StartFault, UsageFault
from milepost.config.settings import Settings
from milepost.config.site_settings import LogType
from milepost.eventlog.log import Log, LogRefused, LogUnavailable
from milepost.listeners.event_loop import EventLoop
from milepost.model.pipeline_records import PIPELINES
from milepost.pipelines.catalogue import PIPELINE_PLANS, TOPICS, plans_of
from milepost.pipelines.checkpoints import Checkpoint, find_checkpoint
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC
from milepost.pipelines.plan import Plan
from milepost.pipelines.runner import Runner, checkpoint_of, cores_needed, is_real_time
from milepost.pipelines.settings import Mode, PipelineSettings
from milepost.pipelines.sources import Source
from milepost.pipelines.sources.embedded import EmbeddedSource
from milepost.pipelines.sources.kafka import KafkaSource
from milepost.pipelines.spark_session import SPARK_ENDED, SparkDoesNotStart, open_session
from milepost.pipelines.spark_settings import DEFAULTS, JVM_OPTIONS, SHUFFLE_PARTITIONS, required_values
from milepost.runtime.monitoring import Monitoring
from milepost.runtime.pipeline_status import EndOffsets, PipelineMetrics, progress_line, status_of, write_status
from milepost.runtime.road_files import read_roads
from milepost.runtime.services.jars import find_java, kafka_jars
from milepost.runtime.site_logs import RefusedRecords, open_log, read_key_of, request_messages
from milepost.runtime.structured_log import StructuredLog
from milepost.runtime.terminal import print_error, print_line

TICK_S: Final = 1.0
PROGRESS_S: Final = 60.0
"""Interval of the progress line if standard error is not a terminal."""
EVERYTHING: Final = "all"
SPARK_LOG: Final = "spark.log"
"""The file in the folder of pipelines with the output of Spark itself since its last start."""
MASTER: Final = "spark.master"
_LOCAL: Final = re.compile(r"local\[([0-9]+)\]")


def run(settings: Settings, names: Sequence[str], *, conf: Mapping[str, str], is_submitted: bool) -> int:
    """Run pipelines until a signal; return the exit status. *conf* are settings of Spark from the command line.

    A submitted process has master and jars from `spark-submit`.
    """
    named = checked_names(names)
    plans = plans_of(named, pipeline_settings(settings, named))
    source = source_of(settings)
    if settings.pipelines.batches.mode is Mode.REAL_TIME and not source.is_real_time:
        raise UsageFault('[pipelines] mode = "real-time" needs [site] log = "kafka"; or set mode = "auto"')
    logger = StructuredLog(settings.log.level, settings.log.line_format)
    log = open_log(settings.site.log, settings.storage.durability, PIPELINES, RefusedRecords(logger))
    try:
        spark = {**settings.pipelines.spark, **conf}
        return PipelineService(settings, plans, source, log, logger).run(spark, is_submitted=is_submitted)
    finally:
        log.close()


def checked_names(names: Sequence[str]) -> list[str]:
    """Return the named pipelines without duplicates."""
    if unknown := next((name for name in names if name not in (*PIPELINE_PLANS, EVERYTHING)), None):
        raise UsageFault(f"there is no pipeline {unknown}; choose from {', '.join(PIPELINE_PLANS)}, or {EVERYTHING}")
    return [name for name in PIPELINE_PLANS if name in names or EVERYTHING in names]


def checked_checkpoints(folder: str, plans: Sequence[Plan], in_real_time: Collection[str]) -> dict[str, Checkpoint]:
    """Return the checkpoints of queries that have run before, by name; refuse one that cannot continue in real-time mode."""
    found = {}
    for plan in plans:
        checkpoint = find_checkpoint(Path(checkpoint_of(folder, plan)))
        if checkpoint is None:
            continue
        if plan.name in in_real_time and (fault := checkpoint.find_fault()):
            raise StartFault(f"query {plan.name} cannot continue: {fault}")
        found[plan.name] = checkpoint
    return found


def pipeline_settings(settings: Settings, names: Sequence[str]) -> PipelineSettings:
    """Return the settings for the named pipelines; only reputation reads the road network."""
    own = settings.pipelines
    incidents = settings.incidents
    return PipelineSettings(
        folder=own.folder,
        topics=own.topics,
        allowed_lateness_s=own.allowed_lateness_s,
        kinds=incidents.kinds,
        roads=read_roads(incidents.roads) if incidents.roads and "reputation" in names else None,
    )


def source_of(settings: Settings) -> Source:
    """Return the log of the site as Spark reads and writes it."""
    site = settings.site.log
    if not site.name:
        raise UsageFault("[site] has no name: pipelines need the log of a site; see milepost.example.toml")
    if site.log_type is LogType.EMBEDDED:
        return EmbeddedSource(Path(site.folder), settings.storage.durability, site.key)
    return KafkaSource(site.address, site.prefix, dict(one.split("=", 1) for one in site.options), read_key_of(site))


class PipelineService:
    """The queries of a process and their status."""

    def __init__(self, settings: Settings, plans: Sequence[Plan], source: Source, log: Log, logger: StructuredLog) -> None:
        self._settings = settings
        self._plans = plans
        self._source = source
        self._log = log
        self._logger = logger
        self._event_loop = EventLoop()
        self._metrics = PipelineMetrics()
        self._monitoring = Monitoring()
        self._monitoring.add_check("queries", self._metrics.check)
        self._monitoring.add_metrics(self._metrics.families)
        self._end_offsets = EndOffsets()
        self._logged_at = 0.0
        self._is_stopping = False

    def run(self, spark: Mapping[str, str], *, is_submitted: bool) -> int:
        """Run until a signal, or until no query is left; return the exit status. *spark* are the user's settings of Spark."""
        own = self._settings.pipelines
        lasting = [plan.name for plan in self._plans if is_real_time(plan, self._source, own.batches.mode)]
        checkpoints = checked_checkpoints(own.folder, self._plans, lasting)
        Path(own.folder).mkdir(parents=True, exist_ok=True)
        http = self._monitoring.listen(self._event_loop, own.http)
        try:
            for topic, topic_settings in TOPICS.items():
                self._log.make(topic, topic_settings)
            request_messages(self._log, self._settings.site.log.name, PIPELINES, own.topics)
        except (LogUnavailable, LogRefused) as fault:
            raise StartFault(f"the log of the site cannot be written: {fault}") from None
        session = self._open_session(spark, checkpoints, is_submitted=is_submitted)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: self._event_loop.call_soon(lambda _: self._begin_stop()))
        runner = Runner(session, self._source, self._plans, own.batches, folder=own.folder, on_event=self._log_query)
        try:
            runner.start(monotonic())
            self._write_status(runner)  # so that the status is there when "pipelines ready" is logged
            self._event_loop.call_every(TICK_S, lambda _: self._tick(runner))
            queries = " ".join(plan.name for plan in self._plans)
            self._logger.info("pipelines ready", site=self._settings.site.log.name, queries=queries, http=http)
            self._event_loop.run()
            self._stop(runner, session)
        except SPARK_ENDED:
            if not self._is_stopping:  # a signal to the whole process group ends Spark, too
                raise StartFault(f"Spark has exited, see {Path(own.folder) / SPARK_LOG}; start again to resume") from None
        self._monitoring.close()
        self._event_loop.close()
        self._logger.info("pipelines stopped", site=self._settings.site.log.name)
        return STATUS_FAILED if runner.is_given_up else 0

    def _begin_stop(self) -> None:
        self._is_stopping = True
        self._event_loop.stop()

    def _stop(self, runner: Runner, session: SparkSession) -> None:
        self._monitoring.is_stopping = True
        runner.stop()
        self._write_status(runner)
        session.stop()

    def _open_session(
        self, spark: Mapping[str, str], checkpoints: Mapping[str, Checkpoint], *, is_submitted: bool
    ) -> SparkSession:
        own = self._settings.pipelines
        name = app_name(self._settings)
        try:
            if is_submitted:
                return open_session(name, settings=spark)
            find_java()
            jars: list[Path] = []
            if self._source.is_real_time:
                jars = kafka_jars(version=own.connector, progress=lambda line: self._logger.info("connector", progress=line))
            settings = {"spark.driver.memory": own.memory, SHUFFLE_PARTITIONS: str(own.partitions), **spark}
            partitions = self._partitions(int(settings[SHUFFLE_PARTITIONS]), checkpoints)
            cores = cores_needed(self._plans, self._source, own.batches, partitions=partitions)
            master = local_master(spark.get(MASTER), cores)
            return open_session(name, master=master, jars=jars, settings=settings, log_file=Path(own.folder) / SPARK_LOG)
        except ValueError as fault:
            raise UsageFault(f"Spark's settings: {fault}") from None
        except SparkDoesNotStart as fault:
            raise StartFault(str(fault)) from None

    def _partitions(self, configured: int, checkpoints: Mapping[str, Checkpoint]) -> dict[str, int]:
        """Return the shuffle partitions of each query: those of its first batch, which Spark keeps without a word."""
        kept = {name: one.partitions for name, one in checkpoints.items() if one.partitions not in (None, configured)}
        for name, partitions in kept.items():
            self._logger.warning("partitions stay as in the checkpoint", query=name, partitions=partitions, configured=configured)
        return {plan.name: kept.get(plan.name) or configured for plan in self._plans}

    def _tick(self, runner: Runner) -> None:
        runner.tick(monotonic())
        self._write_status(runner)
        self._show_progress(progress_line(self._metrics.latest))
        if runner.is_given_up:
            self._logger.error("all queries have failed")
            self._event_loop.stop()

    def _write_status(self, runner: Runner) -> None:
        """Write the status of all queries."""
        ends, now_s = self._ends(), monotonic()
        self._end_offsets.add(now_s, ends)
        latest = self._metrics.latest = [status_of(one, self._end_offsets, now_s) for one in runner.queries]
        dead_letters = self._metrics.dead_letters = ends.get(DEAD_LETTERS_TOPIC)
        folder, site = self._settings.pipelines.folder, self._settings.site.log.name
        write_status(folder, site=site, at_ns=time_ns(), queries=latest, dead_letters=dead_letters)

    def _ends(self) -> dict[str, int]:
        """Return the end offsets of all topics; empty while the log is unavailable."""
        topics = {DEAD_LETTERS_TOPIC, *(topic for plan in self._plans for topic in plan.topics)}
        try:
            return {topic: self._log.ends(topic)[1] for topic in topics}
        except LogUnavailable:
            return {}

    def _show_progress(self, line: str) -> None:
        if sys.stderr.isatty():
            sys.stderr.write(f"\r\x1b[K{line}")
            sys.stderr.flush()
        elif monotonic() >= self._logged_at + PROGRESS_S:
            self._logged_at = monotonic()
            self._logger.info("progress", queries=line)

    def _log_query(self, event: str, plan: Plan, why: str) -> None:
        log = self._logger.info if event == "query runs" else self._logger.warning
        log(event, query=plan.name, reason=why)


def app_name(settings: Settings) -> str:
    """Return the name of the process in Spark."""
    return f"milepost-{settings.site.log.name}"


def local_master(chosen: str | None, cores: int) -> str:
    """Return the master on this machine, with a thread for each of *cores* tasks; raise a ValueError for one with too few."""
    if chosen is None:
        return f"local[{max(os.cpu_count() or 1, cores)}]"
    threads = _LOCAL.fullmatch(chosen)
    if threads is None:
        raise ValueError(f'"{MASTER}" is "{chosen}": give "local[NUMBER]", or run `milepost pipeline submit` for a cluster')
    if int(threads[1]) < cores:
        raise ValueError(f'"{MASTER}" is "{chosen}", but the queries have {cores} simultaneous tasks; give "local[{cores}]"')
    return chosen


def submit(
    settings: Settings,
    config: Path,
    names: Sequence[str],
    *,
    master: str,
    conf: Mapping[str, str],
    more: Sequence[str],
    is_shown_only: bool,
) -> int:
    """Print the spark-submit command, and become it unless it is only shown; return the exit status."""
    if not source_of(settings).is_real_time:
        raise UsageFault('[site] log = "embedded": a cluster cannot read a log in a folder of this machine; use log = "kafka"')
    line = submit_line(settings, config, checked_names(names), master=master, conf=conf, more=more)
    print_line(shlex.join(line))
    if not is_shown_only:
        sys.stdout.flush()
        os.execv(line[0], line)  # not a child process: a signal to this one ends Spark
    return 0


def submit_line(
    settings: Settings, config: Path, names: Sequence[str], *, master: str, conf: Mapping[str, str], more: Sequence[str]
) -> list[str]:
    """Return the spark-submit command for pipelines. The driver adds defaults, so that those of the cluster win over them."""
    own = settings.pipelines
    jars = kafka_jars(version=own.connector, progress=print_error)
    configuration = {
        JVM_OPTIONS: DEFAULTS[JVM_OPTIONS].value,  # read when Java starts, before the driver
        SHUFFLE_PARTITIONS: str(own.partitions),
        "spark.pyspark.driver.python": sys.executable,
        "spark.pyspark.python": sys.executable,
        **own.spark,
        **conf,
        **required_values(),
    }
    options = [part for name, value in configuration.items() for part in ("--conf", f"{name}={value}")]
    return [
        str(_spark_submit()),
        *("--master", master),
        *("--deploy-mode", "client"),
        *("--name", app_name(settings)),
        *("--driver-memory", own.memory),
        *("--jars", ",".join(map(str, jars))),
        *("--py-files", str(_packed(Path(own.folder)))),
        *options,
        *more,
        str(Path(milepost.__file__).parent / "__main__.py"),
        *("pipeline", "run", *names),
        *("--config", str(config), "--submitted"),
    ]


def _spark_submit() -> Path:
    return Path(pyspark.__file__).parent / "bin" / "spark-submit"


def _packed(folder: Path) -> Path:
    """Pack the package for the machines of the cluster."""
    folder.mkdir(parents=True, exist_ok=True)
    path, root = folder / "milepost.zip", Path(milepost.__file__).parent
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as packed:
        for file in sorted(root.rglob("*")):
            if file.is_file() and "__pycache__" not in file.parts:
                packed.write(file, file.relative_to(root.parent))
    return path
