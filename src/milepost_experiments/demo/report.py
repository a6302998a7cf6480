"""The report of a run: report.json with all metrics, report.html with SVG maps and charts, self-contained."""

import json
from collections.abc import Iterable, Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

import numpy as np

from milepost.model.areas import Area, Circle, Union, Upstream
from milepost.model.places import EARTH_RADIUS_M
from milepost.roads import Network
from milepost_experiments.demo.outcome import Outcome, spread, to_json
from milepost_experiments.simulator.ledger import Books, Fix
from milepost_experiments.simulator.evaluation import AlertJudged

MAPS_MAX: Final = 8

_STYLE: Final = """
:root { color-scheme: light dark; --ink: #1d2733; --ground: #fff; --soft: #68788c; --road: #c9d2dc; --bad: #b00020; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e4eaf1; --ground: #11161c; --soft: #9aa9ba; --road: #364351; --bad: #ff6b7d; }
}
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--ground); }
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
    '<span><i style="background:#f5a623"></i>on the border, or drove in later: warned, too</span>'
    '<span><i style="background:#2f7fd6"></i>not concerned</span>'
    '<span><i style="background:#000"></i>should have been warned, or should not</span></p>'
)


def write_report(folder: Path, outcome: Outcome, network: Network, books: Books) -> Path:
    """Write both files; return the path of the page."""
    (folder / "report.json").write_text(json.dumps(to_json(outcome), indent=1) + "\n")
    page = folder / "report.html"
    page.write_text(_page(outcome, network, books))
    return page


def _page(outcome: Outcome, network: Network, books: Books) -> str:
    judged, asked = outcome.judged, outcome.asked
    verdict = (
        '<p class="verdict">Every promise held: all who were inside, and all who drove in, were warned; nobody else was; nothing '
        "was lost or doubled.</p>"
        if outcome.held
        else '<p class="verdict bad">Not everything held:<br>' + "<br>".join(map(escape, judged.faults)) + "</p>"
    )
    maps = "".join(
        f"<h2>{escape(one.alert.key.incident)}</h2>{_LEGEND}{alert_map(one, network, books)}{_who(one)}"
        for one in _firsts(judged.alerts)
    )
    shares = [(name, f"{share:.0%}") for name, share in outcome.cpu_shares.items()]
    return f"""<!doctype html>
