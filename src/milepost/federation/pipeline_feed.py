"""Feeds of the pipelines: reports of endpoints (M13, M27), and the delivery states of messages to areas (proof of coverage, M24).

    reports    ─▶ note, with names while the sessions live          ─▶ batch               ─▶ every `feed_interval_s`, or when
    deliveries ─▶ note ─▶ end of the tick: settle, with its time    ─▶ batch by message    ─▶ the batch is full: outbox

Invariants:
- refused reports are sent too, with the reason, so that pipelines can detect false reports; of those over an endpoint's rate
  limit one a second, so that a flood does not reach the log;
- batches are limited, also within one tick. Reports and deliveries beyond the limit are dropped and counted.
"""

from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.broker.publication import Publication
from milepost.federation.member_state import SiteState
from milepost.federation.outbox import TRANSIENT, Append
from milepost.matching.columns import column
from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import DELIVERIES, MICROSECOND_NS, REPORTS, CoveringEdge, DeliveryState
from milepost.model.places import vectors
from milepost.model.reasons import Reason
from milepost.vetting import ReportColumns
from milepost.wire.records import DeliveryRecord, ReportRecord, deliveries_to_record, reports_to_record

REPORTS_GATHERED_MAX: Final = 1_000
"""Maximum reports in a batch before it is sent."""
REPORTS_RECORD_MAX: Final = 2_000
"""Maximum reports in one record: below the log's limit even with the longest names."""

Verdicts = NDArray[np.uint16]
Bytes = NDArray[np.uint8]


class NotedReports(NamedTuple):
    """Reports of one tick."""

    names: list[EndpointId]
    batch: ReportColumns
    verdicts: Verdicts


class ReportFeed:
    """The feed of reports to the pipelines."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._noted: list[NotedReports] = []
        self._count = 0
        self._interval_ns = int(state.limits.feed_interval_s * SECOND_NS)
        self._due = Instant(0)
        self._flood_reported = column(state.broker.sessions_max, np.int64)
        """By session, the second of the last sent report that exceeded its rate limit."""
        if self._interval_ns:
            state.broker.observe_reports(self.note)

    def note(self, batch: ReportColumns, verdicts: Verdicts, now: Instant) -> None:
        """Note reports of one tick, with the verdict on each."""
        if verdicts.any() and (rows := self._maybe_rows(batch, verdicts, now)) is not None:
            batch, verdicts = batch.only(rows), verdicts[rows]
        if not verdicts.size:
            return
        self._noted.append(NotedReports(self._state.broker.names_of(batch.numbers.tolist()), batch, verdicts))
        self._count += verdicts.size
        if self._count >= REPORTS_GATHERED_MAX or self._is_due(now):
            self._send(now)

    def tick(self, now: Instant) -> None:
        """Send the batch of reports when it is due."""
        if self._noted and self._is_due(now):
            self._send(now)

    def _is_due(self, now: Instant) -> bool:
        return now >= self._due or now < self._due - self._interval_ns  # or the clock was set back

    def _maybe_rows(self, batch: ReportColumns, verdicts: Verdicts, now: Instant) -> NDArray[np.intp] | None:
        """Return the reports to send; None: all of them."""
        too_fast = (verdicts == Reason.RATE_TOO_HIGH).nonzero()[0]
        if not too_fast.size:
            return None
        second = now // SECOND_NS
        numbers, first = np.unique(batch.numbers[too_fast], return_index=True)
        are_new = self._flood_reported[numbers] != second
        self._flood_reported[numbers[are_new]] = second
        rows = np.concatenate(((verdicts != Reason.RATE_TOO_HIGH).nonzero()[0], too_fast[first[are_new]]))
        return np.sort(rows)

    def _send(self, now: Instant) -> None:
        noted, self._noted, self._count = self._noted, [], 0
        self._due = Instant(now + self._interval_ns)
        state = self._state
        names = [name for one in noted for name in one.names]
        batch = noted[0].batch if len(noted) == 1 else _concatenated([one.batch for one in noted])
        verdicts = np.concatenate([one.verdicts for one in noted])
        covered = self._covered(batch)
        for start in range(0, len(names), REPORTS_RECORD_MAX):
            part = slice(start, start + REPORTS_RECORD_MAX)
            record = ReportRecord(
                state.edge,
                names[part],
                batch.seen_at[part],
                batch.latitudes[part],
                batch.longitudes[part],
                batch.headings[part],
                batch.speeds[part],
                verdicts[part],
                covered[part],
            )
            is_sent = state.outbox.add_feed_record(Append(TRANSIENT, REPORTS, str(state.edge), reports_to_record(record)))
            state.counts["reports_sent" if is_sent else "reports_dropped"] += len(names[part])

    def _covered(self, batch: ReportColumns) -> Bytes:
        """Return which edges cover each position; none covers a position that is not on Earth."""
        state, size = self._state, batch.latitudes.size
        here = state.broker.coverage
        if here is None:
            return np.full(size, CoveringEdge.HERE, np.uint8)
        found = np.full(size, CoveringEdge.NOWHERE, np.uint8)
        on_earth = ((np.abs(batch.latitudes) <= 90.0) & (np.abs(batch.longitudes) <= 180.0)).nonzero()[0]
        points = vectors(batch.latitudes[on_earth], batch.longitudes[on_earth])
        is_here = here.contains(points)
        found[on_earth[is_here]] = CoveringEdge.HERE
        beyond, points = on_earth[~is_here], points[~is_here]
        for info in state.edges.values():
            if not beyond.size:
                break
            is_there = np.ones(beyond.size, np.bool_) if info.coverage is None else info.coverage.contains(points)
            found[beyond[is_there]] = CoveringEdge.ELSEWHERE
            beyond, points = beyond[~is_there], points[~is_there]
        return found


def _concatenated(batches: list[ReportColumns]) -> ReportColumns:
    return ReportColumns(
        np.concatenate([one.numbers for one in batches]),
        np.concatenate([one.latitudes for one in batches]),
        np.concatenate([one.longitudes for one in batches]),
        np.concatenate([one.seen_at for one in batches]),
        np.concatenate([one.headings for one in batches]),
        np.concatenate([one.speeds for one in batches]),
    )


TICK_DELIVERIES_MAX: Final = 200_000
"""Maximum deliveries noted in one tick."""
DELIVERIES_GATHERED_MAX: Final = 1_000
"""Maximum deliveries in a batch before it is sent."""
DELIVERIES_RECORD_MAX: Final = 2_000
"""Maximum deliveries in one record: below the log's limit even with the longest names."""


