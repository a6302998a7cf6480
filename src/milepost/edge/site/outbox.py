"""The outbox: what this edge has to append to the log of its site, in order, until the log has it.

    spooled: kept in the edge's storage in the turn it was decided ─┐
    passing: of quality 0, in memory only                           ├▶ `take` ─▶ log ─▶ `taken`: forgotten
    said of itself: the last value of each key, in memory only      ┘              └▶ `put_back`: again, before all else

What must hold:
- numbers only grow, also over restarts as long as the clock is not set back: readers drop what is not higher than the last;
- so what is spooled and what passes leave in the order of their numbers, and only one round at a time is with the log: one that
  failed goes again before those after it;
- what is spooled stays until the log has it. It is limited in number and bytes: then nothing more is let in that would have to go
  there;
- what is undecided waits, and all after it: who wants it is not known before the site's register was read;
- what an edge says of itself (claims, subscriptions, its coverage) can be said again at any time from what is kept: of one key
  only the last value counts. `last_said` and `said_up_to` tell when all that was said before some moment has arrived.
"""

from collections import deque
from collections.abc import Callable
from itertools import islice
from struct import Struct
from typing import Final, NamedTuple

from milepost.edge.keeping import Changes
from milepost.edge.site.limits import SiteLimits
from milepost.model.instants import Instant

ROUND_MAX: Final = 5_000
"""So much is handed to the log at a time."""
PASSING_MAX: Final = 20_000
"""So many messages of quality 0 wait for the log; more are dropped, and counted."""
TELLING_BYTES_MAX: Final = 32_000_000
"""While more bytes of what is not kept wait, nothing is told that others can do without."""

SAID: Final = 0
PASSING: Final = -1

UNDECIDED: Final = ""
"""The topic of what nobody knows yet where to put."""

_HEAD: Final = Struct("<HH")


class Append(NamedTuple):
    """A record for the log."""

    number: int
    """`SAID` or `PASSING` for what has none."""
    topic: str
    key: str
    value: bytes | None


class Outbox:
    """What is on its way to the log."""

    def __init__(self, limits: SiteLimits) -> None:
        self._limits = limits
        self._last = 0
        self._queue: deque[Append] = deque()
        self._spool: dict[int, Append] = {}
        """Of the queue and of what is with the log, what is kept."""
        self._spool_bytes = 0
        self._passing = 0
        self._passing_bytes = 0
        self._said: dict[tuple[str, str], tuple[int, bytes | None]] = {}
        """In the order in which it was said, each with its turn."""
        self._out: dict[tuple[str, str], tuple[int, bytes | None]] | None = None
        """What is with the log of what was said; nothing: the log has no round."""
        self._last_said = 0
        self.appended = 0
        """Records that the log has taken."""

    def restore(self, kept: dict[int, bytes], last: int) -> None:
        """What an earlier process did not bring to the log, and the last of its numbers that is known to be there."""
        for number in sorted(kept):
            self._put(_append_from_bytes(number, kept[number]))
        self._last = max(last, *kept, 0)

    @property
    def waiting(self) -> int:
        """How many spooled records the log does not have yet."""
        return len(self._spool)

    @property
    def waiting_bytes(self) -> int:
        """Their bytes."""
        return self._spool_bytes

    @property
    def last_number(self) -> int:
        """The last number that was given."""
        return self._last

    def last_of(self, topic: str, key: str) -> int:
        """The last number of what waits for a topic under a key; 0 if nothing does."""
        return max((one.number for one in self._queue if (one.topic, one.key) == (topic, key)), default=0)

    def next_number(self, now: Instant) -> int:
        """A number higher than all before."""
        self._last = max(self._last + 1, now)
        return self._last

    def is_full(self) -> bool:
        """Whether nothing more can be spooled."""
        return len(self._spool) >= self._limits.spool_messages_max or self._spool_bytes >= self._limits.spool_bytes_max

    def spool(self, append: Append, changes: Changes) -> None:
        """Have a record kept until the log has it; `is_full` is for whoever can still refuse."""
        self._put(append)
        changes.outbox[append.number] = _append_to_bytes(append)

    def _put(self, append: Append) -> None:
        self._spool[append.number] = append
        self._spool_bytes += _size(append)
        self._queue.append(append)

    def let_pass(self, append: Append) -> bool:
        """Have a record appended that is not kept; tells whether there was room."""
        if self._passing >= PASSING_MAX:
            return False
        self._passing += 1
        self._passing_bytes += _size(append)
        self._queue.append(append)
        return True

    def tell(self, append: Append) -> bool:
        """The same with something that others can do without: it leaves messages half of the room, and more."""
        has_room = self._passing < PASSING_MAX // 2 and self._passing_bytes < TELLING_BYTES_MAX
        return has_room and self.let_pass(append)

    def decide(self, choose: Callable[[Append], list[Append]], changes: Changes) -> None:
        """Put in place of each that is undecided what `choose` gives for it: the first has its number, others follow all."""
        before, self._queue = self._queue, deque()
        for append in before:
            chosen = choose(append) if append.topic == UNDECIDED else [append]
            is_kept = self._spool.pop(append.number, None) is not None
            self._spool_bytes -= _size(append) if is_kept else 0
            self._passing -= not is_kept
            self._passing_bytes -= 0 if is_kept else _size(append)
            if is_kept and not chosen:
                changes.outbox[append.number] = None
            for one in chosen:
                if not is_kept:
                    self.let_pass(one)
                elif one is append:
                    self._put(one)
                else:
                    self.spool(one, changes)

    def say(self, topic: str, key: str, value: bytes | None) -> None:
        """Say something of this edge, in place of what was to be said under that key."""
        self._last_said += 1
        self._said.pop((topic, key), None)
        self._said[topic, key] = (self._last_said, value)

    @property
    def last_said(self) -> int:
        """The turn of what was said last; it has arrived when `said_up_to` is not lower."""
        return self._last_said

    @property
    def said_up_to(self) -> int:
        """All that was said up to this turn has arrived, or something later under its key."""
        waits = [next(iter(those.values()))[0] for those in (self._out, self._said) if those]
        return min(waits) - 1 if waits else self._last_said

    @property
    def is_ready(self) -> bool:
        """Whether there is something to take."""
        return self._out is None and bool(self._said or (self._queue and self._queue[0].topic != UNDECIDED))

    def take(self, most: int = ROUND_MAX) -> list[Append]:
        """What can go to the log now, in order; to be answered by `taken` or `put_back`."""
        if self._out is not None:
            return []
        self._out = dict(islice(self._said.items(), most))
        for key in self._out:
            del self._said[key]
        found = [Append(SAID, topic, key, value) for (topic, key), (_, value) in self._out.items()]
        while self._queue and len(found) < most and self._queue[0].topic != UNDECIDED:
            found.append(self._queue.popleft())
        if not found:
            self._out = None
        return found

    def taken(self, appends: list[Append], changes: Changes) -> None:
        """The log has all of what was taken."""
        self._out = None
        self.appended += len(appends)
        for append in appends:
            if append.number == SAID:
                continue
            if self._spool.pop(append.number, None) is None:
                self._passing -= 1
                self._passing_bytes -= _size(append)
            else:
                self._spool_bytes -= _size(append)
                changes.outbox[append.number] = None

    def put_back(self, appends: list[Append]) -> None:
        """The log has nothing of what was taken: all of it goes again."""
        self._queue.extendleft(reversed([append for append in appends if append.number != SAID]))
        self._said = {key: said for key, said in (self._out or {}).items() if key not in self._said} | self._said
        self._out = None


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
