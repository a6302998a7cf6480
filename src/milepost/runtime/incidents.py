"""`milepost incidents run`: the incident engine of a site, active in one of any number of processes.

    group "incidents" assigns the questions ─▶ state read ─▶ cells since then, questions ─▶ engine ─▶ appends

Invariants:
- a process that is assigned the questions starts from the last state in the log; one that has lost them appends nothing more;
- no slot is evaluated before the cells that the log had at the start are read: they would be missing in it. Then the engine goes
  live: it announces what is hot and was not announced by the process before it, which it reads in the log;
- alerts are appended at once, a state after the log has confirmed all alerts that it records as published. If an append fails,
  the engine restarts from the last state, and alerts that were not appended are published again, under the same numbers.
"""

import gc
import signal
import sys
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from pathlib import Path
from time import time_ns
from typing import Final

from milepost.config.errors import StartFault, UsageFault
from milepost.config.settings import Settings
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
    Start,
    TopicEnd,
    TopicSettings,
    check_entries,
    read_to_end,
)
from milepost.incidents.alerts import Approach, maybe_announced
from milepost.incidents.engine import (
    CELLS,
    ENGINE,
    QUESTION_TOPIC,
    STATE,
    EngineAppend,
    IncidentEngine,
    SignMessage,
)
from milepost.listeners.event_loop import EventLoop
from milepost.model.incidents import IncidentId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import REPUTATION
from milepost.model.site_records import CROSS_HUB, EdgeRef, handler_topic, service_sender
from milepost.runtime.road_files import find_approach
from milepost.runtime.site_logs import RefusedRecords, open_log, request_messages
from milepost.runtime.structured_log import StructuredLog

TICK_S: Final = 0.25
CELLS_S: Final = 86_400
GROUP: Final = "incidents"
QUESTIONS: Final = handler_topic(ENGINE)
SWITCH_S: Final = 0.0005
"""Interval at which Python's threads give way to each other: the reader and the event loop wait for one another at each batch."""
STATES_WAITING_MAX: Final = 2
SCANNED_MAX: Final = 200_000
"""Maximum records of cross-hub in which a process looks for alerts of the process before it."""


def run(settings: Settings) -> int:
    """Run the incident engine of a site until a signal; return the exit status."""
    site = settings.site.log
    if not site.name:
        raise UsageFault("[site] has no name: the incident engine needs the log of a site; see milepost.example.toml")
    logger = StructuredLog(settings.log.level, settings.log.line_format)
    approach, sign = find_approach(settings.incidents), find_signer(settings, Instant(time_ns()))
    if sign is None:
        logger.warning("alerts are not signed: clients that trust a certificate authority suppress them", site=site.name)
    log = open_log(site, settings.storage.durability, "incidents", RefusedRecords(logger))
    sys.setswitchinterval(SWITCH_S)
    gc.freeze()  # modules and settings: the collector would go through them again and again, while alerts wait
    try:
        IncidentService(settings, log, logger, approach, sign).run()
    except (LogUnavailable, LogRefused) as fault:
        raise StartFault(f"the log of the site cannot be used: {fault}") from None
    finally:
        log.close()
    return 0


def find_signer(settings: Settings, now: Instant) -> SignMessage | None:
    """Read the certificate and key of the incident engine; None if there are none, and alerts are not signed."""
    incidents = settings.incidents
    if not incidents.certificate:
        return None
    from milepost.runtime.edge_trust import check_pair  # noqa: PLC0415  # imports OpenSSL
    from milepost.runtime.trust_files import read_authority, read_certificate_file, read_key  # noqa: PLC0415
    from milepost.trust.certificates import SERVICE, CertificateAuthority  # noqa: PLC0415
    from milepost.trust.signing import Signer  # noqa: PLC0415

    if not settings.trust.ca:
        raise UsageFault("[incidents] certificate needs [trust] ca, the public key of the certificate authority that issued it")
    keys, certificate = read_key(Path(incidents.key)), read_certificate_file(Path(incidents.certificate))
    if (certificate.role, certificate.id) != (SERVICE, ENGINE):
        raise UsageFault(
            f"[incidents] certificate: {incidents.certificate} is for {certificate.id!r}, role {certificate.role}, not for"
            f' the service {ENGINE!r}: issue it with "milepost trust issue DIR {ENGINE} --service"'
        )
    check_pair(keys, certificate, f"[incidents] key: {incidents.key}", incidents.certificate)
    refused = CertificateAuthority(read_authority(Path(settings.trust.ca))).check(certificate, now)
    if refused is not None:
        raise UsageFault(f"[incidents] certificate: {refused.detail}; issue a new one")
    return Signer(keys.signing, certificate).sign


