"""Areas as well-known text: POLYGON ((10.0 50.0, 10.1 50.0, 10.1 50.1, 10.0 50.0)).

Invariants:
- longitude before latitude, in degrees; edges are great-circle arcs; keywords in any case; altitudes are refused;
- besides POLYGON, MULTIPOLYGON and GEOMETRYCOLLECTION there are
    CIRCLE (longitude latitude, radius_m)
    CORRIDOR (longitude latitude, longitude latitude, ...; half_width_m)
    BOX (west south, east north)
    UPSTREAM ((longitude latitude, ...; half_width_m, start_s end_s, start_m end_m), ...), the remaining time and distance
- the only exception is `Malformed`, with `at` the position of the faulty word, number or punctuation mark.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple, TypeVar, assert_never

from milepost.model.areas import (
    CORRIDOR_POINTS_MAX,
    POLYGON_POINTS_MAX,
    UNION_PARTS_MAX,
    UPSTREAM_POINTS_MAX,
    UPSTREAM_STRETCHES_MAX,
    Area,
    Box,
    Circle,
    Corridor,
    Polygon,
    Ring,
    Stretch,
    Union,
    Upstream,
)
from milepost.model.areas.union import ShapeCounter
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason

WKT_CHARACTERS_MAX: Final = 200_000

_TOKEN: Final = re.compile(
    # Possessive: a long run of digits before a fault must not cause backtracking.
    r"(?P<space>[ \t\r\n]+)|(?P<number>[+-]?(?:[0-9]++\.?[0-9]*+|\.[0-9]++)(?:[eE][+-]?[0-9]++)?+)(?![A-Za-z0-9_.])"
    r"|(?P<word>[A-Za-z]+)|(?P<mark>[(),;])"
)
_DIMENSIONS: Final = ("Z", "M", "ZM")

T = TypeVar("T")


class _Token(NamedTuple):
    kind: str
    text: str
    at: int

    @property
    def shown(self) -> str:
        """The token in an error's detail."""
        return "the end of the text" if self.kind == "end" else repr(self.text[:40])


def area_from_wkt(text: str) -> Area:
    """Return the area of a well-known text."""
    if len(text) > WKT_CHARACTERS_MAX:
        detail = f"the text has {len(text)} characters, more than {WKT_CHARACTERS_MAX}"
        raise Malformed(Reason.AREA_TOO_COMPLEX, detail, at=WKT_CHARACTERS_MAX)
    parser = _WktParser(text)
    area = parser.area(depth=0)
    parser.expect_end()
    return area


def area_to_wkt(area: Area) -> str:
    """Return the area as well-known text, which decodes to the same area."""
    match area:
        case Circle():
            return f"CIRCLE ({_pair(area.centre)}, {float(area.radius_m)!r})"
        case Corridor():
            return f"CORRIDOR ({_pairs(area.path)}; {float(area.half_width_m)!r})"
        case Box():
            west, south, east, north = (repr(float(edge)) for edge in (area.west, area.south, area.east, area.north))
            return f"BOX ({west} {south}, {east} {north})"
        case Upstream():
            return f"UPSTREAM ({', '.join(map(_stretch, area.stretches))})"
        case Polygon():
            return f"POLYGON {_rings(area)}"
        case Union():
            polygons = [part for part in area.parts if isinstance(part, Polygon)]
            if len(polygons) == len(area.parts):
                return f"MULTIPOLYGON ({', '.join(_rings(polygon) for polygon in polygons)})"
            return f"GEOMETRYCOLLECTION ({', '.join(area_to_wkt(part) for part in area.parts)})"
        case _:
            assert_never(area)


def _pair(place: Place) -> str:
    return f"{float(place.longitude)!r} {float(place.latitude)!r}"


def _pairs(places: tuple[Place, ...]) -> str:
    return ", ".join(_pair(place) for place in places)


def _stretch(stretch: Stretch) -> str:
    left = (stretch.start_s, stretch.end_s, stretch.start_m, stretch.end_m)
    start_s, end_s, start_m, end_m = (repr(float(value)) for value in left)
    return f"({_pairs(stretch.path)}; {float(stretch.half_width_m)!r}, {start_s} {end_s}, {start_m} {end_m})"


def _rings(polygon: Polygon) -> str:
    return f"({', '.join(f'({_pairs(ring)})' for ring in (polygon.outer, *polygon.holes))})"


