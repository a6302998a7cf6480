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
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, NamedTuple
from zlib import compress, decompress

import orjson

from milepost.incidents.early_warning import Announcement, EarlyWarnings
from milepost.incidents.tracker import Incidents, circle_around
from milepost.model.addresses import INCIDENTS_MAX, ToArea, ToEndpoint, ToNotified
from milepost.model.areas import Area, Circle, Union
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Change, EventKind, Incident, Phase
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
