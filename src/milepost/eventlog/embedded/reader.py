"""Reader: one thread that hands the records of its topics to `on_records`, one topic at a time, each from its position.

Invariants:
- a topic's flag is cleared before the topic is read: an append meanwhile sets it again, so no wake-up is lost;
- no transaction is open while `on_records` runs, so that the write-ahead log can be checkpointed;
- topics are read round-robin: a busy topic delays the others by one batch at most.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from milepost.eventlog.embedded.database import Database
from milepost.eventlog.embedded.errors import unavailable
from milepost.eventlog.embedded.rows import TopicBatch, read_batch
from milepost.eventlog.embedded.watcher import TopicWatcher
from milepost.eventlog.log import OnGap, OnRecords, call_safely, maybe_gap

RETRY_S: Final = 1.0


class EmbeddedReader:
    """A reader that runs from `start` to `close`; `may_read` is checked before records are handed over."""

    def __init__(
        self,
        database: Database,
        watcher: TopicWatcher,
        on_records: OnRecords,
        on_gap: OnGap,
        *,
        may_read: Callable[[], bool] = lambda: True,
    ) -> None:
        self._database = database
        self._watcher = watcher
        self._on_records = on_records
        self._on_gap = on_gap
        self._may_read = may_read
        self._connection = database.connect()
        self._topics: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._flags: dict[int, None] = {}
        self._tasks: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._condition = threading.Condition()
        self.fault: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)

    @property
    def is_open(self) -> bool:
        """Whether `close` has not been called."""
        return not self._is_closing

    def start(self, starts: Mapping[str, tuple[int, int]]) -> None:
        """Start the thread with topics by name: topic id and start offset of each."""
        for name, (topic_id, position) in starts.items():
            self.add(name, topic_id, position)
        self._thread.start()

    def add(self, name: str, topic_id: int, position: int) -> None:
        """Add a topic; only from the reader's own thread, or before it has started."""
        self._topics[topic_id] = name
        self._positions[topic_id] = position
        self._watcher.add(self, topic_id)
        self.notify_grown({topic_id})

    def drop(self, topic_id: int) -> None:
        """Remove a topic; only from the reader's own thread."""
        self._watcher.remove(self, topic_id)
        del self._topics[topic_id], self._positions[topic_id]
        with self._condition:
            self._flags.pop(topic_id, None)

    def between(self, task: Callable[[], None]) -> None:
        """Run *task* in the reader's thread, between two batches."""
        with self._condition:
            self._tasks.append(task)
            self._condition.notify()

    def notify_grown(self, topic_ids: set[int]) -> None:
        """Set the flags of these topics."""
        with self._condition:
            self._flags.update(dict.fromkeys(topic_ids))
            self._condition.notify()

    def close(self) -> None:
        """Stop reading; waits for a running `on_records`, unless called from it."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while (task := self._next()) is not None:
            task()
        for topic_id in list(self._topics):
            self._watcher.remove(self, topic_id)
        with suppress(sqlite3.Error):
            self._connection.close()

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            while True:
                if self._is_closing:
                    return None
                if self._tasks:
                    return self._tasks.popleft()
                if self._flags and self._may_read():
                    topic_id = next(iter(self._flags))
                    del self._flags[topic_id]
                    return lambda: self._read(topic_id)
                self._condition.wait(RETRY_S if self._flags else None)

    def _read(self, topic_id: int) -> None:
        name, position = self._topics[topic_id], self._positions[topic_id]
        try:
            batch = read_batch(self._connection, name, position)
        except sqlite3.Error as error:
            self.fault = str(unavailable(error, self._database.file))
            self._wait_and_retry(topic_id)
            return
        self.fault = None
        assert batch is not None, "topics stay"
        if not self._may_read():
            self.notify_grown({topic_id})
            return
        self._hand_over(name, position, batch)

    def _hand_over(self, name: str, position: int, batch: TopicBatch) -> None:
        topic, records = batch
        if (gap := maybe_gap(name, position, topic.first, topic.next)) is not None:
            call_safely(self._on_gap, gap)
        self._positions[topic.id] = records[-1].offset + 1 if records else topic.next
        if self._positions[topic.id] < topic.next:
            self.notify_grown({topic.id})
        if records:
            call_safely(self._on_records, records)

    def _wait_and_retry(self, topic_id: int) -> None:
        with self._condition:
            if not self._is_closing:
                self._condition.wait(RETRY_S)
        self.notify_grown({topic_id})
