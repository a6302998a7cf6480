"""Watching: reports in, vetted, and the map of who is where.

    reports of a turn ─▶ rate of each endpoint ─▶ vetting, against the last one ─▶ tracks ─▶ matching (places)

What must hold:
- what vetting refuses changes nothing but counts; of one endpoint each report is judged against the one before it;
- after the edge's clock was set back nobody has to wait until it is where it was: what was seen then counts as seen long ago.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from milepost.edge.counts import Counts
from milepost.edge.limits import Limits
from milepost.edge.sessions import Session
from milepost.edge.tracks import LONG_AGO, Tracks
from milepost.matching.columns import column
from milepost.matching.matcher import Matcher
from milepost.model.areas import Area, Going, asks_which_way, holds_going
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import BODY_BYTES_MAX
from milepost.model.places import Place, Vectors
from milepost.model.reasons import Reason, Refused
from milepost.model.reports import Report
from milepost.vetting import Batch, Buckets, MessageLimits, Outside, ReportLimits, are_outside, in_rounds, vet_reports

_UNKNOWN = float("nan")

Moved = Callable[[Batch, Instant], None]
"""Told of reports of different endpoints that were let in."""

Heed = Callable[[Batch, NDArray[np.uint16], Instant], None]
"""Told of reports with what became of each: 0, or the number of the reason for which it was refused."""


@dataclass(frozen=True, slots=True)
class Ground:
    """What an edge covers, and what it believes of reports; replaced as a whole when rules are read again."""

    coverage: Area | None = None
    """Nothing: everywhere."""
    believed: ReportLimits = field(default_factory=ReportLimits)
    said: MessageLimits = field(default_factory=lambda: MessageLimits(bytes_max=BODY_BYTES_MAX))


class Watch:
    """Takes reports, in batches or one by one."""

    def __init__(self, limits: Limits, matcher: Matcher, counts: Counts) -> None:
        self._matcher = matcher
        self._counts = counts
        self.tracks = Tracks(limits.sessions_max)
        self.ground = Ground()
        self.heed: Heed | None = None
        """Nothing: nobody wants to hear of them."""
        self.moved: Moved | None = None
        """Told of those let in."""
        self._spent, at = column(limits.sessions_max, np.float64), column(limits.sessions_max, np.int64)
        self._buckets = Buckets(limits.reports_per_s, limits.reports_burst, spent=self._spent, at=at)
        self._deficits = column(limits.sessions_max, np.float32)
        """How much of its rate an endpoint has lost by its reputation."""
        self._has_deficits = False

    def take(self, batch: Batch, now: Instant) -> NDArray[np.uint16]:
        """Let in what may be true; gives 0 or the number of the reason, report by report."""
        shares = 1.0 - self._deficits.take(batch.numbers) if self._has_deficits else None
        are_within = self._buckets.take(batch.numbers, now, share=shares)
        verdicts = np.zeros(batch.numbers.size, np.uint16)
        if not are_within.all():
            verdicts[~are_within] = Reason.RATE_TOO_HIGH
            rows = are_within.nonzero()[0]
            verdicts[rows] = self._take_rounds(batch.only(rows), now)
        else:
            verdicts = self._take_rounds(batch, now)
        if verdicts.any():
            for number, count in zip(*np.unique(verdicts[verdicts > 0], return_counts=True), strict=True):
                self._counts.refused[Reason(int(number))] += int(count)
        if self.heed is not None:
            self.heed(batch, verdicts, now)
        return verdicts

    def _take_rounds(self, batch: Batch, now: Instant) -> NDArray[np.uint16]:
        rounds = in_rounds(batch.numbers)
        if len(rounds) == 1:
            return self._take_round(batch, now)
        verdicts = np.zeros(batch.numbers.size, np.uint16)
        for rows in rounds:
            verdicts[rows] = self._take_round(batch.only(rows), now)
        return verdicts

    def _take_round(self, batch: Batch, now: Instant) -> NDArray[np.uint16]:
        """Reports of different endpoints."""
        ground = self.ground
        before = self.tracks.before(batch.numbers)
        before.seen_at[before.seen_at > self._latest(now)] = LONG_AGO
        verdicts = vet_reports(batch, before, ground.believed, now, ground.coverage)
        accepted = batch if not verdicts.any() else batch.only((verdicts == 0).nonzero()[0])
        if accepted.numbers.size:
            self._counts.reports += accepted.numbers.size
            if ground.coverage is not None and ground.believed.outside_coverage is Outside.COUNT:
                self._counts.reports_outside += int(are_outside(accepted, ground.coverage).sum())
            self.tracks.put(accepted)
            self._matcher.move(accepted.numbers, accepted.latitudes, accepted.longitudes)
            if self.moved is not None:
                self.moved(accepted, now)
        return verdicts

    def _latest(self, now: Instant) -> int:
        """The latest time at which something can have been seen."""
        ahead_s = self.ground.believed.clock_ahead_s_max
        return now + int(ahead_s * SECOND_NS) if ahead_s else FOREVER

    def take_one(self, session: Session, report: Report, now: Instant) -> Refused | None:
        """One report, from a door that has them one by one."""
        seen_at: int = report.seen_at
        last = self.tracks.seen_at(session.number)
        if seen_at == now <= last <= self._latest(now):  # said without a time: of two in one turn the later one counts
            seen_at = last + 1
        heading, speed = report.heading_deg, report.speed_mps
        batch = Batch(
            np.array([session.number], np.int32),
            np.array([report.place.latitude]),
            np.array([report.place.longitude]),
            np.array([seen_at], np.int64),
            np.array([_UNKNOWN if heading is None else heading]),
            np.array([_UNKNOWN if speed is None else speed]),
        )
        verdict = int(self.take(batch, now)[0])
        return Refused(Reason(verdict), f"the report of {session.name}") if verdict else None

    def who_is_in(self, area: Area) -> NDArray[np.int32]:
        """The endpoints inside, by their last reports; where the area is on roads, by their headings too."""
        numbers = self._matcher.who_is_in(area)
        return numbers[holds_going(area, *self.tracks.going(numbers))] if asks_which_way(area) else numbers

    def last_of(self, session: Session) -> tuple[Place | None, Instant]:
        """Where an endpoint is, if it is known, and since when."""
        return self.tracks.maybe_place(session.number), Instant(self.tracks.seen_at(session.number))

    def whereabouts(self, session: Session) -> tuple[NDArray[np.int32], Vectors, Going]:
        """Where an endpoint is whose place is known, as a batch of one."""
        numbers = np.array([session.number], np.int32)
        return numbers, *self.tracks.going(numbers)

    def put_place(self, session: Session, place: Place) -> None:
        """Where an endpoint was when an earlier process last heard of it."""
        self.tracks.put_place(session.number, place)
        self._matcher.move([session.number], [place.latitude], [place.longitude])

    def forget(self, session: Session) -> None:
        """The session is over."""
        if self.tracks.is_known(session.number):
            self.tracks.forget(session.number)
            self._matcher.forget([session.number])
        self._deficits[session.number] = self._spent[session.number] = 0.0

    def trust_less(self, sessions: Mapping[int, float]) -> None:
        """Leave endpoints, by session number, only a share of their rates: their reputation is known."""
        self._has_deficits = self._has_deficits or bool(sessions)
        for number, share in sessions.items():
            self._deficits[number] = 1.0 - share

    def share_of(self, number: int) -> float:
        """The share of its rates that an endpoint has."""
        return 1.0 - float(self._deficits[number])
