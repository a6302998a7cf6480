"""The central hub and its logs: records go to the hub, its appends to the logs, offsets that are handled are committed.

    begin: state of all sites ─▶ read to its end ─▶ cross-hub of all sites watched, the group joined
    a site is assigned: followed topics ─▶ read to their ends at that time ─▶ `own` ─▶ `route` its records
    tick: records ─▶ hub ─▶ appends, one batch at a time with each log ─▶ confirmed ─▶ commit

Invariants:
- callbacks of logs come from any thread and only hand over, by `call_soon`; everything else runs in one thread, and no thread is
  created here: a simulator can run it;
- nothing is routed before the subscriptions and claims of all sites are read, so that no receiver is left out;
- appends for a site keep their order, and only a record that the log refuses for good is left out: a log has one batch at a time,
  and a failed batch is retried before later ones;
- an offset is committed when all appends for the records before it are confirmed.
"""

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Final, NamedTuple, Protocol

from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    Entry,
    Following,
    Log,
    LogLost,
    LogRefused,
    LogUnavailable,
    Member,
    Record,
    Since,
    TopicEnd,
    TopicSettings,
)
from milepost.federation.central_hub import HEARTBEAT_KEY, CentralHub
from milepost.federation.hub_actions import HubAppend, HubReadBack
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, LoggedRecord

# Records on their way to the logs.

WAITING_MAX: Final = 20_000
"""Maximum records that wait for all logs together; while it is reached, nothing more is read."""
BATCH_RECORDS: Final = 2_000
BATCH_BYTES: Final = 4_000_000

CallSoon = Callable[[Callable[[Instant], None]], None]
OnEvent = Callable[[str, str, str], None]
"""Called with an event, the site and the reason, for the log lines of the process."""


@dataclass(slots=True)
class _LogQueue:
    """Records that wait for one log."""

    log: Log
    waiting: deque[HubAppend] = field(default_factory=deque)
    queued: int = 0
    """Number of records ever put here."""
    done: int = 0
    """Number of them that the log has confirmed."""
    in_flight: int = 0
    is_paused: bool = False
    """Whether the last append failed: the next tick tries again."""
    has_heartbeat: bool = False
    """Whether a heartbeat waits: one is enough."""
    one_by_one: int = 0
    """Number of next records to append one by one, because the log refuses one of them."""


class AppendQueues:
    """Appends to all logs, in order for each, one batch at a time; an unavailable log delays no other one."""

    def __init__(self, logs: Mapping[str, Log], call_soon: CallSoon, on_event: OnEvent) -> None:
        self._queues = {site: _LogQueue(log) for site, log in logs.items()}
        self._call_soon = call_soon
        self._on_event = on_event
        self._last: dict[str, dict[str, int]] = {site: {} for site in logs}
        self._pending_commits: dict[str, deque[tuple[int, dict[str, int]]]] = {site: deque() for site in logs}
        self._noted: dict[str, int] = {}
        self.handed_over = 0
        """Number of batches handed to logs."""
        self.refused = 0
        """Number of records that a log refused for good."""

    @property
    def is_full(self) -> bool:
        """Whether `WAITING_MAX` records wait, so that nothing more should be read."""
        return self.waiting >= WAITING_MAX

    @property
    def waiting(self) -> int:
        """Number of records that are not appended yet."""
        return sum(len(queue.waiting) for queue in self._queues.values())

    def put(self, appends: Iterable[HubAppend]) -> None:
        """Queue records."""
        for append in appends:
            queue = self._queues[append.site]
            if append.key == HEARTBEAT_KEY:
                if queue.has_heartbeat:
                    continue
                queue.has_heartbeat = True
            queue.waiting.append(append)
            queue.queued += 1
            if append.stream:
                self._last[append.stream][append.site] = queue.queued

    def push(self) -> None:
        """Hand each idle log its next batch."""
        for site, queue in self._queues.items():
            if queue.waiting and not queue.in_flight and not queue.is_paused:
                self._hand_over(site, queue)

    def try_again(self) -> None:
        """Retry the logs whose last append failed."""
        for queue in self._queues.values():
            queue.is_paused = False
        self.push()

    def note_position(self, stream: str, position: int) -> None:
        """Note that a stream is handled up to a position once all its appends until now are confirmed."""
        if self._noted.get(stream) != position:
            self._noted[stream] = position
            self._pending_commits[stream].append((position, dict(self._last[stream])))

    def take_committable(self, stream: str) -> int | None:
        """Return the position up to which a stream is handled, if it has changed."""
        pending, found = self._pending_commits[stream], None
        while pending and all(self._queues[site].done >= number for site, number in pending[0][1].items()):
            found = pending.popleft()[0]
        return found

    def forget(self, stream: str) -> None:
        """Forget a stream that another process owns from now on."""
        self._pending_commits[stream].clear()
        self._last[stream].clear()
        self._noted.pop(stream, None)

    def _hand_over(self, site: str, queue: _LogQueue) -> None:
        batch: list[Entry] = []
        size = 0
        for append in queue.waiting:
            size += len(append.value or b"")
            if batch and (queue.one_by_one or len(batch) >= BATCH_RECORDS or size > BATCH_BYTES):
                break
            batch.append(Entry(append.topic, append.key, append.value))
        queue.in_flight = len(batch)
        self.handed_over += 1
        try:
            queue.log.append(batch, partial(self._on_confirmed, site))
        except LogUnavailable as fault:
            queue.in_flight, queue.is_paused = 0, True
            self._on_event("log unavailable", site, str(fault))
        except LogRefused as fault:
            self._refused(site, queue, fault)

    def _on_confirmed(self, site: str, fault: Exception | None) -> None:
        self._call_soon(lambda _: self._done(site, fault))

    def _done(self, site: str, fault: Exception | None) -> None:
        queue = self._queues[site]
        if isinstance(fault, LogRefused):
            self._refused(site, queue, fault)
        elif fault is not None:
            queue.in_flight, queue.is_paused = 0, True
            self._on_event("log unavailable", site, str(fault))
        else:
            self._drop(queue, queue.in_flight)
        self.push()

    def _refused(self, site: str, queue: _LogQueue, fault: Exception) -> None:
        """Find the record that the log refuses by appending the batch one by one, and leave that record out."""
        count, queue.in_flight = queue.in_flight, 0
        if count > 1:
            queue.one_by_one = count
            return
        self.refused += 1
        self._on_event("record refused by the log", site, str(fault))
        queue.in_flight = count
        self._drop(queue, count)

    def _drop(self, queue: _LogQueue, count: int) -> None:
        for _ in range(count):
            queue.has_heartbeat &= queue.waiting.popleft().key != HEARTBEAT_KEY
        queue.done += count
        queue.in_flight = 0
        queue.one_by_one = max(0, queue.one_by_one - count)