class AlertAppends:
    """The order of an engine's appends: alerts at once, and a state once all alerts before it are confirmed."""

    def __init__(self, append: Callable[[Sequence[Entry], int], None]) -> None:
        """Create the order; *append* receives records and the number under which `confirmed` reports them, 0: no report."""
        self._append = append
        self._appended = 0
        self._confirmed = 0
        self._states: deque[tuple[int, Entry]] = deque()
        """States that wait, each with the number of the last append before it; a newer one replaces the second."""

    def add(self, appends: Sequence[EngineAppend]) -> None:
        """Append the alerts among *appends*, and the last state among them when its turn comes."""
        states = [Entry(*one) for one in appends if one.topic == STATE]
        alerts = [Entry(*one) for one in appends if one.topic != STATE]
        if alerts:
            self._appended += 1
            self._append(alerts, self._appended)
        if states:
            if len(self._states) == STATES_WAITING_MAX:
                self._states.pop()
            self._states.append((self._appended, states[-1]))
            self._append_states()

    def confirmed(self, number: int) -> None:
        """Record that the log has the alerts up to append *number*."""
        self._confirmed = number
        self._append_states()

    def end(self) -> None:
        """Discard the states that wait: an append has failed, or the engine has lost the site."""
        self._states.clear()

    def _append_states(self) -> None:
        while self._states and self._states[0][0] <= self._confirmed:
            self._append([self._states.popleft()[1]], 0)


