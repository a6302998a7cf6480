"""The report of a run: report.json with all results, report.html with SVG maps and charts, self-contained."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from milepost.model.areas import Area, Circle, Union, Upstream
from milepost.model.places import EARTH_RADIUS_M
from milepost.roads import RoadNetwork
from milepost_experiments.demo.outcome import Outcome, percentiles, to_json
from milepost_experiments.simulator.evaluation import AlertResult
from milepost_experiments.simulator.ledger import Fix, RunLedger

MAPS_MAX: Final = 8

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --background: #fff; --soft: #68788c; --road: #c9d2dc; --bad: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4eaf1; --background: #11161c; --soft: #9aa9ba; --road: #364351; --bad: #ff6b7d; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--background); }
body { max-width: 60rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.6rem } h2 { font-size: 1.2rem; margin-top: 2.5rem }
.verdict { padding: .8rem 1rem; border-radius: .5rem; color: #fff; background: #14733b } .verdict.bad { background: #b00020 }
table { border-collapse: collapse; width: 100%; font-variant-numeric: tabular-nums; font-size: .9rem }
th, td { text-align: right; padding: .25rem .5rem; border-bottom: 1px solid var(--road) }
th:first-child, td:first-child { text-align: left }
td.bad { color: var(--bad); font-weight: 700 }
svg { width: 100%; height: auto } svg text { font-size: 12px; fill: var(--ink) }
svg .tick { fill: var(--soft); text-anchor: middle }
svg line { stroke: var(--road) } .bars rect { fill: #2f7fd6 }
.roads polyline { fill: none; stroke: var(--road); stroke-width: 1.6 }
.area polyline { fill: none; stroke: #e5484d; stroke-opacity: .35; stroke-linecap: round }
.area circle { fill: #e5484d; fill-opacity: .25 }
circle.warned { fill: #e5484d } circle.later { fill: #f5a623 } circle.other { fill: #2f7fd6 }
circle.missed { fill: #000; stroke: #fff }
svg .place { font-size: 20px; font-weight: 700; text-anchor: middle; dominant-baseline: central }
.legend span { margin-right: 1.2rem }
.legend i { display: inline-block; width: .8em; height: .8em; border-radius: 50%; margin-right: .4em }
details { margin: .5rem 0 } code { font-size: .85rem }
"""

_LEGEND: Final = (
    '<p class="legend"><span><i style="background:#e5484d"></i>inside, and warned</span>'
    '<span><i style="background:#f5a623"></i>on the border, or drove in later; warned</span>'
    '<span><i style="background:#2f7fd6"></i>not affected</span>'
    '<span><i style="background:#000"></i>missed, or wrongly warned</span></p>'
)


def write_report(folder: Path, outcome: Outcome, network: RoadNetwork, ledger: RunLedger) -> Path:
    """Write both files; return the path of the page."""
    (folder / "report.json").write_text(json.dumps(to_json(outcome), indent=1) + "\n")
    page = folder / "report.html"
    page.write_text(_page(outcome, network, ledger))
    return page