<html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<title>The city: a run of Milepost</title>
<style>{_STYLE}</style>
<h1>The city: {asked["vehicles"]} vehicles, {asked["seconds"]} seconds, on {escape(str(asked["backbone"]))}</h1>
{verdict}
<h2>Alerts</h2>{_alerts_table(outcome)}
<h2>How long it took</h2>{times_chart(outcome.times_ms)}{_times_table(outcome)}
<h2>Nothing lost on the way</h2>{_control_text(outcome)}
{maps}
<h2>Processors</h2>{_table(("process", "share of a core"), shares)}
<p>All was ready after {outcome.started_s:.0f} s.</p>
</html>
"""


def _firsts(alerts: tuple[AlertJudged, ...]) -> list[AlertJudged]:
    """Return, for each incident, the alert with most vehicles inside."""
    best: dict[str, AlertJudged] = {}
    for one in alerts:
        known = best.get(one.alert.key.incident)
        if known is None or len(one.inside) > len(known.inside):
            best[one.alert.key.incident] = one
    return list(best.values())[:MAPS_MAX]


def _alerts_table(outcome: Outcome) -> str:
    heads = (
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
    for one in outcome.judged.alerts:
        times = spread(1_000 * after for after in one.inside.values() if after is not None)
        counts = (len(one.inside), len(one.missed), len(one.entered), len(one.entered_missed), len(one.border), len(one.wrong))
        rows.append((one.alert.key.incident, one.alert.key.phase, *counts, f"{times.p50:,.0f} ms", f"{times.most:,.0f} ms"))
    for recall in outcome.judged.recalls:
        times = spread(1_000 * after for after in recall.told.values() if after is not None)
        told = (len(recall.told), len(recall.missed), "", "", "", len(recall.wrong))
        rows.append((recall.alert.key.incident, recall.alert.key.phase, *told, f"{times.p50:,.0f} ms", f"{times.most:,.0f} ms"))
    truth = "".join(
        f"<br>{escape(one.alert.key.incident)} {one.alert.key.phase}: by where vehicles truly were, {len(one.truly_inside)} were "
        f"inside, {len(one.truly_inside & one.warned)} of them were warned"
        for one in outcome.judged.alerts
    )
    return _table(heads, rows, bad=(3, 5, 7)) + f"<p>Receivers are some metres off.{truth}.</p>"


def _times_table(outcome: Outcome) -> str:
    rows = [
        (name, one.count, f"{one.p50:,.0f}", f"{one.p90:,.0f}", f"{one.p99:,.0f}", f"{one.most:,.0f}")
        for name, one in ((name, spread(some)) for name, some in outcome.times_ms.items())
    ]
    return _table(("ms", "times", "median", "90 %", "99 %", "most"), rows)


def _control_text(outcome: Outcome) -> str:
    control = outcome.judged.control
    lost, doubled = (sum(map(len, some.values())) for some in (control.lost, control.doubled))
    return (
        f"<p>{control.said} numbered messages went to every vehicle, at quality 1. {control.due:,} were due, {lost} were lost, "
        f"{doubled} came twice, through {outcome.counts['moves']} moves between edges. {control.again} second copies were marked "
        "as such by the edge, or recognised by a vehicle that had a session at two edges for a moment.</p>"
    )


def _who(one: AlertJudged) -> str:
    """Return the table of vehicles concerned, with the time until their warning."""
    rows = [(name, "inside", _after(after)) for name, after in sorted(one.inside.items())]
    rows += [(name, "drove in", _after(after)) for name, after in sorted(one.entered.items())]
    rows += [(name, "on the border", "warned" if name in one.warned else "not warned") for name in sorted(one.border)]
    listed = _table(("vehicle", "was", "warned after"), rows)
    return f"<details><summary>{len(rows)} vehicles, one by one</summary>{listed}</details>"


def _after(after_s: float | None) -> str:
    return "never" if after_s is None else f"{1_000 * after_s:,.0f} ms"


def _table(heads: tuple[str, ...], rows: list[Any], *, bad: tuple[int, ...] = ()) -> str:
    """Return an HTML table; *bad* are the columns in which any number but 0 is a fault."""
    head = "".join(f"<th>{escape(one)}</th>" for one in heads)
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


class Sheet:
    """Projection from degrees to a drawing of fixed width."""

    def __init__(self, network: Network) -> None:
        self._south, self._north = float(network.latitudes.min()), float(network.latitudes.max())
        self._west, self._east = float(network.longitudes.min()), float(network.longitudes.max())
        self._narrow = float(np.cos(np.radians((self._south + self._north) / 2)))
        self._scale = WIDTH / ((self._east - self._west) * self._narrow)
        self.height = round((self._north - self._south) * self._scale)

    def x(self, longitude: float) -> float:
        """Return the distance from the left."""
        return round((longitude - self._west) * self._narrow * self._scale, 1)

    def y(self, latitude: float) -> float:
        """Return the distance from the top."""
        return round((self._north - latitude) * self._scale, 1)

    def metres(self, metres: float) -> float:
        """Return a length in drawing units."""
        return round(float(np.degrees(metres / EARTH_RADIUS_M)) * self._scale, 1)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Return latitudes and longitudes as the points of a polyline."""
        return " ".join(f"{self.x(longitude)},{self.y(latitude)}" for latitude, longitude in points)


