"""Backtest: the alerts that a set of rules would have raised over the archive, and the comparison of two sets.

    archive ─▶ all_events ─▶ arrivals ─▶ needed_arrivals ─▶ in order of arrival ─▶ Replay: cells, the incident engine ─▶ alerts

Only arrivals around bins that may have been hot leave Spark, one hour after the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from pyspark import StorageLevel
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from milepost.incidents.alerts import Approach
from milepost.incidents.engine import IncidentEngine
from milepost.model.incidents import EventKind, IncidentPhase
from milepost.model.instants import BEGINNING, FOREVER, SECOND_NS, Instant
from milepost.model.places import Place, distance_m
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.model.time_windows import TimeWindow
from milepost.pipelines.archive.files import HOUR_NS
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import MESSAGES, REPORTS
from milepost.pipelines.arrivals import ARRIVAL_ROW, Arrival, GrowingCells, arrivals
from milepost.pipelines.hazards import events
from milepost.pipelines.hot_bounds import SPAN_KEY, span_of, spans_needed
from milepost.pipelines.map_page import MapDot, MapPage, html
from milepost.pipelines.positions import report_events
from milepost.pipelines.records import names_of
from milepost.wire.records import from_record
from milepost.wire.times import instant_to_text

BROADCAST_MAX: Final = 2_000_000
"""Maximum squares and spans that are sent to all tasks; more of them are joined by a shuffle."""

_PARTS_MAX: Final = 1_000
_MICRO_NS: Final = 1_000


def all_events(messages: DataFrame, reports: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the events of *kinds*, as EVENT_ROW and `appended_at`: messages on their topics, and reports for some kinds."""
    found = events(messages, kinds, "appended_at")
    moving = [kind for kind in kinds if kind.from_reports]
    return found.unionByName(report_events(reports, moving, "appended_at")) if moving else found


class Replay:
    """Events of the past, replayed to a fresh incident engine as if Spark took no time.

    All events that were appended at one instant arrive then, in one batch. The engine is the live one: a record here equals the
    live record byte for byte, early alerts included, if the live engine received the same cells at the same instants.
    """

    def __init__(
        self,
        site: str,
        kinds: Sequence[EventKind],
        *,
        allowed_lateness_s: float,
        since: Instant,
        approach: Approach | None = None,
    ) -> None:
        self.kinds = [kind for kind in kinds if kind.alert is not None]
        self.allowed_lateness_s = allowed_lateness_s
        self._engine = IncidentEngine(site, self.kinds, allowed_lateness_s=allowed_lateness_s, since=since, approach=approach)
        self._cells = GrowingCells(self.kinds)

    def alerts(self, arrivals: Iterable[Arrival], until: Instant) -> Iterator[bytes]:
        """Yield the alerts, as in the site's log, of *arrivals* in order; *until* is the end of the last slot."""
        end = Instant(until + int(self.allowed_lateness_s * SECOND_NS))
        for appended_us, batch in groupby(arrivals, key=itemgetter(0)):
            now = Instant(appended_us * _MICRO_NS)
            if now > end:
                break
            self._engine.tick(now)
            self._cells.forget(self._engine.incidents.cells_since or BEGINNING)
            self._engine.add_decoded_cells(self._cells.add(batch), now)
            yield from self._take_alerts()
        self._engine.tick(end)
        yield from self._take_alerts()

    @property
    def dropped(self) -> dict[str, int]:
        """The number of rejected cells, by reason."""
        return {name: count for name, count in self._engine.dropped.items() if count}

    def _take_alerts(self) -> list[bytes]:
        return [append.value for append in self._engine.take_appends() if append.topic == CROSS_HUB]