def _page(outcome: Outcome, network: RoadNetwork, ledger: RunLedger) -> str:
    evaluation, options = outcome.evaluation, outcome.options
    verdict = (
        '<p class="verdict">Every guarantee held: all vehicles inside, and all that drove in, were warned, and no others; '
        "no message was lost or duplicated.</p>"
        if outcome.has_passed
        else '<p class="verdict bad">Some guarantees did not hold:<br>' + "<br>".join(map(escape, evaluation.faults)) + "</p>"
    )
    maps = "".join(
        f"<h2>{escape(one.alert.key.incident)}</h2>{_LEGEND}{alert_map(one, network, ledger)}{_vehicle_table(one)}"
        for one in _largest_alerts(evaluation.alerts)
    )
    shares = [(name, f"{share:.0%}") for name, share in outcome.cpu_shares.items()]
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The city: a run of Milepost</title>
<style>{_STYLE}</style>
<h1>The city: {options["vehicles"]} vehicles, {options["seconds"]} seconds, on {escape(str(options["log_type"]))}</h1>
{verdict}
<h2>Alerts</h2>{_alerts_table(outcome)}
<h2>Latency</h2>{times_chart(outcome.times_ms)}{_times_table(outcome)}
<h2>Control stream</h2>{_control_text(outcome)}
{maps}
<h2>CPU</h2>{_table(("process", "share of a core"), shares)}
<p>The start took {outcome.started_s:.0f} s.</p>
</html>
"""


def _largest_alerts(alerts: tuple[AlertResult, ...]) -> list[AlertResult]:
    """Return, for each incident, the alert with most vehicles inside."""
    best: dict[str, AlertResult] = {}
    for one in alerts:
        largest = best.get(one.alert.key.incident)
        if largest is None or len(one.inside) > len(largest.inside):
            best[one.alert.key.incident] = one
    return list(best.values())[:MAPS_MAX]


def _alerts_table(outcome: Outcome) -> str:
    headings = (
        "alert",
        "phase",
        "inside",
        "not warned",
        "drove in",
        "not warned",
        "on the border",
        "wrongly warned",
        "median",
        "slowest",
    )
    rows: list[tuple[object, ...]] = []
    for one in outcome.evaluation.alerts:
        times = percentiles(1_000 * after for after in one.inside.values() if after is not None)
        counts = (len(one.inside), len(one.missed), len(one.entered), len(one.entered_missed), len(one.border), len(one.wrong))
        rows.append((one.alert.key.incident, one.alert.key.phase, *counts, f"{times.p50:,.0f} ms", f"{times.maximum:,.0f} ms"))
    for all_clear in outcome.evaluation.all_clears:
        times = percentiles(1_000 * after for after in all_clear.notified.values() if after is not None)
        notified = (len(all_clear.notified), len(all_clear.missed), "", "", "", len(all_clear.wrong))
        rows.append(
            (
                all_clear.alert.key.incident,
                all_clear.alert.key.phase,
                *notified,
                f"{times.p50:,.0f} ms",
                f"{times.maximum:,.0f} ms",
            )
        )
    truth = "".join(
        f"<br>{escape(one.alert.key.incident)} {one.alert.key.phase}: by their true positions {len(one.truly_inside)} vehicles "
        f"were inside, {len(one.truly_inside & one.warned)} of them were warned"
        for one in outcome.evaluation.alerts
    )
    return _table(headings, rows, bad=(3, 5, 7)) + f"<p>Reported positions have an error of some metres.{truth}.</p>"


def _times_table(outcome: Outcome) -> str:
    rows = [
        (name, one.count, f"{one.p50:,.0f}", f"{one.p90:,.0f}", f"{one.p99:,.0f}", f"{one.maximum:,.0f}")
        for name, one in ((name, percentiles(some)) for name, some in outcome.times_ms.items())
    ]
    return _table(("ms", "count", "median", "90 %", "99 %", "maximum"), rows)


def _control_text(outcome: Outcome) -> str:
    control = outcome.evaluation.control
    lost, duplicated = (sum(map(len, some.values())) for some in (control.lost, control.duplicated))
    return (
        f"<p>{control.published} numbered messages were published to every vehicle at QoS 1. "
        f"Of {control.expected:,} expected deliveries {lost} were lost and "
        f"{duplicated} duplicated, through {outcome.counts['moves']} moves between edges. "
        f"{control.marked_duplicates} duplicates were marked "
        "as such by the edge, or recognised by a vehicle that had sessions at two edges for a while.</p>"
    )


def _vehicle_table(one: AlertResult) -> str:
    """Return the table of vehicles concerned, with the time until their warning."""
    rows = [(name, "inside", _after(after)) for name, after in sorted(one.inside.items())]
    rows += [(name, "drove in", _after(after)) for name, after in sorted(one.entered.items())]
    rows += [(name, "on the border", "warned" if name in one.warned else "not warned") for name in sorted(one.border)]
    table = _table(("vehicle", "position", "warned after"), rows)
    return f"<details><summary>{len(rows)} vehicles</summary>{table}</details>"


def _after(after_s: float | None) -> str:
    return "never" if after_s is None else f"{1_000 * after_s:,.0f} ms"


def _table(headings: tuple[str, ...], rows: list[Any], *, bad: tuple[int, ...] = ()) -> str:
    """Return an HTML table; *bad* are the columns in which any number but 0 is a fault."""
    head = "".join(f"<th>{escape(one)}</th>" for one in headings)
    body = "".join(
        "<tr>"
        + "".join(
            f"<td{' class=bad' if at in bad and cell not in (0, '') else ''}>{escape(str(cell))}</td>"
            for at, cell in enumerate(row)
        )
        + "</tr>"
        for row in rows
    )
    return f"<table><tr>{head}</tr>{body}</table>"


WIDTH: Final = 760
BAR_WIDTH: Final = 640
BINS: Final = 40


class MapProjection:
    """Projection from degrees to a drawing of fixed width."""

    def __init__(self, network: RoadNetwork) -> None:
        self._south, self._north = float(network.latitudes.min()), float(network.latitudes.max())
        self._west, self._east = float(network.longitudes.min()), float(network.longitudes.max())
        self._longitude_scale = float(np.cos(np.radians((self._south + self._north) / 2)))
        self._scale = WIDTH / ((self._east - self._west) * self._longitude_scale)
        self.height = round((self._north - self._south) * self._scale)

    def x(self, longitude: float) -> float:
        """Return the distance from the left."""
        return round((longitude - self._west) * self._longitude_scale * self._scale, 1)

    def y(self, latitude: float) -> float:
        """Return the distance from the top."""
        return round((self._north - latitude) * self._scale, 1)

    def metres(self, metres: float) -> float:
        """Return a length in drawing units."""
        return round(float(np.degrees(metres / EARTH_RADIUS_M)) * self._scale, 1)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return latitudes and longitudes as the points of a polyline."""
        return " ".join(f"{self.x(longitude)},{self.y(latitude)}" for latitude, longitude in points)


