"""The ledger of a partition: its compacted topic in the log, and the writes that are pending.

    claim ─▶ last state ─▶ append pending entries ─▶ … add, add ─▶ commit: note ─▶ append: values, answers ─▶ …

Invariants:
- nothing is appended elsewhere before the note that contains it is in the log, under the claimant's fence: the next claimant
  appends the same entries again, under the same numbers, and continues after them. So each request has one effect and one answer,
  although it may be served several times;
- a note is written only when all entries of the previous note were appended;
- a note fits into a record: the limits on the changes and the answer of one call ensure that.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_bytes
from typing import Final, NamedTuple

from milepost.eventlog.log import Entry, Following, Log, LogLost, LogUnavailable, Record, TopicEnd
from milepost.handlers.records import (
    CLAIM,
    NOTE,
    VALUE_PREFIX,
    Note,
    StoredValue,
    note_from_bytes,
    note_to_bytes,
    stored_value_from_bytes,
    stored_value_to_bytes,
)
from milepost.handlers.store import ROW_BYTES, StoreValues, change_bytes
from milepost.handlers.topic_names import COMPACTED, ledger_topic
from milepost.model.retry import Retry, RetryPolicy
from milepost.model.site_records import EdgeRef

BATCH_REQUESTS_MAX: Final = 64
BATCH_BYTES_MAX: Final = 200_000
"""Size at which a note is written: the maximum that is served again after a crash."""

SKIPPED_MAX: Final = 1_000
"""Maximum skipped requests of other partitions without a note."""

SENDERS_MAX: Final = 1_000
"""Maximum edges whose last number is remembered; the least recently active one is dropped."""

TOKEN_BYTES: Final = 16

APPEND_RETRY: Final = RetryPolicy(first_s=0.1, limit_s=3.0, factor=3.0)
"""Retries without limit: an unavailable log is expected to come back."""

POLL_S: Final = 0.2
"""Interval at which a waiting thread checks for cancellation."""


class Cancelled(Exception):
    """The partition has another owner, or the process stops."""


class PartitionLedger:
    """Claims a partition and writes its ledger; setting `cancelled` ends all waiting."""

    def __init__(self, log: Log, handler: str, partition: int, partitions: int, cancelled: threading.Event) -> None:
        self._log = log
        self._topic = ledger_topic(handler, partition)
        self._partitions = partitions
        self._cancelled = cancelled
        self._token = token_bytes(TOKEN_BYTES)
        self._state = LedgerState(self._token)
        self._changed = threading.Condition()
        self._following: Following | None = None
        self._notes = DurableAppender(log, cancelled)
        self._outputs = DurableAppender(log, cancelled)
        self.store = StoreValues({})
        self.positions: dict[str, int] = {}
        """Offset of the next record, by topic."""
        self._last_numbers: dict[str, int] = {}
        self.number = 0
        """The number of the last answer."""
        self.dead_letters = 0
        """Number of dead letters so far."""
        self._pending_entries: list[Entry] = []
        self._changes: dict[str, bytes | None] = {}
        self._tombstones: list[str] = []
        self._requests = self._skipped = self._bytes = 0

    @property
    def log_fault(self) -> str | None:
        """Why the log is currently not writable; None if it is."""
        return self._notes.log_fault or self._outputs.log_fault

    @property
    def previous_partitions(self) -> int:
        """The number of partitions of the handler's last run; 0: it never ran."""
        return self._state.note.partitions

    def claim(self) -> None:
        """Claim the partition; return when its ledger is read, or raise `Cancelled`."""
        self._log.make(self._topic, COMPACTED)
        self._following = self._log.follow({self._topic: TopicEnd.BEGINNING}, self._receive, _ignore_gap)
        self._notes.begin([Entry(self._topic, CLAIM, self._token)])
        self._notes.finish()
        self._wait(lambda: self._state.is_owned)
        note = self._state.note
        self.store, self._tombstones = StoreValues(self._state.values), self._state.tombstones
        self.positions, self._last_numbers = dict(note.positions), dict(note.last_numbers)
        self.number, self.dead_letters = note.number, note.dead_letters
        self._outputs.begin(note.pending)
        self._outputs.finish()

    def is_new(self, sender: EdgeRef, number: int) -> bool:
        """Return whether a request was not served before: edges repeat records whose append they could not confirm."""
        return number > self._last_numbers.get(str(sender), 0)

    def mark_served(self, sender: EdgeRef, number: int) -> None:
        """Record that a request is being served."""
        self._last_numbers.pop(str(sender), None)
        if len(self._last_numbers) >= SENDERS_MAX:
            del self._last_numbers[next(iter(self._last_numbers))]
        self._last_numbers[str(sender)] = number

    def skip(self, topic: str, position: int) -> None:
        """Skip a record of another partition, or of none."""
        self.positions[topic] = position
        self._skipped += 1

    def add(self, topic: str, position: int, changes: dict[str, bytes | None], pending: Sequence[Entry]) -> None:
        """Add a served request: its changes to the store, and the entries to append."""
        self.positions[topic] = position
        self.store.apply(changes)
        self._changes.update(changes)
        self._pending_entries += pending
        self._requests += 1
        self._bytes += sum(len(entry.value or b"") + ROW_BYTES for entry in pending)
        self._bytes += sum(change_bytes(key, value) for key, value in changes.items())

    @property
    def is_full(self) -> bool:
        """Whether a note is due."""
        return self._requests >= BATCH_REQUESTS_MAX or self._bytes >= BATCH_BYTES_MAX or self._skipped >= SKIPPED_MAX

    @property
    def has_uncommitted(self) -> bool:
        """Whether served requests are not in the log yet, or a previous owner overwrote a record there."""
        return bool(self._requests or self._state.stale or self._state.is_note_stale)

    @property
    def needs_commit(self) -> bool:
        """Whether the log lacks anything of the current state."""
        return self.has_uncommitted or self.positions != self._state.note.positions

    def commit(self) -> None:
        """Write a note, then begin to append its entries; raise `Cancelled` if another process owns the partition."""
        self._outputs.finish()
        changes = self._repairs() | self._changes
        revision = self._state.note.revision + 1
        pending = (*self._values(changes, revision), *self._pending_entries)
        note = Note(
            self._state.fence,
            revision,
            dict(self.positions),
            dict(self._last_numbers),
            self.number,
            self.dead_letters,
            self._partitions,
            pending,
        )
        self._notes.begin([Entry(self._topic, NOTE, note_to_bytes(note))])
        self._notes.finish()
        self._wait(lambda: self._state.note == note)
        removed = [Entry(self._topic, VALUE_PREFIX + key, None) for key in self._tombstones if key not in self.store.values]
        self._pending_entries, self._changes, self._tombstones = [], {}, [key for key, value in changes.items() if value is None]
        self._requests = self._skipped = self._bytes = 0
        self._outputs.begin([*removed, *pending])

    def flush(self) -> None:
        """Return when all entries of the last note were appended."""
        self._outputs.finish()

    def close(self) -> None:
        """Stop reading."""
        if self._following is not None:
            self._following.close()

    def _repairs(self) -> dict[str, bytes | None]:
        """Return the current values of keys that a previous owner overwrote, up to the size limit."""
        found: dict[str, bytes | None] = {}
        size = self._bytes
        with self._changed:
            stale = sorted(self._state.stale)
        for key in stale:
            size += change_bytes(key, self.store.values.get(key))
            if size > BATCH_BYTES_MAX and (found or self._bytes):  # a large value waits for a note of its own
                break
            found[key] = self.store.values.get(key)
        return found

    def _values(self, changes: dict[str, bytes | None], revision: int) -> list[Entry]:
        stored = ((key, stored_value_to_bytes(StoredValue(revision, value))) for key, value in changes.items())
        return [Entry(self._topic, VALUE_PREFIX + key, value) for key, value in stored]

    def _receive(self, records: Sequence[Record]) -> None:
        with self._changed:
            for record in records:
                with suppress(ValueError):  # not written by a handler
                    self._state.apply(record)
            self._changed.notify_all()
        if self._state.is_lost:
            self._cancelled.set()

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._changed:
            while not condition():
                if self._cancelled.is_set():
                    raise Cancelled
                self._changed.wait(POLL_S)


