"""The scene: the current state of the map, derived from facts only, and its changes since the last diff.

Invariants:
- applying the diff to the previous scene produces the current scene;
- time is an argument: the same facts at the same times produce the same scene;
- the number of shown objects is limited, and old ones expire.
"""

from collections import Counter, deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any, Final, assert_never

from milepost.dashboard.alerts import ALERTS_MAX, AlertTracker, message_key
from milepost.dashboard.records import ActiveIncidents, DeliveryBatch, EdgeRemoved, Fact, ReportBatch
from milepost.dashboard.tables import Hazards, Row, RowChanges, SceneTable
from milepost.dashboard.vehicles import Sighting, VehicleChanges, VehicleFlag, Vehicles
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Area
from milepost.model.incidents import EventKind, Incident
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import MICROSECOND_NS
from milepost.model.places import Place
from milepost.model.site_records import NEVER, EdgeInfo, ForwardedMessage, HubInfo, edge_key
from milepost.wire.geojson import area_to_geojson

EDGES_MAX: Final = 1_000
INCIDENTS_MAX: Final = 2_000
MOVES_MAX: Final = 200
FORGET_S: Final = 30
"""Time without a report after which a vehicle is no longer shown."""
SILENT_S: Final = 10
"""Time without a report after which a vehicle no longer counts as inside an area: it may have left, and only its edge knows."""
ROAMED_S: Final = 6
RATES_S: Final = 1
"""Interval over which rates are counted."""
FRESH_S: Final = 5
"""Maximum age of a message for which the dashboard determines the endpoints inside; for older ones only the edges know."""
CONFIRM_INSIDE_S: Final = 1
DELAY_ALERTS: Final = 5
"""Number of recent alerts over which delays are measured."""
OFFLINE_S: Final = 15
"""Time without a record after which a central hub counts as offline, or an edge with endpoints as silent."""


@dataclass(slots=True)
class Diff:
    """The changes since the last diff; with `is_whole`, the whole scene."""

    at_ms: int
    is_whole: bool
    tables: dict[str, RowChanges]
    vehicles: VehicleChanges


@dataclass(slots=True)
class EdgeState:
    """The known state of one edge."""

    number: int
    info: EdgeInfo | None = None
    last_seen_at: Instant = NEVER
    rates: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class InsideCandidates:
    """The endpoints inside an alert's area, computed from feed reports, which lag behind those at the edges.

    Endpoints still inside a little later were inside then; the others may have left before the edge received the alert.
    """

    key: str
    area: Area
    inside: set[str]
    since: Instant


