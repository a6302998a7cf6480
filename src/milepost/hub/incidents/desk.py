"""The incident desk of a site: cells in, alerts out, and answers to who asks what is going on around a place (M24, M25).

    topic `cells`                 ─▶ take_cells ─┐    what is hot is told early, at once
    topic `reputation`            ─▶ take_scores ┤    how far witnesses are believed from now on
    reserved.publish-incidents    ─▶ take_asks ──┤─▶ take_appends: alerts on cross-hub, answers to the asker's edge, state
    time                          ─▶ tick ───────┘

What must hold:
- alerts are numbered from what is in the state: a process that goes on from an earlier state says the same again under the same
  numbers, and edges drop it;
- the state is appended after the alerts that it counts as said. What is told early has numbers below those of all that later ends
  of slots say: if a process dies before the state is there, its heir's alerts are not taken for old ones;
- a cell or a question that cannot be read changes nothing but a count; who asked wrongly is told what is wrong.
"""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple
from zlib import compress, decompress

import orjson

from milepost.hub.incidents.alerts import maybe_alert
from milepost.hub.incidents.approach import Approach
from milepost.hub.incidents.early import Early, Tell
from milepost.hub.incidents.incidents import Incidents
from milepost.model.addresses import ToEndpoint
from milepost.model.areas import Area, Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import CROSS_HUB, EdgeRef, Said, inbox_of, publish_to
from milepost.model.telling import PIPELINES
from milepost.vetting import Scores
from milepost.wire.asks.texts import area_from_text
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

DESK: Final = EndpointId("incidents")
CELLS: Final = "cells"
STATE: Final = "incidents.state"
STATE_KEY: Final = "state"
QUESTION: Final = "Area-of-Interest"
KEEP_NS: Final = SECOND_NS // 5
"""So long the state is not appended again for what was told early; who dies meanwhile leaves some of it without an all-clear."""
_LEVEL: Final = 1
"""How hard the state is pressed: thousands of incidents must fit into one record of the log, and not wait for it."""

RADIUS_M: Final = 1_000.0
"""Who asks about a place and says no more is told what is going on within so many metres."""


class Append(NamedTuple):
    """A record for the site's log."""

    topic: str
    key: str
    value: bytes


@dataclass(slots=True)
class DeskCounts:
    """What happened so far."""

    alerts: int = 0
    early: int = 0
    """Of these, those that were told before the slot had ended."""
    answers: int = 0
    rejected: int = 0
    """Questions that could not be answered."""
    unreadable: int = 0
    """Cells, questions and reputations that were none."""


class IncidentDesk:
    """The incidents of one site."""

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
        self._me = EdgeRef(site, f"@{DESK}")
        self._late_ns = int(late_s * SECOND_NS)
        self._approach = approach
        self._kinds = {kind.name: kind for kind in kinds}
        self._appends: list[Append] = []
        self._last: int = saved.get("last", 0)
        self._answered = 0
        self.asks_from: int = saved.get("asks", 0)
        """The first question that may not have been answered."""
        self._scores = Scores()
        self.incidents = Incidents(kinds, weights=self._scores.known, state=incidents)
        warned = warned_from_json(orjson.dumps(saved["early"])) if "early" in saved else ()
        self._early = Early(self.incidents, late_ns=self._late_ns, since=since, warned=warned)
        self._looked_at = self._kept_at = Instant(0)
        self._is_unsaved = False
        self.counts = DeskCounts()
        self.dropped: Counter[str] = Counter()

    def take_cells(self, values: Sequence[bytes | None], now: Instant) -> None:
        """Cells, in any order, as often as they come; what is hot around them now is told."""
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
            self._say(Tell(change), self._looked_at)
            self.counts.early += 1
            self._is_unsaved = True

    def take_scores(self, records: Iterable[tuple[str, bytes | None]]) -> None:
        """Reputations, each under its key."""
        for key, value in records:
            try:
                self._scores.take(key, value)
            except Malformed:
                self.counts.unreadable += 1

    def tick(self, now: Instant) -> None:
        """Look at the slots that have ended long enough ago for their cells to be here, those of each moment by themselves."""
        until = Instant(now - self._late_ns)
        has_changed = False
        while (at := _first(self.incidents.maybe_next_end(), self._early.maybe_next_end())) is not None and at <= until:
            changes, warned = self.incidents.advance(at), self._early.warned
            for tell in self._early.settle(changes):
                self._say(tell, at)
            has_changed = has_changed or bool(changes) or warned != self._early.warned
        self.incidents.advance(until)
        self._looked_at = max(self._looked_at, until)
        if has_changed:
            self._save()
        self.keep(now)

    def keep(self, now: Instant) -> None:
        """Have the state appended after what was told early, so that it does not wait for that; in a storm not each time."""
        if self._is_unsaved and not 0 <= now - self._kept_at < KEEP_NS:
            self._kept_at = now
            self._save()

    def _say(self, tell: Tell, at: Instant) -> None:
        """Tell of a change, under a number that is not lower than a time."""
        message = maybe_alert(tell.change, self._kinds[tell.change.incident.kind], DESK, tell.early, self._approach)
        if message is not None:
            record = to_record(Said(self._me, self._next_number(at), message, qos=1))
            self._appends += (Append(CROSS_HUB, "", record), Append(publish_to(PIPELINES), DESK, record))
            self.counts.alerts += 1

    def _next_number(self, at: Instant) -> int:
        self._last = max(self._last + 1, at)
        return self._last

    def take_asks(self, offset: int, value: bytes | None, now: Instant) -> None:
        """A question, answered to its edge; each moves on the point from which a later process would begin."""
        self.asks_from = offset + 1
        try:
            said = from_record(value or b"")
        except Malformed:
            self.counts.unreadable += 1
            return
        if not isinstance(said, Said):
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
            MessageId(self._answered), DESK, topic, now, address=ToEndpoint(said.message.source), reliable=said.qos > 0, body=body
        )
        here = said.sender.site == self._me.site
        number = self._answered if here else self._next_number(self._looked_at)
        record = to_record(Said(self._me, number, answer, qos=said.qos))
        self._appends.append(Append(inbox_of(said.sender) if here else CROSS_HUB, "", record))
        self._save()

    def _save(self) -> None:
        self._is_unsaved = False
        incidents = orjson.Fragment(state_to_json(self.incidents.state()))
        early = orjson.Fragment(warned_to_json(self._early.warned))
        state = orjson.dumps({"last": self._last, "asks": self.asks_from, "incidents": incidents, "early": early})
        self._appends.append(Append(STATE, STATE_KEY, compress(state, _LEVEL)))

    def take_appends(self) -> list[Append]:
        """What is to be appended, in order."""
        found, self._appends = self._appends, []
        return found


def _first(*instants: Instant | None) -> Instant | None:
    return min((one for one in instants if one is not None), default=None)


def _area_of(message: Message) -> Area:
    """Which area a question is about: the one in its body, or a circle around where it was asked."""
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
