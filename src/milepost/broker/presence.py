"""Presence: reports are vetted, and give the current position of every endpoint.

    reports of a tick ─▶ rate of each endpoint ─▶ vetting, against the last one ─▶ last reports ─▶ matching (places)

Invariants:
- a refused report changes nothing but counters; each report is checked against the one before it of the same endpoint;
- after the edge's clock was set back, endpoints need not wait until it has caught up: a last report from the future counts as
  seen long ago.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.broker.active_alerts import IncidentKey, key_of
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.limits import BrokerLimits
from milepost.broker.outbound_queue import OutboundQueue
from milepost.broker.publication import Delivery, Publication
from milepost.broker.session import Session
from milepost.matching.columns import column, element_view
from milepost.matching.matcher import Matcher
from milepost.model.addresses import ToArea
from milepost.model.areas import Area, Motion, contains_moving, depends_on_heading, seconds_to_reach
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import BODY_BYTES_MAX
from milepost.model.places import Flags, Place, Vectors, vectors
from milepost.model.reasons import Reason, Refused
from milepost.model.reports import Report
from milepost.vetting import (
    Buckets,
    MessageLimits,
    OutsidePolicy,
    PreviousReports,
    ReportColumns,
    ReportLimits,
    SenderPosition,
    are_outside,
    in_rounds,
    vet_reports,
)

# The last report of every endpoint, as columns by session number (M13: current telemetry, no history).

LONG_AGO: Final = 1
"""Time of a position whose real time is not known: any place can have been reached since, and it gives no rights."""


class LastReports:
    """Position, heading and speed of each endpoint, and the time of its last report."""

    def __init__(self, limit: int) -> None:
        self._latitudes = column(limit, np.float64)
        self._longitudes = column(limit, np.float64)
        self._seen_at = column(limit, np.int64)
        self._headings = column(limit, np.float32)
        self._speeds = column(limit, np.float32)
        self._reports = column(limit, np.uint32)
        self._received_at = column(limit, np.int64)
        self._history_from = column(limit, np.int64)
        """When the first report of the present history was received, by the edge's clock: the endpoint cannot backdate it."""
        self._seen = element_view(self._seen_at)  # 0: not known

    def is_known(self, number: int) -> bool:
        """Return whether the position of an endpoint is known."""
        return bool(self._seen[number])

    def previous_of(self, numbers: NDArray[np.int32]) -> PreviousReports:
        """Return the last reports of some endpoints."""
        return PreviousReports(self._latitudes.take(numbers), self._longitudes.take(numbers), self._seen_at.take(numbers))

    def put(self, batch: ReportColumns, before: PreviousReports, now: Instant) -> None:
        """Store newer reports, one of each endpoint; *before* are the reports that they replace."""
        numbers = batch.numbers
        begins = _begin_history(batch, before, now - self._received_at.take(numbers))
        if np.count_nonzero(begins):
            self._history_from[numbers[begins]] = now
        self._received_at[numbers] = now
        self._latitudes[numbers] = batch.latitudes
        self._longitudes[numbers] = batch.longitudes
        self._seen_at[numbers] = batch.seen_at
        self._headings[numbers] = batch.headings
        self._speeds[numbers] = batch.speeds
        self._reports[numbers] += np.uint32(1)

    def restore_position(self, number: int, place: Place) -> None:
        """Restore the last position of an endpoint from an earlier process."""
        self._latitudes[number], self._longitudes[number] = place.latitude, place.longitude
        self._headings[number] = self._speeds[number] = np.nan
        self._seen[number] = LONG_AGO

    def history_s(self, number: int) -> float:
        """Return how far the plausible reports of an endpoint, up to the last one, reach back; 0 for a restored position."""
        if self._seen[number] <= LONG_AGO:
            return 0.0
        return int(self._received_at[number] - self._history_from[number]) / SECOND_NS

    def forget(self, number: int) -> None:
        """Forget the position of an endpoint."""
        self._seen[number] = 0
        self._reports[number] = 0

    def seen_at(self, number: int) -> int:
        """Return the time of the last report; 0 if there is none."""
        return int(self._seen[number])

    def find_place(self, number: int) -> Place | None:
        """Return the position of an endpoint, if it is known."""
        return Place(float(self._latitudes[number]), float(self._longitudes[number])) if self._seen[number] else None

    def find_heading(self, number: int) -> float | None:
        """Return the heading of an endpoint, if it is known."""
        heading = float(self._headings[number]) % 360.0  # rounding to float32 turns values just under 360 into 360
        return heading if self._seen[number] and heading == heading else None  # NaN is unequal to itself

    def find_speed(self, number: int) -> float | None:
        """Return the speed of an endpoint in m/s, if it is known."""
        speed = float(self._speeds[number])
        return speed if self._seen[number] and speed == speed else None

    def positions_and_motion(self, numbers: NDArray[np.int32]) -> tuple[Vectors, Motion]:
        """Return positions and headings of endpoints whose positions are known."""
        where = vectors(self._latitudes.take(numbers), self._longitudes.take(numbers))
        return where, Motion(self._headings.take(numbers), self._speeds.take(numbers))

    def reports_of(self, number: int) -> int:
        """Return how many reports of an endpoint were accepted."""
        return int(self._reports[number])