class Scene:
    """The current state of the map."""

    def __init__(self, kinds: Sequence[EventKind], *, vehicles_max: int) -> None:
        self.vehicles = Vehicles(vehicles_max)
        self.alerts = AlertTracker()
        self._hazards = Hazards(kinds)
        self._tables = {
            "edges": SceneTable(EDGES_MAX),
            "sites": SceneTable(EDGES_MAX),
            "incidents": SceneTable(INCIDENTS_MAX),
            "moves": SceneTable(MOVES_MAX),
            "queries": SceneTable(EDGES_MAX),
            "metrics": SceneTable(1),
            "alerts": self.alerts.table,
            "hazards": self._hazards.table,
        }
        self._edges: dict[str, EdgeState] = {}
        self._incidents: dict[str, tuple[Incident, ...]] = {}
        self._lags_ms: dict[str, float] = {}
        self._hubs: dict[str, tuple[str, Instant]] = {}
        self._roamed: dict[str, Instant] = {}
        self._candidates: deque[InsideCandidates] = deque(maxlen=ALERTS_MAX)
        self._moves = 0
        self._rates_at = NEVER
        self.unreadable = 0

    def take(self, site: str, fact: Fact, appended_at: Instant, now: Instant) -> None:
        """Apply a fact from the log of a site."""
        self._lags_ms[site] = max(0.0, (now - appended_at) / 1e6)
        match fact:
            case ReportBatch():
                self._take_reports(fact, appended_at)
            case DeliveryBatch():
                self.alerts.add_deliveries(fact)
                self._edge(fact.edge).last_seen_at = appended_at
            case ForwardedMessage():
                self._take_message(fact, now, is_fresh=now - appended_at < FRESH_S * SECOND_NS)
            case ActiveIncidents():
                self._incidents[site] = fact.incidents
                rows = [one for some in self._incidents.values() for one in some][-INCIDENTS_MAX:]
                self._tables["incidents"].replace({one.id: _incident_row(one) for one in rows})
            case EdgeInfo():
                self._edge(str(fact.edge)).info = fact
            case EdgeRemoved():
                for name in [name for name, edge in self._edges.items() if edge.info and edge_key(edge.info.edge) == fact.key]:
                    self._edges[name].info = None
            case HubInfo():
                self._hubs[site] = (fact.name, fact.at)
            case _:
                assert_never(fact)

    def site_at(self, place: Place) -> str | None:
        """Return the site of an edge that covers a place, or None."""
        for edge in self._edges.values():
            if edge.info is not None and (edge.info.coverage is None or edge.info.coverage.contains(place.vector[None, :])[0]):
                return edge.info.edge.site
        return None

    def set_pipeline_metrics(self, queries: Mapping[str, Row]) -> None:
        """Replace the metrics of the pipelines."""
        self._tables["queries"].replace(queries)

    def tick(self, now: Instant) -> None:
        """Expire old objects and update the rows."""
        self.vehicles.forget(now // MICROSECOND_NS - FORGET_S * 1_000_000)
        while self._candidates and self._candidates[0].since <= now - CONFIRM_INSIDE_S * SECOND_NS:
            candidates = self._candidates.popleft()
            self.alerts.set_inside(candidates.key, candidates.inside & self._inside(candidates.area, now))
        self.alerts.tick(now)
        self._hazards.tick(now)
        for name in self.alerts.changed:
            self.vehicles.set_flag(name, VehicleFlag.WARNED, is_set=name in self.alerts.warned)
            self.vehicles.set_flag(name, VehicleFlag.UNCONFIRMED, is_set=name in self.alerts.unconfirmed)
        self.alerts.changed.clear()
        for name in [name for name, at in self._roamed.items() if at < now - ROAMED_S * SECOND_NS]:
            del self._roamed[name]
            self.vehicles.set_flag(name, VehicleFlag.ROAMED, is_set=False)
        if now >= self._rates_at + RATES_S * SECOND_NS:
            self._update_rates(now)

    def whole(self, now: Instant) -> Diff:
        """Return the whole scene."""
        tables = {name: table.whole() for name, table in self._tables.items()}
        return Diff(now // 1_000_000, True, tables, self.vehicles.whole())

    def take_diff(self, now: Instant) -> Diff:
        """Return the changes since the last call."""
        changes = {name: table.take_changes() for name, table in self._tables.items()}
        tables = {name: changed for name, changed in changes.items() if changed}
        return Diff(now // 1_000_000, False, tables, self.vehicles.take_changes())

    def _take_reports(self, batch: ReportBatch, appended_at: Instant) -> None:
        edge = self._edge(batch.edge)
        edge.last_seen_at = max(edge.last_seen_at, appended_at)
        rows = zip(
            batch.endpoints,
            batch.seen_at_us,
            batch.latitudes,
            batch.longitudes,
            batch.headings_deg,
            batch.speeds_mps,
            batch.verdicts,
            strict=True,
        )
        for name, seen_at_us, latitude, longitude, heading, speed, verdict in rows:
            edge.rates["refused" if verdict else "reports"] += 1
            if verdict or latitude is None or longitude is None or abs(latitude) > 90 or abs(longitude) > 180:
                continue
            sighting = Sighting(name, latitude, longitude, heading, speed, edge.number, seen_at_us)
            before = self.vehicles.update(sighting)
            if before is not None:
                self._record_move(name, before, batch.edge, appended_at)
            if name in self.alerts.warned or name in self.alerts.unconfirmed:
                self.alerts.changed.add(name)  # the vehicle may not have been shown when its flag was set

    def _record_move(self, name: str, before: int, edge: str, at: Instant) -> None:
        self._moves += 1
        self._roamed[name] = at
        self.vehicles.set_flag(name, VehicleFlag.ROAMED, is_set=True)
        came_from = next((one for one, seen in self._edges.items() if seen.number == before), "")
        row = {"endpoint": name, "from": came_from, "to": edge, "at_ms": at // 1_000_000}
        self._tables["moves"].put(str(self._moves), row)

    def _take_message(self, forwarded: ForwardedMessage, now: Instant, *, is_fresh: bool) -> None:
        message = forwarded.message
        if isinstance(message.address, ToArea | ToNotified):
            self.alerts.add_message(message, forwarded.owner)
            if is_fresh and isinstance(message.address, ToArea):
                area = message.address.area
                self._candidates.append(
                    InsideCandidates(message_key(message.source, message.id), area, self._inside(area, now), now)
                )
        else:
            self._hazards.take(forwarded, self.vehicles.find_place(message.source))

    def _inside(self, area: Area, now: Instant) -> set[str]:
        return self.vehicles.inside(area, (now - SILENT_S * SECOND_NS) // MICROSECOND_NS)

    def _edge(self, name: str) -> EdgeState:
        if name not in self._edges:
            if len(self._edges) >= EDGES_MAX:
                del self._edges[next(iter(self._edges))]
            taken = {edge.number for edge in self._edges.values()}
            self._edges[name] = EdgeState(next(number for number in range(EDGES_MAX + 1) if number not in taken))
        return self._edges[name]

    def _update_rates(self, now: Instant) -> None:
        """Update the rows of rates and delays."""
        seconds = (now - self._rates_at) / SECOND_NS if self._rates_at else RATES_S
        self._rates_at = now
        counts, totals = self.vehicles.count_by_edge(), Counter[str]()
        rows = {}
        for name, edge in self._edges.items():
            totals.update(edge.rates)
            rows[name] = _edge_row(edge, counts.get(edge.number, 0), seconds, now)
            edge.rates.clear()
        self._tables["edges"].replace(rows)
        self._tables["sites"].replace({site: self._site_row(site, now) for site in self._lags_ms})
        self._tables["metrics"].put("all", self._metrics_row(totals, seconds))

    def _metrics_row(self, totals: Counter[str], seconds: float) -> Row:
        delays = self.alerts.delays_ms(DELAY_ALERTS)
        return {
            "vehicles": len(self.vehicles),
            "hidden": self.vehicles.hidden,
            "warned": self.vehicles.count_flagged(VehicleFlag.WARNED),
            "reports_per_s": round(totals["reports"] / seconds),
            "refused_per_s": round(totals["refused"] / seconds),
            "moves": self._moves,
            "delay_ms_p50": round(median(delays), 1) if delays else None,
            "delay_ms_p95": round(delays[int(len(delays) * 0.95)], 1) if delays else None,
            "unreadable": self.unreadable + self.alerts.forged,
            "untracked": self.alerts.dropped,
        }

    def _site_row(self, site: str, now: Instant) -> Row:
        hub, at = self._hubs.get(site, ("", NEVER))
        return {"hub": hub, "is_hub_up": now - at < OFFLINE_S * SECOND_NS, "lag_ms": round(self._lags_ms[site])}


def _edge_row(edge: EdgeState, vehicles: int, seconds: float, now: Instant) -> Row:
    coverage = edge.info.coverage if edge.info else None
    row: dict[str, Any] = {
        "number": edge.number,
        "address": edge.info.address if edge.info else "",
        "vehicles": vehicles,
        "reports_per_s": round(edge.rates["reports"] / seconds),
        "refused_per_s": round(edge.rates["refused"] / seconds),
        "is_silent": vehicles > 0 and now - edge.last_seen_at > OFFLINE_S * SECOND_NS,
    }
    return row if coverage is None else row | {"coverage": area_to_geojson(coverage)}


def _incident_row(incident: Incident) -> Row:
    return {
        "kind": incident.kind,
        "place": [incident.centre.longitude, incident.centre.latitude],
        "radius_m": round(incident.radius_m, 1),
        "reports": incident.reports,
        "witnesses": incident.witnesses,
        "raised_ms": incident.raised_at // 1_000_000,
        "hot_ms": incident.hot_at // 1_000_000,
    }
