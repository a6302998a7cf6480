"""Logs to try the catalogue on: what a kind of log gives the claims to work with, and the embedded and the one in memory."""

import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from itertools import count
from pathlib import Path

from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import open_database
from milepost.eventlog.log import Log, LogLost, Record
from milepost.eventlog.memory import MemoryStore
from milepost.model.durability import Durability
from milepost.model.instants import SECOND_NS, Instant

PATIENCE_S = 20.0
QUIET_S = 0.3
"""So long nothing must happen where a claim says that nothing does."""
NOON = 1_800_000_000 * SECOND_NS

_numbers = count(1)


class Logs(ABC):
    """Log objects over one store; `wait_until` and `settle` let time pass for them."""

    def topic(self) -> str:
        """A name that nobody has used."""
        return f"topic-{next(_numbers)}"

    @abstractmethod
    def open(self) -> Log:
        """One more log object over the same store."""

    @abstractmethod
    def settle(self) -> None:
        """Let everything happen that is going to."""

    def tick(self) -> None:
        """Let a moment pass, so that what is appended later is later."""
        time.sleep(0.002)

    def wait_until(self, condition: Callable[[], bool]) -> None:
        """Wait for something to become true."""
        give_up_at = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up_at, "it never became true"
            time.sleep(0.002)


class TimedLogs(Logs):
    """Logs whose clock can be moved and whose writing can be held up."""

    def __init__(self) -> None:
        self.now = NOON

    def tick(self) -> None:
        self.pass_time(0.001)

    def pass_time(self, seconds: float) -> None:
        """Let the clock of all logs go on."""
        self.now += int(seconds * SECOND_NS)

    @abstractmethod
    def stalled(self) -> AbstractContextManager[None]:
        """A context in which nothing can be written."""


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

    def settle(self) -> None:
        time.sleep(QUIET_S)

    @contextmanager
    def stalled(self) -> Iterator[None]:
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

    def settle(self) -> None:
        self.store.run_all()

    def wait_until(self, condition: Callable[[], bool]) -> None:
        self.store.run_all()
        assert condition(), "it never becomes true"

    @contextmanager
    def stalled(self) -> Iterator[None]:
        yield


class Heard:
    """What a reader was handed, by topic, and in one list what came in which order; callable as `take`."""

    def __init__(self) -> None:
        self.batches: list[list[Record]] = []
        self.count = 0
        self.losses: list[LogLost] = []
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

    def lost(self, gap: LogLost) -> None:
        self.losses.append(gap)

    @property
    def records(self) -> list[Record]:
        return [record for batch in list(self.batches) for record in batch]

    def values(self, topic: str) -> list[bytes | None]:
        return [record.value for record in self.records if record.topic == topic]


class Told:
    """What `done` was told, in order, each with a word for the append it was for."""

    def __init__(self) -> None:
        self.outcomes: list[tuple[object, Exception | None]] = []

    def done(self, word: object) -> Callable[[Exception | None], None]:
        return lambda fault: self.outcomes.append((word, fault))

    @property
    def words(self) -> list[object]:
        return [word for word, _ in self.outcomes]
