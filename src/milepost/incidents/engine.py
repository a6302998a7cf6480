"""The incident engine of a site: cells in, alerts out, and answers to queries for the conditions around a place (M24, M25).

    topic `cells`                 ─▶ add_cells ──────┐    a hot place is announced early, at once
    topic `reputation`            ─▶ add_scores ─────┤    the weights of witnesses from now on
    reserved.publish-incidents    ─▶ answer_question ┼─▶ take_appends: alerts on cross-hub, answers to the sender's edge, state
    time                          ─▶ tick ───────────┘

Invariants:
- alerts are numbered from the state: a process that resumes from an earlier state repeats alerts under the same numbers, and
  edges drop the copies;
- the state is appended after the alerts that it records as published. Early alerts have numbers below those of all later ends of
  slots: if a process dies before its state is appended, the alerts of its successor are not mistaken for old ones;
- an unreadable cell or question changes nothing but a count; a wrong question is answered with its fault;
- every alert, update and all-clear is signed, if the engine has a certificate.

Early warnings: a place that is hot before its slot has ended is announced at once, and resolved at the end of the slot.

    cells ─▶ find_early: hot, and touches no incident ─▶ announced early, under the id that an incident has there
    the slot has ended, and an incident …
      was raised there, under that id, in the notified circle    nothing more is published: the early warning suffices
      was raised there, otherwise                                `raised` also goes to all endpoints that were warned early
      existed there, or has moved there                          it covers the place: its all-clear goes to them, too
      is not there                                               an all-clear goes to all endpoints that were warned early

- incidents and their changes are the same as without early warnings: monitors are read and never changed;
- each place is announced early once, and an endpoint that received it receives an incident there or an all-clear;
- the outcome is decided at the ends of slots, so that a process that resumes from the state decides alike. That process announces
  nothing early in slots that began before it did, until `go_live`: then it has the cells of the log and knows from the log what
  the previous process has announced since its last state;
- a cell costs little where nothing can be hot: a bin is evaluated when it has the minimum number of reports of the predicate, and
  again when they have grown by an eighth.
"""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from zlib import compress, decompress

import orjson

from milepost.incidents.alerts import Approach, maybe_alert
from milepost.incidents.bins import BinGroup, grouped
from milepost.incidents.tracker import EventMonitor, Incidents, incident_of, is_within_alert_area
from milepost.model.addresses import ToEndpoint
from milepost.model.areas import Area, Circle
from milepost.model.endpoints import maybe_endpoint, service_source
from milepost.model.incidents import (
    Bin,
    Cell,
    EarlyWarning,
    EventKind,
    Incident,
    IncidentChange,
    IncidentId,
    IncidentPhase,
    Square,
    holds,
    min_reports,
)
from milepost.model.incidents.witnesses import WitnessHash, witness_hash
from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.pipeline_records import PIPELINES
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, handler_topic, inbox_topic, service_sender
from milepost.vetting import Scores
from milepost.wire.area_text import area_from_text
from milepost.wire.geojson import area_from_geojson
from milepost.wire.incidents import (
    CellValue,
    IncidentTexts,
    cell_from_json,
    conditions_to_json,
    early_warnings_from_json,
    early_warnings_to_json,
    group_by_key,
    state_from_json,
    state_to_json,
)
from milepost.wire.records import from_record, to_record

WARNED_MAX: Final = 1_000
"""Maximum places with an unresolved early warning."""

_GROWTH: Final = 9 / 8


class Announcement(NamedTuple):
    """A change to publish, and the early warnings of the same incident."""

    change: IncidentChange
    early: tuple[Incident, ...] = ()


