"""All pipelines in one process, killed with SIGKILL at random points while input flows: readers see the output of a run that
nothing disturbed, and the embedded log has no record twice.

PIPELINE_KILLS sets how often on each log, PIPELINE_SEED the seed of the input and of the kills.
"""

import os
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from effort import amount
from live.pipelines.drivers import START_S, Driver, driver
from live.pipelines.logs import SiteLog, kafka_site, wait_until
from live.pipelines.outputs import READERS, Output, differences, output_in_log, repeated, rows_in_archive
from live.pipelines.traffic import Piece, Traffic, draw_traffic
from milepost.pipelines.catalogue import PIPELINE_PLANS, TOPICS, plans_of
from milepost.pipelines.records import TOPICS as INPUT_TOPICS
from milepost.pipelines.settings import PipelineSettings
from milepost.runtime.services.kafka import Kafka

KILLS: Final = amount("PIPELINE_KILLS", fast=5, long=5, soak=25)
SEED: Final = int(os.environ.get("PIPELINE_SEED", "1"))
UP_S_MAX: Final = 8.0
"""Maximum time between the start of the queries and a kill."""
ROUND_S: Final = 15.0
"""Time in which the input of one round is appended: while the process starts, and until it is killed."""
SETTINGS: Final = "batch_interval_s = 0.2\nreal_time_batch_s = 5.0\nrecords_max = 1_000\n"
ARCHIVING: Final = {"archive-messages", "archive-reports", "archive-deliveries"}
"""The queries whose output is in the archive."""


def test_the_output_of_every_query_is_compared() -> None:
    plans = plans_of(list(PIPELINE_PLANS), PipelineSettings())
    assert set(READERS) == set(TOPICS) - set(INPUT_TOPICS), "add a rule for the new topic"
    assert {plan.name for plan in plans if plan.batch_sink is not None} == ARCHIVING, "compare the output of the new sink"


@pytest.fixture(scope="module")
def traffic() -> Traffic:
    return draw_traffic(SEED)


@pytest.fixture(scope="module")
def undisturbed(kafka: Kafka, traffic: Traffic, tmp_path_factory: pytest.TempPathFactory) -> Output:
    """The output of one process that is never killed; the kind of log makes no difference to it."""
    folder = tmp_path_factory.mktemp("undisturbed")
    site = kafka_site(kafka)
    with driver(site, folder / "driver", "all", pipelines=SETTINGS) as process:
        for piece in traffic.pieces:
            site.append(piece)
        process.start()
        close_input(site, process, traffic)
        assert process.stop() == 0
        found = {**output_in_log(site), **rows_in_archive(archive_of(process))}
    site.log.close()
    assert all(found.values()), f"no output: {[name for name, some in found.items() if not some]}"
    return found


def test_output_after_kills_at_random_points_equals_that_of_an_undisturbed_run(
    site: SiteLog, traffic: Traffic, undisturbed: Output, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    random, found = Random(SEED), dict[str, object]()
    with driver(site, tmp_path / "driver", "all", pipelines=SETTINGS) as process:
        with flowing(site, traffic.pieces, KILLS * ROUND_S):
            for _ in range(KILLS):
                process.start()
                time.sleep(random.uniform(0, UP_S_MAX))
                process.kill(java_first=random.random() < 0.5)
        process.start()
        close_input(site, process, traffic)

        def is_equal() -> bool:
            found.update(output_in_log(site), **rows_in_archive(archive_of(process)))
            return found == undisturbed

        try:
            wait_until(is_equal, "the output equals that of the undisturbed run", seconds=START_S)
        except AssertionError:
            raise AssertionError(differences(found, undisturbed)) from None
        assert process.stop() == 0
    assert sum(site.log.ends(topic)[1] for topic in INPUT_TOPICS) == traffic.count
    if "log = " not in site.table:
        assert repeated(site) == [], "a batch was appended twice"
    counts = {name: len(some) for name, some in undisturbed.items()}
    with capsys.disabled():
        print(f"\n{KILLS} kills, seed {SEED}, {traffic.count} records in, {counts} out", end="")


@contextmanager
def flowing(site: SiteLog, pieces: Sequence[Piece], seconds: float) -> Iterator[None]:
    """Append pieces in a thread, spread over *seconds*; all are appended at the end of the block."""
    faults: list[BaseException] = []
    is_over = threading.Event()

    def append() -> None:
        try:
            for piece in pieces:
                site.append(piece)
                is_over.wait(seconds / len(pieces))
        except BaseException as fault:  # noqa: BLE001  # raised again in the test's own thread
            faults.append(fault)

    feeder = threading.Thread(target=append, daemon=True)
    feeder.start()
    try:
        yield
    finally:
        is_over.set()
        feeder.join()
    assert not faults, faults


def close_input(site: SiteLog, process: Driver, traffic: Traffic) -> None:
    """Append the closing pieces, each when everything before it is read, and wait until all is read."""
    for piece in traffic.closing_pieces:
        wait_until_read(process)
        site.append(piece)
    wait_until_read(process)


def wait_until_read(process: Driver) -> None:
    """Wait until the micro-batch queries have read all that the log has, by two reports of their status."""
    before = process.status_at()

    def is_read() -> bool:
        is_new = process.status_at() > before
        return is_new and all(one["lag"] == 0 for one in process.status() if one["mode"] == "micro-batch")

    wait_until(is_read, "all input is read", seconds=START_S)


def archive_of(process: Driver) -> Path:
    return process.folder / "pipelines" / "archive"
