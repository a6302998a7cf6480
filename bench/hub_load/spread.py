"""DPSMD's table (D13, D14): publishers at one edge, subscribers there, at another edge of the site, or at another site."""

import time
from dataclasses import dataclass
from typing import Any

from bench.edge_load.generator import LoadFailed
from bench.harness import QUICK
from bench.hub_load.generator import Times, loading
from bench.hub_load.towns import Kafka, Plan, Shares, standing
from milepost.service.site_settings import Backbone

PACKETS = 30 if QUICK else 100
GAP_MS = 50
SUBSCRIBERS = (20,) if QUICK else (5, 10, 20)
PUBLISHERS = {0: (10, 50, 100) if QUICK else tuple(range(10, 101, 10)), 1: (100,) if QUICK else (10, 50, 100)}
"""By QoS."""
MOST = (20, 100)
"""Subscribers and publishers of the case that goals are about."""
WARM_PACKETS = 10
PAPER_MS = 21.5


@dataclass(frozen=True, slots=True)
class Column:
    """One way from publishers to subscribers; `publish_at` and `subscribe_at` count the town's edges."""

    key: str
    title: str
    plan: Plan
    publish_at: int = 0
    subscribe_at: int = 0


COLUMNS = (
    Column("mosquitto", "Mosquitto alone", Plan()),
    Column("within", "within an edge", Plan((2,))),
    Column("edges-embedded", "across edges, embedded", Plan((2,)), subscribe_at=1),
    Column("edges-kafka", "across edges, Kafka", Plan((2,), Backbone.KAFKA), subscribe_at=1),
    Column("sites-embedded", "across sites, embedded", Plan((1, 1)), subscribe_at=1),
    Column("sites-kafka", "across sites, Kafka", Plan((1, 1), Backbone.KAFKA), subscribe_at=1),
)


@dataclass(frozen=True, slots=True)
class Cell:
    """One column at one size; `lost` deliveries never came, `wrong` ones came twice or overtook; shares of a core, by process."""

    column: str
    qos: int
    subscribers: int
    publishers: int
    times: Times
    lost: int
    wrong: int
    late_p99_ms: float
    shares: dict[str, float]
    each_us: dict[str, float]
    """Processor time for each message, by process: less than the times it depends on who else works on the machine."""


def measure_column(column: Column, qos: int, subscribers: int, kafka: Kafka | None) -> list[Cell]:
    """All numbers of publishers, one after the other, in a fresh town."""
    with standing(column.plan, kafka) as town:
        ports = town.ports[column.publish_at], town.ports[column.subscribe_at]
        with loading("spread", *ports, qos, subscribers) as load:
            load.ask(PUBLISHERS[qos][0], WARM_PACKETS, GAP_MS)
            cells = []
            for publishers in PUBLISHERS[qos]:
                watch = Shares(town)
                said = load.ask(publishers, PACKETS, GAP_MS)
                cells.append(_cell(column, (qos, subscribers, publishers), said, watch))
                town.check()
    return cells


def _cell(column: Column, size: tuple[int, int, int], said: dict[str, Any], watch: Shares) -> Cell:
    cpu_s, took_s = watch.since_then()
    return Cell(
        column.key,
        *size,
        times=Times.of(said["taken"]),
        lost=said["expected"] - said["received"] - said["wrong"],
        wrong=said["wrong"],
        late_p99_ms=said["late_p99_us"] / 1e3,
        shares={name: used_s / took_s for name, used_s in cpu_s.items()} | {"load": said["share"]},
        each_us={name: used_s / said["sent"] * 1e6 for name, used_s in cpu_s.items()},
    )


def measure_all(columns: list[Column], kafka: Kafka | None) -> tuple[list[Cell], list[str]]:
    """Every cell; columns take turns, so that what else the machine does falls on all alike. Faults become notes."""
    cells: list[Cell] = []
    notes: list[str] = []
    for qos in PUBLISHERS:
        for subscribers in SUBSCRIBERS:
            for column in columns:
                began = time.monotonic()
                try:
                    found = measure_column(column, qos, subscribers, kafka)
                except (LoadFailed, OSError) as fault:
                    notes.append(f"{column.title}, QoS {qos}, {subscribers} subscribers: {fault}")
                    print(f"  {notes[-1]}", flush=True)
                    continue
                cells += found
                tell(column, found, time.monotonic() - began)
    return cells, notes


def tell(column: Column, cells: list[Cell], took_s: float) -> None:
    """One line of progress: the largest size."""
    last = cells[-1]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in last.shares.items())
    broken = f"  LOST {last.lost} WRONG {last.wrong}" if last.lost or last.wrong else ""
    size = f"QoS {last.qos}, {last.publishers} to {last.subscribers}"
    print(f"  {column.title:24} {size:20} {last.times!s:32} ms  {shares}{broken}  [{took_s:.0f} s]", flush=True)