def _ignore_gap(gap: LogLost) -> None:
    """Do nothing: compaction removes only superseded records."""
    del gap


class _StoredKey(NamedTuple):
    """The valid state of a key, without the value."""

    revision: int
    is_removed: bool


class LedgerState:
    """The owner of a partition, its progress and its store, folded from the records of its topic in log order.

    Invariants:
    - the last claim in the log determines the owner: notes that other processes write after it are ignored (fence);
    - a note contains all entries that follow from it, store values and answers. Its writer or the next claimant appends them
      after it. So the changes of one call are atomic, whenever the writer crashes;
    - of the values of a key the one with the highest revision is valid. A late record of a paused writer makes the key or the
      note stale: the claimant rewrites it.

    The consumer group only proposes which process serves a partition. The claim decides, even against a process that was paused
    for a minute and then resumes.
    """

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.fence = -1
        """The offset of the current claim; notes with a lower fence are ignored."""
        self.is_owned = False
        """Whether the reader owns the partition."""
        self.is_lost = False
        """Whether the reader owned the partition, and another process owns it now."""
        self.note = Note()
        """The last valid note."""
        self.values: dict[str, bytes] = {}
        """The store, up to the claim."""
        self.stale: set[str] = set()
        """Keys whose last record in the log is not the valid one."""
        self.is_note_stale = False
        self._stored: dict[str, _StoredKey] = {}

    @property
    def tombstones(self) -> list[str]:
        """Keys whose removal is recorded in the log, and that can be deleted from it."""
        return [key for key, stored in self._stored.items() if stored.is_removed]

    def apply(self, record: Record) -> None:
        """Apply the next record; raise ValueError if no handler wrote it."""
        key, value = record.key, record.value
        if key == CLAIM:
            self._on_claim(record)
        elif key == NOTE and value is not None:
            self._on_note(note_from_bytes(value), record.topic)
        elif key.startswith(VALUE_PREFIX):
            name = key.removeprefix(VALUE_PREFIX)
            if value is None:
                self._on_removed(name)
            else:
                self._on_value(name, stored_value_from_bytes(value))

    def _on_claim(self, record: Record) -> None:
        if self.is_owned:
            self.is_owned, self.is_lost = False, True
        elif record.value == self._token and not self.is_lost:
            self.is_owned = True
        self.fence = record.offset

    def _on_note(self, note: Note, topic: str) -> None:
        if note.fence < self.fence:
            self.is_note_stale = True
            return
        self.fence, self.note, self.is_note_stale = note.fence, note, False
        for entry in note.pending:
            if entry.topic == topic and entry.value is not None:
                self._on_value(entry.key.removeprefix(VALUE_PREFIX), stored_value_from_bytes(entry.value))

    def _on_value(self, key: str, value: StoredValue) -> None:
        stored = self._stored.get(key)
        # In log order, the values of a revision follow its note and precede the next one.
        if value.revision < self.note.revision or (stored is not None and value.revision < stored.revision):
            self.stale.add(key)
            return
        self._stored[key] = _StoredKey(value.revision, value.value is None)
        self.stale.discard(key)
        if self.is_owned:
            return
        self.values.pop(key, None)
        if value.value is not None:
            self.values[key] = value.value

    def _on_removed(self, key: str) -> None:
        stored = self._stored.get(key)
        if stored is not None and stored.is_removed:
            del self._stored[key]
        elif stored is not None:
            self.stale.add(key)


