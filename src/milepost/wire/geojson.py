"""Areas as parsed GeoJSON (RFC 7946): dicts, lists, numbers.

Invariants:
- longitude before latitude, as in RFC 7946; edges are great-circle arcs, the shorter way, where RFC 7946 has straight
  lines on a map: long edges need more points. A ring across the antimeridian may be one ring or cut in two;
- shapes that GeoJSON lacks are written as
    circle    {"type": "Point", "coordinates": [longitude, latitude], "radius_m": 500.0}
    corridor  {"type": "LineString", "coordinates": [[longitude, latitude], ...], "half_width_m": 50.0}
    box       {"type": "Box", "bbox": [west, south, east, north]}
    upstream  {"type": "MultiLineString", "coordinates": [[[longitude, latitude], ...], ...], "half_widths_m": [12.0, ...],
               "seconds_left": [[at the start, at the end], ...], "metres_left": [[at the start, at the end], ...]}
    (a box between parallels is not a polygon of arcs); a union is a MultiPolygon or a GeometryCollection;
  - a Feature may wrap any of them and have the distance among its properties; its other properties are ignored;
  - nothing else is dropped silently: altitudes, unknown members and distances that a shape does not have are refused. The
    optional "bbox" and "id" of RFC 7946 are ignored;
  - the only exception is `Malformed`, whatever the value; limits are checked before the work is done.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Final, assert_never

import numpy as np

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
    StretchColumns,
    Union,
    Upstream,
)
from milepost.model.areas.union import ShapeCounter
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason

_DISTANCES: Final = ("radius_m", "half_width_m")
_LEFT: Final = ("half_widths_m", "seconds_left", "metres_left")
"""Members that make a MultiLineString an upstream, with one entry for each line."""
_OWN: Final[dict[str, tuple[str, ...]]] = {"Point": ("radius_m",), "LineString": ("half_width_m",), "MultiLineString": _LEFT}
_FEATURE_MEMBERS: Final = frozenset({"type", "geometry", "properties", "id", "bbox"})
_SHOWN_CHARACTERS_MAX: Final = 40

Members = Mapping[object, object]
"""A JSON object; its keys are not assumed to be strings."""


def area_from_geojson(value: object) -> Area:
    """Return the area of a parsed GeoJSON geometry, or of a Feature with one."""
    members = _members(value, "the area")
    kind = members.get("type")
    if not isinstance(kind, str) or kind != "Feature":
        return _GeoJsonReader(ShapeCounter()).area(members, depth=0)
    _check_known(members, _FEATURE_MEMBERS, "the Feature")
    geometry = dict(_members(_member(members, "geometry", "the Feature"), "the geometry"))
    properties = members.get("properties")
    for name, distance in _distances(_members({} if properties is None else properties, "properties")).items():
        if name in geometry:
            raise _unreadable(f"{name} is given twice, in the geometry and in the properties")
        geometry[name] = distance
    return _GeoJsonReader(ShapeCounter()).area(geometry, depth=0)


def area_to_geojson(area: Area) -> dict[str, object]:
    """Return the area as a GeoJSON geometry, which decodes to the same area."""
    match area:
        case Circle():
            return {"type": "Point", "coordinates": _pair(area.centre), "radius_m": float(area.radius_m)}
        case Corridor():
            return {"type": "LineString", "coordinates": _pairs(area.path), "half_width_m": float(area.half_width_m)}
        case Box():
            return {"type": "Box", "bbox": [float(edge) for edge in (area.west, area.south, area.east, area.north)]}
        case Upstream():
            return _upstream(area)
        case Polygon():
            return {"type": "Polygon", "coordinates": _rings(area)}
        case Union():
            polygons = [part for part in area.parts if isinstance(part, Polygon)]
            if len(polygons) == len(area.parts):
                return {"type": "MultiPolygon", "coordinates": [_rings(polygon) for polygon in polygons]}
            return {"type": "GeometryCollection", "geometries": [area_to_geojson(part) for part in area.parts]}
        case _:
            assert_never(area)


@dataclass(frozen=True, slots=True)
class _GeoJsonReader:
    """Reader of one area, which counts its shapes and points."""

    tally: ShapeCounter

    def area(self, members: Members, depth: int) -> Area:
        """Return the area of a geometry that is inside *depth* collections."""
        kind = members.get("type")
        readers: dict[object, tuple[str, Callable[[Members, int], Area]]] = {
            "Point": ("coordinates", self._circle),
            "LineString": ("coordinates", self._corridor),
            "MultiLineString": ("coordinates", self._upstream),
            "Polygon": ("coordinates", self._polygon),
            "MultiPolygon": ("coordinates", self._polygons),
            "GeometryCollection": ("geometries", self._collection),
            "Box": ("bbox", self._box),
        }
        if not isinstance(kind, str) or kind not in readers:
            raise _unreadable(f"the type is {_shown(kind)}, not one of {', '.join(map(str, readers))}")
        name, read = readers[kind]
        _member(members, name, f"the {kind}")
        _check_known(members, {"type", "bbox", name, *_OWN.get(kind, ())}, f"the {kind}")
        return read(members, depth)

    def _circle(self, members: Members, _depth: int) -> Circle:
        radius_m = _number(_member(members, "radius_m", "the Point, which is an area only as a circle,"), "radius_m")
        self.tally.add(points=1)
        return Circle(_place(members["coordinates"]), radius_m)

    def _corridor(self, members: Members, _depth: int) -> Corridor:
        half_width_m = _member(members, "half_width_m", "the LineString, which is an area only as a corridor,")
        path = _list(members["coordinates"], "the coordinates of a LineString", "points", CORRIDOR_POINTS_MAX)
        self.tally.add(points=len(path))
        return Corridor(tuple(_place(point) for point in path), _number(half_width_m, "half_width_m"))

    def _upstream(self, members: Members, _depth: int) -> Upstream:
        lines = _list(members["coordinates"], "the coordinates of a MultiLineString", "lines", UPSTREAM_STRETCHES_MAX)
        owner = "the MultiLineString, which is an area only as an upstream,"
        widths, seconds, metres = (
            _list(_member(members, name, owner), name, "numbers", UPSTREAM_STRETCHES_MAX) for name in _LEFT
        )
        if not len(lines) == len(widths) == len(seconds) == len(metres):
            raise Malformed(Reason.FIELD_RANGE, f"there are {len(lines)} lines, but not as many of each of {', '.join(_LEFT)}")
        paths = [_list(line, "each line", "points", UPSTREAM_POINTS_MAX) for line in lines]
        self.tally.add(points=sum(map(len, paths)))
        columns = _maybe_columns(paths, widths, seconds, metres)
        if columns is None:  # reading one stretch after the other names the fault
            return Upstream.of(tuple(map(_stretch, paths, widths, seconds, metres)))
        columns.check()
        return Upstream(columns)

    def _box(self, members: Members, _depth: int) -> Box:
        edges = _list(members["bbox"], "bbox", "numbers", 6)
        if len(edges) != 4:
            raise _unreadable(f"bbox has {len(edges)} numbers, not the four of [west, south, east, north]")
        west, south, east, north = (_number(edge, "a number of bbox") for edge in edges)
        self.tally.add(points=2)
        return Box(south, west, north, east)

    def _polygon(self, members: Members, _depth: int) -> Polygon:
        return self._polygon_of(members["coordinates"])

    def _polygons(self, members: Members, depth: int) -> Union:
        self.tally.check_depth(depth + 1)
        polygons = _list(members["coordinates"], "the coordinates of a MultiPolygon", "polygons", UNION_PARTS_MAX)
        return Union(tuple(self._polygon_of(polygon) for polygon in polygons))

    def _collection(self, members: Members, depth: int) -> Union:
        self.tally.check_depth(depth + 1)
        parts = _list(members["geometries"], "geometries", "parts", UNION_PARTS_MAX)
        return Union(tuple(self.area(_members(part, "each of the geometries"), depth + 1) for part in parts))

    def _polygon_of(self, coordinates: object) -> Polygon:
        rings = _list(coordinates, "the coordinates of a polygon", "rings", POLYGON_POINTS_MAX)
        if not rings:
            raise Malformed(Reason.AREA_EMPTY, "the polygon has no rings")
        counts = [len(_list(ring, "each ring", "points", POLYGON_POINTS_MAX)) for ring in rings]
        if sum(counts) > POLYGON_POINTS_MAX:
            raise Malformed(Reason.AREA_TOO_COMPLEX, f"the polygon has {sum(counts)} points, more than {POLYGON_POINTS_MAX}")
        self.tally.add(points=sum(counts))
        outer, *holes = (_ring(ring) for ring in rings)
        return Polygon(outer, tuple(holes))


def _maybe_columns(
    paths: Sequence[Sequence[object]], widths: Sequence[object], seconds: Sequence[object], metres: Sequence[object]
) -> StretchColumns | None:
    """Return the stretches as columns; None if a part is not a list of numbers of the right length."""
    pairs = [[point for path in paths for point in path], seconds, metres]
    if not all(isinstance(pair, list) and len(pair) == 2 for some in pairs for pair in some):
        return None
    numbers = [widths, *([pair[side] for pair in some] for some in pairs for side in (0, 1))]  # type: ignore[index]
    if not set(map(type, chain.from_iterable(numbers))) <= {float}:
        return None
    half_widths_m, longitudes, latitudes, start_s, end_s, start_m, end_m = (np.array(one, np.float64) for one in numbers)
    counts = np.array([len(path) for path in paths], np.intp)
    return StretchColumns(counts, latitudes, longitudes, half_widths_m, start_s, end_s, start_m, end_m)


def _stretch(path: Sequence[object], width: object, seconds: object, metres: object) -> Stretch:
    (start_s, end_s), (start_m, end_m) = _start_and_end(seconds, "seconds_left"), _start_and_end(metres, "metres_left")
    return Stretch(tuple(_place(point) for point in path), _number(width, "a half width"), start_s, end_s, start_m, end_m)


def _start_and_end(value: object, name: str) -> tuple[float, float]:
    two = _list(value, f"each of {name}", "two numbers", 2)
    if len(two) != 2:
        raise _unreadable(f"each of {name} is two numbers, at the start and at the end")
    return _number(two[0], name), _number(two[1], name)


def _members(value: object, name: str) -> Members:
    if not isinstance(value, dict):
        raise _unreadable(f"{name} is {_shown(value)}, not a JSON object")
    return value


def _member(members: Members, name: str, owner: str) -> object:
    if name not in members:
        raise _unreadable(f"{owner} has no {name}")
    return members[name]


def _check_known(members: Members, known: frozenset[str] | set[str], owner: str) -> None:
    for name in members:
        if not isinstance(name, str) or name not in known:
            raise _unreadable(f"{owner} has an unknown member {_shown(name)}")


def _distances(properties: Members) -> dict[str, object]:
    return {name: properties[name] for name in _DISTANCES if name in properties}


def _list(value: object, name: str, what: str, limit: int) -> list[object] | tuple[object, ...]:
    if not isinstance(value, list | tuple):
        raise _unreadable(f"{name} is {_shown(value)}, not a list of {what}")
    if len(value) > limit:
        raise Malformed(Reason.AREA_TOO_COMPLEX, f"{name} has {len(value)} {what}, more than {limit}")
    return value


def _ring(points: object) -> Ring:
    return tuple(_place(point) for point in _list(points, "each ring", "points", POLYGON_POINTS_MAX))


def _place(value: object) -> Place:
    if not isinstance(value, list | tuple):
        raise _unreadable(f"a point is {_shown(value)}, not a list [longitude, latitude]")
    if len(value) == 3:
        raise _unreadable("a point has three numbers; areas are on the ground, so leave out the altitude")
    if len(value) != 2:
        raise _unreadable(f"a point has {len(value)} members, not the two of [longitude, latitude]")
    longitude, latitude = value
    return Place(_number(latitude, "a latitude"), _number(longitude, "a longitude"))


def _number(value: object, name: str) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise _unreadable(f"{name} is {_shown(value)}, not a number")
    try:
        return float(value)
    except OverflowError:
        raise _unreadable(f"{name} is an integer of more than 300 digits") from None


def _shown(value: object) -> str:
    """Return a short text for any value."""
    match value:
        case None | True | False:
            return {None: "null", True: "true", False: "false"}[value]
        case float():
            return repr(value)
        case str():
            return repr(value) if len(value) <= _SHOWN_CHARACTERS_MAX else f"{value[:_SHOWN_CHARACTERS_MAX]!r}..."
        case int():
            return repr(value) if abs(value) < 10**_SHOWN_CHARACTERS_MAX else "an integer of many digits"
        case dict():
            return "an object"
        case list() | tuple():
            return "a list"
        case _:
            return f"a {type(value).__name__}"


def _unreadable(detail: str) -> Malformed:
    return Malformed(Reason.AREA_UNREADABLE, detail)


def _upstream(area: Upstream) -> dict[str, object]:
    columns = area.columns
    points = np.column_stack([columns.longitudes, columns.latitudes]).tolist()
    ends = np.cumsum(columns.counts).tolist()
    return {
        "type": "MultiLineString",
        "coordinates": [points[first:end] for first, end in pairwise([0, *ends])],
        "half_widths_m": columns.half_widths_m.tolist(),
        "seconds_left": np.column_stack([columns.start_s, columns.end_s]).tolist(),
        "metres_left": np.column_stack([columns.start_m, columns.end_m]).tolist(),
    }


def _pair(place: Place) -> list[float]:
    return [float(place.longitude), float(place.latitude)]


def _pairs(places: tuple[Place, ...]) -> list[list[float]]:
    return [_pair(place) for place in places]


def _rings(polygon: Polygon) -> list[list[list[float]]]:
    return [_pairs(ring) for ring in (polygon.outer, *polygon.holes)]