class IncidentService:
    """The incident engine, while this process is assigned the cells of the site."""

    def __init__(
        self,
        settings: Settings,
        log: Log,
        logger: StructuredLog,
        approach: Approach | None = None,
        sign: SignMessage | None = None,
    ) -> None:
        self._settings = settings
        self._site = settings.site.log.name
        self._log = log
        self._logger = logger
        self._approach = approach
        self._sign = sign
        self._event_loop = EventLoop()
        self._engine: IncidentEngine | None = None
        self._appends = AlertAppends(self._append)
        self._must_restart = False
        self._following: Following | None = None
        self._member: Member | None = None
        self._cells_end = 0
        """Offset up to which cells must be read before anything is decided; 0: done."""
        self._announced: frozenset[IncidentId] = frozenset()

    def run(self) -> None:
        """Run the event loop until a signal."""
        log, event_loop = self._log, self._event_loop
        log.make(CELLS, TopicSettings(retention_s=CELLS_S))
        log.make(STATE, TopicSettings(is_compacted=True))
        log.make(REPUTATION, TopicSettings(is_compacted=True))
        log.make(QUESTIONS)
        request_messages(log, self._site, ENGINE, [QUESTION_TOPIC])
        self._member = log.join(GROUP, [QUESTIONS], self._commit, self._lost, changed=self._changed)
        event_loop.call_every(TICK_S, self._tick)
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, lambda *_: event_loop.call_soon(lambda _: event_loop.stop()))
        self._logger.info(
            "incidents ready", site=self._site, kinds=" ".join(kind.name for kind in self._settings.incidents.kinds)
        )
        event_loop.run()
        self._member.close()
        self._deactivate()
        event_loop.close()
        self._logger.info("incidents stopped", site=self._site)

    # In the log's threads

    def _commit(self, records: Sequence[Record]) -> None:
        """Commit only: the group selects the active process, which follows all topics by itself, from where the state needs them.

        The group assigns the questions because they are few: what its member reads is read for nothing else.
        """
        if self._member is not None:
            self._member.commit(QUESTIONS, records[-1].offset + 1)

    def _changed(self, topics: frozenset[str]) -> None:
        self._event_loop.call_soon(partial(self._on_changed, topics))

    def _lost(self, lost: LogLost) -> None:
        self._event_loop.call_soon(lambda _: self._logger.warning("records lost", reason=str(lost)))

    def _take(self, engine: IncidentEngine, records: Sequence[Record]) -> None:
        self._event_loop.call_soon(partial(self._on_records, engine, records))

    # In the event loop

    def _on_changed(self, topics: frozenset[str], now: Instant) -> None:
        if QUESTIONS in topics:
            self._try_to_restart(now)
        else:
            self._deactivate()
            self._must_restart = False

    def _activate(self, now: Instant) -> None:
        """Become active: continue from the last state."""
        self._deactivate()
        self._appends, self._must_restart = AlertAppends(self._append), False
        incidents = self._settings.incidents
        engine = self._engine = IncidentEngine(
            self._site,
            incidents.kinds,
            allowed_lateness_s=incidents.allowed_lateness_s,
            since=now,
            state=self._last_state(),
            approach=self._approach,
            sign=self._sign,
        )
        since = engine.incidents.cells_since
        starts: dict[str, Start] = {CELLS: TopicEnd.BEGINNING if since is None else Since(since)}
        first, end = self._log.ends(QUESTIONS)
        starts[QUESTIONS] = min(max(engine.questions_from, first), end)
        starts[REPUTATION] = self._read_scores(engine)
        self._cells_end = self._end_since(since)
        oldest = since if since is not None else Instant(now - int(incidents.allowed_lateness_s * SECOND_NS))
        self._announced = frozenset(self._announced_since(oldest))
        if not self._cells_end:
            self._go_live(engine, now)
        self._following = self._log.follow(starts, partial(self._take, engine), self._lost)
        self._logger.info("incidents active", site=self._site, active=len(engine.incidents.active), cells_since=since)

    def _end_since(self, since: Instant | None) -> int:
        """Return the end offset of cells if any of them will be read, else 0."""
        first, end = self._log.ends(CELLS)
        last = self._log.read(CELLS, end - 1, 1) if end > first else []
        return end if last and (since is None or last[0].appended_at >= since) else 0

    def _go_live(self, engine: IncidentEngine, now: Instant) -> None:
        """Evaluate the slots that have ended first: their alerts repeat those of the process before, under the same numbers."""
        engine.tick(now)
        engine.go_live(self._announced, now)
        self._announced = frozenset()

    def _announced_since(self, since: Instant) -> Iterator[IncidentId]:
        """Yield the incidents announced early since then, the latest first."""
        engine = EdgeRef(self._site, service_sender(ENGINE))
        first, end = self._log.ends(CROSS_HUB)
        first = max(first, end - SCANNED_MAX)
        while end > first:
            at = max(first, end - BATCH_RECORDS_MAX)
            records = [record for record in self._log.read(CROSS_HUB, at, BATCH_RECORDS_MAX) if at <= record.offset < end]
            for record in reversed(records):
                if record.appended_at < since:
                    return
                if (announced := maybe_announced(record.value, engine)) is not None:
                    yield announced
            end = at

    def _last_state(self) -> bytes | None:
        """Return the last state: the last record, as there is one key; if that was refused, the last one that is read."""
        first, end = self._log.ends(STATE)
        records = self._log.read(STATE, end - 1, 1) if end > first else []
        for batch in () if records else read_to_end(self._log, STATE):
            records = batch
        return records[-1].value if records else None

    def _read_scores(self, engine: IncidentEngine) -> int:
        """Load the reputation of witnesses into the engine; return the offset from which to follow the topic."""
        position = self._log.ends(REPUTATION)[1]
        for records in read_to_end(self._log, REPUTATION):
            engine.add_scores((record.key, record.value) for record in records)
            position = max(position, records[-1].offset + 1)
        return position

    def _deactivate(self) -> None:
        """Become passive: the site is assigned to another process, or to none."""
        if self._following is not None:
            self._following.close()
        self._following = self._engine = None
        self._appends.end()

    def _on_records(self, engine: IncidentEngine, records: Sequence[Record], now: Instant) -> None:
        if engine is not self._engine:  # read for an engine before a restart
            return
        if records[0].topic == CELLS:
            engine.add_cells([record.value for record in records], now)
            if self._cells_end and records[-1].offset + 1 >= self._cells_end:
                self._cells_end = 0
                self._go_live(engine, now)
        elif records[0].topic == REPUTATION:
            engine.add_scores((record.key, record.value) for record in records)
        else:
            for record in records:
                engine.answer_question(record.offset, record.value, now)
        self._flush(engine)
        engine.save_if_due(now)
        self._flush(engine)

    def _tick(self, now: Instant) -> None:
        self._logger.log_suppressed()
        if self._must_restart:
            self._try_to_restart(now)
        elif self._engine is not None and not self._cells_end:
            self._engine.tick(now)
            self._flush(self._engine)

    def _flush(self, engine: IncidentEngine) -> None:
        appends = engine.take_appends()
        if appends and not self._must_restart:
            self._appends.add(appends)

    def _append(self, entries: Sequence[Entry], number: int) -> None:
        try:
            self._log.append(entries, partial(self._done, self._appends, number))
        except LogUnavailable as fault:
            self._restart(fault)
        except LogRefused:
            self._append_accepted(entries, number)

    def _append_accepted(self, entries: Sequence[Entry], number: int) -> None:
        """Append the records that the log accepts: one that is too large must not take the others with it."""
        accepted = []
        for entry in entries:
            try:
                check_entries([entry])
                accepted.append(entry)
            except LogRefused as fault:
                self._logger.error("record refused by the log", topic=entry.topic, reason=str(fault))
        if accepted:
            self._append(accepted, number)
        elif number:
            self._appends.confirmed(number)

    def _done(self, appends: AlertAppends, number: int, fault: Exception | None) -> None:
        """Report the end of an append to the event loop; in the log's thread."""
        if fault is not None or number:
            self._event_loop.call_soon(lambda _: self._on_done(appends, number, fault))

    def _on_done(self, appends: AlertAppends, number: int, fault: Exception | None) -> None:
        if appends is not self._appends:  # of an engine before a restart
            return
        if isinstance(fault, LogRefused):  # it would be refused again
            self._logger.error("alerts or state refused by the log", reason=str(fault))
        elif fault is not None:
            self._restart(fault)
            return
        if number:
            appends.confirmed(number)

    def _try_to_restart(self, now: Instant) -> None:
        try:
            self._activate(now)
        except (LogUnavailable, LogLost) as fault:
            self._restart(fault)

    def _restart(self, fault: Exception) -> None:
        """Restart from the last state at the next tick; nothing is appended until then."""
        self._must_restart = True
        self._appends.end()
        self._logger.warning("alerts not appended to the log: restarting from the last state", reason=str(fault))
