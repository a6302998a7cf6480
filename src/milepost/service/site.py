"""The thread between an edge and the log of its site: records in, appends out; no thread of its own.

    log's threads ──call_soon──▶ on_records ─▶ turn ─▶ settle (kept) ─▶ flush: appends ──▶ log
                                                          done ──call_soon──▶ appended

What must hold:
- nothing is appended before the turn that decided it was kept, and nothing at all while storage is in trouble;
- what was read and waits for its turn is limited: the log's reader waits then;
- while storage is in trouble nothing is read: what came of it could not be kept.
"""

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Semaphore
from typing import Final

from milepost.backbone.log import Edge, Entry, Following, Log, LogLost, LogRefused, LogUnavailable, Record, Start, TopicSettings
from milepost.doors.log import Log as Told
from milepost.edge.site.member import Heard, SiteMember
from milepost.edge.site.moving import ReadBack
from milepost.edge.site.outbox import ROUND_MAX, Append
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO
from milepost.model.telling import DELIVERIES, REPORTS, REPUTATION

BATCHES_MAX: Final = 8
"""So many batches of records wait for their turn."""
READ_BACK_MAX: Final = 100_000
"""So many records are read again for one endpoint, at most."""
CROSS_HUB_S: Final = 7 * 86_400
"""So long what was said stays in the log: an edge may be away as long and miss nothing."""
TELLING: Final = TopicSettings(retention_s=86_400, retention_bytes=10_000_000_000)
"""Of what pipelines are told: a day, and no more bytes than a disk has, whether or not anybody reads it."""

ROUND_NS: Final = 3_000_000
"""So long after a round of appends the next one begins, at the earliest: what is said meanwhile goes together, at less cost."""

LOOK_NS: Final = SECOND_NS // 4
"""So often it is looked whether there is nothing more to read."""

CallSoon = Callable[[Callable[[Instant], None]], None]
BeBack = Callable[[float], None]
"""Has the next turn begin within so many seconds."""

TOPICS: Final[dict[str, TopicSettings]] = {
    CROSS_HUB: TopicSettings(retention_s=CROSS_HUB_S),
    SUBSCRIPTION_INFO: TopicSettings(is_compacted=True),
    VEHICLE_INFO: TopicSettings(is_compacted=True),
    REPORTS: TELLING,
    DELIVERIES: TELLING,
    REPUTATION: TopicSettings(is_compacted=True),
}


