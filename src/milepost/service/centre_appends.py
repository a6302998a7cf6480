"""What the centre has to append, on its way to the logs of sites, and how far each site's cross-hub is dealt with by that.

What must hold:
- what is put here for a site is appended to its log in this order, and nothing is left out but what the log refuses for good. So
  only one batch at a time is with a log: one that failed goes again before those after it;
- a log that takes nothing holds up nobody else's appends, only what is read: `is_full` says when.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from milepost.backbone.log import Entry, Log, LogRefused, LogUnavailable
from milepost.hub.actions import Append
from milepost.hub.centre import HEARTBEAT_KEY
from milepost.model.instants import Instant

WAITING_MAX: Final = 20_000
"""So many records wait for all logs together; then nothing more is read."""
BATCH_RECORDS: Final = 2_000
BATCH_BYTES: Final = 4_000_000

CallSoon = Callable[[Callable[[Instant], None]], None]
Tell = Callable[[str, str, str], None]
"""Told of trouble: the event, the site, the reason."""


@dataclass(slots=True)
class _Lane:
    """What waits for one log."""

    log: Log
    waiting: deque[Append] = field(default_factory=deque)
    taken: int = 0
    """So many were ever put here."""
    done: int = 0
    """So many of them are safe."""
    with_log: int = 0
    rests: bool = False
    """Whether it took nothing the last time, and is not asked again at once."""
    has_beat: bool = False
    """Whether a sign of life waits: one is enough."""
    one_by_one: int = 0
    """Of those that come next, so many go alone: the log refuses one of them."""


class Outgoing:
    """A lane for each log."""

    def __init__(self, logs: Mapping[str, Log], call_soon: CallSoon, tell: Tell) -> None:
        self._lanes = {site: _Lane(log) for site, log in logs.items()}
        self._call_soon = call_soon
        self._tell = tell
        self._last: dict[str, dict[str, int]] = {site: {} for site in logs}
        self._marks: dict[str, deque[tuple[int, dict[str, int]]]] = {site: deque() for site in logs}
        self._marked: dict[str, int] = {}
        self.handed_over = 0
        """So many batches logs were given."""
        self.refused = 0
        """Records that a log did not take, and never would."""

    @property
    def is_full(self) -> bool:
        """Whether so much waits that nothing more should be read."""
        return self.waiting >= WAITING_MAX

    @property
    def waiting(self) -> int:
        """How many records the logs do not have yet."""
        return sum(len(lane.waiting) for lane in self._lanes.values())

    def put(self, appends: Iterable[Append]) -> None:
        """Have records appended."""
        for append in appends:
            lane = self._lanes[append.site]
            if append.key == HEARTBEAT_KEY:
                if lane.has_beat:
                    continue
                lane.has_beat = True
            lane.waiting.append(append)
            lane.taken += 1
            if append.stream:
                self._last[append.stream][append.site] = lane.taken

    def push(self) -> None:
        """Hand to each log that is free what waits for it."""
        for site, lane in self._lanes.items():
            if lane.waiting and not lane.with_log and not lane.rests:
                self._hand_over(site, lane)

    def try_again(self) -> None:
        """Ask those logs again that took nothing the last time."""
        for lane in self._lanes.values():
            lane.rests = False
        self.push()

    def mark(self, stream: str, position: int) -> None:
        """Remember that a stream is dealt with up to a position once all that was put here for it is safe."""
        if self._marked.get(stream) != position:
            self._marked[stream] = position
            self._marks[stream].append((position, dict(self._last[stream])))

    def settled(self, stream: str) -> int | None:
        """Up to where a stream is dealt with, if that is farther than it was told before."""
        marks, found = self._marks[stream], None
        while marks and all(self._lanes[site].done >= number for site, number in marks[0][1].items()):
            found = marks.popleft()[0]
        return found

    def forget(self, stream: str) -> None:
        """Somebody else deals with a stream from now on."""
        self._marks[stream].clear()
        self._last[stream].clear()
        self._marked.pop(stream, None)

    def _hand_over(self, site: str, lane: _Lane) -> None:
        batch: list[Entry] = []
        size = 0
        for append in lane.waiting:
            size += len(append.value or b"")
            if batch and (lane.one_by_one or len(batch) >= BATCH_RECORDS or size > BATCH_BYTES):
                break
            batch.append(Entry(append.topic, append.key, append.value))
        lane.with_log = len(batch)
        self.handed_over += 1
        try:
            lane.log.append(batch, partial(self._answered, site))
        except LogUnavailable as fault:
            lane.with_log, lane.rests = 0, True
            self._tell("log takes nothing", site, str(fault))
        except LogRefused as fault:
            self._refused(site, lane, fault)

    def _answered(self, site: str, fault: Exception | None) -> None:
        self._call_soon(lambda _: self._done(site, fault))

    def _done(self, site: str, fault: Exception | None) -> None:
        lane = self._lanes[site]
        if isinstance(fault, LogRefused):
            self._refused(site, lane, fault)
        elif fault is not None:
            lane.with_log, lane.rests = 0, True
            self._tell("log takes nothing", site, str(fault))
        else:
            self._drop(lane, lane.with_log)
        self.push()

    def _refused(self, site: str, lane: _Lane, fault: Exception) -> None:
        """One of the batch can never be appended: try each alone, and leave that one out."""
        count, lane.with_log = lane.with_log, 0
        if count > 1:
            lane.one_by_one = count
            return
        self.refused += 1
        self._tell("record refused by the log", site, str(fault))
        lane.with_log = count
        self._drop(lane, count)

    def _drop(self, lane: _Lane, count: int) -> None:
        for _ in range(count):
            lane.has_beat &= lane.waiting.popleft().key != HEARTBEAT_KEY
        lane.done += count
        lane.with_log = 0
        lane.one_by_one = max(0, lane.one_by_one - count)