GROUP: Final = "hub"
STATE: Final = (SUBSCRIPTION_INFO, VEHICLE_INFO)
LOOK_BACK_NS: Final = 10 * SECOND_NS
"""How far before the last heartbeat cross-hub is read again: longer than the append of a record takes."""
TAKEOVER_TIMEOUT_NS: Final = 5 * SECOND_NS
READ_BACK_MAX: Final = 50_000
"""Maximum records read again for one move."""

_COMPACTED: Final = TopicSettings(is_compacted=True)


class Backpressure(Protocol):
    """Backpressure: blocks readers while their batches are not handled."""

    def enter(self, name: str) -> None:
        """Called by a reader before it hands over a batch; may block."""

    def leave(self, name: str) -> None:
        """Note that a batch is handled."""


class NoBackpressure:
    """No backpressure: for simulators, which have one thread."""

    def enter(self, name: str) -> None:
        """Do not wait."""

    def leave(self, name: str) -> None:
        """Do nothing."""


class _Assignment(NamedTuple):
    """One assignment of a site to this process."""

    first: int | None
    """The first offset of its cross-hub to handle; None: that of the first record received."""
    ends: dict[tuple[str, str], int]
    """The ends of all followed topics when it was assigned."""
    warn_after: Instant = Instant(0)
    """After this time a site that is not owned yet is logged, with the reason."""