@dataclass(slots=True)
class _KindState:
    """State of one kind between the ends of two slots."""

    monitor: EventMonitor
    slot: int | None
    """The last evaluated slot."""
    floor: float
    """Minimum reports of a hot bin."""
    reach: set[Square] = field(default_factory=set)
    """Squares of incidents and early warnings, with a margin: a bin whose block has one of them touches one of those."""
    evaluated_reports: dict[Square, float] = field(default_factory=dict)
    """Reports of a bin when it was evaluated last and was not hot."""
    false_warnings: dict[Square, int] = field(default_factory=dict)
    """Places of false early warnings, each with the slot until which no further early warning is issued there."""

    def exclude(self, squares: Iterable[Square]) -> None:
        """Exclude all bins that touch *squares* from early warnings."""
        block = self.monitor.kind.grid.block
        self.reach |= {near for square in squares for near in block(square)}

    def touches(self, square: Square) -> bool:
        """Return whether the bin of a square touches an announced place."""
        return not self.reach.isdisjoint(self.monitor.kind.grid.block(square))

    def may_warn(self, square: Square, slot: int) -> bool:
        """Return whether an early warning in the bin of a square would be the first there, and none was false lately."""
        return not self.touches(square) and self.false_warnings.get(square, 0) < slot


class EarlyWarnings:
    """The early warnings of all kinds that have alerts."""

    def __init__(self, incidents: Incidents, *, lateness_ns: int, since: Instant, warned: Iterable[EarlyWarning] = ()) -> None:
        self._incidents = incidents
        self._lateness_ns = lateness_ns
        self._since = since
        self._announced: dict[str, list[tuple[Square, IncidentId]]] = {}
        """Incidents that a previous process has announced, by kind, with the square of the first report."""
        self._states = {
            name: _KindState(monitor, None, min_reports(monitor.kind.condition))
            for name, monitor in incidents.monitors.items()
            if monitor.kind.alert is not None
        }
        self._warned = {one.incident.id: one for one in warned if one.incident.kind in self._states}
        for kind_state in self._states.values():
            self._reset(kind_state)

    @property
    def warned(self) -> tuple[EarlyWarning, ...]:
        """The active early warnings."""
        return tuple(self._warned.values())

    def maybe_next_end(self) -> Instant | None:
        """Return the end of the next slot with an unresolved early warning, or `None`."""
        return min((self._end(one) for one in self._warned.values() if one.successor is None), default=None)

    def go_live(self, announced: Iterable[IncidentId], now: Instant) -> list[IncidentChange]:
        """Return the changes to publish for all places that are hot now; *announced* are the ids that were published before."""
        self._since = BEGINNING
        for name in announced:
            kind, *place = name.rsplit("-", 3)
            if kind in self._states and len(place) == 3 and all(map(str.isdecimal, place)):
                slot, row, column = map(int, place)
                if slot > (self._states[kind].monitor.slot or 0):  # the outcome of an older one is in the state
                    self._announced.setdefault(kind, []).append((Square(row, column), name))
        monitors = [kind_state.monitor for kind_state in self._states.values()]
        found = self.find_early([cell for monitor in monitors for cell in monitor.cells], now)
        self._announced = {}
        return found

    def find_early(self, cells: Sequence[Cell], now: Instant) -> list[IncidentChange]:
        """Return the changes to publish at once for hot places around *cells*, which were just added."""
        squares_by_slot: defaultdict[tuple[str, int], set[Square]] = defaultdict(set)
        for cell in cells:
            kind_state = self._states.get(cell.kind)
            if kind_state is not None:
                slot = kind_state.monitor.slot
                squares_by_slot[cell.kind, cell.slot if slot is None else max(cell.slot, slot + 1)].add(cell.square)
        found = []
        for (kind, slot), squares in sorted(squares_by_slot.items()):  # in whatever order cells arrive
            kind_state = self._states[kind]
            interval_ns = kind_state.monitor.kind.interval_ns
            if slot * interval_ns >= self._since and (slot + 1) * interval_ns > now - self._lateness_ns:
                found += self._evaluate(kind_state, slot, squares, now)
        return found

    def _evaluate(self, kind_state: _KindState, slot: int, squares: set[Square], now: Instant) -> list[IncidentChange]:
        monitor, kind = kind_state.monitor, kind_state.monitor.kind
        if kind_state.slot != monitor.slot:
            self._reset(kind_state)
        hot = self._find_hot(kind_state, slot, _candidates(kind_state, slot, squares), now)
        found = []
        for group in grouped(kind.grid, hot):
            if len(self._warned) < WARNED_MAX and not any(map(kind_state.touches, group.squares)):
                incident = incident_of(kind, group, slot, now)
                announced = self._find_announced(kind, group)
                if announced is None:
                    found.append(IncidentChange(IncidentPhase.EARLY, incident, now))
                else:
                    incident = replace(incident, id=announced)
                self._warned[incident.id] = EarlyWarning(incident, slot)
                kind_state.exclude(group.squares)
        return found

    def _find_announced(self, kind: EventKind, group: BinGroup) -> IncidentId | None:
        """Return the incident of a previous process whose first report is in *group*."""
        around = {near for square in group.squares for near in kind.grid.block(square)} if self._announced else set()
        return next((name for square, name in self._announced.get(kind.name, ()) if square in around), None)

    def _find_hot(self, kind_state: _KindState, slot: int, squares: list[Square], now: Instant) -> list[Bin]:
        """Return the hot bins of *squares*, and all that touch them: the group is the one that an incident would have now."""
        monitor, block = kind_state.monitor, kind_state.monitor.kind.grid.block
        found: list[Bin] = []
        evaluated = set[Square]()
        while squares:
            evaluated.update(squares)
            bins = monitor.bins(slot, now, self._incidents.weights, squares)
            hot = [one.bin() for one in bins if holds(monitor.kind.condition, one.value_of)]
            found += hot
            around = {further for one in hot for near in block(one.square) for further in block(near)}
            squares = [one for one in around - evaluated if one in monitor.reports and kind_state.may_warn(one, slot)]
        return found

    def resolve(self, changes: Sequence[IncidentChange]) -> list[Announcement]:
        """Return the announcements after the evaluation of the slots that end at one time, all-clears of false warnings first."""
        announcements = [
            Announcement(IncidentChange(IncidentPhase.CLEARED, one.incident, self._end(one))) for one in self._find_successors()
        ]
        successors: defaultdict[IncidentId, list[EarlyWarning]] = defaultdict(list)
        for one in self._warned.values():
            if one.successor is not None:
                successors[one.successor].append(one)
        for change in changes:
            warnings = successors.get(change.incident.id, [])
            if change.phase is IncidentPhase.RAISED and any(self._still_holds(one, change.incident) for one in warnings):
                continue
            is_for_all = change.phase in (IncidentPhase.RAISED, IncidentPhase.CLEARED)
            announcements.append(Announcement(change, tuple(one.incident for one in warnings) if is_for_all else ()))
            if change.phase is IncidentPhase.CLEARED:
                for one in warnings:
                    del self._warned[one.incident.id]
        return announcements

    def _find_successors(self) -> list[EarlyWarning]:
        """Find the incident that covers each early warning; return the warnings that are over without one."""
        over = []
        for name, kind_state in self._states.items():
            monitor = kind_state.monitor
            unresolved = [one for one in self._warned.values() if one.incident.kind == name and one.successor is None]
            touching = monitor.tracker.touching([one.incident.squares for one in unresolved])
            oldest_first = monitor.tracker.active if unresolved else ()
            for one, names in zip(unresolved, touching, strict=True):
                if names:
                    active = [incident for incident in oldest_first if incident.id in names]
                    self._warned[one.incident.id] = replace(one, successor=_nearest(one.incident, active))
                elif monitor.slot is not None and monitor.slot >= one.slot:
                    del self._warned[one.incident.id]
                    kind_state.false_warnings |= dict.fromkeys(one.incident.squares, one.slot + monitor.kind.slots)
                    over.append(one)
        return over

    def _still_holds(self, one: EarlyWarning, incident: Incident) -> bool:
        """Return whether the endpoints around an incident were warned early, under its id, and not too long ago."""
        kind = self._incidents.monitors[incident.kind].kind
        is_fresh = incident.alerted_at - one.incident.alerted_at <= kind.valid_ns // 2
        return (
            one.incident.id == incident.id and is_fresh and is_within_alert_area(kind, one.incident.alert_area, incident.circle)
        )

    def _reset(self, kind_state: _KindState) -> None:
        """Reset the state after the evaluation of a slot: incidents may have moved."""
        kind_state.slot, kind_state.reach, kind_state.evaluated_reports = kind_state.monitor.slot, set(), {}
        kind_state.false_warnings = {
            square: until for square, until in kind_state.false_warnings.items() if until > (kind_state.slot or 0)
        }
        for incident in kind_state.monitor.tracker.active:
            kind_state.exclude(incident.squares)
        for one in self._warned.values():
            if one.incident.kind == kind_state.monitor.kind.name:
                kind_state.exclude(one.incident.squares)

    def _end(self, one: EarlyWarning) -> Instant:
        return Instant((one.slot + 1) * self._incidents.monitors[one.incident.kind].kind.interval_ns)