HISTORY_GAP_S: Final = 60.0
"""A history goes on after a longer silence only if the endpoint is still near."""

HISTORY_SPAN_DEG: Final = 0.05
"""The greatest difference in degrees, about 5.5 km, between places that are near in this sense."""


def _begin_history(batch: ReportColumns, before: PreviousReports, silent_ns: NDArray[np.int64]) -> Flags:
    """Return which reports begin a new history: first ones, and those from far away after a silence that allows for it."""
    begins: Flags = before.seen_at <= LONG_AGO
    are_silent = silent_ns > int(HISTORY_GAP_S * SECOND_NS)
    if np.count_nonzero(are_silent):
        north, east = batch.latitudes - before.latitudes, batch.longitudes - before.longitudes
        begins |= are_silent & (north * north + east * east > HISTORY_SPAN_DEG * HISTORY_SPAN_DEG)
    return begins


_UNKNOWN = float("nan")

Verdicts = NDArray[np.uint16]
"""For each report 0, or the reason code of its refusal."""

Moved = Callable[[ReportColumns, Instant], None]
"""Called with accepted reports of different endpoints."""

ReportObserver = Callable[[ReportColumns, NDArray[np.uint16], Instant], None]
"""Called with reports and the verdict on each: 0, or the reason code of its refusal."""


@dataclass(frozen=True, slots=True)
class PlausibilityRules:
    """Coverage of an edge, and its plausibility limits; replaced as a whole when the configuration is read again."""

    coverage: Area | None = None
    """None: everywhere."""
    report_limits: ReportLimits = field(default_factory=ReportLimits)
    message_limits: MessageLimits = field(default_factory=lambda: MessageLimits(bytes_max=BODY_BYTES_MAX))


