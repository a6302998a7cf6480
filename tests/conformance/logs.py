"""Logs for the conformance suite: its interface to an implementation, and the embedded log and the log in memory."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

from milepost.eventlog.authenticated import AuthenticatedLog
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import open_database
from milepost.eventlog.log import CODE_BYTES, Log, LogLost, Record
from milepost.eventlog.memory import MemoryStore
from milepost.model.durability import Durability
from milepost.model.instants import SECOND_NS, Instant

TIMEOUT_S = 20.0
IDLE_S = 0.3
"""Time to wait before a test asserts that nothing more happens."""
NOON = 1_800_000_000 * SECOND_NS

_numbers = count(1)


class Logs(ABC):
    """Log objects over one store."""

    overhead_bytes = 0
    """Bytes that the log adds to each value."""

    def topic(self) -> str:
        """Return an unused name."""
        return f"topic-{next(_numbers)}"

    @abstractmethod
    def open(self) -> Log:
        """Open one more log object over the same store."""

    @abstractmethod
    def wait_idle(self) -> None:
        """Wait until all pending work is done."""

    def tick(self) -> None:
        """Advance the time a little, so that later appends have a later time."""
        time.sleep(0.002)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for a condition."""
        give_up_at = time.monotonic() + TIMEOUT_S
        while not condition():
            assert time.monotonic() < give_up_at, "the condition did not become true"
            time.sleep(0.002)


class TimedLogs(Logs):
    """Logs whose clock can be advanced and whose writes can be blocked."""

    def __init__(self) -> None:
        self.now = NOON

    def tick(self) -> None:
        self.pass_time(0.001)

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of all logs."""
        self.now += int(seconds * SECOND_NS)

    @abstractmethod
    def blocked_writes(self) -> AbstractContextManager[None]:
        """Return a context in which nothing can be written."""


class EmbeddedLogs(TimedLogs):
    """Several log objects over one folder."""

    def __init__(self, folder: Path, durability: Durability = Durability.PROCESS_CRASH) -> None:
        super().__init__()
        self._folder = folder
        self._durability = durability
        self._opened: list[EmbeddedLog] = []

    def open(self) -> EmbeddedLog:
        self._opened.append(EmbeddedLog(self._folder, self._durability, clock_ns=lambda: self.now))
        return self._opened[-1]

    def wait_idle(self) -> None:
        time.sleep(IDLE_S)

    @contextmanager
    def blocked_writes(self) -> Iterator[None]:
        connection = open_database(self._folder, self._durability).connect()
        connection.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            connection.execute("ROLLBACK")
            connection.close()

    def close(self) -> None:
        for log in self._opened:
            log.close()


class MemoryLogs(TimedLogs):
    """Several log objects over one store in memory."""

    def __init__(self) -> None:
        super().__init__()
        self.store = MemoryStore(lambda: Instant(self.now))

    def open(self) -> Log:
        return self.store.open()

    def wait_idle(self) -> None:
        self.store.run_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        self.store.run_all()
        assert condition(), "the condition did not become true"

    @contextmanager
    def blocked_writes(self) -> Iterator[None]:
        yield


class AuthenticatedLogs(TimedLogs):
    """Log objects with a site's key over those of another implementation."""

    overhead_bytes = CODE_BYTES
    KEY = bytes(range(32))

    def __init__(self, plain: TimedLogs) -> None:
        super().__init__()
        self.plain = plain
        self.refused: list[Record] = []

    def open(self) -> Log:
        return AuthenticatedLog(
            self.plain.open(), self.KEY, lambda record, _: self.refused.append(record), clock_ns=lambda: self.plain.now
        )

    def wait_idle(self) -> None:
        self.plain.wait_idle()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        self.plain.wait_until(condition)

    def pass_time(self, seconds: float) -> None:
        self.plain.pass_time(seconds)

    def blocked_writes(self) -> AbstractContextManager[None]:
        return self.plain.blocked_writes()


class ReceivedRecords:
    """The batches a reader received, in order; callable as `on_records`."""

    def __init__(self) -> None:
        self.batches: list[list[Record]] = []
        self.count = 0
        self.gaps: list[LogLost] = []
        self._lock = threading.Lock()
        self._is_busy = False

    def __call__(self, records: Sequence[Record]) -> None:
        with self._lock:
            assert not self._is_busy, "two batches at once"
            self._is_busy = True
        assert records
        assert len({record.topic for record in records}) == 1
        self.batches.append(list(records))
        self.count += len(records)
        self._is_busy = False

    def on_gap(self, gap: LogLost) -> None:
        self.gaps.append(gap)

    @property
    def records(self) -> list[Record]:
        return [record for batch in list(self.batches) for record in batch]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records if record.topic == topic]


class AppendOutcomes:
    """The outcomes passed to `done`, in order, each with a label of its append."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[object, Exception | None]] = []

    def done(self, label: object) -> Callable[[Exception | None], None]:
        return lambda fault: self.outcomes.append((label, fault))

    @property
    def labels(self) -> list[object]:
        return [label for label, _ in self.outcomes]
