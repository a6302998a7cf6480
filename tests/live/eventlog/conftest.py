"""What tests of logs on Kafka share: logs of their own prefix, and records that come at a steady rate."""

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from uuid import uuid4

import pytest
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from milepost.eventlog.kafka import KafkaLog
from milepost.eventlog.log import Edge, Entry, LogLost, Record
from milepost.model.durability import Durability
from milepost.runtime.services.kafka import Kafka


class OpenLogs:
    """Makes log objects of one prefix, and closes them in the end."""

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


class Stream:
    """Numbers appended at a steady rate by one log object and followed by another, and what became of them."""

    def __init__(self, writing: KafkaLog, reading: KafkaLog, *, rate: int, topic: str = "numbers") -> None:
        self.topic = topic
        self.appended = 0
        self.told: list[tuple[int, Exception | None]] = []
        self.came: list[int] = []
        self.came_at: list[float] = []
        self.losses: list[LogLost] = []
        self._writing = writing
        self._rate = rate
        self._is_over = threading.Event()
        reading.follow({topic: Edge.BEGINNING}, self._take, self.losses.append)
        self._thread = threading.Thread(target=self._append)
        self._thread.start()

    def end(self) -> None:
        """Append no more, and wait until all has come back or it is clear that it will not."""
        self._is_over.set()
        self._thread.join()
        wait_until(lambda: len(self.told) >= self.appended and len(self.came) >= self.appended, "all came back")
        time.sleep(0.3)  # what comes twice comes now

    def check(self) -> None:
        """Nothing lost, nothing doubled, all in order, all told once and in order."""
        numbers = list(range(self.appended))
        assert self.came == numbers
        assert self.told == [(number, None) for number in numbers]
        assert self.losses == []

    @property
    def longest_pause_s(self) -> float:
        return max(later - earlier for earlier, later in zip(self.came_at, self.came_at[1:], strict=False))

    def _append(self) -> None:
        began = time.monotonic()
        while not self._is_over.is_set():
            number = self.appended
            self._writing.append([Entry(self.topic, "key", b"%d" % number)], partial(self._done, number))
            self.appended += 1
            time.sleep(max(0.0, began + self.appended / self._rate - time.monotonic()))

    def _done(self, number: int, fault: Exception | None) -> None:
        self.told.append((number, fault))

    def _take(self, records: Sequence[Record]) -> None:
        self.came_at.append(time.monotonic())
        self.came.extend(int(record.value or b"") for record in records)


def wait_until(is_so: Callable[[], bool], what: str, *, patience_s: float = 40.0) -> None:
    until = time.monotonic() + patience_s
    while not is_so():
        assert time.monotonic() < until, f"never: {what}"
        time.sleep(0.01)


def settings_of(kafka: Kafka, topic: str) -> dict[str, str]:
    resource = ConfigResource(ResourceType.TOPIC, topic)
    with AdminClient({"bootstrap.servers": kafka.address}) as admin:
        (future,) = admin.describe_configs([resource]).values()
        return {name: entry.value for name, entry in future.result().items()}
