"""The log on Kafka compared with the bare client library with equal settings: latency and throughput.

`python -m bench.log_kafka` starts its own Kafka, measures and prints the results.
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
from milepost.eventlog.kafka.settings import KafkaClientSettings
from milepost.eventlog.log import BATCH_RECORDS_MAX, Entry, Record, TopicEnd
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import running_kafka

RATE = 2_000
LATENCY_S = 1 if QUICK else 4
RECORDS = 50_000 if QUICK else 100_000
BATCH = 100
VALUE = b"v" * 192
"""200 bytes with the eight bytes of a time or a number in front."""
IN_FLIGHT_MAX = 20_000
GOAL_RATIO = 0.7
TIMEOUT_S = 60
ROUNDS = 3 if QUICK else 7


class LogPath(Protocol):
    """A path on which values are appended in batches and read back."""

    def send(self, values: list[bytes]) -> None: ...
    def close(self) -> None: ...


OnValues = Callable[[list[bytes]], None]
OnConfirmed = Callable[[int], None]


class Ours:
    """The path through `KafkaLog`."""

    def __init__(self, address: str, topic: str, on_values: OnValues, on_confirmed: OnConfirmed) -> None:
        self._log = KafkaLog(address, Durability.PROCESS_CRASH, client_id="bench")
        self._topic = topic
        self._on_confirmed = on_confirmed

        def take(records: Sequence[Record]) -> None:
            on_values([record.value or b"" for record in records])

        self._log.make(topic)
        self._log.follow({topic: TopicEnd.END}, take, _raise_gap)

    def send(self, values: list[bytes]) -> None:
        count = len(values)
        self._log.append([Entry(self._topic, "key", value) for value in values], lambda _: self._on_confirmed(count))

    def close(self) -> None:
        self._log.close()


class Bare:
    """The path through the bare library: a producer polled by one thread, a consumer by another."""

    def __init__(self, address: str, topic: str, on_values: OnValues, on_confirmed: OnConfirmed) -> None:
        client = KafkaClientSettings(address, "bench", {})
        self._topic = topic
        self._on_confirmed = on_confirmed
        self._on_values = on_values
        self._producer = Producer(client.producer_settings(lambda _: None))
        self._consumer = Consumer(client.reader_settings(lambda _: None))
        place = TopicPartition(topic, 0)
        place.offset = self._consumer.get_watermark_offsets(place, timeout=TIMEOUT_S)[1]
        self._consumer.assign([place])
        self._is_over = False
        self._threads = [threading.Thread(target=run) for run in (self._poll, self._consume)]
        for thread in self._threads:
            thread.start()

    def send(self, values: list[bytes]) -> None:
        for value in values:
            self._producer.produce(self._topic, value, "key", 0, self._on_delivery)

    def close(self) -> None:
        self._is_over = True
        for thread in self._threads:
            thread.join()
        self._consumer.close()

    def _on_delivery(self, _error: object, _message: object) -> None:
        self._on_confirmed(1)

    def _poll(self) -> None:
        while not self._is_over:
            self._producer.poll(0.05)

    def _consume(self) -> None:
        while not self._is_over:
            first = self._consumer.poll(0.1)
            if first is not None:
                rest = self._consumer.consume(BATCH_RECORDS_MAX - 1, 0)
                self._on_values([message.value() or b"" for message in (first, *rest)])


def measure(address: str) -> dict[str, float]:
    """Return latency in ms and records per second of both paths, measured alternately; medians of the rounds."""
    _throughput(address, Bare)  # a broker that has just started is slow for a while
    rounds = []
    for _ in range(ROUNDS):
        found: dict[str, float] = {}
        for name, path in (("bare", Bare), ("ours", Ours)):
            p50_ms, p99_ms = _latency(address, path)
            per_s, cpu_us = _throughput(address, path)
            found |= {f"{name}_p50_ms": p50_ms, f"{name}_p99_ms": p99_ms, f"{name}_per_s": per_s, f"{name}_cpu_us": cpu_us}
        found["ratio"] = found["ours_per_s"] / found["bare_per_s"]
        rounds.append(found)
    return {name: float(np.median([one[name] for one in rounds])) for name in rounds[0]}


def _latency(address: str, path: Callable[[str, str, OnValues, OnConfirmed], LogPath]) -> tuple[float, float]:
    """Return the latency from append to reader, at a constant rate."""
    latencies_ns: list[int] = []
    total = RATE * LATENCY_S

    def on_values(values: list[bytes]) -> None:
        now_ns = time.perf_counter_ns()
        latencies_ns.extend(now_ns - int.from_bytes(value[:8]) for value in values)

    opened = path(address, _new_topic(address), on_values, lambda _: None)
    opened.send([time.perf_counter_ns().to_bytes(8) + VALUE])
    _wait(lambda: bool(latencies_ns))  # connected
    latencies_ns.clear()
    began = time.perf_counter()
    for number in range(total):
        wait_s = began + number / RATE - time.perf_counter()
        if wait_s > 0:
            time.sleep(wait_s)
        opened.send([time.perf_counter_ns().to_bytes(8) + VALUE])
    _wait(lambda: len(latencies_ns) >= total)
    opened.close()
    p50, p99 = np.percentile(latencies_ns, [50, 99])
    return p50 / 1e6, p99 / 1e6


def _throughput(address: str, path: Callable[[str, str, OnValues, OnConfirmed], LogPath]) -> tuple[float, float]:
    """Return records per second, from the first append to the last read, in batches; and CPU µs per record."""
    received_count, in_flight = [0], [0]

    def on_values(values: list[bytes]) -> None:
        received_count[0] += len(values)

    def on_confirmed(count: int) -> None:
        in_flight[0] -= count

    opened = path(address, _new_topic(address), on_values, on_confirmed)
    batch = [number.to_bytes(8) + VALUE for number in range(BATCH)]
    opened.send(batch)
    _wait(lambda: received_count[0] == BATCH and in_flight[0] == -BATCH)  # connected
    received_count[0] = in_flight[0] = 0
    sent = 0
    began, cpu_began = time.perf_counter(), time.process_time()
    while sent < RECORDS:
        if sent + in_flight[0] > IN_FLIGHT_MAX:
            time.sleep(0.0005)
            continue
        opened.send(batch)
        sent += BATCH
    _wait(lambda: received_count[0] >= RECORDS)
    took_s, cpu_s = time.perf_counter() - began, time.process_time() - cpu_began
    opened.close()
    return RECORDS / took_s, cpu_s / RECORDS * 1e6


def _new_topic(address: str) -> str:
    topic = f"bench-{uuid4().hex}"
    log = KafkaLog(address, Durability.PROCESS_CRASH, client_id="bench")
    log.make(topic)
    log.close()
    return topic


def _wait(condition: Callable[[], bool]) -> None:
    until = time.monotonic() + TIMEOUT_S
    while not condition():
        assert time.monotonic() < until, "not all records were read"
        time.sleep(0.001)


def _raise_gap(gap: Exception) -> None:
    raise gap


def main() -> None:
    with tempfile.TemporaryDirectory() as folder, running_kafka(Path(folder), progress=print) as kafka:
        found = measure(kafka.address)
    console = Console()
    for name in ("ours", "bare"):
        console.print(
            f"{name}: p50 {found[f'{name}_p50_ms']:.1f} ms, p99 {found[f'{name}_p99_ms']:.1f} ms at {RATE:,}/s; "
            f"{found[f'{name}_per_s']:,.0f} records/s in batches of {BATCH}, {found[f'{name}_cpu_us']:.1f} CPU µs each"
        )
    is_met = found["ratio"] >= GOAL_RATIO
    console.print(f"ours / bare: {found['ratio']:.2f} (goal: at least {GOAL_RATIO}): {'met' if is_met else 'MISSED'}")


if __name__ == "__main__":
    main()
