"""DPSMD's table (D13, D14), with Mosquitto, measured by `milepost_experiments.papers.dpsmd.measurements`."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from bench.edge_load.brokers import Features, Mosquitto, ServerFiles, all_brokers
from bench.harness import QUICK
from milepost_experiments.papers.dpsmd import measurements
from milepost_experiments.papers.dpsmd.measurements import LatencyCell, MessagePath, measure_sizes
from milepost_experiments.papers.load.programs import LoadFailed
from milepost_experiments.papers.load.testbed import (
    Kafka,
    Testbed,
    Topology,
    empty_testbed,
    free_port,
    running_testbed,
    wait_until_listening,
)

PACKETS = 30 if QUICK else 100
SUBSCRIBERS = (20,) if QUICK else (5, 10, 20)
PUBLISHERS = {0: (10, 50, 100) if QUICK else tuple(range(10, 101, 10)), 1: (100,) if QUICK else (10, 50, 100)}
"""By QoS."""
MOSQUITTO = MessagePath("mosquitto", "Mosquitto", Topology())
PATHS = (MOSQUITTO, *measurements.PATHS)


@contextmanager
def testbed_for(path: MessagePath, kafka: Kafka | None) -> Iterator[Testbed]:
    """Run a fresh testbed, or a Mosquitto instead."""
    if path is not MOSQUITTO:
        with running_testbed(path.topology, kafka) as testbed:
            yield testbed
        return
    with empty_testbed() as testbed:
        port = free_port()
        broker = next(one for one in all_brokers() if isinstance(one, Mosquitto) and not one.missing_reason())
        files = ServerFiles(testbed.folder, port, *(testbed.folder,) * 3)
        wait_until_listening(testbed.start("mosquitto", broker.command(files, Features())), port)
        testbed.ports.append(port)
        yield testbed


def measure_path(path: MessagePath, qos: int, subscribers: int, kafka: Kafka | None) -> list[LatencyCell]:
    """Measure all numbers of publishers, one after the other, in a fresh testbed."""
    with testbed_for(path, kafka) as testbed:
        return measure_sizes(testbed, path, qos=qos, subscribers=subscribers, publishers=PUBLISHERS[qos], packets=PACKETS)


def measure_all(paths: list[MessagePath], kafka: Kafka | None) -> tuple[list[LatencyCell], list[str]]:
    """Measure every cell; paths take turns, so that other load affects all equally. Faults become notes."""
    cells: list[LatencyCell] = []
    notes: list[str] = []
    for qos in PUBLISHERS:
        for subscribers in SUBSCRIBERS:
            for path in paths:
                began = time.monotonic()
                try:
                    results = measure_path(path, qos, subscribers, kafka)
                except (LoadFailed, OSError) as fault:
                    notes.append(f"{path.title}, QoS {qos}, {subscribers} subscribers: {fault}")
                    print(f"  {notes[-1]}", flush=True)
                    continue
                cells += results
                print_progress(path, results, time.monotonic() - began)
    return cells, notes


def print_progress(path: MessagePath, cells: list[LatencyCell], took_s: float) -> None:
    """Print the progress: the largest size."""
    last = cells[-1]
    shares = ", ".join(f"{name} {share:.0%}" for name, share in last.shares.items())
    violations = f"  LOST {last.lost} WRONG {last.wrong}" if last.lost or last.wrong else ""
    size = f"QoS {last.qos}, {last.publishers} to {last.subscribers}"
    print(f"  {path.title:24} {size:20} {last.times!s:32} ms  {shares}{violations}  [{took_s:.0f} s]", flush=True)
