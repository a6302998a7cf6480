"""Micro-batch and real-time mode on one checkpoint, and the status of a query in both."""

import json
import urllib.request
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from time import monotonic

import pytest
from pyspark.sql import SparkSession

from live.pipelines.drivers import driver
from live.pipelines.logs import SiteLog, wait_until
from live.pipelines.test_hazards import recent_sightings
from live.pipelines.test_running import KINDS
from milepost.config.errors import StartFault
from milepost.incidents.engine import CELLS
from milepost.model.instants import SECOND_NS, Instant
from milepost.pipelines.checkpoints import find_checkpoint
from milepost.pipelines.hazards import plans
from milepost.pipelines.records import MESSAGES_TOPIC
from milepost.pipelines.runner import Runner, checkpoint_of
from milepost.pipelines.settings import BatchSettings, Mode, PipelineSettings
from milepost.pipelines.spark_settings import CHECKPOINT_FORMAT
from milepost.runtime.pipeline_status import EndOffsets, QueryStatus, status_of
from milepost.runtime.pipelines import checked_checkpoints
from milepost.runtime.services.ports import free_ports
from unit.pipelines.hazards_oracle import expected_cells

(PLAN,) = plans(PipelineSettings(kinds=KINDS, allowed_lateness_s=600.0))
HOUR_NS = 3_600 * SECOND_NS


class Running:
    """The hazards query in one mode, until it is stopped."""

    def __init__(self, session: SparkSession, site: SiteLog, folder: Path, mode: Mode) -> None:
        batches = BatchSettings(mode=mode, alert_interval_s=0.0, real_time_batch_s=5.0, restarts_max=0)
        self.events: list[str] = []
        self._site = site
        self._ends = EndOffsets()
        self._runner = Runner(session, site.source, [PLAN], batches, folder=str(folder), on_event=self._note)
        self._runner.start(monotonic())

    def _note(self, event: str, _: object, why: str) -> None:
        self.events.append(f"{event}: {why}")

    def status(self) -> QueryStatus:
        self._runner.tick(monotonic())
        assert not self._runner.is_given_up, self.events
        self._ends.add(monotonic(), {MESSAGES_TOPIC: self._site.log.ends(MESSAGES_TOPIC)[1]})
        return status_of(self._runner.queries[0], self._ends, monotonic())

    @property
    def rows(self) -> int:
        return self._runner.queries[0].totals.rows

    def wait_for_batch(self) -> None:
        """Wait until a batch has ended, and all records were read."""
        end = self._site.log.ends(MESSAGES_TOPIC)[1]
        wait_until(lambda: self._position() == {MESSAGES_TOPIC: end}, "a batch ends")

    def _position(self) -> Mapping[str, int]:
        self.status()
        progress = self._runner.queries[0].progress
        return {} if progress is None else progress.positions

    def stop(self) -> None:
        self._runner.stop()


def made(site: SiteLog) -> SiteLog:
    for topic in (MESSAGES_TOPIC, CELLS):
        site.log.make(topic, None)
    return site


@pytest.mark.parametrize("first", [Mode.MICRO_BATCH, Mode.REAL_TIME])
def test_modes_alternate_on_one_checkpoint_and_cells_are_those_of_an_undisturbed_run(
    spark: SparkSession, on_kafka: SiteLog, tmp_path: Path, first: Mode
) -> None:
    site, found = made(on_kafka), recent_sightings(300)
    modes = [first, Mode.REAL_TIME if first is Mode.MICRO_BATCH else Mode.MICRO_BATCH, first]
    for step, mode in enumerate(modes):
        running = Running(spark, site, tmp_path, mode)
        site.append_sightings(found[step * 100 : step * 100 + 100])
        expected = expected_cells(KINDS, found[: step * 100 + 100])
        wait_until(lambda run=running, cells=expected: run.status().fault == "" and site.cells() == cells, f"{mode} continues")  # type: ignore[misc]
        running.wait_for_batch()
        running.stop()
    checkpoint = find_checkpoint(Path(checkpoint_of(str(tmp_path), PLAN)))
    assert checkpoint is not None
    assert (checkpoint.format_version, checkpoint.partitions) == (2, 2)


def test_real_time_mode_refuses_state_that_spark_wrote_in_an_older_format(
    spark: SparkSession, on_kafka: SiteLog, tmp_path: Path
) -> None:
    site = made(on_kafka)
    spark.conf.set(CHECKPOINT_FORMAT, "1")
    try:
        running = Running(spark, site, tmp_path, Mode.MICRO_BATCH)
        site.append_sightings(recent_sightings(10))
        running.wait_for_batch()
        running.stop()
    finally:
        spark.conf.set(CHECKPOINT_FORMAT, "2")
    with pytest.raises(StartFault, match="checkpoint format 1, but real-time mode needs 2"):
        checked_checkpoints(str(tmp_path), [PLAN], ["hazards"])


@pytest.mark.parametrize("mode", [Mode.MICRO_BATCH, Mode.REAL_TIME])
def test_late_rows_of_all_batches_are_counted_in_both_modes(
    spark: SparkSession, on_kafka: SiteLog, tmp_path: Path, mode: Mode
) -> None:
    site, found = made(on_kafka), recent_sightings(60)
    late = [replace(one, seen_at=Instant(one.seen_at - HOUR_NS)) for one in found]
    running = Running(spark, site, tmp_path, mode)
    counts = []
    for part in (found, found[:1], late, late):
        site.append_sightings(part)
        running.wait_for_batch()
        counts.append(running.status().late_rows)
    running.stop()
    assert counts[:2] == [0, 0]
    assert 0 < counts[2] <= sum(kind.topic == one.topic for one in late for kind in KINDS)
    assert counts[3] == 2 * counts[2], "the rows of both batches"
    assert running.rows == 181


def test_lag_is_true_inside_a_batch_of_minutes_and_sparks_ui_answers_on_loopback(on_kafka: SiteLog, tmp_path: Path) -> None:
    (port,) = free_ports(1)
    ui = ("--conf", "spark.ui.enabled=true", "--conf", f"spark.ui.port={port}")
    with driver(on_kafka, tmp_path / "driver", "hazards", *ui, pipelines="real_time_batch_s = 300.0") as process:
        process.start()
        on_kafka.append_sightings(recent_sightings(100))
        wait_until(lambda: process.status()[0]["rows"] == 100, "the records of the first batch are counted", seconds=120)
        (found,) = process.status()
        assert (found["mode"], found["batch"], found["lag"]) == ("real-time", 0, 0), "the batch has not ended"
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/v1/applications", timeout=60) as answer:
            assert [one["name"] for one in json.load(answer)] == ["milepost-north"]
        assert listeners_of(port) == {"0100007F"}
        assert process.stop() == 0


def listeners_of(port: int) -> set[str]:
    """Return the IPv4 addresses, in hexadecimal, at which a TCP port listens."""
    lines = [line.split() for name in ("tcp", "tcp6") for line in Path(f"/proc/net/{name}").read_text().splitlines()[1:]]
    return {line[1].partition(":")[0][-8:] for line in lines if line[3] == "0A" and line[1].endswith(f":{port:04X}")}
