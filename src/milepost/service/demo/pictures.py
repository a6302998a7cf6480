"""Pictures of a run, as SVG in a page: where an alert went and who was there, and how long things took."""

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Final

import numpy as np

from milepost.model.areas import Area, Circle, Union, Upstream
from milepost.model.places import EARTH_RADIUS_M
from milepost.roads import Network
from milepost.service.demo.figures import spread
from milepost.simulator.books import Books, Fix
from milepost.simulator.judging import AlertJudged

WIDTH: Final = 760
BAR_WIDTH: Final = 640
BINS: Final = 40


class Sheet:
    """From degrees to a picture of fixed width."""

    def __init__(self, network: Network) -> None:
        self._south, self._north = float(network.latitudes.min()), float(network.latitudes.max())
        self._west, self._east = float(network.longitudes.min()), float(network.longitudes.max())
        self._narrow = float(np.cos(np.radians((self._south + self._north) / 2)))
        self._scale = WIDTH / ((self._east - self._west) * self._narrow)
        self.height = round((self._north - self._south) * self._scale)

    def x(self, longitude: float) -> float:
        """How far from the left."""
        return round((longitude - self._west) * self._narrow * self._scale, 1)

    def y(self, latitude: float) -> float:
        """How far from the top."""
        return round((self._north - latitude) * self._scale, 1)

    def metres(self, metres: float) -> float:
        """A length."""
        return round(float(np.degrees(metres / EARTH_RADIUS_M)) * self._scale, 1)

    def line(self, points: Iterable[tuple[float, float]]) -> str:
        """Latitudes and longitudes as points of a line."""
        return " ".join(f"{self.x(longitude)},{self.y(latitude)}" for latitude, longitude in points)


def alert_map(judged: AlertJudged, network: Network, books: Books) -> str:
    """Roads, the area, and everybody where they were when it was said: warned, or not."""
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
    """Where somebody was, and what became of it; nothing for who was not there yet, or had left."""
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
    """A row for each kind of time: how often it took how long, on a scale of powers of ten."""
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