class HubLink:
    """Connects a process of the central hub with the logs of all sites."""

    def __init__(
        self,
        hub: CentralHub,
        logs: Mapping[str, Log],
        call_soon: CallSoon,
        *,
        backpressure: Backpressure | None = None,
        on_event: OnEvent | None = None,
    ) -> None:
        assert set(hub.sites) == set(logs)
        self.hub = hub
        self._logs = logs
        self._call_soon = call_soon
        self._backpressure = backpressure or NoBackpressure()
        self._on_event = on_event or _ignore_event
        self.outgoing = AppendQueues(logs, call_soon, self._on_event)
        self._positions: dict[tuple[str, str], int] = {}
        self._start_ends: dict[tuple[str, str], int] = {}
        self._since = Instant(0)
        self._followings: list[Following] = []
        self._members: dict[str, Member] = {}
        self._assignments: dict[str, _Assignment] = {}
        """Assignments by site: owned, or about to be."""
        self._assigned: set[str] = set()
        """The assignment of the groups; used in the threads of members only, each for its site."""
        self._inbox: dict[str, deque[Sequence[Record]]] = {site: deque() for site in logs}
        self.is_stopping = False
        """Set it to stop routing; appends under way are finished."""

    @property
    def is_ready(self) -> bool:
        """Whether the state of all sites is read, so that this process can own some."""
        return bool(self._members)

    def begin(self) -> None:
        """Begin to read the state of all sites; may raise `LogUnavailable`."""
        for log in self._logs.values():
            for topic in STATE:
                log.make(topic, _COMPACTED)
            log.make(CROSS_HUB)
        for site, log in self._logs.items():
            for topic in STATE:
                self._positions[site, topic], self._start_ends[site, topic] = log.ends(topic)
            self._follow(site, dict.fromkeys(STATE, TopicEnd.BEGINNING))

    def tick(self, now: Instant) -> None:
        """Continue waiting work; call it several times a second."""
        if not self._members and self._find_unread(self._start_ends, asks_log=True) is None:
            self._join(now)
        self.hub.tick(now)
        self.outgoing.try_again()
        self._advance(now, asks_log=True)
        self._commit()

    def close(self) -> None:
        """Leave the group, and stop reading."""
        for member in self._members.values():
            member.close()
        for following in self._followings:
            following.close()

    # From the logs' threads

    def _follow(self, site: str, starts: Mapping[str, TopicEnd | Since]) -> None:
        name = f"{site} {' '.join(starts)}"
        take = partial(self._hand_over, name, partial(self._followed, site))
        self._followings.append(self._logs[site].follow(starts, take, partial(self._lost, site)))

    def _hand_over(self, name: str, take: Callable[[str, Sequence[Record], Instant], None], records: Sequence[Record]) -> None:
        self._backpressure.enter(name)
        self._call_soon(lambda now: take(name, records, now))

    def _changed(self, site: str, topics: frozenset[str]) -> None:
        """Handle a changed assignment; end offsets are read here, in the thread of the log, because that may block."""
        if (CROSS_HUB in topics) == (site in self._assigned):
            return
        if CROSS_HUB not in topics:
            self._assigned.discard(site)
            self._call_soon(lambda now: self._drop(site, now))
            return
        self._assigned.add(site)
        first: int | None = None
        ends: dict[tuple[str, str], int] = {}
        for other, log in self._logs.items():
            with suppress(LogUnavailable):  # left out: an unavailable log is assumed not to grow
                ends |= {(other, topic): log.ends(topic)[1] for topic in (*STATE, CROSS_HUB)}
        with suppress(LogUnavailable):
            log = self._logs[site]
            first = log.committed(GROUP).get(CROSS_HUB)
            first = log.ends(CROSS_HUB)[0] if first is None else first
        self._call_soon(lambda now: self._on_assigned(site, _Assignment(first, ends), now))

    def _owned(self, site: str, records: Sequence[Record]) -> None:
        self._hand_over(f"{site} own", partial(self._on_assigned_records, site), records)

    def _lost(self, site: str, fault: LogLost) -> None:
        self._call_soon(lambda _: self._on_event("records lost", site, str(fault)))

    # In the main thread

    def _followed(self, site: str, name: str, records: Sequence[Record], now: Instant) -> None:
        topic = records[0].topic
        self.hub.on_records(site, topic, [_logged(record) for record in records], now)
        self._positions[site, topic] = records[-1].offset + 1
        self._backpressure.leave(name)
        if not self._members and self._find_unread(self._start_ends) is None:
            self._join(now)
        self._advance(now)

    def _join(self, now: Instant) -> None:
        """Watch cross-hub and join the group, after the state of all sites was read."""
        self._since = self._look_back_from(now)
        for site, log in self._logs.items():
            self._follow(site, {CROSS_HUB: Since(self._since)})
            self._members[site] = log.join(
                GROUP, [CROSS_HUB], partial(self._owned, site), partial(self._lost, site), changed=partial(self._changed, site)
            )

    def _look_back_from(self, now: Instant) -> Instant:
        """Return the earliest of the hubs' heartbeats and unfinished records, minus `LOOK_BACK_NS`."""
        found = [info.at for info in self.hub.heartbeats.values()]
        for log in self._logs.values():
            first = log.committed(GROUP).get(CROSS_HUB)
            with suppress(LogLost):
                found += [record.appended_at for record in (log.read(CROSS_HUB, first, 1) if first is not None else ())]
        return Instant(max(0, min(found, default=now) - LOOK_BACK_NS))

    def _on_assigned(self, site: str, assignment: _Assignment, now: Instant) -> None:
        self._drop(site, now)
        self._assignments[site] = assignment._replace(warn_after=Instant(now + TAKEOVER_TIMEOUT_NS))
        self._advance(now)

    def _drop(self, site: str, now: Instant) -> None:
        self._assignments.pop(site, None)
        self.outgoing.forget(site)
        if site in self.hub.owned:
            self.hub.own(site, False, now)
        for _ in range(len(self._inbox[site])):
            self._backpressure.leave(f"{site} own")
        self._inbox[site].clear()

    def _on_assigned_records(self, site: str, name: str, records: Sequence[Record], now: Instant) -> None:
        assert site in self._assignments, f"{name}: the log delivered records of an unassigned site"
        self._inbox[site].append(records)
        self._advance(now)

    def _own(self, site: str, assignment: _Assignment, now: Instant) -> None:
        inbox = self._inbox[site]
        first = assignment.first if assignment.first is not None or not inbox else inbox[0][0].offset
        if first is not None:
            self._on_event("serving site", site, f"cross-hub from offset {first}")
            self.hub.own(site, True, now, first=first)

    def _advance(self, now: Instant, *, asks_log: bool = False) -> None:
        """Own the sites that are read up to their ends, route their records, and hand the appends to the logs."""
        hub = self.hub
        for site, assignment in self._assignments.items():
            if site in hub.owned:
                continue
            unread = self._find_unread(assignment.ends, asks_log=asks_log)
            if unread is None:
                self._own(site, assignment, now)
            elif now > assignment.warn_after:
                position, end = self._positions.get(unread), assignment.ends[unread]
                self._on_event("not serving site yet", site, f"{unread[1]} of {unread[0]} is read up to {position} of {end}")
        self.outgoing.put(hub.take_appends())
        for site in hub.owned:
            inbox = self._inbox[site]
            while inbox and not (self.is_stopping or self.outgoing.is_full or hub.is_waiting(site)):
                hub.route(site, [_logged(record) for record in inbox.popleft()], now)
                self._backpressure.leave(f"{site} own")
                self.outgoing.put(hub.take_appends())
        for request in hub.take_reads():
            self._read_back(request, now)
        self.outgoing.put(hub.take_appends())
        self.outgoing.push()
        for site, topic, offset, why, detail in hub.take_faults():
            self._on_event(f"record {why.value}", site, f"{topic} {offset}: {detail}")

    def _read_back(self, request: HubReadBack, now: Instant) -> None:
        """Read a range of a log again, from its end towards its beginning, as far as is needed."""
        log, pages, is_complete = self._logs[request.site], deque[list[Record]](), True
        before = request.before
        while before > request.first:
            first = max(request.first, before - BATCH_RECORDS_MAX)
            try:
                page = [record for record in log.read(CROSS_HUB, first, before - first) if record.offset < before]
            except (LogLost, LogUnavailable):
                is_complete = False
                break
            pages.appendleft(page)
            before = first
            if page and page[0].appended_at < request.since:
                break
            if sum(map(len, pages)) > READ_BACK_MAX:
                is_complete = False
                break
        self.hub.on_read(request.site, [_logged(record) for page in pages for record in page], now, is_complete=is_complete)

    def _commit(self) -> None:
        for site in self.hub.owned:
            self.outgoing.note_position(site, self.hub.position(site))
            position = self.outgoing.take_committable(site)
            if position is not None:
                self._members[site].commit(CROSS_HUB, position)

    def _find_unread(self, ends: Mapping[tuple[str, str], int], *, asks_log: bool = False) -> tuple[str, str] | None:
        """Return a followed topic that is not read up to its end; *asks_log*: ask the log where records were removed."""
        unread = (one for one, end in ends.items() if self._positions.get(one, -1) < end)
        return next((one for one in unread if not (asks_log and self._is_read(*one, ends[one]))), None)

    def _is_read(self, site: str, topic: str, end: int) -> bool:
        """Return whether no further record before *end* can arrive: the last ones were removed, or are older than needed."""
        log, position = self._logs[site], self._positions.get((site, topic))
        try:
            if position is None:
                position = max(log.ends(topic)[0], end - 1)
            record = next(iter(log.read(topic, position, 1)), None)
        except (LogUnavailable, LogLost):
            return False
        if record is None or record.offset >= end:
            return True
        return (site, topic) not in self._positions and record.appended_at < self._since


def _logged(record: Record) -> LoggedRecord:
    return LoggedRecord(record.offset, record.key, record.value, record.appended_at)


def _ignore_event(event: str, site: str, reason: str) -> None:
    """Ignore an event."""
