"""The incident engine of a site: cells in, alerts out, and answers to queries for the conditions around a place (M24, M25).

    topic `cells`                 ─▶ take_cells ─────┐    a hot place is announced early, at once
    topic `reputation`            ─▶ take_scores ────┤    the weights of witnesses from now on
    reserved.publish-incidents    ─▶ take_questions ─┼─▶ take_appends: alerts on cross-hub, answers to the asker's edge, state
    time                          ─▶ tick ───────────┘

Invariants:
- alerts are numbered from the state: a process that resumes from an earlier state repeats alerts under the same numbers, and
  edges drop the copies;
- the state is appended after the alerts that it records as published. Early alerts have numbers below those of all later ends of
  slots: if a process dies before its state is appended, the alerts of its successor are not mistaken for old ones;
- an unreadable cell or question changes nothing but a count; a wrong question is answered with its fault.

Early warnings: a place that is hot before its slot has ended is announced at once, and resolved at the end of the slot.

    cells ─▶ look: hot, and touches no incident ─▶ announced early, under the id that an incident would get there
    the slot has ended, and an incident …
      was raised there, under that id, in the notified circle    nothing more is published: the early warning suffices
      was raised there, otherwise                                `raised` also goes to all endpoints that were warned early
      existed there, or has moved there                          it covers the place: its all-clear goes to them, too
      is not there                                               an all-clear goes to all endpoints that were warned early

- incidents and their changes are the same as without early warnings: monitors are read and never changed;
- each place is announced early once, and an endpoint that received it receives an incident there or an all-clear;
- the outcome is decided at the ends of slots, so that a process that resumes from the state decides alike. That process announces
  nothing early in slots that began before it did: the previous process may have;
- a cell costs little where nothing can be hot: a bin is evaluated when it has the minimum number of reports of the predicate, and
  again when they have grown by an eighth.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import compress, decompress

import orjson

from milepost.incidents.bins import grouped
from milepost.incidents.tracker import EventMonitor, Incidents, circle_around, incident_of, is_told
from milepost.model.addresses import INCIDENTS_MAX, ToArea, ToEndpoint, ToNotified
from milepost.model.areas import Area, Circle, Union
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Cell, Change, EventKind, Incident, IncidentId, Phase, Square, Warned, holds, reports_at_least
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.pipeline_records import PIPELINES
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import CROSS_HUB, EdgeRef, ForwardedMessage, inbox_of, publish_to
from milepost.roads import Network, Placing, Reach, maybe_upstream
from milepost.vetting import Scores
from milepost.wire.area_text import area_from_text
from milepost.wire.geojson import area_from_geojson
from milepost.wire.incidents import (
    cell_from_json,
    conditions_to_json,
    state_from_json,
    state_to_json,
    warned_from_json,
    warned_to_json,
)
from milepost.wire.records import from_record, to_record

WARNED_MAX: Final = 1_000
"""Maximum places with an unresolved early warning."""

_GROWTH: Final = 9 / 8


class Announcement(NamedTuple):
    """A change to publish, and the early warnings of the same incident."""

    change: Change
    early: tuple[Incident, ...] = ()


@dataclass(slots=True)
class _KindScene:
    """State of one kind between the ends of two slots."""

    monitor: EventMonitor
    slot: int | None
    """The last evaluated slot."""
    floor: float
    """Minimum reports of a hot bin."""
    reach: set[Square] = field(default_factory=set)
    """Squares of incidents and early warnings, with a margin: a bin whose block has one of them touches one of those."""
    looked: dict[Square, float] = field(default_factory=dict)
    """Reports of a bin when it was evaluated last and was not hot."""
    in_vain: dict[Square, int] = field(default_factory=dict)
    """Places of false early warnings, each with the slot until which no further early warning is issued there."""

    def close(self, squares: Iterable[Square]) -> None:
        """Exclude all bins that touch *squares* from early warnings."""
        block = self.monitor.kind.grid.block
        self.reach |= {near for square in squares for near in block(square)}

    def touches(self, square: Square) -> bool:
        """Return whether the bin of a square touches an announced place."""
        return not self.reach.isdisjoint(self.monitor.kind.grid.block(square))


class EarlyWarnings:
    """The early warnings of all kinds that have alerts."""

    def __init__(self, incidents: Incidents, *, late_ns: int, since: Instant, warned: Iterable[Warned] = ()) -> None:
        self._incidents = incidents
        self._late_ns = late_ns
        self._since = since
        self._scenes = {
            name: _KindScene(monitor, None, reports_at_least(monitor.kind.condition))
            for name, monitor in incidents.monitors.items()
            if monitor.kind.alert is not None
        }
        self._warned = {one.incident.id: one for one in warned if one.incident.kind in self._scenes}
        for scene in self._scenes.values():
            self._set(scene)

    @property
    def warned(self) -> tuple[Warned, ...]:
        """The active early warnings."""
        return tuple(self._warned.values())

    def maybe_next_end(self) -> Instant | None:
        """Return the end of the next slot with an unresolved early warning, or `None`."""
        return min((self._end(one) for one in self._warned.values() if one.successor is None), default=None)

    def look(self, cells: Sequence[Cell], now: Instant) -> list[Change]:
        """Return the changes to publish at once for hot places around *cells*, which were just added."""
        came: defaultdict[tuple[str, int], set[Square]] = defaultdict(set)
        for cell in cells:
            scene = self._scenes.get(cell.kind)
            if scene is not None:
                slot = scene.monitor.slot
                came[cell.kind, cell.slot if slot is None else max(cell.slot, slot + 1)].add(cell.square)
        found = []
        for (kind, slot), squares in came.items():
            scene = self._scenes[kind]
            interval_ns = scene.monitor.kind.interval_ns
            if slot * interval_ns >= self._since and (slot + 1) * interval_ns > now - self._late_ns:
                found += self._look_at(scene, slot, squares, now)
        return found

    def _look_at(self, scene: _KindScene, slot: int, squares: set[Square], now: Instant) -> list[Change]:
        monitor, kind = scene.monitor, scene.monitor.kind
        if scene.slot != monitor.slot:
            self._set(scene)
        worth = _worth(scene, slot, squares)
        if not worth:
            return []
        bins = monitor.bins(slot, now, self._incidents.weights, worth)
        hot = [one.bin() for one in bins if holds(kind.condition, one.value_of)]
        found = []
        for group in grouped(kind.grid, hot):
            if len(self._warned) < WARNED_MAX and not any(map(scene.touches, group.squares)):
                incident = incident_of(kind, group, slot, now)
                self._warned[incident.id] = Warned(incident, slot)
                scene.close(group.squares)
                found.append(Change(Phase.EARLY, incident, now))
        return found

    def settle(self, changes: Sequence[Change]) -> list[Announcement]:
        """Return the announcements after the evaluation of the slots that end at one time, all-clears of false warnings first."""
        told = [Announcement(Change(Phase.CLEARED, one.incident, self._end(one))) for one in self._find_successors()]
        successors: defaultdict[IncidentId, list[Warned]] = defaultdict(list)
        for one in self._warned.values():
            if one.successor is not None:
                successors[one.successor].append(one)
        for change in changes:
            mine = successors.get(change.incident.id, [])
            if change.phase is Phase.RAISED and any(self._stands(one, change.incident) for one in mine):
                continue
            is_for_all = change.phase in (Phase.RAISED, Phase.CLEARED)
            told.append(Announcement(change, tuple(one.incident for one in mine) if is_for_all else ()))
            if change.phase is Phase.CLEARED:
                for one in mine:
                    del self._warned[one.incident.id]
        return told

    def _find_successors(self) -> list[Warned]:
        """Find the incident that covers each early warning; return the warnings that are over without one."""
        over = []
        for name, scene in self._scenes.items():
            monitor = scene.monitor
            open_ = [one for one in self._warned.values() if one.incident.kind == name and one.successor is None]
            touching = monitor.tracker.touching([one.incident.squares for one in open_])
            for one, names in zip(open_, touching, strict=True):
                if names:
                    living = [incident for incident in monitor.tracker.living if incident.id in names]
                    self._warned[one.incident.id] = replace(one, successor=_nearest(one.incident, living))
                elif monitor.slot is not None and monitor.slot >= one.slot:
                    del self._warned[one.incident.id]
                    scene.in_vain |= dict.fromkeys(one.incident.squares, one.slot + monitor.kind.slots)
                    over.append(one)
        return over

    def _stands(self, one: Warned, incident: Incident) -> bool:
        """Return whether the endpoints around an incident were warned early, under its id, and not too long ago."""
        kind = self._incidents.monitors[incident.kind].kind
        is_fresh = incident.told_at - one.incident.told_at <= kind.valid_ns // 2
        return one.incident.id == incident.id and is_fresh and is_told(kind, one.incident.told, incident.circle)

    def _set(self, scene: _KindScene) -> None:
        """Reset the scene after the evaluation of a slot: incidents may have moved."""
        scene.slot, scene.reach, scene.looked = scene.monitor.slot, set(), {}
        scene.in_vain = {square: until for square, until in scene.in_vain.items() if until > (scene.slot or 0)}
        for incident in scene.monitor.tracker.living:
            scene.close(incident.squares)
        for one in self._warned.values():
            if one.incident.kind == scene.monitor.kind.name:
                scene.close(one.incident.squares)

    def _end(self, one: Warned) -> Instant:
        return Instant((one.slot + 1) * self._incidents.monitors[one.incident.kind].kind.interval_ns)


def _nearest(place: Incident, living: Sequence[Incident]) -> IncidentId:
    """Return the incident with the same id, or with most squares in common; *living* has the oldest first."""
    return min(living, key=lambda one: (one.id != place.id, -len(one.squares & place.squares))).id


def _worth(scene: _KindScene, slot: int, squares: set[Square]) -> list[Square]:
    """Return the bins around *squares* that may be hot and were not evaluated with as many reports before."""
    reports, block = scene.monitor.reports, scene.monitor.kind.grid.block
    found = []
    for square in {near for one in squares for near in block(one) if near in reports}:
        total = sum([reports[near] for near in block(square) if near in reports])
        if total < scene.floor or total < scene.looked.get(square, 0.0) * _GROWTH:
            continue
        if not scene.touches(square) and scene.in_vain.get(square, 0) < slot:
            scene.looked[square] = total
            found.append(square)
    return found


ENGINE: Final = EndpointId("incidents")
"""The source of alerts and answers, and the name under which questions are addressed."""
CELLS: Final = "cells"
STATE: Final = "incidents.state"
STATE_KEY: Final = "state"
QUESTION: Final = "Area-of-Interest"
KEEP_NS: Final = SECOND_NS // 5
"""Minimum interval between appends of the state for early alerts; if the process dies within it, they get no all-clear."""
_LEVEL: Final = 1
"""Compression level of the state: thousands of incidents must fit into one record of the log, at little cost."""

RADIUS_M: Final = 1_000.0
"""Default radius of a question about a place."""


class AlertAppend(NamedTuple):
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


class Approach:
    """The area of alerts where the roads are known: the incident, and the roads that lead to it (M26)."""

    def __init__(self, network: Network, *, upstream_s: float) -> None:
        self._network = network
        self._placing = Placing(network)
        self._reach = Reach(seconds=upstream_s)

    def area_for(self, circle: Circle, otherwise: Circle) -> Area:
        """Return *circle* and the roads upstream of its centre; *otherwise* if no road is there."""
        upstream = maybe_upstream(self._network, self._placing.spots_at(circle.centre), self._reach)
        return otherwise if upstream is None else Union((circle, upstream))


class IncidentEngine:
    """The incident engine of one site; the module docstring has the order of calls."""

    def __init__(
        self,
        site: str,
        kinds: Sequence[EventKind],
        *,
        late_s: float,
        since: Instant,
        state: bytes | None = None,
        approach: Approach | None = None,
    ) -> None:
        saved = orjson.loads(decompress(state)) if state else {}
        incidents = state_from_json(orjson.dumps(saved["incidents"])) if saved else None
        self._me = EdgeRef(site, f"@{ENGINE}")
        self._late_ns = int(late_s * SECOND_NS)
        self._approach = approach
        self._kinds = {kind.name: kind for kind in kinds}
        self._appends: list[AlertAppend] = []
        self._last: int = saved.get("last", 0)
        self._answered = 0
        self.questions_from: int = saved.get("asks", 0)
        """Offset of the first question that may not have been answered."""
        self._scores = Scores()
        self.incidents = Incidents(kinds, weights=self._scores.known, state=incidents)
        warned = warned_from_json(orjson.dumps(saved["early"])) if "early" in saved else ()
        self._early = EarlyWarnings(self.incidents, late_ns=self._late_ns, since=since, warned=warned)
        self._looked_at = self._kept_at = Instant(0)
        self._is_unsaved = False
        self.counts = EngineCounts()
        self.dropped: Counter[str] = Counter()

    def take_cells(self, values: Sequence[bytes | None], now: Instant) -> None:
        """Add cells, in any order, repeated or not; a place that is hot now is announced early."""
        cells = []
        for value in values:
            if value is None:
                continue
            try:
                cell = cell_from_json(value)
            except Malformed:
                self.counts.unreadable += 1
                continue
            dropped = self.incidents.take(cell)
            if dropped is None:
                cells.append(cell)
            else:
                self.dropped[dropped.name] += 1
        changes = self._early.look(cells, now)
        for change in changes:
            self._publish(Announcement(change), self._looked_at)
            self.counts.early += 1
            self._is_unsaved = True

    def take_scores(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Add reputations, each with its key."""
        for key, value in records:
            try:
                self._scores.take(key, value)
            except Malformed:
                self.counts.unreadable += 1

    def tick(self, now: Instant) -> None:
        """Evaluate the slots that ended long enough ago for their cells to have arrived, in chronological order."""
        until = Instant(now - self._late_ns)
        has_changed = False
        while (at := _first(self.incidents.maybe_next_end(), self._early.maybe_next_end())) is not None and at <= until:
            changes, warned = self.incidents.advance(at), self._early.warned
            for announcement in self._early.settle(changes):
                self._publish(announcement, at)
            has_changed = has_changed or bool(changes) or warned != self._early.warned
        self.incidents.advance(until)
        self._looked_at = max(self._looked_at, until)
        if has_changed:
            self._save()
        self.keep(now)

    def keep(self, now: Instant) -> None:
        """Append the state after early alerts, at most every `KEEP_NS`, so that the alerts do not wait for it."""
        if self._is_unsaved and not 0 <= now - self._kept_at < KEEP_NS:
            self._kept_at = now
            self._save()

    def _publish(self, announcement: Announcement, at: Instant) -> None:
        """Append the alert of a change, under a number that is not lower than *at*."""
        message = maybe_alert(
            announcement.change, self._kinds[announcement.change.incident.kind], ENGINE, announcement.early, self._approach
        )
        if message is not None:
            record = to_record(ForwardedMessage(self._me, self._next_number(at), message, qos=1))
            self._appends += (AlertAppend(CROSS_HUB, "", record), AlertAppend(publish_to(PIPELINES), ENGINE, record))
            self.counts.alerts += 1

    def _next_number(self, at: Instant) -> int:
        self._last = max(self._last + 1, at)
        return self._last

    def take_questions(self, offset: int, value: bytes | None, now: Instant) -> None:
        """Answer a question to its edge, and advance the offset from which a later process resumes."""
        self.questions_from = offset + 1
        try:
            said = from_record(value or b"")
        except Malformed:
            self.counts.unreadable += 1
            return
        if not isinstance(said, ForwardedMessage):
            self.counts.unreadable += 1
            return
        try:
            topic, body = f"{QUESTION}/accept", conditions_to_json(self.incidents.around(_area_of(said.message), now), now)
            self.counts.answers += 1
        except Malformed as fault:
            topic, body = f"{QUESTION}/reject", orjson.dumps({"reason": fault.reason.name, "detail": str(fault)})
            self.counts.rejected += 1
        self._answered = max(self._answered + 1, now)
        answer = Message(
            MessageId(self._answered),
            ENGINE,
            topic,
            now,
            address=ToEndpoint(said.message.source),
            reliable=said.qos > 0,
            body=body,
        )
        here = said.sender.site == self._me.site
        number = self._answered if here else self._next_number(self._looked_at)
        record = to_record(ForwardedMessage(self._me, number, answer, qos=said.qos))
        self._appends.append(AlertAppend(inbox_of(said.sender) if here else CROSS_HUB, "", record))
        self._save()

    def _save(self) -> None:
        self._is_unsaved = False
        incidents = orjson.Fragment(state_to_json(self.incidents.state()))
        early = orjson.Fragment(warned_to_json(self._early.warned))
        state = orjson.dumps({"last": self._last, "asks": self.questions_from, "incidents": incidents, "early": early})
        self._appends.append(AlertAppend(STATE, STATE_KEY, compress(state, _LEVEL)))

    def take_appends(self) -> list[AlertAppend]:
        """Return the records to append, in order."""
        found, self._appends = self._appends, []
        return found


