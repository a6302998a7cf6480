"""The membership of an edge in a site: its member, the log of the site, and the events between them.

    log's threads ──call_soon──▶ on_records ─▶ tick ─▶ stored ─▶ flush: appends ──▶ log
                                                          done ──call_soon──▶ appended

Invariants:
- nothing is appended before the tick that decided it is stored, and nothing at all while storage is unavailable;
- the number of records that wait for the event loop is limited: beyond it the reader of the log waits;
- while storage is unavailable nothing is read: the effects could not be stored;
- no thread is created here: the log has its own.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from threading import Semaphore
from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.effects import StoredState
from milepost.config.errors import StartFault
from milepost.config.settings import Settings
from milepost.eventlog.log import (
    Entry,
    Following,
    Log,
    LogLost,
    LogRefused,
    LogUnavailable,
    Record,
    Start,
    TopicEnd,
    TopicSettings,
)
from milepost.federation.handover import ReadBack
from milepost.federation.member import SiteMember
from milepost.federation.outbox import BATCH_MAX, Append
from milepost.federation.residency import Move
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.event_loop import EventLoop
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import DELIVERIES, REPORTS, REPUTATION
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO, VEHICLE_INFO, EdgeRef, LoggedRecord
from milepost.runtime.metrics import Family, MetricType, counter, gauge, labelled
from milepost.runtime.site_logs import RefusedRecords, open_log

BATCHES_MAX: Final = 8
"""Maximum batches of records that wait for the event loop."""
READ_BACK_MAX: Final = 100_000
"""Maximum records read again for one endpoint."""
CROSS_HUB_S: Final = 7 * 86_400
"""Retention of cross-hub: an edge may be down for as long and miss nothing."""
FEED_SETTINGS: Final = TopicSettings(retention_s=86_400, retention_bytes=10_000_000_000)
"""Retention of the pipeline feeds: a day and a limit in bytes, whether or not a pipeline reads them."""

APPEND_INTERVAL_NS: Final = 3_000_000
"""Minimum time between batches of appends: records that arrive meanwhile go in one batch, at less cost."""

END_CHECK_NS: Final = SECOND_NS // 4
"""Interval of the check whether a topic is read up to its end."""

CallSoon = Callable[[Callable[[Instant], None]], None]
TickWithin = Callable[[float], None]
"""Asks for the next tick within some seconds."""

TOPICS: Final[dict[str, TopicSettings]] = {
    CROSS_HUB: TopicSettings(retention_s=CROSS_HUB_S),
    SUBSCRIPTION_INFO: TopicSettings(is_compacted=True),
    VEHICLE_INFO: TopicSettings(is_compacted=True),
    REPORTS: FEED_SETTINGS,
    DELIVERIES: FEED_SETTINGS,
    REPUTATION: TopicSettings(is_compacted=True),
}


class SiteLink:
    """Reads the log for a member of a site, and appends its records."""

    def __init__(
        self,
        member: SiteMember,
        log: Log,
        call_soon: CallSoon,
        logger: DiagnosticLog,
        neighbours: Mapping[str, Log] | None = None,
        *,
        tick_within: TickWithin | None = None,
        on_announced: Callable[[], None] | None = None,
    ) -> None:
        self._member = member
        self._log = log
        self._call_soon = call_soon
        self._logger = logger
        self._neighbours = neighbours or {}
        self._slots = Semaphore(BATCHES_MAX)
        self._unread: dict[str, int] = {}
        self._read_up_to: dict[str, int] = {}
        self._batches: list[tuple[str, Sequence[Record]]] = []
        self._following: Following | None = None
        self._one_by_one = 0
        """Number of next records to append one by one, because the log refuses one of them."""
        self._tick_within = tick_within
        """None: every tick may append."""
        self._on_announced = on_announced
        """Called once, when the log has confirmed the announcement of this edge."""
        self._next_append_at = Instant(0)
        self._end_check_at = Instant(0)
        self._is_closed = False
        member.state.neighbours = frozenset(self._neighbours)

    def start(self) -> None:
        """Create the site's topics where they are missing, and begin to read."""
        log, member = self._log, self._member
        for topic, settings in TOPICS.items():
            log.make(topic, settings)
        log.make(member.inbox, TopicSettings(retention_s=CROSS_HUB_S))
        starts: dict[str, Start] = {}
        for topic, offset in member.starts().items():
            starts[topic] = TopicEnd.BEGINNING if offset is None else offset
        if starts[CROSS_HUB] is TopicEnd.BEGINNING:
            starts[CROSS_HUB] = log.ends(CROSS_HUB)[1]
        first = starts[CROSS_HUB]
        assert isinstance(first, int), "cross-hub is read from an offset"
        member.begin_at(first, log.ends(CROSS_HUB)[1])
        self._unread = {topic: log.ends(topic)[1] for topic in (SUBSCRIPTION_INFO, VEHICLE_INFO)}
        self._following = log.follow(starts, self._take, self._lost)

    def close(self) -> None:
        """Stop reading; appends that are with the log are finished."""
        self._is_closed = True
        if self._following is not None:
            for _ in range(BATCHES_MAX):
                self._slots.release()
            self._following.close()
        self._log.close()
        for log in self._neighbours.values():
            log.close()

    # In the log's threads

    def _take(self, records: Sequence[Record]) -> None:
        self._slots.acquire()
        if not self._is_closed:
            self._call_soon(partial(self._on_batch, records[0].topic, records))

    def _lost(self, lost: LogLost) -> None:
        self._call_soon(lambda _: self._logger.warning("records lost", reason=str(lost)))

    # In the event loop of the edge

    def _on_batch(self, topic: str, records: Sequence[Record], now: Instant) -> None:
        self._batches.append((topic, records))
        self._process_batches(now)

    def _process_batches(self, now: Instant) -> None:
        while self._batches and self._member.state.broker.storage_error is None:
            topic, records = self._batches.pop(0)
            batch = [LoggedRecord(one.offset, one.key, one.value, one.appended_at) for one in records]
            self._member.on_records(topic, batch, now)
            self._slots.release()
            self._read_up_to[topic] = records[-1].offset + 1
            if topic in self._unread and records[-1].offset + 1 >= self._unread[topic]:
                del self._unread[topic]
                self._member.caught_up(topic, now)

    def _check_ends(self, now: Instant) -> None:
        """Note topics that are read up to their end although their last records were removed."""
        self._end_check_at = Instant(now + END_CHECK_NS)
        for topic, at in list(self._unread.items()):
            with suppress(LogUnavailable, LogLost):
                if self._log.ends(topic)[0] >= at or not self._log.read(topic, self._read_up_to.get(topic, 0), 1):
                    del self._unread[topic]
                    self._member.caught_up(topic, now)

    def flush(self, now: Instant) -> bool:
        """Append the records of a stored tick, and handle the next batches; return whether another tick is needed."""
        self._member.delivery_feed.end_tick(now)
        if self._member.state.broker.storage_error is not None or self._is_closed:
            return False
        for move in self._member.take_moves():
            self._log_move(move)
        if (fault := self._member.take_fault()) is not None:
            self._logger.info_limited("record of the site refused", reason=fault)
        self._append_next(now)
        needs_tick = bool(self._batches)
        self._process_batches(now)
        for request in self._member.take_read_backs():
            needs_tick = self._read_back(request, now) or needs_tick
        if self._unread and now >= self._end_check_at:
            self._check_ends(now)
            needs_tick = True
        return needs_tick

    def _log_move(self, move: Move) -> None:
        self._logger.info(
            "session moved",
            endpoint=move.endpoint,
            from_edge=move.from_edge or None,
            to_edge=move.to_edge,
            outcome=move.outcome.value,
            why=move.why,
            messages=move.messages,
            duration_ms=round(move.duration_ns * 1_000 / SECOND_NS, 1),
        )

    def _append_next(self, now: Instant) -> None:
        outbox, early_ns = self._member.state.outbox, self._next_append_at - now
        if (
            self._tick_within is not None and 0 < early_ns <= APPEND_INTERVAL_NS
        ):  # a longer wait means that the clock was set back
            if outbox.is_ready:
                self._tick_within(early_ns / SECOND_NS)
            return
        appends = outbox.take_batch(1 if self._one_by_one else BATCH_MAX)
        if appends:
            self._next_append_at = Instant(now + APPEND_INTERVAL_NS)
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
            self._logger.info_limited("log of a neighbouring site unavailable", site=site, reason=str(fault))

    def _done(self, appends: list[Append], fault: Exception | None) -> None:
        if not self._is_closed:
            self._call_soon(partial(self._on_done, appends, fault))

    def _on_done(self, appends: list[Append], fault: Exception | None, now: Instant) -> None:
        if fault is None:
            self._one_by_one = max(0, self._one_by_one - len(appends))
            self._member.appended(appends, now)
            if self._on_announced is not None and self._member.is_announced:
                self._on_announced()
                self._on_announced = None
        else:
            self._fail(appends, fault)

    def _fail(self, appends: list[Append], fault: Exception) -> None:
        """Queue a failed batch again; leave out a record that the log refuses for good."""
        outbox = self._member.state.outbox
        if not isinstance(fault, LogRefused):
            self._logger.info_limited("log unavailable", reason=str(fault))
            outbox.put_back(appends)
        elif len(appends) > 1:
            self._one_by_one = len(appends)
            outbox.put_back(appends)
        else:
            self._logger.warning("record refused by the log", topic=appends[0].topic, reason=str(fault))
            self._one_by_one = max(0, self._one_by_one - 1)
            outbox.confirm(appends)

    def _read_back(self, request: ReadBack, now: Instant) -> bool:
        first, end = self._log.ends(CROSS_HUB)
        try:
            at = end if request.offset is None else request.offset
            at = at if request.since is None else min(at, self._offset_at(request.since, first, end))
            records = self._read_from(max(at, first), self._member.state.next_offset)
        except (LogUnavailable, LogLost) as fault:
            self._logger.warning("log cannot be read again", endpoint=request.endpoint, reason=str(fault))
            self._member.roaming.handovers.read_backs.setdefault(request.endpoint, request)
            return False
        self._member.on_read_back(
            request, [LoggedRecord(one.offset, one.key, one.value, one.appended_at) for one in records], now
        )
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
        """Return the offset of the first record appended since a time, by bisection."""
        while first < end:
            middle = (first + end) // 2
            some = self._log.read(CROSS_HUB, middle, 1)
            if some and some[0].appended_at < since:
                first = some[0].offset + 1
            else:
                end = middle
        return first