class Presence:
    """Processes reports, in batches or one by one."""

    def __init__(self, limits: BrokerLimits, matcher: Matcher, counts: BrokerCounters) -> None:
        self._matcher = matcher
        self._counts = counts
        self.last_reports = LastReports(limits.sessions_max)
        self.plausibility_rules = PlausibilityRules()
        self.observer: ReportObserver | None = None
        """Observer of all reports, if there is one."""
        self.on_moved: Moved | None = None
        """Called with accepted reports."""
        self._spent, at = column(limits.sessions_max, np.float64), column(limits.sessions_max, np.int64)
        self._buckets = Buckets(limits.reports_per_s, limits.reports_burst, spent=self._spent, at=at)
        self._deficits = column(limits.sessions_max, np.float32)
        """The share of its rate that an endpoint has lost by its reputation."""
        self._has_deficits = False

    def process(self, batch: ReportColumns, now: Instant) -> NDArray[np.uint16]:
        """Accept plausible reports; return 0 or the reason code for each."""
        shares = 1.0 - self._deficits.take(batch.numbers) if self._has_deficits else None
        are_within = self._buckets.take(batch.numbers, now, share=shares)
        verdicts = np.zeros(batch.numbers.size, np.uint16)
        if not are_within.all():
            verdicts[~are_within] = Reason.RATE_TOO_HIGH
            rows = are_within.nonzero()[0]
            verdicts[rows] = self._process_rounds(batch.only(rows), now)
        else:
            verdicts = self._process_rounds(batch, now)
        if verdicts.any():
            for number, count in zip(*np.unique(verdicts[verdicts > 0], return_counts=True), strict=True):
                self._counts.refused[Reason(int(number))] += int(count)
        if self.observer is not None:
            self.observer(batch, verdicts, now)
        return verdicts

    def _process_rounds(self, batch: ReportColumns, now: Instant) -> NDArray[np.uint16]:
        rounds = in_rounds(batch.numbers)
        if len(rounds) == 1:
            return self._process_round(batch, now)
        verdicts = np.zeros(batch.numbers.size, np.uint16)
        for rows in rounds:
            verdicts[rows] = self._process_round(batch.only(rows), now)
        return verdicts

    def _process_round(self, batch: ReportColumns, now: Instant) -> NDArray[np.uint16]:
        """Process reports of different endpoints."""
        rules = self.plausibility_rules
        before = self.last_reports.previous_of(batch.numbers)
        before.seen_at[before.seen_at > self._latest(now)] = LONG_AGO
        verdicts = vet_reports(batch, before, rules.report_limits, now, rules.coverage)
        accepted = batch
        if verdicts.any():
            rows = (verdicts == 0).nonzero()[0]
            accepted, before = batch.only(rows), before.only(rows)
        if accepted.numbers.size:
            self._counts.reports += accepted.numbers.size
            if rules.coverage is not None and rules.report_limits.outside_coverage is OutsidePolicy.COUNT:
                self._counts.reports_outside += int(are_outside(accepted, rules.coverage).sum())
            self.last_reports.put(accepted, before, now)
            self._matcher.move(accepted.numbers, accepted.latitudes, accepted.longitudes)
            if self.on_moved is not None:
                self.on_moved(accepted, now)
        return verdicts

    def _latest(self, now: Instant) -> int:
        """Return the latest time at which a report can have been made."""
        ahead_s = self.plausibility_rules.report_limits.clock_ahead_s_max
        return now + int(ahead_s * SECOND_NS) if ahead_s else FOREVER

    def process_report(self, session: Session, report: Report, now: Instant) -> Refused | None:
        """Process one report, from a listener that receives them one by one."""
        seen_at: int = report.seen_at
        last = self.last_reports.seen_at(session.number)
        if seen_at == now <= last <= self._latest(now):  # without a time of its own: the later of two in one tick counts
            seen_at = last + 1
        heading, speed = report.heading_deg, report.speed_mps
        batch = ReportColumns(
            np.array([session.number], np.int32),
            np.array([report.place.latitude]),
            np.array([report.place.longitude]),
            np.array([seen_at], np.int64),
            np.array([_UNKNOWN if heading is None else heading]),
            np.array([_UNKNOWN if speed is None else speed]),
        )
        verdict = int(self.process(batch, now)[0])
        return Refused(Reason(verdict), f"the report of {session.name}") if verdict else None

    def find_inside(self, area: Area) -> NDArray[np.int32]:
        """Return the endpoints inside *area*, by their last reports; if the area is on roads, by their headings too."""
        numbers = self._matcher.find_inside(area)
        return (
            numbers[contains_moving(area, *self.last_reports.positions_and_motion(numbers))]
            if depends_on_heading(area)
            else numbers
        )

    def position_of(self, session: Session) -> SenderPosition:
        """Return the position of an endpoint, if it is known, its time and its history."""
        last, number = self.last_reports, session.number
        return SenderPosition(last.find_place(number), Instant(last.seen_at(number)), last.history_s(number))

    def position_and_motion(self, session: Session) -> tuple[NDArray[np.int32], Vectors, Motion]:
        """Return the known position of an endpoint as a batch of one."""
        numbers = np.array([session.number], np.int32)
        return numbers, *self.last_reports.positions_and_motion(numbers)

    def restore_position(self, session: Session, place: Place) -> None:
        """Restore the last position of an endpoint from an earlier process."""
        self.last_reports.restore_position(session.number, place)
        self._matcher.move([session.number], [place.latitude], [place.longitude])

    def forget(self, session: Session) -> None:
        """Forget a session that has ended."""
        if self.last_reports.is_known(session.number):
            self.last_reports.forget(session.number)
            self._matcher.forget([session.number])
        self._deficits[session.number] = self._spent[session.number] = 0.0

    def limit_rates(self, sessions: Mapping[int, float]) -> None:
        """Reduce the rates of endpoints, by session number, to a share that follows from their reputation."""
        self._has_deficits = self._has_deficits or bool(sessions)
        for number, share in sessions.items():
            self._deficits[number] = 1.0 - share

    def share_of(self, number: int) -> float:
        """Return the share of its rates that an endpoint has."""
        return 1.0 - float(self._deficits[number])


