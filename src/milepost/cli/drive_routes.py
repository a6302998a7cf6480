"""Routes of simulated vehicles: a line from GeoJSON, and the position on it after a distance."""

from bisect import bisect_right
from itertools import accumulate, pairwise
from typing import Final, NamedTuple

import orjson

from milepost.model.places import Place, bearing_deg, distance_m, moved
from milepost.model.reasons import Malformed, Reason

POINTS_MAX: Final = 100_000
_PARTS_MAX: Final = 10_000


class RoutePoint(NamedTuple):
    """A position and a heading."""

    place: Place
    heading_deg: float


class DriveRoute:
    """A line through places, driven from one end to the other, and back unless it is closed."""

    def __init__(self, places: list[Place]) -> None:
        self._places = [places[0], *(later for sooner, later in pairwise(places) if sooner != later)]
        if not 2 <= len(self._places) <= POINTS_MAX:
            raise Malformed(Reason.AREA_EMPTY, f"a line of {len(self._places)} different points, 2 to {POINTS_MAX} are needed")
        self._distances_m = [0.0, *accumulate(distance_m(*pair) for pair in pairwise(self._places))]
        self._is_closed = self._places[0] == self._places[-1]

    @property
    def length_m(self) -> float:
        """Length from one end to the other."""
        return self._distances_m[-1]

    def at(self, driven_m: float) -> RoutePoint:
        """Return position and heading after a distance, which may be several laps."""
        lap, along_m = divmod(driven_m, self.length_m)
        is_back = not self._is_closed and lap % 2 == 1
        along_m = self.length_m - along_m if is_back else along_m
        index = min(max(0, bisect_right(self._distances_m, along_m) - 1), len(self._places) - 2)
        begin, end = self._places[index], self._places[index + 1]
        place = moved(begin, bearing_deg(begin, end), along_m - self._distances_m[index])
        if is_back:
            return RoutePoint(place, bearing_deg(place, begin) if place != begin else bearing_deg(end, begin))
        return RoutePoint(place, bearing_deg(place, end) if place != end else bearing_deg(begin, end))


def route_from_geojson(text: bytes) -> DriveRoute:
    """Return the first LineString of a GeoJSON document: alone, in a Feature, or in a collection."""
    try:
        document = orjson.loads(text)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.AREA_UNREADABLE, f"no JSON: {fault.msg} at {fault.pos}", at=fault.pos) from None
    parts = [document]
    for _ in range(_PARTS_MAX):
        if not parts:
            break
        part = parts.pop(0)
        if isinstance(part, dict) and part.get("type") == "LineString":
            return DriveRoute(_places(part.get("coordinates")))
        if isinstance(part, dict):
            members = [part.get("features"), part.get("geometries"), [part.get("geometry")]]
            parts = [one for member in members if isinstance(member, list) for one in member] + parts
    raise Malformed(Reason.AREA_UNREADABLE, "there is no LineString in it")


def _places(coordinates: object) -> list[Place]:
    points = coordinates if isinstance(coordinates, list) else []
    is_right = points and all(isinstance(point, list) and len(point) >= 2 for point in points)
    if not is_right:
        raise Malformed(Reason.AREA_UNREADABLE, "the coordinates of a LineString are a list of [longitude, latitude]")
    return [Place(point[1], point[0]) for point in points]
