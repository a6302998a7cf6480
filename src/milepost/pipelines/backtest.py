"""Backtest: the alerts that a set of rules would have raised over the archive, and the comparison of two sets.

    archive ─▶ all_events ─▶ cells (hazards) ─▶ ended_cells: ENDED_CELL_ROW, in order ─▶ Replay: the incident engine ─▶ alerts

Spark computes the cells; only these are collected on the driver, one time range after the other.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Final, NamedTuple

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from milepost.incidents.engine import Approach, IncidentEngine
from milepost.model.incidents import EventKind, IncidentPhase
from milepost.model.instants import FOREVER, Instant
from milepost.model.places import Place, distance_m
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.model.time_windows import TimeWindow
from milepost.pipelines.archive.files import HOUR_NS
from milepost.pipelines.archive.rows import read
from milepost.pipelines.archive.schema import MESSAGES, REPORTS
from milepost.pipelines.hazards import cell_records, cells, events
from milepost.pipelines.map_page import MapDot, MapPage, html
from milepost.pipelines.positions import report_events
from milepost.pipelines.records import names_of
from milepost.wire.records import from_record
from milepost.wire.times import instant_to_text

ENDED_CELL_ROW: Final = "ends_ns bigint, value string"
"""A cell as in the log, and the end of its slot."""


_NO_LATENESS_S: Final = 0.0
"""No allowed lateness: the archive is complete."""


def all_events(messages: DataFrame, reports: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the events of *kinds*, with schema EVENT_ROW: messages on their topics, and reports for kinds that count them."""
    found = events(messages, kinds)
    moving = [kind for kind in kinds if kind.from_reports]
    return found.unionByName(report_events(reports, moving)) if moving else found


def ended_cells(events: DataFrame, kinds: Sequence[EventKind], *, parts: int) -> DataFrame:
    """Return the cells of *events*, with schema ENDED_CELL_ROW, in order, in *parts* partitions that the driver reads in turn."""
    lengths = [part for kind in kinds for part in (f.lit(kind.name), f.lit(kind.interval_ns).cast("bigint"))]
    lengths_ns = f.create_map(*lengths)
    records = cell_records(cells(events, kinds, allowed_lateness_s=_NO_LATENESS_S))
    key = f.split("key", "/")
    ended = records.select(((key[1].cast("bigint") + 1) * lengths_ns[key[0]]).alias("ends_ns"), "key", "value")
    in_order = ended.repartitionByRange(parts, "ends_ns").sortWithinPartitions("ends_ns", "key")
    return in_order.select(*names_of(ENDED_CELL_ROW))


class Replay:
    """Cells of the past, replayed to a fresh incident engine.

    All cells of a slot are present before it is evaluated: nothing is late. The engine is the live one, so that a record here
    equals the live record byte for byte, except for early warnings and their effects: arrival times of cells are not archived.
    """

    def __init__(self, site: str, kinds: Sequence[EventKind], approach: Approach | None = None) -> None:
        self._engine = IncidentEngine(site, kinds, allowed_lateness_s=0.0, since=FOREVER, approach=approach)

    def alerts(self, cells: Iterable[tuple[int, str]], until: Instant) -> Iterator[bytes]:
        """Yield the alerts, as in the site's log, of *cells* in the order in which their slots ended."""
        for ends_ns, ended in groupby(cells, key=itemgetter(0)):
            if ends_ns > until:
                break
            before = Instant(ends_ns - 1)
            self._engine.tick(before)
            self._engine.add_cells([value.encode() for _, value in ended], before)
            yield from self._take_alerts()
        self._engine.tick(until)
        yield from self._take_alerts()

    @property
    def dropped(self) -> dict[str, int]:
        """The number of rejected cells, by reason."""
        return {name: count for name, count in self._engine.dropped.items() if count}

    def _take_alerts(self) -> list[bytes]:
        return [append.value for append in self._engine.take_appends() if append.topic == CROSS_HUB]


_PARTS_MAX: Final = 1_000


def alerts(
    session: SparkSession, archive: Path, replay: Replay, kinds: Sequence[EventKind], *, start: Instant, end: Instant
) -> Iterator[bytes]:
    """Yield the alerts that *kinds* would have raised from *start* to before *end*, as in the site's log."""
    time_window = TimeWindow(start, Instant(end - 1))
    messages, reports = (read(session, archive, table, time_window=time_window) for table in (MESSAGES, REPORTS))
    parts = min(_PARTS_MAX, max(1, -(-(end - start) // HOUR_NS)))
    cells = ended_cells(all_events(messages, reports, kinds), kinds, parts=parts)
    yield from replay.alerts(((row.ends_ns, row.value) for row in cells.toLocalIterator()), end)


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
    """Return the incidents of *alerts*, in the order in which they were raised."""
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
        is_over = message.fields["phase"] == IncidentPhase.CLEARED.value
        found[name] = replace(
            one,
            cleared_at=message.seen_at if is_over else None,
            radius_m=max(radius_m, one.radius_m),
            reports=max(reports, one.reports),
            witnesses=max(witnesses, one.witnesses),
        )
    return list(found.values())


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