class Membership:
    """An edge's membership in its site, from its settings to its end."""

    def __init__(
        self, settings: Settings, broker: Broker, event_loop: EventLoop, logger: DiagnosticLog, on_announced: Callable[[], None]
    ) -> None:
        site, durability, name = settings.site, settings.storage.durability, settings.edge.name
        self._event_loop = event_loop
        self._member = SiteMember(broker, EdgeRef(site.log.name, name), site.limits, address=site.advertise)
        self._refused = RefusedRecords(logger)
        self._log = open_log(site.log, durability, name, self._refused)
        neighbours = {one.log.name: open_log(one.log, durability, name) for one in site.neighbours}
        self._link = SiteLink(
            self._member,
            self._log,
            event_loop.call_soon,
            logger,
            neighbours,
            tick_within=event_loop.wake_within,
            on_announced=on_announced,
        )

    def restore(self, stored: StoredState, now: Instant) -> None:
        """Restore the stored state of the edge."""
        self._member.restore(stored, now)

    def start(self) -> None:
        """Start to read the log, and to append after each tick; call it after storage is set up."""
        try:
            self._link.start()
        except LogUnavailable as fault:
            raise StartFault(f"the log of the site cannot be read: {fault}") from None
        self._event_loop.at_end_of_tick(self._link.flush)
        self._event_loop.wake_within(0.0)

    def tick(self, now: Instant) -> None:
        """Run the periodic work of the member."""
        self._member.tick(now)

    def close(self) -> None:
        """Finish the appends, and stop reading."""
        self._link.close()

    def families(self) -> Iterator[Family]:
        """Return the metrics of the site."""
        state, roaming = self._member.state, self._member.roaming
        yield gauge("milepost_site_lag_records", "Records of cross-hub that are not read yet; -1: unknown.", self._lag())
        yield gauge("milepost_site_spool_messages", "Records spooled for the log.", state.outbox.waiting)
        yield gauge("milepost_site_spool_bytes", "Bytes of records spooled for the log.", state.outbox.waiting_bytes)
        yield counter("milepost_site_appended_total", "Records appended to the log.", state.outbox.appended)
        refused = "Records of the log refused because they have no valid code of the site's key."
        yield counter("milepost_site_refused_total", refused, self._refused.count)
        yield gauge("milepost_site_edges", "Other known edges, of all sites.", len(state.edges))
        yield gauge("milepost_site_registry_endpoints", "Endpoints in the registry of the site.", len(state.registry))
        known = len(self._member.scores.known)
        yield gauge("milepost_site_reputations", "Endpoints with a reputation below 1.", known)
        yield gauge("milepost_site_remote_subscriptions", "Known subscriptions at other edges.", len(state.interest))
        yield gauge(
            "milepost_site_catching_up", "Endpoints that have arrived and are still served from the log.", len(roaming.catch_up)
        )
        yield gauge(
            "milepost_site_outgoing_handovers",
            "Endpoints that have left and whose handover is not confirmed.",
            len(roaming.outgoing.leaving),
        )
        events = sorted(state.counts.items())
        what = "Events between this edge and its site, by type."
        yield labelled("milepost_site_events_total", MetricType.COUNTER, what, "event", events)

    def _lag(self) -> int:
        try:
            return max(0, self._log.ends(CROSS_HUB)[1] - self._member.state.offsets.get(CROSS_HUB, 0))
        except LogUnavailable:
            return -1