# Arrival: when an endpoint reaches the place that a message to an area on roads is about, and whether it has passed it.
#
#     a session can take more ─▶ sort_by_arrival: order queued messages by arrival, from the last report and along roads;
#                                      drop those already passed, and those that a newer one replaces
#
# Invariants:
# - arrival is known only for areas on roads: a message to a circle keeps its place in the queue;
# - an endpoint that has left the stretches, or goes another way, has passed. As that may be the noise of one report, the caller
#   must let a message dropped as passed be delivered again when the endpoint is back.

SORTED_MAX: Final = 64
"""Maximum messages sorted per session, as each costs some hundred microseconds; the rest keep their place."""


class ObsoleteDelivery(NamedTuple):
    """A queued delivery that is of no use any more."""

    packet_id: int
    delivery: Delivery
    reason: Reason


class ArrivalEstimator:
    """Estimates when endpoints reach the place that a message is about."""

    def __init__(self, presence: Presence) -> None:
        self._presence = presence

    def sort_by_arrival(self, session: Session, queue: OutboundQueue) -> list[ObsoleteDelivery]:
        """Sort queued messages by the endpoint's arrival; return those to be dropped."""
        last_reports = self._presence.last_reports
        reports = last_reports.reports_of(session.number)
        if queue.sorted_at == reports or not last_reports.is_known(session.number):
            return []
        waiting = queue.take_roads(SORTED_MAX)
        latest: dict[IncidentKey, int] = {}
        for _, delivery in waiting:
            key = key_of(delivery.publication)
            latest[key] = max(delivery.publication.seen_at, latest.get(key, 0))
        found = []
        for packet_id, delivery in waiting:
            at = self._find_arrival(session, delivery.publication)
            if delivery.publication.seen_at < latest[key_of(delivery.publication)]:
                found.append(ObsoleteDelivery(packet_id, delivery, Reason.REPLACED))
            elif at is None:
                found.append(ObsoleteDelivery(packet_id, delivery, Reason.PLACE_PASSED))
            else:
                queue.put(packet_id, delivery, at)
        queue.sorted_at = reports
        return found

    def _find_arrival(self, session: Session, publication: Publication) -> int | None:
        """Return when an endpoint reaches the place that a message is about; None if it is not on its way there."""
        assert isinstance(publication.address, ToArea), "only messages to areas have an arrival"
        _, where, motion = self._presence.position_and_motion(session)
        seconds = float(seconds_to_reach(publication.address.area, where, motion)[0])
        is_inside = seconds == seconds  # NaN is unequal to itself
        return self._presence.last_reports.seen_at(session.number) + int(seconds * SECOND_NS) if is_inside else None
