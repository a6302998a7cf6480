"""`milepost incidents run`: the incident desk of a site, in one process at a time of however many are started.

    group "incidents" on `cells`: who has it acts ─▶ state read ─▶ cells since then, questions ─▶ desk ─▶ appends

What must hold:
- whoever gets the topic begins from the last state in the log, and whoever lost it appends nothing more;
- no slot is looked at before the cells that were there at the beginning are read: it would be looked at without them.
"""

import signal
from collections.abc import Sequence
from functools import partial
from typing import Final

from milepost.backbone.log import (
    Edge,
    Entry,
    Following,
    Log,
    LogLost,
    LogUnavailable,
    Member,
    Record,
    Since,
    Start,
    TopicSettings,
)
from milepost.doors.turns import Turns
from milepost.hub.incidents.approach import Approach
from milepost.hub.incidents.desk import CELLS, DESK, QUESTION, STATE, IncidentDesk
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.queries import OnTopic
from milepost.model.sites import SUBSCRIPTION_INFO, EdgeRef, Wanted, publish_to, wanted_key
from milepost.model.subscriptions import Subscription
from milepost.model.telling import REPUTATION
from milepost.service.faults import UsageFault
from milepost.service.logs import Log as Told
from milepost.service.road_files import maybe_approach
from milepost.service.settings import Settings
from milepost.service.site_logs import open_log
from milepost.service.site_view import pages
from milepost.wire.records import to_record

TICK_S: Final = 0.25
CELLS_S: Final = 86_400
GROUP: Final = "incidents"
ASKS: Final = publish_to(DESK)


def run(settings: Settings) -> int:
    """Watch over the incidents of a site until told to stop; gives the exit status."""
    site = settings.site.log
    if not site.name:
        raise UsageFault("[site] has no name: incidents are those of a site; see milepost.example.toml")
    told = Told(settings.log.level, settings.log.line_format)
    approach = maybe_approach(settings.incidents)
    log = open_log(site, settings.keep.survives, "incidents")
    try:
        IncidentService(settings, log, told, approach).run()
    finally:
        log.close()
    return 0


