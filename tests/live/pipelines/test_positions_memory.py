"""Memory of the pipeline `positions` while reports arrive: seconds by hand, half an hour in `make soak` (POSITIONS_S)."""

import time
from pathlib import Path
from statistics import median

import pytest

from effort import amount
from live.pipelines.drivers import Driver, driver
from live.pipelines.logs import SiteLog, wait_until
from live.pipelines.passes import reports_record
from milepost.eventlog.log import Entry
from milepost.pipelines.positions import LAST_TOPIC
from milepost.pipelines.records import REPORTS_TOPIC

VEHICLES = 2_000
"""Each reports once a second."""
FLAT_FROM_S = 1_200
"""Duration from which the second half of a run must need no more than the first; before that slots of the state fill up."""
GROWTH_MAX = 1.03


def test_every_report_becomes_a_last_position_in_memory_that_does_not_grow(
    on_kafka: SiteLog, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    seconds = amount("POSITIONS_S", fast=10, long=60, soak=1_800)
    monkeypatch.setenv("SPARK_SUBMIT_OPTS", "-Xms512m -XX:+AlwaysPreTouch")  # a fixed heap: what grows is outside it
    with driver(on_kafka, tmp_path, "positions") as running:
        running.start()
        sizes = feed(running, seconds)
        wait_until(lambda: on_kafka.log.ends(LAST_TOPIC)[1] >= seconds * VEHICLES, "all last positions are there")
    if seconds >= FLAT_FROM_S:
        third, fourth = sizes[seconds // 2 : seconds * 3 // 4], sizes[seconds * 3 // 4 :]
        assert median(fourth) <= GROWTH_MAX * median(third)


def feed(running: Driver, seconds: int) -> list[int]:
    """Append the reports of each second; return the memory after each, in bytes."""
    sizes, started = list[int](), time.monotonic()
    for second in range(seconds):
        time.sleep(max(0.0, started + second - time.monotonic()))
        now_us = time.time_ns() // 1000
        positions = [
            ("north/e1", f"car-{car}", now_us, 52.4 + car / 1e4, 13.3 + second / 1e5, 90.0, 10.0, 0, 0) for car in range(VEHICLES)
        ]
        running.site.append([Entry(REPORTS_TOPIC, "north/e1", reports_record(positions)["value"].encode())])
        sizes.append(proportional_bytes(running.pid))
    return sizes


def proportional_bytes(pid: int) -> int:
    """Return the proportional set size (PSS) of a process and its descendants."""
    try:
        lines = dict(line.split(":", 1) for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:])
        children = [int(one) for listed in Path(f"/proc/{pid}/task").glob("*/children") for one in listed.read_text().split()]
    except (FileNotFoundError, ProcessLookupError):  # a process that Hadoop starts for a moment
        return 0
    return int(lines["Pss"].split()[0]) * 1024 + sum(map(proportional_bytes, children))
