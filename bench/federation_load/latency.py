"""DPSMD's table (D13, D14), with Mosquitto beside it: the test itself is `milepost_experiments.papers.dpsmd.measurements`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from milepost_experiments.papers.load.testbed import Kafka, Plan, Town, empty_town, free_port, standing, wait_listening

from bench.edge_load.brokers import Mosquitto, Setting, Site, all_brokers
from bench.harness import QUICK
from milepost_experiments.papers.dpsmd import measurements
from milepost_experiments.papers.dpsmd.measurements import Cell, Column, measure_sizes
from milepost_experiments.papers.load.programs import LoadFailed

PACKETS = 30 if QUICK else 100
SUBSCRIBERS = (20,) if QUICK else (5, 10, 20)
PUBLISHERS = {0: (10, 50, 100) if QUICK else tuple(range(10, 101, 10)), 1: (100,) if QUICK else (10, 50, 100)}
"""By QoS."""
MOSQUITTO = Column("mosquitto", "Mosquitto alone", Plan())
COLUMNS = (MOSQUITTO, *measurements.COLUMNS)


@contextmanager
def town_for(column: Column, kafka: Kafka | None) -> Iterator[Town]:
    """A fresh town, or a Mosquitto in place of one."""
    if column is not MOSQUITTO:
        with standing(column.plan, kafka) as town:
            yield town
        return
    with empty_town() as town:
        port = free_port()
        broker = next(one for one in all_brokers() if isinstance(one, Mosquitto) and not one.absence())
        site = Site(town.folder, port, *(town.folder,) * 3)
        wait_listening(town.start("mosquitto", broker.command(site, Setting())), port)
        town.ports.append(port)
        yield town


def measure_column(column: Column, qos: int, subscribers: int, kafka: Kafka | None) -> list[Cell]:
    """All numbers of publishers, one after the other, in a fresh town."""
    with town_for(column, kafka) as town:
        return measure_sizes(town, column, qos=qos, subscribers=subscribers, publishers=PUBLISHERS[qos], packets=PACKETS)


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