def alert_map(judged: AlertJudged, network: Network, books: Books) -> str:
    """Return a map of the roads, the area, and all vehicles at the time of the alert, by outcome."""
    sheet = Sheet(network)
    parts = [f'<svg viewBox="0 0 {WIDTH} {sheet.height}" role="img" aria-label="{escape(judged.alert.key.incident)}">']
    parts.append('<g class="roads">')
    for road in range(len(network)):
        points = slice(network.first[road], network.first[road + 1])
        pairs = zip(network.latitudes[points].tolist(), network.longitudes[points].tolist(), strict=True)
        parts.append(f'<polyline points="{sheet.line(pairs)}"/>')
    parts.append("</g>")
    if judged.alert.area is not None:
        parts += ['<g class="area">', *_area(judged.alert.area, sheet), "</g>"]
    parts += [_dot(sheet, books.reports[name], judged, name) for name in sorted(books.reports)]
    place = judged.alert.place
    parts.append(f'<text class="place" x="{sheet.x(place.longitude)}" y="{sheet.y(place.latitude)}">✕</text></svg>')
    return "\n".join(part for part in parts if part)


def _area(area: Area, sheet: Sheet) -> list[str]:
    match area:
        case Union():
            return [text for part in area.parts for text in _area(part, sheet)]
        case Circle():
            at = f'cx="{sheet.x(area.centre.longitude)}" cy="{sheet.y(area.centre.latitude)}"'
            return [f'<circle {at} r="{sheet.metres(area.radius_m)}"/>']
        case Upstream():
            return [
                f'<polyline points="{sheet.line((place.latitude, place.longitude) for place in one.path)}"'
                f' stroke-width="{max(2.0, sheet.metres(2 * one.half_width_m))}"/>'
                for one in area.stretches
            ]
        case _:
            return []


def _dot(sheet: Sheet, rows: Sequence[Fix], judged: AlertJudged, name: str) -> str:
    """Return the dot of one vehicle, by outcome; empty if it was not connected at the time of the alert."""
    said_at = judged.alert.said_at
    before = next((fix for fix in reversed(rows) if fix.at <= said_at), None)
    if before is None or said_at - before.at > 5_000_000_000:
        return ""
    if name in judged.missed | judged.wrong | judged.entered_missed:
        kind = "missed"
    elif name in judged.warned:
        kind = "warned" if name in judged.inside else "later"
    else:
        kind = "other"
    at = f'cx="{sheet.x(before.longitude)}" cy="{sheet.y(before.latitude)}"'
    return f'<circle class="{kind}" {at} r="3.5"><title>{escape(name)}</title></circle>'


def times_chart(times_ms: Mapping[str, Sequence[float]]) -> str:
    """Return a histogram for each kind of time, on a logarithmic scale."""
    shown = {name: some for name, some in times_ms.items() if some}
    height, rows = 64, []
    for at, (name, some) in enumerate(shown.items()):
        logs = np.log10(np.clip(np.array(some), 1.0, 1e5))
        counts, _ = np.histogram(logs, bins=BINS, range=(0.0, 5.0))
        top, wide = at * height + 18, BAR_WIDTH / BINS
        bars = "".join(
            f'<rect x="{100 + bar * wide:.1f}" y="{top + 30 - 30 * count / counts.max():.1f}" width="{wide - 1:.1f}"'
            f' height="{30 * count / counts.max():.1f}"/>'
            for bar, count in enumerate(counts.tolist())
            if count
        )
        rows.append(f'<text x="100" y="{top - 4}">{escape(name)}: {escape(str(spread(some)))}</text><g class="bars">{bars}</g>')
    bottom = len(shown) * height + 8
    ticks = "".join(
        f'<text class="tick" x="{100 + power * BAR_WIDTH / 5:.0f}" y="{bottom + 14}">{label}</text>'
        f'<line x1="{100 + power * BAR_WIDTH / 5:.0f}" x2="{100 + power * BAR_WIDTH / 5:.0f}" y1="8" y2="{bottom}"/>'
        for power, label in enumerate(("1 ms", "10 ms", "100 ms", "1 s", "10 s", "100 s"))
    )
    return f'<svg viewBox="0 0 {WIDTH + 20} {bottom + 24}" role="img" aria-label="times">{ticks}{"".join(rows)}</svg>'
