"""The centre and its logs: what is read reaches the centre, what it decides reaches the logs, what is dealt with is committed.

    begin: state of all sites ─▶ read to its end ─▶ cross-hub of all sites watched, the group joined
    a site comes to us: what is followed ─▶ read to where it ended then ─▶ `own` ─▶ `route` its records
    turn: records ─▶ centre ─▶ appends, one batch at a time with each log ─▶ safe ─▶ commit

What must hold:
- callbacks of logs come from any thread and do little but hand over, by `call_soon`; all else happens in one thread, and none is
  made here: a simulator can run it;
- nothing is routed before the wishes and claims of all sites are known, so that nothing is left out that somebody wants;
- an offset is committed when all that was appended because of the records before it is safe.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final, NamedTuple, Protocol

from milepost.backbone.log import (
    BATCH_RECORDS_MAX,
    Edge,
    Following,
    Log,
    LogLost,
    LogUnavailable,
    Member,
    Record,
    Since,
    TopicSettings,
)
from milepost.hub.actions import Incoming, ReadBack
from milepost.hub.centre import Centre
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.sites import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO
from milepost.service.centre_appends import CallSoon, Outgoing, Tell

GROUP: Final = "centre"
STATE: Final = (SUBSCRIPTION_INFO, VEHICLE_INFO)
LOOK_BACK_NS: Final = 10 * SECOND_NS
"""What was done so long before a centre was heard of last is looked at again: more than it had under way."""
PATIENCE_NS: Final = 5 * SECOND_NS
READ_BACK_MAX: Final = 50_000
"""So many records are read again for one move."""

_COMPACTED: Final = TopicSettings(is_compacted=True)


class Pace(Protocol):
    """Lets readers wait while what they brought is not dealt with."""

    def enter(self, name: str) -> None:
        """Called by a reader before it hands over a batch; may block."""

    def leave(self, name: str) -> None:
        """One batch is dealt with."""


class NoPace:
    """Nobody waits: for simulators, which have one thread."""

    def enter(self, name: str) -> None:
        """Go on."""

    def leave(self, name: str) -> None:
        """Go on."""


class _Turn(NamedTuple):
    """A time in which a site is ours."""

    first: int | None
    """From where its cross-hub comes; nothing: as its first record says."""
    ends: dict[tuple[str, str], int]
    """Where all that is followed ended when it came to us."""
    patient_until: Instant = Instant(0)
    """Who still waits then says for what."""


class CentreLink:
    """One process of the centre at the logs of all sites."""

    def __init__(
        self, centre: Centre, logs: Mapping[str, Log], call_soon: CallSoon, *, pace: Pace | None = None, tell: Tell | None = None
    ) -> None:
        assert set(centre.sites) == set(logs)
        self.centre = centre
        self._logs = logs
        self._call_soon = call_soon
        self._pace = pace or NoPace()
        self._tell = tell or _say_nothing
        self.outgoing = Outgoing(logs, call_soon, self._tell)
        self._positions: dict[tuple[str, str], int] = {}
        self._goals: dict[tuple[str, str], int] = {}
        self._since = Instant(0)
        self._followings: list[Following] = []
        self._members: dict[str, Member] = {}
        self._turns: dict[str, _Turn] = {}
        """By site: ours, or about to be."""
        self._assigned: set[str] = set()
        """What the groups say; to be used in the threads of members only, each for its site."""
        self._inbox: dict[str, deque[Sequence[Record]]] = {site: deque() for site in logs}
        self.is_stopping = False
        """Set to have nothing routed any more: what was begun is finished."""

    @property
    def is_ready(self) -> bool:
        """Whether all sites are known, so that this process can act for some."""
        return bool(self._members)

    def begin(self) -> None:
        """Read what there is to know of all sites; may raise `LogUnavailable`."""
        for log in self._logs.values():
            for topic in STATE:
                log.make(topic, _COMPACTED)
            log.make(CROSS_HUB)
        for site, log in self._logs.items():
            for topic in STATE:
                self._positions[site, topic], self._goals[site, topic] = log.ends(topic)
            self._follow(site, dict.fromkeys(STATE, Edge.BEGINNING))

    def tick(self, now: Instant) -> None:
        """Go on with what waits; to be called several times a second."""
        if not self._members and self._maybe_unread(self._goals, looks=True) is None:
            self._join(now)
        self.centre.tick(now)
        self.outgoing.try_again()
        self._go_on(now, looks=True)
        self._commit()

    def close(self) -> None:
        """Leave the group, read no further."""
        for member in self._members.values():
            member.close()
        for following in self._followings:
            following.close()

    # From the logs' threads

    def _follow(self, site: str, starts: Mapping[str, Edge | Since]) -> None:
        name = f"{site} {' '.join(starts)}"
        take = partial(self._hand_over, name, partial(self._followed, site))
        self._followings.append(self._logs[site].follow(starts, take, partial(self._lost, site)))

    def _hand_over(self, name: str, take: Callable[[str, Sequence[Record], Instant], None], records: Sequence[Record]) -> None:
        self._pace.enter(name)
        self._call_soon(lambda now: take(name, records, now))

    def _changed(self, site: str, topics: frozenset[str]) -> None:
        """A site came to us or went: where everything ended is asked here, because a log may take its time to answer."""
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
            with suppress(LogUnavailable):  # what cannot be read does not grow either, as far as anybody can know
                ends |= {(other, topic): log.ends(topic)[1] for topic in (*STATE, CROSS_HUB)}
        with suppress(LogUnavailable):
            log = self._logs[site]
            first = log.committed(GROUP).get(CROSS_HUB)
            first = log.ends(CROSS_HUB)[0] if first is None else first
        self._call_soon(lambda now: self._take_up(site, _Turn(first, ends), now))

    def _owned(self, site: str, records: Sequence[Record]) -> None:
        self._hand_over(f"{site} own", partial(self._take_own, site), records)

    def _lost(self, site: str, fault: LogLost) -> None:
        self._call_soon(lambda _: self._tell("records lost", site, str(fault)))

    # In the main thread

    def _followed(self, site: str, name: str, records: Sequence[Record], now: Instant) -> None:
        topic = records[0].topic
        self.centre.on_records(site, topic, [_incoming(record) for record in records], now)
        self._positions[site, topic] = records[-1].offset + 1
        self._pace.leave(name)
        if not self._members and self._maybe_unread(self._goals) is None:
            self._join(now)
        self._go_on(now)

    def _join(self, now: Instant) -> None:
        """All that was there to know is known: watch what others do, and ask for a share of the work."""
        self._since = self._look_back_from(now)
        for site, log in self._logs.items():
            self._follow(site, {CROSS_HUB: Since(self._since)})
            self._members[site] = log.join(
                GROUP, [CROSS_HUB], partial(self._owned, site), partial(self._lost, site), changed=partial(self._changed, site)
            )

    def _look_back_from(self, now: Instant) -> Instant:
        """When a centre was last at work, or what it had read last and not finished was appended."""
        found = [info.at for info in self.centre.heartbeats.values()]
        for log in self._logs.values():
            first = log.committed(GROUP).get(CROSS_HUB)
            with suppress(LogLost):
                found += [record.appended_at for record in (log.read(CROSS_HUB, first, 1) if first is not None else ())]
        return Instant(max(0, min(found, default=now) - LOOK_BACK_NS))

    def _take_up(self, site: str, turn: _Turn, now: Instant) -> None:
        self._drop(site, now)
        self._turns[site] = turn._replace(patient_until=Instant(now + PATIENCE_NS))
        self._go_on(now)

    def _drop(self, site: str, now: Instant) -> None:
        self._turns.pop(site, None)
        self.outgoing.forget(site)
        if site in self.centre.owned:
            self.centre.own(site, False, now)
        for _ in range(len(self._inbox[site])):
            self._pace.leave(f"{site} own")
        self._inbox[site].clear()

    def _take_own(self, site: str, name: str, records: Sequence[Record], now: Instant) -> None:
        assert site in self._turns, f"{name}: a log hands over what was not given"
        self._inbox[site].append(records)
        self._go_on(now)

    def _own(self, site: str, turn: _Turn, now: Instant) -> None:
        inbox = self._inbox[site]
        first = turn.first if turn.first is not None or not inbox else inbox[0][0].offset
        if first is not None:
            self._tell("acts for a site", site, f"its cross-hub comes from {first} on")
            self.centre.own(site, True, now, first=first)

    def _go_on(self, now: Instant, *, looks: bool = False) -> None:
        """Everything that can be done now."""
        centre = self.centre
        for site, turn in self._turns.items():
            if site in centre.owned:
                continue
            unread = self._maybe_unread(turn.ends, looks=looks)
            if unread is None:
                self._own(site, turn, now)
            elif now > turn.patient_until:
                position, end = self._positions.get(unread), turn.ends[unread]
                self._tell("does not act for a site yet", site, f"{unread[1]} of {unread[0]} is read up to {position} of {end}")
        self.outgoing.put(centre.take_appends())
        for site in centre.owned:
            inbox = self._inbox[site]
            while inbox and not (self.is_stopping or self.outgoing.is_full or centre.is_waiting(site)):
                centre.route(site, [_incoming(record) for record in inbox.popleft()], now)
                self._pace.leave(f"{site} own")
                self.outgoing.put(centre.take_appends())
        for wish in centre.take_reads():
            self._read_back(wish, now)
        self.outgoing.put(centre.take_appends())
        self.outgoing.push()
        for site, topic, offset, why, detail in centre.take_faults():
            self._tell(f"record {why.value}", site, f"{topic} {offset}: {detail}")

    def _read_back(self, wish: ReadBack, now: Instant) -> None:
        """Read a stretch of a log once more, from its end towards its beginning, as far as is wanted."""
        log, pages, is_whole = self._logs[wish.site], deque[list[Record]](), True
        before = wish.before
        while before > wish.first:
            first = max(wish.first, before - BATCH_RECORDS_MAX)
            try:
                page = [record for record in log.read(CROSS_HUB, first, before - first) if record.offset < before]
            except (LogLost, LogUnavailable):
                is_whole = False
                break
            pages.appendleft(page)
            before = first
            if page and page[0].appended_at < wish.since:
                break
            if sum(map(len, pages)) > READ_BACK_MAX:
                is_whole = False
                break
        self.centre.on_read(wish.site, [_incoming(record) for page in pages for record in page], now, is_whole=is_whole)

    def _commit(self) -> None:
        for site in self.centre.owned:
            self.outgoing.mark(site, self.centre.position(site))
            position = self.outgoing.settled(site)
            if position is not None:
                self._members[site].commit(CROSS_HUB, position)

    def _maybe_unread(self, ends: Mapping[tuple[str, str], int], *, looks: bool = False) -> tuple[str, str] | None:
        """Of all that is followed, what has not been read up to some ends; what the last records do not say is looked up."""
        unread = (one for one, end in ends.items() if self._positions.get(one, -1) < end)
        return next((one for one in unread if not (looks and self._is_read(*one, ends[one]))), None)

    def _is_read(self, site: str, topic: str, end: int) -> bool:
        """Whether nothing comes before an end any more: the last ones were removed, or nothing was appended since."""
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


def _incoming(record: Record) -> Incoming:
    return Incoming(record.offset, record.key, record.value, record.appended_at)


def _say_nothing(event: str, site: str, reason: str) -> None:
    """Nobody listens."""