def _nearest(place: Incident, active: Sequence[Incident]) -> IncidentId:
    """Return the incident with the same id, or with most squares in common; *active* has the oldest first."""
    return min(active, key=lambda one: (one.id != place.id, -len(one.squares & place.squares))).id


def _candidates(kind_state: _KindState, slot: int, squares: set[Square]) -> list[Square]:
    """Return the bins around *squares* that may be hot and were not evaluated with as many reports before."""
    reports, block = kind_state.monitor.reports, kind_state.monitor.kind.grid.block
    found = []
    for square in {near for one in squares for near in block(one) if near in reports}:
        total = sum([reports[near] for near in block(square) if near in reports])
        if total < kind_state.floor or total < kind_state.evaluated_reports.get(square, 0.0) * _GROWTH:
            continue
        if kind_state.may_warn(square, slot):
            kind_state.evaluated_reports[square] = total
            found.append(square)
    return found


ENGINE: Final = "incidents"
"""The name under which questions are addressed."""
ENGINE_SOURCE: Final = service_source(ENGINE)
"""The source of alerts and answers."""
CELLS: Final = "cells"
STATE: Final = "incidents.state"
STATE_KEY: Final = "state"
QUESTION_TOPIC: Final = "Area-of-Interest"
SAVE_INTERVAL_NS: Final = SECOND_NS // 5
"""Minimum interval between appends of the state for early alerts; if the process dies within it, they get no all-clear."""
_LEVEL: Final = 1
"""Compression level of the state: thousands of incidents must fit into one record of the log, at little cost."""