def alerts(session: SparkSession, archive: Path, replay: Replay, *, start: Instant, end: Instant) -> Iterator[bytes]:
    """Yield the alerts that the rules of *replay* would have raised from *start* to before *end*, as in the site's log."""
    if not replay.kinds:
        return
    time_window = TimeWindow(start, Instant(end - 1))
    messages, reports = (read(session, archive, table, time_window=time_window) for table in (MESSAGES, REPORTS))
    found = arrivals(all_events(messages, reports, replay.kinds), replay.kinds)
    with needed_arrivals(found, replay.kinds, allowed_lateness_s=replay.allowed_lateness_s) as needed:
        parts = min(_PARTS_MAX, max(1, -(-(end - start) // HOUR_NS)))
        in_order = needed.repartitionByRange(parts, "appended_us").sortWithinPartitions("appended_us")
        yield from replay.alerts(in_order.toLocalIterator(prefetchPartitions=True), end)


@contextmanager
def needed_arrivals(found: DataFrame, kinds: Sequence[EventKind], *, allowed_lateness_s: float) -> Iterator[DataFrame]:
    """Yield the arrivals around bins that may have been hot, as ARRIVAL_ROW, on disk while the block runs."""
    spots = found.withColumn("span", span_of(kinds))
    spans = spans_needed(spots, kinds, allowed_lateness_s=allowed_lateness_s).persist(StorageLevel.DISK_ONLY)
    keys = f.broadcast(spans) if spans.count() <= BROADCAST_MAX else spans
    needed = spots.join(keys, on=list(SPAN_KEY), how="left_semi").select(*names_of(ARRIVAL_ROW))
    needed = needed.persist(StorageLevel.DISK_ONLY)
    try:
        yield needed
    finally:
        needed.unpersist()
        spans.unpersist()


@dataclass(frozen=True, slots=True)
class ReplayedIncident:
    """An incident, reconstructed from its alerts."""

    id: str
    kind: str
    raised_at: Instant
    cleared_at: Instant | None
    centre: Place
    radius_m: float
    """The maximum over all its alerts."""
    reports: int
    witnesses: int
    """The maximum over all its alerts."""

    def may_equal(self, other: "ReplayedIncident") -> bool:
        """Return whether both may be the same real incident: one kind, overlapping in time and place."""
        if self.kind != other.kind:
            return False
        is_at_one_time = self.raised_at <= (other.cleared_at or FOREVER) and other.raised_at <= (self.cleared_at or FOREVER)
        return is_at_one_time and distance_m(self.centre, other.centre) <= self.radius_m + other.radius_m


class IncidentPair(NamedTuple):
    """The same incident by both rule sets, or an incident of only one of them."""

    a: ReplayedIncident | None
    b: ReplayedIncident | None

    @property
    def raised_by(self) -> str:
        """`A`, `B` or `both`."""
        return "both" if self.a and self.b else "A" if self.a else "B"

    @property
    def incident(self) -> ReplayedIncident:
        """The incident by A, or else by B."""
        found = self.a or self.b
        assert found is not None, "one of the two rule sets raised it"
        return found


def incidents_of(alerts: Iterable[bytes]) -> list[ReplayedIncident]:
    """Return the incidents of *alerts*, from the first alert of each; early warnings of an incident are part of it."""
    found: dict[str, ReplayedIncident] = {}
    for record in alerts:
        forwarded = from_record(record)
        assert isinstance(forwarded, ForwardedMessage), "alerts are forwarded messages"
        message = forwarded.message
        assert message.place is not None, "alerts have a place"
        name, radius_m = str(message.fields["incident"]), float(message.fields["radius_m"])
        reports, witnesses = (int(message.fields[field]) for field in ("reports", "witnesses"))
        one = found.get(name)
        if one is None:
            kind = str(message.fields["kind"])
            one = ReplayedIncident(name, kind, message.seen_at, None, message.place, radius_m, reports, witnesses)
        for warned in str(message.fields.get("early", "")).split():
            warning = found.pop(warned, one)
            one = replace(one, raised_at=min(one.raised_at, warning.raised_at))
        is_over = message.fields["phase"] == IncidentPhase.CLEARED.value
        found[name] = replace(
            one,
            cleared_at=message.seen_at if is_over else None,
            radius_m=max(radius_m, one.radius_m),
            reports=max(reports, one.reports),
            witnesses=max(witnesses, one.witnesses),
        )
    return sorted(found.values(), key=lambda one: one.raised_at)


def pair_incidents(a: Sequence[ReplayedIncident], b: Sequence[ReplayedIncident]) -> list[IncidentPair]:
    """Return all incidents of two rule sets, each once, in the order in which they were raised.

    Two incidents are the same if they are of one kind and overlap in time and place; of several candidates those with the
    nearest start times are paired.
    """
    candidates = [
        (abs(one.raised_at - other.raised_at), i, j)
        for i, one in enumerate(a)
        for j, other in enumerate(b)
        if one.may_equal(other)
    ]
    with_a: dict[int, int] = {}
    taken: set[int] = set()
    for _, i, j in sorted(candidates):
        if i not in with_a and j not in taken:
            with_a[i] = j
            taken.add(j)
    found = [IncidentPair(one, b[with_a[i]] if i in with_a else None) for i, one in enumerate(a)]
    found += [IncidentPair(None, other) for j, other in enumerate(b) if j not in taken]
    return sorted(found, key=lambda pair: (pair.incident.raised_at, pair.incident.id))


HEAD: Final = ("rules", "kind", "raised by A", "raised by B", "cleared", "place", "radius", "reports", "witnesses")

_STYLES: Final = {"A": "bad", "B": "other", "both": "good"}
_LEGEND: Final = (("bad", "only in A"), ("other", "only in B"), ("good", "in both"))


def table_row(pair: IncidentPair) -> tuple[str, ...]:
    """Return one line of the table."""
    incident = pair.incident
    return (
        pair.raised_by,
        incident.kind,
        _raised(pair.a),
        _raised(pair.b),
        _time_text(incident.cleared_at),
        f"{incident.centre.latitude:.5f},{incident.centre.longitude:.5f}",
        f"{incident.radius_m:.0f} m",
        str(incident.reports),
        str(incident.witnesses),
    )


def summary(pairs: Sequence[IncidentPair]) -> str:
    """Return the counts in one line, for the user."""
    in_a, in_b, both = (sum(pair.raised_by == where for pair in pairs) for where in _STYLES)
    return f"{len(pairs)} incidents: {in_a} only in A, {in_b} only in B, {both} in both"


def page(title: str, pairs: Sequence[IncidentPair]) -> str:
    """Return the HTML page with map and table."""
    rows = [table_row(pair) for pair in pairs]
    dots = [
        MapDot(pair.incident.centre, _STYLES[pair.raised_by], " · ".join(cells), pair.incident.radius_m)
        for pair, cells in zip(pairs, rows, strict=True)
    ]
    return html(MapPage(f"{title}: {summary(pairs)}", dots, _LEGEND, HEAD, rows))


def _raised(incident: ReplayedIncident | None) -> str:
    return _time_text(None if incident is None else incident.raised_at)


def _time_text(instant: Instant | None) -> str:
    return "-" if instant is None else instant_to_text(instant)
