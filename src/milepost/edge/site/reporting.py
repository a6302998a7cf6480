"""Reporting: what this edge hears of endpoints' places, gathered and told to pipelines as columns (M13, M27).

    Watch.take ─▶ note: names, while the sessions live ─▶ gathered ─▶ every `reports_s`, or when enough is there ─▶ outbox

What must hold:
- reports that were refused are told too, with the reason, so that pipelines see who lies; of those that came too fast one for
  each endpoint and second, so that a flood does not become one in the log;
- what is gathered is limited: it is told as soon as it fills a record. What the outbox has no room for is dropped, and counted.
"""

from typing import Final, NamedTuple

import numpy as np
from numpy.typing import NDArray

from milepost.edge.site.outbox import PASSING, Append
from milepost.edge.site.state import SiteState
from milepost.matching.columns import column
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import vectors
from milepost.model.reasons import Reason
from milepost.model.telling import REPORTS, Covered
from milepost.vetting import Batch
from milepost.wire.records.telling import Reports, reports_to_record

GATHERED_MAX: Final = 1_000
"""When so many reports are gathered, they are told at once."""
RECORD_MAX: Final = 2_000
"""So many stand in one record: with the longest names it is smaller than the log allows."""

Verdicts = NDArray[np.uint16]
Bytes = NDArray[np.uint8]


class Noted(NamedTuple):
    """Reports of one turn."""

    names: list[EndpointId]
    batch: Batch
    verdicts: Verdicts


class Reporting:
    """Tells pipelines of reports."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self._noted: list[Noted] = []
        self._count = 0
        self._interval_ns = int(state.limits.reports_s * SECOND_NS)
        self._due = Instant(0)
        self._flood_told = column(state.corridor.limits.sessions_max, np.int64)
        """By session: the second in which it was last told that it sends too fast."""
        if self._interval_ns:
            state.corridor.watch.heed = self.note

    def note(self, batch: Batch, verdicts: Verdicts, now: Instant) -> None:
        """Reports of one turn, with what became of each."""
        if verdicts.any() and (rows := self._maybe_rows(batch, verdicts, now)) is not None:
            batch, verdicts = batch.only(rows), verdicts[rows]
        if not verdicts.size:
            return
        self._noted.append(Noted(self._state.corridor.sessions.names_of(batch.numbers.tolist()), batch, verdicts))
        self._count += verdicts.size
        if self._count >= GATHERED_MAX or self._is_due(now):
            self._tell(now)

    def tick(self, now: Instant) -> None:
        """Tell what was gathered long enough."""
        if self._noted and self._is_due(now):
            self._tell(now)

    def _is_due(self, now: Instant) -> bool:
        return now >= self._due or now < self._due - self._interval_ns  # or the clock was set back

    def _maybe_rows(self, batch: Batch, verdicts: Verdicts, now: Instant) -> NDArray[np.intp] | None:
        """The reports that are told; nothing: all of them."""
        too_fast = (verdicts == Reason.RATE_TOO_HIGH).nonzero()[0]
        if not too_fast.size:
            return None
        second = now // SECOND_NS
        numbers, first = np.unique(batch.numbers[too_fast], return_index=True)
        are_new = self._flood_told[numbers] != second
        self._flood_told[numbers[are_new]] = second
        rows = np.concatenate(((verdicts != Reason.RATE_TOO_HIGH).nonzero()[0], too_fast[first[are_new]]))
        return np.sort(rows)

    def _tell(self, now: Instant) -> None:
        noted, self._noted, self._count = self._noted, [], 0
        self._due = Instant(now + self._interval_ns)
        state = self._state
        names = [name for one in noted for name in one.names]
        batch = noted[0].batch if len(noted) == 1 else _joined([one.batch for one in noted])
        verdicts = np.concatenate([one.verdicts for one in noted])
        covered = self._covered(batch)
        for start in range(0, len(names), RECORD_MAX):
            part = slice(start, start + RECORD_MAX)
            record = Reports(
                state.me,
                names[part],
                batch.seen_at[part],
                batch.latitudes[part],
                batch.longitudes[part],
                batch.headings[part],
                batch.speeds[part],
                verdicts[part],
                covered[part],
            )
            is_told = state.outbox.tell(Append(PASSING, REPORTS, str(state.me), reports_to_record(record)))
            state.counts["reports_told" if is_told else "reports_dropped"] += len(names[part])

    def _covered(self, batch: Batch) -> Bytes:
        """Who covers each place; what is no place on Earth nobody does."""
        state, size = self._state, batch.latitudes.size
        here = state.corridor.watch.ground.coverage
        if here is None:
            return np.full(size, Covered.HERE, np.uint8)
        found = np.full(size, Covered.NOWHERE, np.uint8)
        on_earth = ((np.abs(batch.latitudes) <= 90.0) & (np.abs(batch.longitudes) <= 180.0)).nonzero()[0]
        points = vectors(batch.latitudes[on_earth], batch.longitudes[on_earth])
        is_here = here.contains(points)
        found[on_earth[is_here]] = Covered.HERE
        beyond, points = on_earth[~is_here], points[~is_here]
        for info in state.edges.values():
            if not beyond.size:
                break
            is_there = np.ones(beyond.size, np.bool_) if info.coverage is None else info.coverage.contains(points)
            found[beyond[is_there]] = Covered.ELSEWHERE
            beyond, points = beyond[~is_there], points[~is_there]
        return found


def _joined(batches: list[Batch]) -> Batch:
    return Batch(
        np.concatenate([one.numbers for one in batches]),
        np.concatenate([one.latitudes for one in batches]),
        np.concatenate([one.longitudes for one in batches]),
        np.concatenate([one.seen_at for one in batches]),
        np.concatenate([one.headings for one in batches]),
        np.concatenate([one.speeds for one in batches]),
    )
