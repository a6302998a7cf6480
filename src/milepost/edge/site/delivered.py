"""Delivered: what becomes of messages to areas, endpoint by endpoint, gathered and told to pipelines (proof of coverage).

    delivery ─▶ note ─▶ end of the turn: settle, with its time ─▶ gathered by message ─▶ every `reports_s`, or sooner ─▶ outbox

What must hold: what is gathered is limited, in one turn too. What there is no room for is dropped, and counted.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

from milepost.edge.parcels import Parcel
from milepost.edge.site.outbox import PASSING, Append
from milepost.edge.site.state import SiteState
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.model.telling import DELIVERIES, MICROSECOND_NS, Fate
from milepost.wire.records.telling import Deliveries, deliveries_to_record

TURN_MAX: Final = 200_000
"""So much may become of messages in one turn."""
GATHERED_MAX: Final = 1_000
"""When so much is gathered, it is told at once."""
RECORD_MAX: Final = 2_000
"""So much stands in one record: with the longest names it is smaller than the log allows."""


class Noted(NamedTuple):
    """What became of a message for some endpoints."""

    parcel: Parcel
    names: list[EndpointId]
    fate: Fate
    reason: Reason | None


class About(NamedTuple):
    """A message."""

    source: EndpointId
    id: int
    topic: str


@dataclass(slots=True)
class Rows:
    """What became of one message, row by row."""

    endpoints: list[EndpointId] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    at_us: list[int] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)

    def add(self, noted: Noted, now: Instant) -> None:
        """More of it."""
        count = len(noted.names)
        self.endpoints += noted.names
        self.states += [noted.fate.value] * count
        self.at_us += [now // MICROSECOND_NS] * count
        self.reasons += [noted.reason or 0] * count


class Delivered:
    """Tells pipelines what became of messages to areas."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._noted: list[Noted] = []
        self._noted_count = 0
        self._gathered: dict[About, Rows] = {}
        self._count = 0
        self._interval_ns = int(state.limits.reports_s * SECOND_NS)
        self._due = Instant(0)
        if self._interval_ns:
            state.corridor.deliveries.heed = self.note

    def note(self, parcel: Parcel, names: list[EndpointId], fate: Fate, reason: Reason | None) -> None:
        """Something became of a message in this turn."""
        if self._noted_count >= TURN_MAX:
            self._state.counts["deliveries_dropped"] += len(names)
        elif names:
            self._noted_count += len(names)
            self._noted.append(Noted(parcel, names, fate, reason))

    def settle(self, now: Instant) -> None:
        """The turn is over."""
        for noted in self._noted:
            parcel = noted.parcel
            rows = self._gathered.setdefault(About(parcel.source, parcel.id, parcel.topic), Rows())
            rows.add(noted, now)
        self._count += self._noted_count
        self._noted, self._noted_count = [], 0
        is_due = now >= self._due or now < self._due - self._interval_ns  # or the clock was set back
        if self._count and (self._count >= GATHERED_MAX or is_due):
            self._tell(now)

    def _tell(self, now: Instant) -> None:
        gathered, self._gathered, self._count = self._gathered, {}, 0
        self._due = Instant(now + self._interval_ns)
        state = self._state
        for (source, number, topic), rows in gathered.items():
            for start in range(0, len(rows.endpoints), RECORD_MAX):
                part = slice(start, start + RECORD_MAX)
                columns = rows.endpoints[part], rows.states[part], rows.at_us[part], rows.reasons[part]
                record = deliveries_to_record(Deliveries(state.me, source, number, topic, *columns))
                is_told = state.outbox.tell(Append(PASSING, DELIVERIES, str(state.me), record))
                state.counts["deliveries_told" if is_told else "deliveries_dropped"] += len(columns[0])