def maybe_alert(
    change: Change, kind: EventKind, source: EndpointId, early: Sequence[Incident] = (), approach: Approach | None = None
) -> Message | None:
    """Return the message that announces a change; `None` if the kind has no topic for alerts.

    The same change yields the same message with the same id, so that a copy after a restart is recognised. *early* are the early
    warnings of the same incident: the alert also goes to their circles and names their ids. With *approach*, an alert goes to
    endpoints at the incident or on the way there, instead of to all around. The all-clear goes to exactly the endpoints that
    were notified.
    """
    if kind.alert is None:
        return None
    incident = change.incident
    assert incident.kind == kind.name, "a change is told by the rules of its own kind"
    others = {one.id: None for one in early if one.id != incident.id}
    is_over = change.phase is Phase.CLEARED
    address = (
        ToNotified((incident.id, *others)[:INCIDENTS_MAX]) if is_over else ToArea(_area(incident, early, approach), incident.id)
    )
    return Message(
        id=_number(change),
        source=source,
        topic=kind.alert,
        seen_at=change.at,
        address=address,
        place=incident.centre,
        valid_until=Instant(change.at + kind.valid_ns),
        priority=kind.priority,
        reliable=True,
        fields={
            "incident": incident.id,
            "kind": incident.kind,
            "phase": change.phase.value,
            "reports": incident.reports,
            "witnesses": incident.witnesses,
            "radius_m": incident.radius_m,
            **({"early": " ".join(others)} if others else {}),
        },
    )


def _area(incident: Incident, early: Sequence[Incident], approach: Approach | None) -> Area:
    circle = incident.told
    for one in early:
        circle = circle_around(circle, one.told)
    return circle if approach is None else approach.area_for(circle if early else incident.circle, circle)


def _number(change: Change) -> MessageId:
    said = f"{change.incident.id} {change.phase.value} {change.at}"
    return MessageId(int.from_bytes(blake2b(said.encode(), digest_size=8).digest(), "big"))


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
            raise Malformed(Reason.FIELD_MISSING, 'say {"area": "circle LATITUDE,LONGITUDE METRES"}, WKT or GeoJSON')
        return area_from_text(area) if isinstance(area, str) else area_from_geojson(area)
    if message.place is None:
        raise Malformed(Reason.FIELD_MISSING, "the question has neither an area nor a place")
    radius_m = message.fields.get("radius_m", RADIUS_M)
    if isinstance(radius_m, bool) or not isinstance(radius_m, int | float):
        raise Malformed(Reason.FIELD_TYPE, "radius_m is not a number")
    return Circle(message.place, float(radius_m))