class NotedDeliveries(NamedTuple):
    """The delivery state of a message for some endpoints."""

    publication: Publication
    names: list[EndpointId]
    state: DeliveryState
    reason: Reason | None


class MessageKey(NamedTuple):
    """A message by source, id and topic."""

    source: SourceId
    id: int
    topic: str


@dataclass(slots=True)
class DeliveryRows:
    """The delivery states of one message, row by row."""

    endpoints: list[EndpointId] = field(default_factory=list)
    states: list[str] = field(default_factory=list)
    at_us: list[int] = field(default_factory=list)
    reasons: list[int] = field(default_factory=list)

    def add(self, noted: NotedDeliveries, now: Instant) -> None:
        """Add rows."""
        count = len(noted.names)
        self.endpoints += noted.names
        self.states += [noted.state.value] * count
        self.at_us += [now // MICROSECOND_NS] * count
        self.reasons += [noted.reason or 0] * count


class DeliveryFeed:
    """The feed of the delivery states of messages to areas."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._noted: list[NotedDeliveries] = []
        self._noted_count = 0
        self._gathered: dict[MessageKey, DeliveryRows] = {}
        self._count = 0
        self._interval_ns = int(state.limits.feed_interval_s * SECOND_NS)
        self._due = Instant(0)
        if self._interval_ns:
            state.broker.observe_deliveries(self.note)

    def note(self, publication: Publication, names: list[EndpointId], state: DeliveryState, reason: Reason | None) -> None:
        """Note a delivery state in this tick."""
        if self._noted_count >= TICK_DELIVERIES_MAX:
            self._state.counts["deliveries_dropped"] += len(names)
        elif names:
            self._noted_count += len(names)
            self._noted.append(NotedDeliveries(publication, names, state, reason))

    def end_tick(self, now: Instant) -> None:
        """End the tick."""
        for noted in self._noted:
            publication = noted.publication
            rows = self._gathered.setdefault(MessageKey(publication.source, publication.id, publication.topic), DeliveryRows())
            rows.add(noted, now)
        self._count += self._noted_count
        self._noted, self._noted_count = [], 0
        is_due = now >= self._due or now < self._due - self._interval_ns  # or the clock was set back
        if self._count and (self._count >= DELIVERIES_GATHERED_MAX or is_due):
            self._send(now)

    def _send(self, now: Instant) -> None:
        gathered, self._gathered, self._count = self._gathered, {}, 0
        self._due = Instant(now + self._interval_ns)
        state = self._state
        for (source, number, topic), rows in gathered.items():
            for start in range(0, len(rows.endpoints), DELIVERIES_RECORD_MAX):
                part = slice(start, start + DELIVERIES_RECORD_MAX)
                columns = rows.endpoints[part], rows.states[part], rows.at_us[part], rows.reasons[part]
                record = deliveries_to_record(DeliveryRecord(state.edge, source, number, topic, *columns))
                is_sent = state.outbox.add_feed_record(Append(TRANSIENT, DELIVERIES, str(state.edge), record))
                state.counts["deliveries_sent" if is_sent else "deliveries_dropped"] += len(columns[0])
