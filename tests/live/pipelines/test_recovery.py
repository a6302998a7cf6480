"""Alerts around crashes: the pipeline and the incident engine are killed while events flow; none is lost or repeated.

Each event happens at a place of its own and is an incident at once, so that an alert names its event. `bench.pipelines recovery`
measures how long alerts are away.
"""

import os
import threading
import time
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import Final

import pytest

from effort import amount
from live.pipelines.drivers import START_S, driver
from live.pipelines.logs import SiteLog, wait_until
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.wire.records import from_record
from unit.pipelines.hazards_oracle import Sighting

HOT = EventKind("Hot", "Hot", "reports >= 1", "Alert/Hot", interval_s=1.0)
KINDS = """
[[incidents.kinds]]
name = "Hot"
topic = "Hot"
alert = "Alert/Hot"
predicate = "reports >= 1"
interval_s = 1.0
slots = 300
clear_after_s = 3600.0
valid_s = 3600.0
"""
ROUNDS: Final = amount("RECOVERY_ROUNDS", fast=1, long=2, soak=10)
SEED: Final = int(os.environ.get("PIPELINE_SEED", "1"))
PER_S = 10
REPEATED_S = 20.0
"""Length of a batch in real-time mode; after a crash Spark reads the input of at most one batch again."""


class Events:
    """All events of the test, one at each place."""

    def __init__(self, site: SiteLog) -> None:
        self._site = site
        self.squares: list[tuple[int, int]] = []

    def add(self) -> None:
        number = len(self.squares)
        place = Place(-50.0 + number // 300 * 0.1, -170.0 + number % 300 * 0.1)
        self._site.append_sightings([Sighting("Hot", f"car-{number}", place, Instant(time.time_ns() // 1_000 * 1_000))])
        self.squares.append(HOT.grid.locate(place).square)

    @contextmanager
    def flowing(self) -> Iterator[None]:
        """Add events in a thread during the block."""
        is_over = threading.Event()

        def add() -> None:
            while not is_over.wait(1 / PER_S):
                self.add()

        feeder = threading.Thread(target=add, daemon=True)
        feeder.start()
        try:
            yield
        finally:
            is_over.set()
            feeder.join()


def alerts(site: SiteLog) -> list[ForwardedMessage]:
    """Return the early and raised alerts in the log, copies included."""
    found = [from_record(record.value or b"") for record in site.records(CROSS_HUB)]
    return [one for one in found if isinstance(one, ForwardedMessage) and one.message.fields.get("phase") in ("early", "raised")]


def square_of(alert: ForwardedMessage) -> tuple[int, int]:
    row, column = str(alert.message.fields["incident"]).split("-")[-2:]
    return int(row), int(column)


def dropped_by_edges(found: list[ForwardedMessage]) -> list[ForwardedMessage]:
    """Return the alerts that an edge drops as copies, because their numbers are not above all before, but that are none."""
    last, seen, dropped = 0, set(), []
    for one in found:
        copy = (one.number, one.message.id)
        if one.number <= last and copy not in seen:
            dropped.append(one)
        last = max(last, one.number)
        seen.add(copy)
    return dropped


@pytest.mark.usefixtures("need_java")
def test_alerts_are_neither_lost_nor_repeated_when_pipeline_and_engine_are_killed(on_kafka: SiteLog, tmp_path: Path) -> None:
    random, events = Random(SEED), Events(on_kafka)
    in_real_time = f'mode = "real-time"\nreal_time_batch_s = {REPEATED_S}\n'
    pipeline = driver(on_kafka, tmp_path / "pipeline", "hazards", pipelines=in_real_time, kinds=KINDS)
    engine = driver(on_kafka, tmp_path / "engine", command=("incidents", "run"), kinds=KINDS)

    def are_all_announced() -> bool:
        return set(events.squares) <= {square_of(one) for one in alerts(on_kafka)}

    with pipeline as hazards, engine as incidents:
        hazards.start()
        incidents.start()
        with events.flowing():
            wait_until(lambda: alerts(on_kafka), "alerts are published", seconds=START_S)
            for killed in (hazards, incidents) * ROUNDS:
                time.sleep(random.uniform(0, 3))
                killed.kill()
                killed.start()
                count = len(events.squares)
                wait_until(
                    lambda count=count: {*events.squares[count:]} & {square_of(one) for one in alerts(on_kafka)},  # type: ignore[misc]
                    "new events have alerts",
                    seconds=START_S,
                )
        wait_until(are_all_announced, "every event has an alert", seconds=START_S)
    found = alerts(on_kafka)
    assert dropped_by_edges(found) == []
    assert {square_of(one) for one in found} == set(events.squares), "no alert without an event"
    ids = defaultdict(set)
    for one in found:
        ids[square_of(one), one.message.fields["phase"]].add((one.message.fields["incident"], one.message.id))
    assert all(len(some) == 1 for some in ids.values()), "an alert was repeated under another id"
