"""Fixtures of the tests of logs on Kafka: logs with their own prefix, and records at a steady rate."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Entry, LogLost, Record, TopicEnd
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka


class OpenLogs:
    """Opens log objects with one prefix, and closes them in the end."""

    def __init__(self) -> None:
        self.prefix = f"{uuid4().hex}."
        self._opened: list[KafkaLog] = []

    def __call__(self, kafka: Kafka, *, prefix: str | None = None, durability: Durability = Durability.PROCESS_CRASH) -> KafkaLog:
        log = KafkaLog(kafka.address, durability, client_id="test", prefix=self.prefix if prefix is None else prefix)
        self._opened.append(log)
        return log

    def close(self) -> None:
        for log in self._opened:
            log.close()


@pytest.fixture
def open_log() -> Iterator[OpenLogs]:
    opened = OpenLogs()
    yield opened
    opened.close()


class NumberStream:
    """Numbers appended at a steady rate by one log object and followed by another, with confirmations and receipts."""

    def __init__(self, writing: KafkaLog, reading: KafkaLog, *, rate: int, topic: str = "numbers") -> None:
        self.topic = topic
        self.appended = 0
        self.confirmations: list[tuple[int, Exception | None]] = []
        self.received: list[int] = []
        self.received_at: list[float] = []
        self.gaps: list[LogLost] = []
        self._writing = writing
        self._rate = rate
        self._is_over = threading.Event()
        reading.follow({topic: TopicEnd.BEGINNING}, self._on_records, self.gaps.append)
        self._thread = threading.Thread(target=self._append)
        self._thread.start()

    def end(self) -> None:
        """Stop appending, and wait until all records are confirmed and read, or a timeout."""
        self._is_over.set()
        self._thread.join()
        wait_until(
            lambda: len(self.confirmations) >= self.appended and len(self.received) >= self.appended, "all records are read"
        )
        time.sleep(0.3)  # duplicates would arrive now

    def check(self) -> None:
        """Check that nothing is lost, duplicated or reordered, and each append is confirmed once and in order."""
        numbers = list(range(self.appended))
        assert self.received == numbers
        assert self.confirmations == [(number, None) for number in numbers]
        assert self.gaps == []

    @property
    def longest_pause_s(self) -> float:
        return max(later - earlier for earlier, later in zip(self.received_at, self.received_at[1:], strict=False))

    def _append(self) -> None:
        began = time.monotonic()
        while not self._is_over.is_set():
            number = self.appended
            self._writing.append([Entry(self.topic, "key", b"%d" % number)], partial(self._done, number))
            self.appended += 1
            time.sleep(max(0.0, began + self.appended / self._rate - time.monotonic()))

    def _done(self, number: int, fault: Exception | None) -> None:
        self.confirmations.append((number, fault))

    def _on_records(self, records: Sequence[Record]) -> None:
        self.received_at.append(time.monotonic())
        self.received.extend(int(record.value or b"") for record in records)


def wait_until(condition: Callable[[], bool], what: str, *, timeout_s: float = 40.0) -> None:
    until = time.monotonic() + timeout_s
    while not condition():
        assert time.monotonic() < until, f"timeout: {what}"
        time.sleep(0.01)


def settings_of(kafka: Kafka, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        (future,) = admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in future.result().items()}
