"""Areas and places as parts of a datagram, and the check for required fields.

Invariants:
- points are counted before any is constructed;
- an upstream is encoded as columns of small integers, because alerts are sent over radio: degrees to 10^-7 (a centimetre),
  metres and seconds to a tenth. Decoding and encoding again gives the same bytes.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, assert_never

import numpy as np
from google.protobuf.message import Message as Part
from numpy.typing import NDArray

from milepost.model.areas import Area, Box, Circle, Corridor, Polygon, StretchColumns, Union, Upstream
from milepost.model.areas.union import ShapeCounter
from milepost.model.areas.upstream import check_upstream_size
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire._generated import datagram_pb2 as pb


def require(part: Part, *names: str) -> None:
    """Raise `Malformed` if one of these fields is absent; in protobuf all are optional."""
    for name in names:
        if not part.HasField(name):
            raise missing(part, name)


def missing(part: Part, name: str) -> Malformed:
    """Return the error for an absent field or oneof."""
    return Malformed(Reason.FIELD_MISSING, f"{part.DESCRIPTOR.name}.{name} is missing")


_A_DEGREE: Final = 10_000_000
_A_TENTH: Final = 10
_STEP_MAX: Final = 360 * _A_DEGREE


def write_place(place: Place, part: pb.Place) -> None:
    """Write a place into *part*."""
    part.latitude = place.latitude
    part.longitude = place.longitude


def read_place(part: pb.Place) -> Place:
    """Return the place of a part."""
    require(part, "latitude", "longitude")
    return Place(part.latitude, part.longitude)


def write_area(area: Area, part: pb.Area) -> None:
    """Write an area of any shape into *part*."""
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
    """Return the area of a part; one over the limits is refused before it is constructed."""
    return _AreaReader(ShapeCounter()).area(part, depth=0)


@dataclass(frozen=True, slots=True)
class _AreaReader:
    """Reader of one area, which counts its shapes and points."""

    tally: ShapeCounter

    def area(self, part: pb.Area, depth: int) -> Area:
        """Return the area of a part that is inside *depth* unions."""
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


def write_upstream(area: Upstream, part: pb.Upstream) -> None:
    """Write the stretches into *part*."""
    columns = area.columns
    part.points.extend(columns.counts.tolist())
    part.latitudes.extend(_steps(columns.latitudes))
    part.longitudes.extend(_steps(columns.longitudes))
    part.half_widths.extend(np.maximum(1, _tenths(columns.half_widths_m)).tolist())
    part.start_seconds.extend(_tenths(columns.start_s).tolist())
    part.end_seconds.extend(_tenths(columns.end_s).tolist())
    part.start_metres.extend(_tenths(columns.start_m).tolist())
    part.end_metres.extend(_tenths(columns.end_m).tolist())


def read_upstream(part: pb.Upstream) -> Upstream:
    """Return the upstream of a part."""
    points = list(part.points)
    columns = (part.half_widths, part.start_seconds, part.end_seconds, part.start_metres, part.end_metres)
    if any(len(column) != len(points) for column in columns):
        raise Malformed(Reason.FIELD_RANGE, f"Upstream has {len(points)} stretches, but not as many of every column")
    if not len(part.latitudes) == len(part.longitudes) == sum(points):
        raise Malformed(Reason.FIELD_RANGE, f"Upstream has {len(part.latitudes)} latitudes for {sum(points)} points")
    check_upstream_size(len(points), sum(points))
    columns_read = StretchColumns(
        np.array(points, np.intp),
        _degrees(part.latitudes, "latitudes"),
        _degrees(part.longitudes, "longitudes"),
        *(np.array(column, np.float64) / _A_TENTH for column in columns),
    )
    columns_read.check()
    return Upstream(columns_read)


def _tenths(numbers: NDArray[np.float64]) -> NDArray[np.int64]:
    return np.rint(numbers * _A_TENTH).astype(np.int64)


def _steps(degrees: NDArray[np.float64]) -> list[int]:
    whole: NDArray[np.int64] = np.rint(degrees * _A_DEGREE).astype(np.int64)
    steps: list[int] = np.diff(whole, prepend=0).tolist()
    return steps


def _degrees(steps: Sequence[int], name: str) -> NDArray[np.float64]:
    column = np.array(steps, np.int64)
    if column.size and not -_STEP_MAX <= column.min() <= column.max() <= _STEP_MAX:
        raise Malformed(Reason.COORDINATE_RANGE, f"a step of the {name} is longer than once around the Earth")
    degrees: NDArray[np.float64] = np.cumsum(column) / _A_DEGREE
    return degrees