class IncidentService:
    """The desk, while this process has the site's cells."""

    def __init__(self, settings: Settings, log: Log, told: Told, approach: Approach | None = None) -> None:
        self._settings = settings
        self._site = settings.site.log.name
        self._log = log
        self._told = told
        self._approach = approach
        self._turns = Turns()
        self._desk: IncidentDesk | None = None
        self._following: Following | None = None
        self._member: Member | None = None
        self._cells_end = 0
        """Cells are to be read up to here before anything is decided; 0: they are."""

    def run(self) -> None:
        """Take turns until told to stop."""
        log, turns = self._log, self._turns
        log.make(CELLS, TopicSettings(retention_s=CELLS_S))
        log.make(STATE, TopicSettings(is_compacted=True))
        log.make(REPUTATION, TopicSettings(is_compacted=True))
        log.make(ASKS)
        self._say_wanted()
        self._member = log.join(GROUP, [CELLS], self._note, self._lost, changed=self._changed)
        turns.every(TICK_S, self._tick)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: turns.call_soon(lambda _: turns.stop()))
        self._told.info("incidents ready", site=self._site, kinds=" ".join(kind.name for kind in self._settings.incidents.kinds))
        turns.run()
        self._member.close()
        self._rest()
        turns.close()
        self._told.info("incidents stopped", site=self._site)

    def _say_wanted(self) -> None:
        """Have edges bring questions here."""
        me, owner = EdgeRef(self._site, f"@{DESK}"), EndpointId(f"@{DESK}")
        wanted = Wanted(me, Subscription(owner, OnTopic(QUESTION)))
        self._log.append([Entry(SUBSCRIPTION_INFO, wanted_key(me, owner, QUESTION), to_record(wanted))])

    # In the log's threads

    def _note(self, records: Sequence[Record]) -> None:
        """The group only says whose turn it is: cells are read apart, from where the state needs them."""
        if self._member is not None:
            self._member.commit(CELLS, records[-1].offset + 1)

    def _changed(self, topics: frozenset[str]) -> None:
        self._turns.call_soon(lambda now: self._begin(now) if CELLS in topics else self._rest())

    def _lost(self, lost: LogLost) -> None:
        self._turns.call_soon(lambda _: self._told.warning("records of the log are lost", reason=str(lost)))

    def _take(self, records: Sequence[Record]) -> None:
        self._turns.call_soon(partial(self._on_records, records))

    # In turns

    def _begin(self, now: Instant) -> None:
        """This process has the site: go on from the last state."""
        self._rest()
        incidents = self._settings.incidents
        desk = self._desk = IncidentDesk(
            self._site,
            incidents.kinds,
            late_s=incidents.late_s,
            since=now,
            state=self._last_state(),
            approach=self._approach,
        )
        since = desk.incidents.cells_since
        starts: dict[str, Start] = {CELLS: Edge.BEGINNING if since is None else Since(since)}
        first, end = self._log.ends(ASKS)
        starts[ASKS] = min(max(desk.asks_from, first), end)
        starts[REPUTATION] = self._read_scores(desk)
        self._cells_end = self._end_since(since)
        self._following = self._log.follow(starts, self._take, self._lost)
        self._told.info("acts for the site", site=self._site, living=len(desk.incidents.living), cells_since=since)

    def _end_since(self, since: Instant | None) -> int:
        """Where the cells end that are there and will be read; 0 if there are none."""
        first, end = self._log.ends(CELLS)
        last = self._log.read(CELLS, end - 1, 1) if end > first else []
        return end if last and (since is None or last[0].appended_at >= since) else 0

    def _last_state(self) -> bytes | None:
        first, end = self._log.ends(STATE)
        value: bytes | None = None
        while first < end:
            records = self._log.read(STATE, first, 100)
            if not records:
                break
            value, first = records[-1].value, records[-1].offset + 1
        return value

    def _read_scores(self, desk: IncidentDesk) -> int:
        """What is known of witnesses, before anything is decided by it; gives from where on to hear more."""
        position = self._log.ends(REPUTATION)[1]
        for records in pages(self._log, REPUTATION):
            desk.take_scores((record.key, record.value) for record in records)
            position = max(position, records[-1].offset + 1)
        return position

    def _rest(self) -> None:
        """Another process has the site, or nobody."""
        if self._following is not None:
            self._following.close()
        self._following = self._desk = None

    def _on_records(self, records: Sequence[Record], now: Instant) -> None:
        desk = self._desk
        if desk is None:
            return
        if records[0].topic == CELLS:
            desk.take_cells([record.value for record in records], now)
            self._cells_end = 0 if records[-1].offset + 1 >= self._cells_end else self._cells_end
        elif records[0].topic == REPUTATION:
            desk.take_scores((record.key, record.value) for record in records)
        else:
            for record in records:
                desk.take_asks(record.offset, record.value, now)
        self._flush(desk)
        desk.keep(now)
        self._flush(desk)

    def _tick(self, now: Instant) -> None:
        self._told.tell_suppressed()
        if self._desk is not None and not self._cells_end:
            self._desk.tick(now)
            self._flush(self._desk)

    def _flush(self, desk: IncidentDesk) -> None:
        appends = desk.take_appends()
        if not appends:
            return
        try:
            self._log.append([Entry(*one) for one in appends], self._done)
        except LogUnavailable as fault:
            self._told.warning("the log takes nothing: beginning again from the last state", reason=str(fault))
            self._turns.call_soon(self._begin)

    def _done(self, fault: Exception | None) -> None:
        if fault is not None:
            self._turns.call_soon(lambda _: self._told.warning("the log did not take alerts", reason=str(fault)))
