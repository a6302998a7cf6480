"""A reader: one thread that hands the records of its topics to `take`, a topic at a time, each from where it stands.

What must hold:
- a topic's flag is taken down before the topic is read: what grows meanwhile raises it again, so nothing is slept through;
- no transaction is open while `take` works, so that the write-ahead log can be taken over;
- topics take turns: one that always has more does not keep the others waiting for longer than one batch.
"""

import sqlite3
import threading
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from milepost.backbone.callbacks import tell
from milepost.backbone.embedded.database import Database
from milepost.backbone.embedded.faults import unavailable
from milepost.backbone.embedded.rows import Batch, Topic, read_batch
from milepost.backbone.embedded.watch import Watch
from milepost.backbone.log import LogLost, Lost, Take

RETRY_S: Final = 1.0


class Reader:
    """Reads from its making to `close`; `may_take` is asked before records are handed over."""

    def __init__(
        self, database: Database, watch: Watch, take: Take, lost: Lost, *, may_take: Callable[[], bool] = lambda: True
    ) -> None:
        self._database = database
        self._watch = watch
        self._take = take
        self._lost = lost
        self._may_take = may_take
        self._connection = database.connect()
        self._topics: dict[int, str] = {}
        self._positions: dict[int, int] = {}
        self._flags: dict[int, None] = {}
        self._errands: deque[Callable[[], None]] = deque()
        self._is_closing = False
        self._condition = threading.Condition()
        self.trouble: str | None = None
        self._thread = threading.Thread(target=self._run, name="log-reader", daemon=True)

    @property
    def is_open(self) -> bool:
        """Whether it was not closed."""
        return not self._is_closing

    def start(self, starts: Mapping[str, tuple[int, int]]) -> None:
        """Begin, with topics by name: their ids, and where to begin."""
        for name, (topic_id, position) in starts.items():
            self.add(name, topic_id, position)
        self._thread.start()

    def add(self, name: str, topic_id: int, position: int) -> None:
        """Read one more; from the reader's own thread, or before it has started."""
        self._topics[topic_id] = name
        self._positions[topic_id] = position
        self._watch.add(self, topic_id)
        self.grew({topic_id})

    def drop(self, topic_id: int) -> None:
        """Read one less; from the reader's own thread."""
        self._watch.remove(self, topic_id)
        del self._topics[topic_id], self._positions[topic_id]
        with self._condition:
            self._flags.pop(topic_id, None)

    def between(self, errand: Callable[[], None]) -> None:
        """Do something in the reader's thread, between two batches."""
        with self._condition:
            self._errands.append(errand)
            self._condition.notify()

    def grew(self, topic_ids: set[int]) -> None:
        """Raise the flags of these topics."""
        with self._condition:
            self._flags.update(dict.fromkeys(topic_ids))
            self._condition.notify()

    def close(self) -> None:
        """Read no further; waits for a `take` that is at work, unless called by it."""
        with self._condition:
            self._is_closing = True
            self._condition.notify()
        if threading.current_thread() is not self._thread and self._thread.ident is not None:
            self._thread.join()

    def _run(self) -> None:
        while (errand := self._next()) is not None:
            errand()
        for topic_id in list(self._topics):
            self._watch.remove(self, topic_id)
        with suppress(sqlite3.Error):
            self._connection.close()

    def _next(self) -> Callable[[], None] | None:
        with self._condition:
            while True:
                if self._is_closing:
                    return None
                if self._errands:
                    return self._errands.popleft()
                if self._flags and self._may_take():
                    topic_id = next(iter(self._flags))
                    del self._flags[topic_id]
                    return lambda: self._read(topic_id)
                self._condition.wait(RETRY_S if self._flags else None)

    def _read(self, topic_id: int) -> None:
        name, position = self._topics[topic_id], self._positions[topic_id]
        try:
            batch = read_batch(self._connection, name, position)
        except sqlite3.Error as error:
            self.trouble = str(unavailable(error, self._database.file))
            self._wait_and_retry(topic_id)
            return
        self.trouble = None
        assert batch is not None, "topics stay"
        if not self._may_take():
            self.grew({topic_id})
            return
        self._hand_over(name, position, batch)

    def _hand_over(self, name: str, position: int, batch: Batch) -> None:
        topic, records = batch
        if (gap := gap_of(name, position, topic)) is not None:
            tell(self._lost, gap)
        self._positions[topic.id] = records[-1].offset + 1 if records else topic.next
        if self._positions[topic.id] < topic.next:
            self.grew({topic.id})
        if records:
            tell(self._take, records)

    def _wait_and_retry(self, topic_id: int) -> None:
        with self._condition:
            if not self._is_closing:
                self._condition.wait(RETRY_S)
        self.grew({topic_id})


def gap_of(name: str, position: int, topic: Topic) -> LogLost | None:
    """What is gone between a position and what is there, before it or behind."""
    if position < topic.first:
        return LogLost(f"{name}: records {position} to {topic.first - 1} are gone, removed by its retention")
    if position > topic.next:
        return LogLost(f"{name}: ends before {topic.next}, and {position} was to be read: what was there before is gone")
    return None