class SiteLink:
    """Reads the log for a member of a site, and appends what it says."""

    def __init__(
        self,
        member: SiteMember,
        log: Log,
        call_soon: CallSoon,
        told: Told,
        neighbours: Mapping[str, Log] | None = None,
        *,
        be_back: BeBack | None = None,
    ) -> None:
        self._member = member
        self._log = log
        self._call_soon = call_soon
        self._told = told
        self._neighbours = neighbours or {}
        self._room = Semaphore(BATCHES_MAX)
        self._unread: dict[str, int] = {}
        self._read_up_to: dict[str, int] = {}
        self._held: list[tuple[str, Sequence[Record]]] = []
        self._following: Following | None = None
        self._one_by_one = 0
        """Of what is appended next, so many go alone: the log refuses one of them."""
        self._be_back = be_back
        """Without it every turn may have its round."""
        self._round_at = Instant(0)
        self._look_at = Instant(0)
        self._is_over = False
        member.state.neighbours = frozenset(self._neighbours)

    def start(self) -> None:
        """Make the site's topics where they are not there, and begin to read."""
        log, member = self._log, self._member
        for topic, settings in TOPICS.items():
            log.make(topic, settings)
        log.make(member.inbox, TopicSettings(retention_s=CROSS_HUB_S))
        starts: dict[str, Start] = {}
        for topic, offset in member.starts().items():
            starts[topic] = Edge.BEGINNING if offset is None else offset
        if starts[CROSS_HUB] is Edge.BEGINNING:
            starts[CROSS_HUB] = log.ends(CROSS_HUB)[1]
        first = starts[CROSS_HUB]
        assert isinstance(first, int), "cross-hub is read from an offset"
        member.begin_at(first, log.ends(CROSS_HUB)[1])
        self._unread = {topic: log.ends(topic)[1] for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO)}
        self._following = log.follow(starts, self._take, self._lost)

    def close(self) -> None:
        """Read no more; what was handed to the log is finished."""
        self._is_over = True
        if self._following is not None:
            for _ in range(BATCHES_MAX):
                self._room.release()
            self._following.close()
        self._log.close()
        for log in self._neighbours.values():
            log.close()

    # In the log's threads

    def _take(self, records: Sequence[Record]) -> None:
        self._room.acquire()
        if not self._is_over:
            self._call_soon(partial(self._on_batch, records[0].topic, records))

    def _lost(self, lost: LogLost) -> None:
        self._call_soon(lambda _: self._told.warning("records of the log are lost", reason=str(lost)))

    # In the edge's turns

    def _on_batch(self, topic: str, records: Sequence[Record], now: Instant) -> None:
        self._held.append((topic, records))
        self._read_on(now)

    def _read_on(self, now: Instant) -> None:
        while self._held and self._member.state.corridor.trouble is None:
            topic, records = self._held.pop(0)
            heard = [Heard(one.offset, one.key, one.value, one.appended_at) for one in records]
            self._member.on_records(topic, heard, now)
            self._room.release()
            self._read_up_to[topic] = records[-1].offset + 1
            if topic in self._unread and records[-1].offset + 1 >= self._unread[topic]:
                del self._unread[topic]
                self._member.caught_up(topic, now)

    def _look(self, now: Instant) -> None:
        """A topic whose last records were removed is read when there is nothing more to read."""
        self._look_at = Instant(now + LOOK_NS)
        for topic, at in list(self._unread.items()):
            with suppress(LogUnavailable, LogLost):
                if self._log.ends(topic)[0] >= at or not self._log.read(topic, self._read_up_to.get(topic, 0), 1):
                    del self._unread[topic]
                    self._member.caught_up(topic, now)

    def flush(self, now: Instant) -> bool:
        """After the turn was kept: append what it decided; then begin the next with what waits. Tells whether there is one."""
        self._member.delivered.settle(now)
        if self._member.state.corridor.trouble is not None or self._is_over:
            return False
        self._append_next(now)
        wants_another = bool(self._held)
        self._read_on(now)
        for asked in self._member.take_read_backs():
            wants_another = self._read_back(asked, now) or wants_another
        if self._unread and now >= self._look_at:
            self._look(now)
            wants_another = True
        return wants_another

    def _append_next(self, now: Instant) -> None:
        outbox, early_ns = self._member.state.outbox, self._round_at - now
        if self._be_back is not None and 0 < early_ns <= ROUND_NS:  # more than that: the clock was set back
            if outbox.is_ready:
                self._be_back(early_ns / SECOND_NS)
            return
        appends = outbox.take(1 if self._one_by_one else ROUND_MAX)
        if appends:
            self._round_at = Instant(now + ROUND_NS)
            self._append(appends)

    def _append(self, appends: list[Append]) -> None:
        own = [one for one in appends if "\n" not in one.topic]
        try:
            self._log.append([Entry(one.topic, one.key, one.value) for one in own], partial(self._done, appends))
        except (LogUnavailable, LogRefused) as fault:
            self._fail(appends, fault)
            return
        for one in appends:
            if "\n" in one.topic:
                self._append_to_neighbour(one)

    def _append_to_neighbour(self, append: Append) -> None:
        site, _, topic = append.topic.partition("\n")
        try:
            self._neighbours[site].append([Entry(topic, append.key, append.value)])
        except (LogUnavailable, LogRefused) as fault:
            self._told.seldom("a neighbour's log takes nothing", site=site, reason=str(fault))

    def _done(self, appends: list[Append], fault: Exception | None) -> None:
        if not self._is_over:
            self._call_soon(partial(self._on_done, appends, fault))

    def _on_done(self, appends: list[Append], fault: Exception | None, now: Instant) -> None:
        if fault is None:
            self._one_by_one = max(0, self._one_by_one - len(appends))
            self._member.appended(appends, now)
        else:
            self._fail(appends, fault)

    def _fail(self, appends: list[Append], fault: Exception) -> None:
        """The log has nothing of it: all of it again, at the latest with the next tick; what it will never take is left out."""
        outbox = self._member.state.outbox
        if not isinstance(fault, LogRefused):
            self._told.seldom("the log takes nothing", reason=str(fault))
            outbox.put_back(appends)
        elif len(appends) > 1:
            self._one_by_one = len(appends)
            outbox.put_back(appends)
        else:
            self._told.warning("the log refuses a record", topic=appends[0].topic, reason=str(fault))
            self._one_by_one = max(0, self._one_by_one - 1)
            outbox.taken(appends, self._member.state.corridor.changes)

    def _read_back(self, asked: ReadBack, now: Instant) -> bool:
        first, end = self._log.ends(CROSS_HUB)
        try:
            at = end if asked.offset is None else asked.offset
            at = at if asked.since is None else min(at, self._offset_at(asked.since, first, end))
            records = self._read_from(max(at, first), self._member.state.next_offset)
        except (LogUnavailable, LogLost) as fault:
            self._told.warning("cannot read the log again", endpoint=asked.endpoint, reason=str(fault))
            self._member.roaming.moving.read_backs.setdefault(asked.endpoint, asked)
            return False
        self._member.on_read_back(asked, [Heard(one.offset, one.key, one.value, one.appended_at) for one in records], now)
        return True

    def _read_from(self, first: int, end: int) -> list[Record]:
        found: list[Record] = []
        while first < end and len(found) < READ_BACK_MAX:
            some = self._log.read(CROSS_HUB, first, min(end - first, READ_BACK_MAX - len(found)))
            found += [one for one in some if one.offset < end]
            if not some:
                break
            first = some[-1].offset + 1
        return found

    def _offset_at(self, since: Instant, first: int, end: int) -> int:
        """The offset of the first record appended since a time, by halving."""
        while first < end:
            middle = (first + end) // 2
            some = self._log.read(CROSS_HUB, middle, 1)
            if some and some[0].appended_at < since:
                first = some[0].offset + 1
            else:
                end = middle
        return first
