"""The outbox: records that this edge has to append to the log of its site, in order, until the log has them.

    spooled:    stored durably in the tick that decided them          ─┐
    transient:  QoS 0, in memory only                                  ├▶ `take_batch` ─▶ log ─▶ `confirm`: forgotten
    announced:  the last value of each key, in memory only            ─┘              └▶ `put_back`: again, before all else

Invariants:
- numbers ascend, also over restarts as long as the clock is not set back: readers drop numbers that are not above their cursor;
- so spooled and transient records leave in the order of their numbers, and the log has one batch at a time: a batch that failed
  goes again before later ones;
- a spooled record stays until the log has it. Number and bytes are limited: when the spool is full, messages that would have to
  go there are refused;
- an undecided record waits, and all after it: its receivers are not known before the site's registry is read;
- announcements (claims, subscriptions, coverage) can be rebuilt at any time from stored state: only the last value of a key
  counts. `last_announced` and `announced_up_to` show when the log has all announcements up to some moment.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from milepost.federation.limits import SiteLimits
from milepost.model.instants import Instant

BATCH_MAX: Final = 5_000
"""Maximum records in one batch."""
TRANSIENT_MAX: Final = 20_000
"""Maximum QoS 0 messages queued for the log; more are dropped and counted."""
TRANSIENT_BYTES_MAX: Final = 32_000_000
"""Maximum bytes of transient records; above it nothing is added to the pipeline feeds."""

ANNOUNCED: Final = 0
TRANSIENT: Final = -1

UNDECIDED: Final = ""
"""The topic of messages whose receivers are not known yet."""

_HEAD: Final = Struct("<HH")


Store = Callable[[int, bytes | None], None]
"""Stores a record under its number until the log has it; None deletes it."""


class Append(NamedTuple):
    """A record for the log."""

    number: int
    """`ANNOUNCED` or `TRANSIENT` for records without a number."""
    topic: str
    key: str
    value: bytes | None


class Outbox:
    """Records on their way to the log."""

    def __init__(self, limits: SiteLimits, store: Store) -> None:
        self._limits = limits
        self._store = store
        self._last_number = 0
        self._queue: deque[Append] = deque()
        self._spool: dict[int, Append] = {}
        """Stored records, queued or with the log."""
        self._spool_bytes = 0
        self._transient_count = 0
        self._transient_bytes = 0
        self._announced: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        """By topic and key, in the order in which they were announced."""
        self._announcing: dict[tuple[str, str], tuple[int, bytes | None]] | None = None
        """Announcements that are with the log; None: the log has no batch."""
        self._last_announced = 0
        self.appended = 0
        """Number of records that the log has confirmed."""

    def restore(self, spooled: dict[int, bytes], last: int) -> None:
        """Restore records that an earlier process did not append, and its last number known to be in the log."""
        for number in sorted(spooled):
            self._put(_append_from_bytes(number, spooled[number]))
        self._last_number = max(last, *spooled, 0)

    @property
    def waiting(self) -> int:
        """Number of stored records that the log does not have yet."""
        return len(self._spool)

    @property
    def waiting_bytes(self) -> int:
        """Bytes of these records."""
        return self._spool_bytes

    @property
    def last_number(self) -> int:
        """The last number assigned."""
        return self._last_number

    def last_of(self, topic: str, key: str) -> int:
        """Return the last number queued for a topic and key; 0 if there is none."""
        return max((one.number for one in self._queue if (one.topic, one.key) == (topic, key)), default=0)

    def next_number(self, now: Instant) -> int:
        """Return a number above all earlier ones."""
        self._last_number = max(self._last_number + 1, now)
        return self._last_number

    def is_full(self) -> bool:
        """Return whether nothing more can be stored."""
        return len(self._spool) >= self._limits.spool_messages_max or self._spool_bytes >= self._limits.spool_bytes_max

    def spool(self, append: Append) -> None:
        """Add a record that is stored until the log has it; the caller checks `is_full` where it can still refuse."""
        self._put(append)
        self._store(append.number, _append_to_bytes(append))

    def _put(self, append: Append) -> None:
        self._spool[append.number] = append
        self._spool_bytes += _size(append)
        self._queue.append(append)

    def add_transient(self, append: Append) -> bool:
        """Add a record that is not stored; return whether there was room."""
        if self._transient_count >= TRANSIENT_MAX:
            return False
        self._transient_count += 1
        self._transient_bytes += _size(append)
        self._queue.append(append)
        return True

    def add_feed_record(self, append: Append) -> bool:
        """Add a record of a pipeline feed; at least half of the room is left to messages."""
        has_room = self._transient_count < TRANSIENT_MAX // 2 and self._transient_bytes < TRANSIENT_BYTES_MAX
        return has_room and self.add_transient(append)

    def resolve_undecided(self, choose: Callable[[Append], list[Append]]) -> None:
        """Replace each undecided record by those that *choose* returns: the first keeps its number, others go to the end."""
        before, self._queue = self._queue, deque()
        for append in before:
            chosen = choose(append) if append.topic == UNDECIDED else [append]
            is_spooled = self._spool.pop(append.number, None) is not None
            self._spool_bytes -= _size(append) if is_spooled else 0
            self._transient_count -= not is_spooled
            self._transient_bytes -= 0 if is_spooled else _size(append)
            if is_spooled and not chosen:
                self._store(append.number, None)
            for one in chosen:
                if not is_spooled:
                    self.add_transient(one)
                elif one is append:
                    self._put(one)
                else:
                    self.spool(one)

    def announce(self, topic: str, key: str, value: bytes | None) -> None:
        """Announce a value, in place of an earlier one with the same topic and key."""
        self._last_announced += 1
        self._announced.pop((topic, key), None)
        self._announced[topic, key] = (self._last_announced, value)

    @property
    def last_announced(self) -> int:
        """The last announcement; the log has it when `announced_up_to` is not lower."""
        return self._last_announced

    @property
    def announced_up_to(self) -> int:
        """The last announcement up to which the log has all, or later ones with their keys."""
        oldest = [next(iter(announcements.values()))[0] for announcements in (self._announcing, self._announced) if announcements]
        return min(oldest) - 1 if oldest else self._last_announced

    @property
    def is_ready(self) -> bool:
        """Whether there is a batch to take."""
        return self._announcing is None and bool(self._announced or (self._queue and self._queue[0].topic != UNDECIDED))

    def take_batch(self, most: int = BATCH_MAX) -> list[Append]:
        """Return the next batch in order; to be answered by `confirm` or `put_back`."""
        if self._announcing is not None:
            return []
        self._announcing = dict(islice(self._announced.items(), most))
        for key in self._announcing:
            del self._announced[key]
        found = [Append(ANNOUNCED, topic, key, value) for (topic, key), (_, value) in self._announcing.items()]
        while self._queue and len(found) < most and self._queue[0].topic != UNDECIDED:
            found.append(self._queue.popleft())
        if not found:
            self._announcing = None
        return found

    def confirm(self, appends: list[Append]) -> None:
        """Note that the log has a batch."""
        self._announcing = None
        self.appended += len(appends)
        for append in appends:
            if append.number == ANNOUNCED:
                continue
            if self._spool.pop(append.number, None) is None:
                self._transient_count -= 1
                self._transient_bytes -= _size(append)
            else:
                self._spool_bytes -= _size(append)
                self._store(append.number, None)

    def put_back(self, appends: list[Append]) -> None:
        """Note that the log has nothing of a batch: all of it goes again."""
        self._queue.extendleft(reversed([append for append in appends if append.number != ANNOUNCED]))
        self._announced = {
            key: entry for key, entry in (self._announcing or {}).items() if key not in self._announced
        } | self._announced
        self._announcing = None


def _size(append: Append) -> int:
    return len(append.value or b"") + len(append.key)


def _append_to_bytes(append: Append) -> bytes:
    topic, key = append.topic.encode(), append.key.encode()
    return b"".join((_HEAD.pack(len(topic), len(key)), topic, key, append.value or b""))


def _append_from_bytes(number: int, data: bytes) -> Append:
    topic_size, key_size = _HEAD.unpack_from(data)
    topic_end = _HEAD.size + topic_size
    key_end = topic_end + key_size
    return Append(number, data[_HEAD.size : topic_end].decode(), data[topic_end:key_end].decode(), data[key_end:])