RADIUS_M: Final = 1_000.0
"""Default radius of a question about a place."""


SignMessage = Callable[[Message], Message]
"""Returns a message with the signature of the incident engine; the same message always gets the same one."""


class EngineAppend(NamedTuple):
    """A record for the site's log."""

    topic: str
    key: str
    value: bytes


@dataclass(slots=True)
class EngineCounts:
    """Counters of the engine."""

    alerts: int = 0
    early: int = 0
    """Alerts among them that were published before the slot had ended."""
    answers: int = 0
    rejected: int = 0
    """Questions with a fault."""
    unreadable: int = 0
    """Cells, questions and reputations that could not be read."""


class IncidentEngine:
    """The incident engine of one site; the module docstring has the order of calls."""

    def __init__(
        self,
        site: str,
        kinds: Sequence[EventKind],
        *,
        allowed_lateness_s: float,
        since: Instant,
        state: bytes | None = None,
        approach: Approach | None = None,
        sign: SignMessage | None = None,
    ) -> None:
        state_json = orjson.loads(decompress(state)) if state else {}
        incidents = state_from_json(orjson.dumps(state_json["incidents"])) if state_json else None
        self._sender = EdgeRef(site, service_sender(ENGINE))
        self._lateness_ns = int(allowed_lateness_s * SECOND_NS)
        self._approach = approach
        self._sign = sign
        self._kinds = {kind.name: kind for kind in kinds}
        self._appends: list[EngineAppend] = []
        self._last: int = state_json.get("last", 0)
        self._answered = 0
        self.questions_from: int = state_json.get("asks", 0)
        """Offset of the first question that may not have been answered."""
        self._scores = Scores()
        self._weights: dict[WitnessHash, float] = {}
        self.incidents = Incidents(kinds, weights=self._weights, state=incidents)
        warned = early_warnings_from_json(orjson.dumps(state_json["early"])) if "early" in state_json else ()
        self._early = EarlyWarnings(self.incidents, lateness_ns=self._lateness_ns, since=since, warned=warned)
        # Not 0: early alerts of the previous process after its last state have numbers up to its own value of this.
        self._evaluated_until = Instant(since - self._lateness_ns)
        self._saved_at = Instant(0)
        self._next_slot_end = Instant(0)
        """Nothing can change before: slots of all kinds that ended earlier are evaluated."""
        self._is_unsaved = False
        self._texts = IncidentTexts()
        self.counts = EngineCounts()
        self.dropped: Counter[str] = Counter()

    def add_cells(self, values: Sequence[bytes | None], now: Instant) -> None:
        """Add cells, in any order, repeated or not; a place that is hot now is announced early."""
        self._announce_early([cell for same in group_by_key(values) for cell in self._add_latest(same)], now)

    def add_decoded_cells(self, cells: Iterable[Cell], now: Instant) -> None:
        """Add decoded cells, each with another key."""
        self._announce_early([cell for cell in cells if self._is_added(cell)], now)

    def go_live(self, announced: Iterable[IncidentId], now: Instant) -> None:
        """Announce what is hot, after the cells that the log had at the start; *announced* is in the log already."""
        self._publish_early(self._early.go_live(announced, now))

    def _announce_early(self, added: Sequence[Cell], now: Instant) -> None:
        self._publish_early(self._early.find_early(added, now))

    def _publish_early(self, changes: Iterable[IncidentChange]) -> None:
        for change in changes:
            self._publish(Announcement(change), self._evaluated_until)
            self.counts.early += 1
            self._is_unsaved = True

    def _add_latest(self, same: Sequence[CellValue]) -> list[Cell]:
        """Add the cell with most reports of those with one key; if it is not accepted, the next."""
        accepted: list[Cell] = []
        for reports, data in same:
            if accepted and reports < accepted[0].reports:
                break
            try:
                cell = cell_from_json(data)
            except Malformed:
                self.counts.unreadable += 1
                continue
            if self._is_added(cell):
                accepted.append(cell)
        return accepted

    def _is_added(self, cell: Cell) -> bool:
        """Add a cell; return whether it counts."""
        dropped = self.incidents.add(cell)
        if dropped is not None:
            self.dropped[dropped.name] += 1
        return dropped is None

    def add_scores(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Add reputations, each with its key."""
        for key, value in records:
            try:
                endpoint = self._scores.take(key, value)
            except Malformed:
                self.counts.unreadable += 1
                continue
            score = self._scores.known.get(endpoint)
            if score is None:
                self._weights.pop(witness_hash(endpoint), None)
            else:
                self._weights[witness_hash(endpoint)] = score

    def tick(self, now: Instant) -> None:
        """Evaluate the slots that ended long enough ago for their cells to have arrived, in chronological order."""
        until = Instant(now - self._lateness_ns)
        if until >= self._next_slot_end:
            self._evaluate_slots(until)
            lengths_ns = [kind.interval_ns for kind in self._kinds.values()]
            self._next_slot_end = Instant(min(((until // one + 1) * one for one in lengths_ns), default=FOREVER))
        self._evaluated_until = max(self._evaluated_until, until)
        self.save_if_due(now)

    def _evaluate_slots(self, until: Instant) -> None:
        has_changed = False
        while (at := _first(self.incidents.maybe_next_end(), self._early.maybe_next_end())) is not None and at <= until:
            changes, warned = self.incidents.advance(at), self._early.warned
            for announcement in self._early.resolve(changes):
                self._publish(announcement, at)
            has_changed = has_changed or bool(changes) or warned != self._early.warned
        self.incidents.advance(until)
        if has_changed:
            self._save()

    def save_if_due(self, now: Instant) -> None:
        """Append the state after early alerts, at most every `SAVE_INTERVAL_NS`, so that the alerts do not wait for it."""
        if self._is_unsaved and not 0 <= now - self._saved_at < SAVE_INTERVAL_NS:
            self._saved_at = now
            self._save()

    def _publish(self, announcement: Announcement, at: Instant) -> None:
        """Append the alert of a change, under a number that is not lower than *at*."""
        message = maybe_alert(
            announcement.change, self._kinds[announcement.change.incident.kind], ENGINE_SOURCE, announcement.early, self._approach
        )
        if message is not None:
            if self._sign is not None:
                message = self._sign(message)
            record = to_record(ForwardedMessage(self._sender, self._next_number(at), message, qos=1))
            self._appends += (EngineAppend(CROSS_HUB, "", record), EngineAppend(handler_topic(PIPELINES), ENGINE_SOURCE, record))
            self.counts.alerts += 1

    def _next_number(self, at: Instant) -> int:
        self._last = max(self._last + 1, at)
        return self._last

    def answer_question(self, offset: int, value: bytes | None, now: Instant) -> None:
        """Answer a question to its edge, and advance the offset from which a later process resumes."""
        self.questions_from = offset + 1
        try:
            request = from_record(value or b"")
        except Malformed:
            self.counts.unreadable += 1
            return
        requester = maybe_endpoint(request.message.source) if isinstance(request, ForwardedMessage) else None
        if not isinstance(request, ForwardedMessage) or requester is None:
            self.counts.unreadable += 1
            return
        try:
            topic, body = (
                f"{QUESTION_TOPIC}/accept",
                conditions_to_json(self.incidents.around(_area_of(request.message), now), now),
            )
            self.counts.answers += 1
        except Malformed as fault:
            topic, body = f"{QUESTION_TOPIC}/reject", orjson.dumps({"reason": fault.reason.name, "detail": str(fault)})
            self.counts.rejected += 1
        self._answered = max(self._answered + 1, now)
        answer = Message(
            MessageId(self._answered),
            ENGINE_SOURCE,
            topic,
            now,
            address=ToEndpoint(requester),
            reliable=request.qos > 0,
            body=body,
        )
        here = request.sender.site == self._sender.site
        number = self._answered if here else self._next_number(self._evaluated_until)
        record = to_record(ForwardedMessage(self._sender, number, answer, qos=request.qos))
        self._appends.append(EngineAppend(inbox_topic(request.sender) if here else CROSS_HUB, "", record))
        self._is_unsaved = True

    def _save(self) -> None:
        self._is_unsaved = False
        incidents = orjson.Fragment(state_to_json(self.incidents.state(), self._texts.encode))
        early = orjson.Fragment(early_warnings_to_json(self._early.warned, self._texts.encode))
        self._texts.forget_unused()
        state = orjson.dumps({"last": self._last, "asks": self.questions_from, "incidents": incidents, "early": early})
        self._appends.append(EngineAppend(STATE, STATE_KEY, compress(state, _LEVEL)))

    def take_appends(self) -> list[EngineAppend]:
        """Return the records to append, in order."""
        found, self._appends = self._appends, []
        return found


def _first(*instants: Instant | None) -> Instant | None:
    return min((one for one in instants if one is not None), default=None)


def _area_of(message: Message) -> Area:
    """Return the area of a question: the one in its body, or a circle around its place."""
    if message.body:
        try:
            value = orjson.loads(message.body)
        except orjson.JSONDecodeError as fault:
            raise Malformed(Reason.PAYLOAD_NOT_JSON, str(fault)) from None
        area = value.get("area") if isinstance(value, dict) else None
        if area is None:
            raise Malformed(Reason.FIELD_MISSING, 'send {"area": "circle LATITUDE,LONGITUDE METRES"}, WKT or GeoJSON')
        return area_from_text(area) if isinstance(area, str) else area_from_geojson(area)
    if message.place is None:
        raise Malformed(Reason.FIELD_MISSING, "the question has neither an area nor a place")
    radius_m = message.fields.get("radius_m", RADIUS_M)
    if isinstance(radius_m, bool) or not isinstance(radius_m, int | float):
        raise Malformed(Reason.FIELD_TYPE, "radius_m is not a number")
    return Circle(message.place, float(radius_m))
