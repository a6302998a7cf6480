"""`milepost pipeline run` as a process: killed, stopped, its status, and the end of Spark."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from live.pipelines.drivers import START_S, driver
from live.pipelines.logs import SiteLog, embedded_site, kafka_site, wait_until
from live.pipelines.test_hazards import recent_sightings
from milepost.eventlog.log import Entry
from milepost.incidents.engine import CELLS
from milepost.model.incidents import EVENT_KINDS
from milepost.model.site_records import SUBSCRIPTION_INFO
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC
from milepost.pipelines.records import MESSAGES_TOPIC
from parts import ROOT
from unit.pipelines.hazards_oracle import expected_cells

KINDS = tuple(kind for kind in EVENT_KINDS if not kind.from_reports)
KILLS = 1


def site_for(mode: str, request: pytest.FixtureRequest, folder: Path) -> SiteLog:
    return embedded_site(folder) if mode == "embedded" else kafka_site(request.getfixturevalue("kafka"))


@pytest.mark.usefixtures("need_java")
@pytest.mark.parametrize("mode", ["embedded", "micro-batch", "real-time"])
def test_cells_after_kills_at_random_points_equal_those_of_an_undisturbed_run(
    mode: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """`test_kills` has the other pipelines, in `make soak`."""
    site, chance = site_for(mode, request, tmp_path / "log"), random.Random(7)
    settings = f'mode = "{"micro-batch" if mode == "embedded" else mode}"\nrecords_max = 100\nreal_time_batch_s = 5.0\n'
    found = recent_sightings(400)
    with driver(site, tmp_path / "driver", "hazards", pipelines=settings) as process:
        for step in range(KILLS + 1):
            process.start()
            part = found[step * 200 : step * 200 + 200]
            before = site.log.ends(CELLS)[1]
            site.append_sightings(part)
            if step < KILLS:
                wait_until(lambda before=before: site.log.ends(CELLS)[1] > before, "cells are published")  # type: ignore[misc]
                time.sleep(chance.uniform(0, 2.0))
                process.kill()
        expected = expected_cells(KINDS, found)
        wait_until(lambda: site.cells() == expected, "cells are those of the oracle", seconds=START_S)
        assert process.stop() == 0
    if mode == "embedded":
        cell_versions = [(record.key, record.value) for record in site.records(CELLS)]
        assert len(cell_versions) == len(set(cell_versions)), "no batch was appended twice"
    site.log.close()


@pytest.mark.usefixtures("need_java")
def test_a_process_announces_its_subscriptions_and_writes_status_and_dead_letters(tmp_path: Path) -> None:
    site = embedded_site(tmp_path / "log")
    found = recent_sightings(60)
    with driver(site, tmp_path / "driver", "hazards", "dead-letters", pipelines='topics = ["Collision", "Blocked"]') as process:
        process.start()
        assert [one["name"] for one in process.status()] == ["hazards", "dead-letters"], (
            "the status exists when the process is ready"
        )
        expected = [record.key.rpartition("\n")[2] for record in site.records(SUBSCRIPTION_INFO)]
        assert expected == ["Collision", "Blocked"]
        site.append([Entry(MESSAGES_TOPIC, "e", b"nonsense"), Entry("reports", "e", b'{"type": "reports"}')])
        site.append_sightings(found)
        wait_until(lambda: site.cells() == expected_cells(KINDS, found), "all cells are published")
        wait_until(lambda: len(list(site.records(DEAD_LETTERS_TOPIC))) == 2, "dead letters are published")
        keys = {record.key for record in site.records(DEAD_LETTERS_TOPIC)}
        assert keys == {f"{MESSAGES_TOPIC}/0", "reports/0"}
        wait_until(lambda: all(one["lag"] == 0 for one in process.status()), "both queries are up to date")
        assert [(one["name"], one["state"]) for one in process.status()] == [("hazards", "running"), ("dead-letters", "running")]
        assert process.status()[0]["state_rows"] == len(expected_cells(KINDS, found))
        shown = subprocess.run(
            [sys.executable, "-m", "milepost", "pipeline", "status", "--config", str(process.config)],
            cwd=ROOT, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        assert ["hazards", "running", "micro-batch"] in [line.split()[:3] for line in shown.splitlines()]
        assert process.stop() == 0
        assert [one["state"] for one in process.status()] == ["stopped", "stopped"]
    site.log.close()


@pytest.mark.usefixtures("need_java")
def test_a_process_reports_the_end_of_spark_unless_it_was_stopped_too(tmp_path: Path) -> None:
    site = embedded_site(tmp_path / "log")
    with driver(site, tmp_path / "driver", "dead-letters") as process:
        process.start()
        os.kill(process.spark_pid(), signal.SIGKILL)
        assert process.ended() == 1
        assert "Spark has exited" in process.logged
        process.start()
        for one in (process.spark_pid(), process.pid):
            os.kill(one, signal.SIGTERM)
        assert process.ended() == 0
        assert "pipelines stopped" in process.logged
        assert "WARN" not in process.logged, "Spark's output goes to a file"
    site.log.close()