class DurableAppender:
    """Appends batches in order, each until it is durable; retries while the log is unavailable; setting `cancelled` ends it."""

    def __init__(self, log: Log, cancelled: threading.Event) -> None:
        self._log = log
        self._cancelled = cancelled
        self._entries: Sequence[Entry] = ()
        self._retry = Retry(APPEND_RETRY)
        self._done = threading.Event()
        self._fault: Exception | None = None
        self.log_fault: str | None = None
        """Why the log is currently not writable; None if it is."""

    def begin(self, entries: Sequence[Entry]) -> None:
        """Begin to append a batch once the previous one is durable."""
        self.finish()
        if entries:
            self._entries = entries
            self._attempt()

    def finish(self) -> None:
        """Return when everything is durable; raise `Cancelled`, or `LogRefused` if the log refuses it permanently."""
        while self._entries:
            while not self._done.wait(POLL_S):
                self._check()
            if self._fault is None:
                self._entries, self.log_fault = (), None
                self._retry.reset()
                return
            if not isinstance(self._fault, LogUnavailable):
                raise self._fault
            self.log_fault = str(self._fault)
            if self._cancelled.wait(self._retry.next_wait_s()):
                raise Cancelled
            self._attempt()

    def _attempt(self) -> None:
        self._check()
        done = self._done = threading.Event()  # per attempt: an abandoned attempt must not end this wait

        def finished(fault: Exception | None) -> None:
            self._fault = fault
            done.set()

        try:
            self._log.append(self._entries, finished)
        except LogUnavailable as fault:
            finished(fault)

    def _check(self) -> None:
        if self._cancelled.is_set():
            raise Cancelled
