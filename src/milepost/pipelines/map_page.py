"""Maps of areas and dots on a grid, in one self-contained HTML page; light or dark by the browser's preference."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from html import escape
from math import ceil, cos, floor, log10, radians
from typing import Final, assert_never

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.places import EARTH_RADIUS_M, Place, moved

WIDTH: Final = 960
HEIGHT: Final = 640

_MARGIN: Final = 40
_METRES_PER_DEGREE: Final = radians(1.0) * EARTH_RADIUS_M
_EXTENT_M_MIN: Final = 200.0
_LINES: Final = 6
"""Approximate number of grid lines in each direction."""

_STYLE: Final = """
:root { --paper: #fcfcfa; --ink: #23262b; --line: #dddcd6; --good: #1a7f4b; --bad: #c2361b; --other: #2f62c9; --plain: #77736a; }
@media (prefers-color-scheme: dark) {
  :root { --paper: #17191d; --ink: #e6e4de; --line: #34373d; --good: #4cc38a; --bad: #ff7a5c; --other: #82a8ff;
          --plain: #9c978c; } }
body { background: var(--paper); color: var(--ink); font: 15px/1.45 system-ui, sans-serif; margin: 2rem auto; max-width: 60rem;
  padding: 0 1rem; }
svg { width: 100%; height: auto; border: 1px solid var(--line); } svg text { fill: var(--plain); font-size: 11px; }
table { border-collapse: collapse; width: 100%; }
td, th { border-bottom: 1px solid var(--line); padding: .3rem .6rem; text-align: left; }
.grid { stroke: var(--line); } .area { fill: var(--plain); fill-opacity: .14; stroke: var(--plain); stroke-linejoin: round; }
.path { fill: none; stroke: var(--plain); stroke-opacity: .25; stroke-linecap: round; stroke-linejoin: round; }
.good { --c: var(--good); } .bad { --c: var(--bad); } .other { --c: var(--other); } .plain { --c: var(--plain); }
.mark { fill: var(--c); stroke: var(--c); } .reach { fill: var(--c); fill-opacity: .12; stroke: var(--c); }
.key { display: inline-block; width: .7em; height: .7em; border-radius: 50%; background: var(--c); margin: 0 .4em 0 1em; }
"""


@dataclass(frozen=True, slots=True)
class MapDot:
    """A marker at a place; with a radius, also a circle around it."""

    place: Place
    style: str
    """The colour: `good`, `bad`, `other` or `plain`."""
    text: str
    """The tooltip."""
    radius_m: float = 0.0


@dataclass(frozen=True, slots=True)
class MapPage:
    """The contents of a page: a map, its legend, and a table."""

    title: str
    dots: Sequence[MapDot]
    legend: Sequence[tuple[str, str]]
    """Pairs of style and meaning."""
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    area: Area | None = None


def html(page: MapPage) -> str:
    """Return the page as one HTML file."""
    legend = "".join(f'<span class="{style}"><span class="key"></span>{escape(text)}</span>' for style, text in page.legend)
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{escape(page.title)}</title>\n'
        f"<style>{_STYLE}</style></head><body>\n<h1>{escape(page.title)}</h1>\n{svg(page.dots, page.area)}\n<p>{legend}</p>\n"
        f"<table>{_table_row('th', page.head)}\n{''.join(_table_row('td', row) for row in page.rows)}</table>\n</body></html>\n"
    )


def svg(dots: Sequence[MapDot], area: Area | None = None) -> str:
    """Return the drawing: the dots above the area."""
    view = _View.over([*_corners(area), *(corner for dot in dots for corner in _around(dot.place, dot.radius_m))])
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {HEIGHT}" role="img">']
    parts += view.grid()
    parts += [] if area is None else _draw(area, view)
    parts += [_draw_dot(dot, view) for dot in dots]
    return "\n".join([*parts, "</svg>"])


@dataclass(frozen=True, slots=True)
class _View:
    """A projection of a region small enough to be drawn flat: longitudes are scaled by the cosine of the middle latitude."""

    middle: Place
    scale: float
    """Drawing units per metre."""

    @classmethod
    def over(cls, places: Sequence[Place]) -> "_View":
        first = places[0] if places else Place(0.0, 0.0)
        over = [_normalize(place.longitude - first.longitude) for place in places] or [0.0]
        up = [place.latitude for place in places] or [0.0]
        longitude = first.longitude + (min(over) + max(over)) / 2
        middle = Place((min(up) + max(up)) / 2, _normalize(longitude))
        high_m = max(_EXTENT_M_MIN, (max(up) - min(up)) * _METRES_PER_DEGREE)
        wide_m = max(_EXTENT_M_MIN, (max(over) - min(over)) * _METRES_PER_DEGREE * _longitude_scale(middle))
        return cls(middle, min((WIDTH - 2 * _MARGIN) / wide_m, (HEIGHT - 2 * _MARGIN) / high_m))

    def point(self, place: Place) -> tuple[float, float]:
        """Return the coordinates of a place in the drawing."""
        east_m = _normalize(place.longitude - self.middle.longitude) * _METRES_PER_DEGREE * _longitude_scale(self.middle)
        north_m = (place.latitude - self.middle.latitude) * _METRES_PER_DEGREE
        return round(WIDTH / 2 + east_m * self.scale, 1), round(HEIGHT / 2 - north_m * self.scale, 1)

    def grid(self) -> list[str]:
        """Return the grid lines, a round number of metres apart, and the scale."""
        step_m = _round(WIDTH / self.scale / _LINES)
        step = step_m * self.scale
        found = []
        for number in range(-ceil(WIDTH / 2 / step), ceil(WIDTH / 2 / step) + 1):
            x, y = round(WIDTH / 2 + number * step, 1), round(HEIGHT / 2 + number * step, 1)
            found.append(f'<line class="grid" x1="{x}" y1="0" x2="{x}" y2="{HEIGHT}"/>')
            found.append(f'<line class="grid" x1="0" y1="{y}" x2="{WIDTH}" y2="{y}"/>')
        apart = f"{step_m / 1000:g} km" if step_m >= 1000 else f"{step_m:g} m"
        where = f"{self.middle.latitude:.5f}, {self.middle.longitude:.5f}"
        return [*found, f'<text x="8" y="{HEIGHT - 10}">lines {apart} apart, around {where}</text>']


def _draw(area: Area, view: _View) -> list[str]:
    match area:
        case Corridor():
            points = " ".join(f"{x},{y}" for x, y in map(view.point, area.path))
            return [f'<polyline class="path" stroke-width="{2 * area.half_width_m * view.scale:.1f}" points="{points}"/>']
        case Upstream():
            return [line for one in area.stretches for line in _draw(Corridor(one.path, one.half_width_m), view)]
        case Union():
            return [line for part in area.parts for line in _draw(part, view)]
        case Circle() | Box() | Polygon():
            rings = [" L".join(f"{x} {y}" for x, y in map(view.point, ring)) for ring in _rings(area)]
            return [f'<path class="area" fill-rule="evenodd" d="{" ".join(f"M{ring} Z" for ring in rings)}"/>']
        case _:
            assert_never(area)


def _draw_dot(dot: MapDot, view: _View) -> str:
    x, y = view.point(dot.place)
    reach = f'<circle class="reach" cx="{x}" cy="{y}" r="{dot.radius_m * view.scale:.1f}"/>' if dot.radius_m else ""
    title = f"<title>{escape(dot.text)}</title>"
    return f'<g class="{dot.style}">{reach}<circle class="mark" cx="{x}" cy="{y}" r="4"/>{title}</g>'


def _rings(area: Circle | Box | Polygon) -> list[list[Place]]:
    match area:
        case Circle():
            return [_around(area.centre, area.radius_m, 72)]
        case Box():
            corners = ((area.south, area.west), (area.south, area.east), (area.north, area.east), (area.north, area.west))
            return [[Place(latitude, longitude) for latitude, longitude in corners]]
        case Polygon():
            return [list(ring) for ring in (area.outer, *area.holes)]
        case _:
            assert_never(area)


def _corners(area: Area | None) -> list[Place]:
    match area:
        case None:
            return []
        case Corridor():
            return [corner for place in area.path for corner in _around(place, area.half_width_m)]
        case Upstream():
            return [place for stretch in area.stretches for place in stretch.path]
        case Union():
            return [corner for part in area.parts for corner in _corners(part)]
        case Circle() | Box() | Polygon():
            return [place for ring in _rings(area) for place in ring]
        case _:
            assert_never(area)


def _around(place: Place, radius_m: float, count: int = 4) -> list[Place]:
    return [moved(place, 360.0 * number / count, radius_m) for number in range(count)] if radius_m else [place]


def _round(metres: float) -> float:
    """Return the greatest 1, 2 or 5 times a power of ten that is at most *metres*."""
    power = 10.0 ** floor(log10(metres))
    return next(power * digit for digit in (5.0, 2.0, 1.0) if power * digit <= metres)


def _longitude_scale(place: Place) -> float:
    return max(0.01, cos(radians(place.latitude)))


def _normalize(longitude: float) -> float:
    return (longitude + 180.0) % 360.0 - 180.0


def _table_row(tag: str, cells: Iterable[str]) -> str:
    return f"<tr>{''.join(f'<{tag}>{escape(cell)}</{tag}>' for cell in cells)}</tr>\n"