def alert_map(result: AlertResult, network: RoadNetwork, ledger: RunLedger) -> str:
    """Return a map of the roads, the area, and all vehicles at the time of the alert, by outcome."""
    projection = MapProjection(network)
    parts = [f'<svg viewBox="0 0 {WIDTH} {projection.height}" role="img" aria-label="{escape(result.alert.key.incident)}">']
    parts.append('<g class="roads">')
    for road in range(len(network)):
        points = slice(network.first[road], network.first[road + 1])
        pairs = zip(network.latitudes[points].tolist(), network.longitudes[points].tolist(), strict=True)
        parts.append(f'<polyline points="{projection.line(pairs)}"/>')
    parts.append("</g>")
    if result.alert.area is not None:
        parts += ['<g class="area">', *_area(result.alert.area, projection), "</g>"]
    parts += [_dot(projection, ledger.reports[name], result, name) for name in sorted(ledger.reports)]
    place = result.alert.place
    parts.append(f'<text class="place" x="{projection.x(place.longitude)}" y="{projection.y(place.latitude)}">✕</text></svg>')
    return "\n".join(part for part in parts if part)


def _area(area: Area, projection: MapProjection) -> list[str]:
    match area:
        case Union():
            return [text for part in area.parts for text in _area(part, projection)]
        case Circle():
            at = f'cx="{projection.x(area.centre.longitude)}" cy="{projection.y(area.centre.latitude)}"'
            return [f'<circle {at} r="{projection.metres(area.radius_m)}"/>']
        case Upstream():
            return [
                f'<polyline points="{projection.line((place.latitude, place.longitude) for place in one.path)}"'
                f' stroke-width="{max(2.0, projection.metres(2 * one.half_width_m))}"/>'
                for one in area.stretches
            ]
        case _:
            return []


def _dot(projection: MapProjection, rows: Sequence[Fix], result: AlertResult, name: str) -> str:
    """Return the dot of one vehicle, by outcome; empty if it was not connected at the time of the alert."""
    published_at = result.alert.published_at
    before = next((fix for fix in reversed(rows) if fix.at <= published_at), None)
    if before is None or published_at - before.at > 5_000_000_000:
        return ""
    if name in result.missed | result.wrong | result.entered_missed:
        kind = "missed"
    elif name in result.warned:
        kind = "warned" if name in result.inside else "later"
    else:
        kind = "other"
    at = f'cx="{projection.x(before.longitude)}" cy="{projection.y(before.latitude)}"'
    return f'<circle class="{kind}" {at} r="3.5"><title>{escape(name)}</title></circle>'


def times_chart(times_ms: Mapping[str, Sequence[float]]) -> str:
    """Return a histogram for each kind of time, on a logarithmic scale."""
    shown = {name: some for name, some in times_ms.items() if some}
    height, rows = 64, []
    for at, (name, some) in enumerate(shown.items()):
        logs = np.log10(np.clip(np.array(some), 1.0, 1e5))
        counts, _ = np.histogram(logs, bins=BINS, range=(0.0, 5.0))
        top, bar_width = at * height + 18, BAR_WIDTH / BINS
        bars = "".join(
            f'<rect x="{100 + bar * bar_width:.1f}" y="{top + 30 - 30 * count / counts.max():.1f}" width="{bar_width - 1:.1f}"'
            f' height="{30 * count / counts.max():.1f}"/>'
            for bar, count in enumerate(counts.tolist())
            if count
        )
        rows.append(
            f'<text x="100" y="{top - 4}">{escape(name)}: {escape(str(percentiles(some)))}</text><g class="bars">{bars}</g>'
        )
    bottom = len(shown) * height + 8
    ticks = "".join(
        f'<text class="tick" x="{100 + power * BAR_WIDTH / 5:.0f}" y="{bottom + 14}">{label}</text>'
        f'<line x1="{100 + power * BAR_WIDTH / 5:.0f}" x2="{100 + power * BAR_WIDTH / 5:.0f}" y1="8" y2="{bottom}"/>'
        for power, label in enumerate(("1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"))
    )
    return f'<svg viewBox="0 0 {WIDTH + 20} {bottom + 24}" role="img" aria-label="times">{ticks}{"".join(rows)}</svg>'
