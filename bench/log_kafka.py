"""The log on Kafka beside the bare client library with the same settings: how long a record takes, and how many a second.

`python -m bench.log_kafka` starts a Kafka of its own, measures and prints a table.
"""

import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol
from uuid import uuid4

import numpy as np
from confluent_kafka import Consumer, Producer, TopicPartition
from rich.console import Console

from bench.harness import QUICK
from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.kafka.settings import Client
from milepost.eventlog.log import BATCH_RECORDS_MAX, Edge, Entry, Record
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import running_kafka

RATE = 2_000
LATENCY_S = 1 if QUICK else 4
RECORDS = 50_000 if QUICK else 100_000
BATCH = 100
VALUE = b"v" * 192
"""With the eight bytes of a time or a number in front of it: 200."""
UNDER_WAY_MAX = 20_000
GOAL_RATIO = 0.7
PATIENCE_S = 60
ROUNDS = 3 if QUICK else 7


class Way(Protocol):
    """A way to append batches of values and to have them back."""

    def send(self, values: list[bytes]) -> None: ...
    def close(self) -> None: ...


Came = Callable[[list[bytes]], None]
Confirmed = Callable[[int], None]


class Ours:
    """Through `KafkaLog`."""

    def __init__(self, address: str, topic: str, came: Came, confirmed: Confirmed) -> None:
        self._log = KafkaLog(address, Durability.PROCESS_CRASH, client_id="bench")
        self._topic = topic
        self._confirmed = confirmed

        def take(records: Sequence[Record]) -> None:
            came([record.value or b"" for record in records])

        self._log.make(topic)
        self._log.follow({topic: Edge.END}, take, _never)

    def send(self, values: list[bytes]) -> None:
        count = len(values)
        self._log.append([Entry(self._topic, "key", value) for value in values], lambda _: self._confirmed(count))

    def close(self) -> None:
        self._log.close()


class Bare:
    """Through the library alone: a producer polled by one thread, a consumer by another."""

    def __init__(self, address: str, topic: str, came: Came, confirmed: Confirmed) -> None:
        client = Client(address, "bench", {})
        self._topic = topic
        self._confirmed = confirmed
        self._came = came
        self._producer = Producer(client.producer_settings(lambda _: None))
        self._consumer = Consumer(client.reader_settings(lambda _: None))
        place = TopicPartition(topic, 0)
        place.offset = self._consumer.get_watermark_offsets(place, timeout=PATIENCE_S)[1]
        self._consumer.assign([place])
        self._is_over = False
        self._threads = [threading.Thread(target=run) for run in (self._poll, self._consume)]
        for thread in self._threads:
            thread.start()

    def send(self, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, "key", 0, self._reported)

    def close(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def _reported(self, _error: object, _message: object) -> None:
        self._confirmed(1)

    def _poll(self) -> None:
        while not self._is_over:
            self._producer.poll(0.05)

    def _consume(self) -> None:
        while not self._is_over:
            first = self._consumer.poll(0.1)
            if first is not None:
                rest = self._consumer.consume(BATCH_RECORDS_MAX - 1, 0)
                self._came([message.value() or b"" for message in (first, *rest)])


def measure(address: str) -> dict[str, float]:
    """Latency in ms and records a second, ours and bare, taken in turns; the middle one of several rounds."""
    _throughput(address, Bare)  # a broker that has just started is slow for a while
    rounds = []
    for _ in range(ROUNDS):
        found: dict[str, float] = {}
        for name, way in (("bare", Bare), ("ours", Ours)):
            p50_ms, p99_ms = _latency(address, way)
            per_s, cpu_us = _throughput(address, way)
            found |= {f"{name}_p50_ms": p50_ms, f"{name}_p99_ms": p99_ms, f"{name}_per_s": per_s, f"{name}_cpu_us": cpu_us}
        found["ratio"] = found["ours_per_s"] / found["bare_per_s"]
        rounds.append(found)
    return {name: float(np.median([one[name] for one in rounds])) for name in rounds[0]}


def _latency(address: str, way: Callable[[str, str, Came, Confirmed], Way]) -> tuple[float, float]:
    """From handing a record over to having it back, at a steady rate."""
    taken_ns: list[int] = []
    total = RATE * LATENCY_S

    def came(values: list[bytes]) -> None:
        now_ns = time.perf_counter_ns()
        taken_ns.extend(now_ns - int.from_bytes(value[:8]) for value in values)

    made = way(address, _new_topic(address), came, lambda _: None)
    made.send([time.perf_counter_ns().to_bytes(8) + VALUE])
    _wait(lambda: bool(taken_ns))  # connected, and under way
    taken_ns.clear()
    began = time.perf_counter()
    for number in range(total):
        wait_s = began + number / RATE - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        made.send([time.perf_counter_ns().to_bytes(8) + VALUE])
    _wait(lambda: len(taken_ns) >= total)
    made.close()
    p50, p99 = np.percentile(taken_ns, [50, 99])
    return p50 / 1e6, p99 / 1e6


def _throughput(address: str, way: Callable[[str, str, Came, Confirmed], Way]) -> tuple[float, float]:
    """Records a second, from the first handed over to the last had back, in batches; and µs of processor time for each."""
    came_count, under_way = [0], [0]

    def came(values: list[bytes]) -> None:
        came_count[0] += len(values)

    def confirmed(count: int) -> None:
        under_way[0] -= count

    made = way(address, _new_topic(address), came, confirmed)
    batch = [number.to_bytes(8) + VALUE for number in range(BATCH)]
    made.send(batch)
    _wait(lambda: came_count[0] == BATCH and under_way[0] == -BATCH)  # connected, and under way
    came_count[0] = under_way[0] = 0
    sent = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    while sent < RECORDS:
        if sent + under_way[0] > UNDER_WAY_MAX:
            time.sleep(0.0005)
            continue
        made.send(batch)
        sent += BATCH
    _wait(lambda: came_count[0] >= RECORDS)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    made.close()
    return RECORDS / took_s, cpu_s / RECORDS * 1e6


def _new_topic(address: str) -> str:
    topic = f"bench-{uuid4().hex}"
    log = KafkaLog(address, Durability.PROCESS_CRASH, client_id="bench")
    log.make(topic)
    log.close()
    return topic


def _wait(is_so: Callable[[], bool]) -> None:
    until = time.monotonic() + PATIENCE_S
    while not is_so():
        assert time.monotonic() < until, "not all came back"
        time.sleep(0.001)


def _never(gap: Exception) -> None:
    raise gap


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder), told=print) as kafka:
        found = measure(kafka.address)
    console = Console()
    for name in ("ours", "bare"):
        console.print(
            f"{name}: p50 {found[f'{name}_p50_ms']:.1f} ms, p99 {found[f'{name}_p99_ms']:.1f} ms at {RATE:,}/s; "
            f"{found[f'{name}_per_s']:,.0f} records/s in batches of {BATCH}, {found[f'{name}_cpu_us']:.1f} µs of processor each"
        )
    is_held = found["ratio"] >= GOAL_RATIO
    console.print(f"ours / bare: {found['ratio']:.2f} (goal: at least {GOAL_RATIO}): {'held' if is_held else 'MISSED'}")


if __name__ == "__main__":
    main()