@dataclass(slots=True)
class _WktParser:
    """Recursive-descent parser with one token of lookahead."""

    text: str
    tally: ShapeCounter = field(default_factory=ShapeCounter)
    token: _Token = field(init=False)

    def __post_init__(self) -> None:
        self.token = self._token_at(0)

    def area(self, depth: int) -> Area:
        """Return the next shape, which is inside *depth* collections."""
        shapes: dict[str, Callable[[int], Area]] = {
            "CIRCLE": self._circle,
            "BOX": self._box,
            "CORRIDOR": self._corridor,
            "UPSTREAM": self._upstream,
            "POLYGON": lambda _depth: self._polygon(),
            "MULTIPOLYGON": lambda depth: self._union(self._polygon, depth),
            "GEOMETRYCOLLECTION": lambda depth: self._union(lambda: self.area(depth + 1), depth),
        }
        word = self.token
        if word.kind != "word" or word.text.upper() not in shapes:
            raise self._unexpected(f"one of {', '.join(shapes)}")
        self._advance()
        if self.token.text.upper() in _DIMENSIONS:
            raise self._wrong("areas are on the ground; leave out the altitude or measure")
        if self.token.text.upper() == "EMPTY":
            raise Malformed(Reason.AREA_EMPTY, f"the {word.text.upper()} is empty", at=self.token.at)
        return _pointing_at(word.at, lambda: shapes[word.text.upper()](depth))

    def expect_end(self) -> None:
        """Raise `Malformed` if the text goes on after the area."""
        if self.token.kind != "end":
            raise self._unexpected("the end of the text")

    def _circle(self, _depth: int) -> Circle:
        self._expect("(")
        centre = self._place()
        self._expect(",")
        radius_m = self._number("a radius in metres")
        self._expect(")")
        self.tally.add(points=1)
        return Circle(centre, radius_m)

    def _box(self, _depth: int) -> Box:
        self._expect("(")
        southwest = self._place()
        self._expect(",")
        northeast = self._place()
        self._expect(")")
        self.tally.add(points=2)
        return Box(southwest.latitude, southwest.longitude, northeast.latitude, northeast.longitude)

    def _corridor(self, _depth: int) -> Corridor:
        self._expect("(")
        path = self._listed(self._place, CORRIDOR_POINTS_MAX, "points", end=";")
        half_width_m = self._number("a half width in metres")
        self._expect(")")
        self.tally.add(points=len(path))
        return Corridor(path, half_width_m)

    def _upstream(self, _depth: int) -> Upstream:
        self._expect("(")
        stretches = self._listed(self._stretch, UPSTREAM_STRETCHES_MAX, "stretches")
        self.tally.add(points=sum(len(stretch.path) for stretch in stretches))
        return Upstream.of(stretches)

    def _stretch(self) -> Stretch:
        self._expect("(")
        path = self._listed(self._place, UPSTREAM_POINTS_MAX, "points", end=";")
        half_width_m = self._number("a half width in metres")
        self._expect(",")
        start_s, end_s = self._number("seconds left at the start"), self._number("seconds left at the end")
        self._expect(",")
        start_m, end_m = self._number("metres left at the start"), self._number("metres left at the end")
        self._expect(")")
        return Stretch(path, half_width_m, start_s, end_s, start_m, end_m)

    def _polygon(self) -> Polygon:
        self._expect("(")
        outer, *holes = self._listed(self._ring, POLYGON_POINTS_MAX, "rings")
        self.tally.add(points=sum(len(ring) for ring in (outer, *holes)))
        return Polygon(outer, tuple(holes))

    def _ring(self) -> Ring:
        self._expect("(")
        return self._listed(self._place, POLYGON_POINTS_MAX, "points")

    def _union(self, part: Callable[[], Area], depth: int) -> Union:
        self.tally.check_depth(depth + 1)
        self._expect("(")
        return Union(self._listed(lambda: _pointing_at(self.token.at, part), UNION_PARTS_MAX, "parts"))

    def _listed(self, item: Callable[[], T], limit: int, what: str, *, end: str = ")") -> tuple[T, ...]:
        """Return items separated by commas; reads up to and including the mark *end*."""
        items = [item()]
        while self.token.text == ",":
            if len(items) == limit:
                raise Malformed(Reason.AREA_TOO_COMPLEX, f"there are more than {limit} {what} here", at=self.token.at)
            self._advance()
            items.append(item())
        self._expect(end, instead=",")
        return tuple(items)

    def _place(self) -> Place:
        at = self.token.at
        longitude, latitude = self._number("a longitude"), self._number("a latitude")
        if self.token.kind == "number":
            raise self._wrong("a point has more than two numbers; areas are on the ground, so leave out the altitude")
        return _pointing_at(at, lambda: Place(latitude, longitude))

    def _number(self, what: str) -> float:
        if self.token.kind != "number":
            raise self._unexpected(what)
        number = float(self.token.text)
        self._advance()
        return number

    def _expect(self, mark: str, *, instead: str = "") -> None:
        if self.token.text != mark:
            raise self._unexpected(f"{instead!r} or {mark!r}" if instead else repr(mark))
        self._advance()

    def _advance(self) -> None:
        self.token = self._token_at(self.token.at + len(self.token.text))

    def _token_at(self, at: int) -> _Token:
        """Return the token at this position, after any spaces."""
        while at < len(self.text):
            found = _TOKEN.match(self.text, at)
            if found is None or found.lastgroup is None:
                raise Malformed(
                    Reason.AREA_UNREADABLE, f"{self.text[at]!r} does not start a keyword, number or punctuation mark", at=at
                )
            if found.lastgroup != "space":
                return _Token(found.lastgroup, found.group(), at)
            at = found.end()
        return _Token("end", "", at)

    def _unexpected(self, expected: str) -> Malformed:
        return self._wrong(f"expected {expected}, found {self.token.shown}")

    def _wrong(self, detail: str) -> Malformed:
        return Malformed(Reason.AREA_UNREADABLE, f"{detail} (character {self.token.at})", at=self.token.at)


def _pointing_at(at: int, build: Callable[[], T]) -> T:
    """Return the result of *build*; an error without a position gets *at*."""
    try:
        return build()
    except Malformed as error:
        if error.at is not None:
            raise
        raise Malformed(error.reason, error.detail, at=at) from error
