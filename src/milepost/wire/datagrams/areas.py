"""Areas and places as parts of a datagram."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_never

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, Union, Upstream
from milepost.model.areas.union import Tally
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire._generated import datagram_pb2 as pb
from milepost.wire.datagrams.presence import missing, require
from milepost.wire.datagrams.upstream import read_upstream, write_upstream


def write_place(place: Place, part: pb.Place) -> None:
    """Fill in a place."""
    part.latitude = place.latitude
    part.longitude = place.longitude


def read_place(part: pb.Place) -> Place:
    """The place that a part holds."""
    require(part, "latitude", "longitude")
    return Place(part.latitude, part.longitude)


def write_area(area: Area, part: pb.Area) -> None:
    """Fill in an area of any shape."""
    match area:
        case Circle():
            write_place(area.centre, part.circle.centre)
            part.circle.radius_m = area.radius_m
        case Box():
            box = part.box
            box.south, box.west, box.north, box.east = area.south, area.west, area.north, area.east
        case Polygon():
            _write_path(area.outer, part.polygon.outer)
            for hole in area.holes:
                _write_path(hole, part.polygon.holes.add())
        case Corridor():
            _write_path(area.path, part.corridor.path)
            part.corridor.half_width_m = area.half_width_m
        case Upstream():
            write_upstream(area, part.upstream)
        case Union():
            for inner in area.parts:
                write_area(inner, part.union.parts.add())
        case _:
            assert_never(area)


def read_area(part: pb.Area) -> Area:
    """The area that a part holds; what is too much is refused before it is built."""
    return _Reader(Tally()).area(part, depth=0)


@dataclass(frozen=True, slots=True)
class _Reader:
    """Reads one area, and keeps count of what it is made of."""

    tally: Tally

    def area(self, part: pb.Area, depth: int) -> Area:
        """The area of a part that is inside `depth` unions."""
        shape = part.WhichOneof("shape")
        if shape == "circle":
            return self._circle(part.circle)
        if shape == "box":
            return self._box(part.box)
        if shape == "polygon":
            return self._polygon(part.polygon)
        if shape == "corridor":
            return self._corridor(part.corridor)
        if shape == "upstream":
            self.tally.add(points=len(part.upstream.latitudes))
            return read_upstream(part.upstream)
        if shape == "union":
            self.tally.check_depth(depth + 1)
            return Union(tuple(self.area(inner, depth + 1) for inner in part.union.parts))
        raise missing(part, "shape")

    def _circle(self, part: pb.Circle) -> Circle:
        self.tally.add(points=1)
        require(part, "centre", "radius_m")
        return Circle(read_place(part.centre), part.radius_m)

    def _box(self, part: pb.Box) -> Box:
        self.tally.add(points=2)
        require(part, "south", "west", "north", "east")
        return Box(part.south, part.west, part.north, part.east)

    def _polygon(self, part: pb.Polygon) -> Polygon:
        require(part, "outer")
        self.tally.add(points=sum(len(path.latitudes) for path in (part.outer, *part.holes)))
        return Polygon(_read_path(part.outer), tuple(_read_path(hole) for hole in part.holes))

    def _corridor(self, part: pb.Corridor) -> Corridor:
        require(part, "path", "half_width_m")
        self.tally.add(points=len(part.path.latitudes))
        return Corridor(_read_path(part.path), part.half_width_m)


def _write_path(places: Sequence[Place], part: pb.Path) -> None:
    part.latitudes.extend([place.latitude for place in places])
    part.longitudes.extend([place.longitude for place in places])


def _read_path(part: pb.Path) -> tuple[Place, ...]:
    latitudes, longitudes = part.latitudes, part.longitudes
    if len(latitudes) != len(longitudes):
        raise Malformed(Reason.FIELD_RANGE, f"Path has {len(latitudes)} latitudes and {len(longitudes)} longitudes")
    return tuple(map(Place, latitudes, longitudes))
