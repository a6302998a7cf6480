"""Road networks of SUMO (.net.xml, also .gz): edges open to cars, and the connections between them.

Rules:
- a road has the shape of the middle one of its lanes open to cars: cars drive there, and opposite directions differ there;
- metres are converted to degrees by the file's projection; without one, by `origin`, the place of its 0,0;
- every fault of the file is an `UnreadableRoads`.
"""

import gzip
import zlib
from collections.abc import Iterator
from typing import IO, Final, NamedTuple
from xml.etree.ElementTree import Element, ParseError, iterparse

import numpy as np
from pyproj import Proj
from pyproj.exceptions import ProjError

from milepost.model.places import EARTH_RADIUS_M, Place
from milepost.roads.network import LANES_MAX, Floats, Road, RoadNetwork, UnreadableRoads, build_network

_GZIP: Final = b"\x1f\x8b"
_CARS: Final = "passenger"
_NO_PROJECTION: Final = ("", "!", "-")


def read_sumo(file: IO[bytes], *, origin: Place | None = None) -> RoadNetwork:
    """Return the network of an open file; `origin` is the place of its 0,0, required if the file has no projection."""
    reader = _SumoReader()
    try:
        for element in _elements(file):
            reader.take(element)
        return reader.network(origin)
    except UnreadableRoads:
        raise
    except ParseError as fault:
        raise UnreadableRoads(f"this is not an XML file of SUMO: {fault}") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as fault:
        raise UnreadableRoads(f"the file cannot be decompressed: {fault}; download it again") from None
    except (KeyError, ValueError) as fault:
        raise UnreadableRoads(
            f"an edge, a connection or the location cannot be read: {fault}; regenerate the network with netconvert"
        ) from None


def _elements(file: IO[bytes]) -> Iterator[Element]:
    """Yield the children of the root, each as soon as it is complete."""
    start = file.read(2)
    file.seek(-len(start), 1)
    source = gzip.GzipFile(fileobj=file) if start == _GZIP else file
    depth, root = 0, None
    for event, element in iterparse(source, ("start", "end")):
        depth += 1 if event == "start" else -1
        if root is None:
            root = element
            if root.tag != "net":
                raise UnreadableRoads(f"the root element is {root.tag!r}, not 'net': give the .net.xml of a SUMO scenario")
        elif event == "end" and depth == 1:
            yield element
            root.clear()


class _Edge(NamedTuple):
    id: str
    points: Floats
    speed_mps: float
    lanes: int
    length_m: float
    start: str
    end: str


class _SumoReader:
    """Collector of the file's edges, connections and location."""

    def __init__(self) -> None:
        self._location: dict[str, str] = {}
        self._edges: list[_Edge] = []
        self._number: dict[str, int] = {}
        self._lanes: dict[str, frozenset[str]] = {}
        self._turns: list[tuple[str, str, str]] = []

    def take(self, element: Element) -> None:
        """Process one child of the root."""
        if element.tag == "location":
            self._location = dict(element.attrib)
        elif element.tag == "edge" and not element.get("function"):
            self._take_edge(element)
        elif element.tag == "connection":
            self._turns.append((element.attrib["from"], element.attrib["to"], element.attrib["fromLane"]))

    def _take_edge(self, element: Element) -> None:
        lanes = [lane for lane in element.findall("lane") if _is_for_cars(lane)]
        if not lanes:
            return
        lane, name = lanes[len(lanes) // 2], element.attrib["id"]
        points = np.array([point.split(",")[:2] for point in lane.attrib["shape"].split()], np.float64)
        self._number[name] = len(self._edges)
        self._lanes[name] = frozenset(lane.attrib["index"] for lane in lanes)
        speed_mps, length_m = float(lane.attrib["speed"]), float(lane.attrib["length"])
        start, end = element.attrib["from"], element.attrib["to"]
        self._edges.append(_Edge(name, points, speed_mps, min(len(lanes), LANES_MAX), length_m, start, end))

    def network(self, origin: Place | None) -> RoadNetwork:
        """Return the network of the collected elements."""
        if not self._edges:
            raise UnreadableRoads("no edge of the file is open to cars")
        points = self._degrees(np.concatenate([edge.points for edge in self._edges]), origin)
        ends = np.cumsum([len(edge.points) for edge in self._edges]).tolist()
        roads = [
            Road(edge.id, points[end - len(edge.points) : end], edge.speed_mps, edge.lanes, edge.start, edge.end, edge.length_m)
            for edge, end in zip(self._edges, ends, strict=True)
        ]
        number, lanes = self._number, self._lanes
        turns = (
            (number[one], number[other]) for one, other, lane in self._turns if lane in lanes.get(one, ()) and other in number
        )
        return build_network(roads, turns)

    def _degrees(self, metres: Floats, origin: Place | None) -> list[tuple[float, float]]:
        x, y = metres.T
        projection = self._location.get("projParameter", "")
        if projection in _NO_PROJECTION:
            if origin is None:
                raise UnreadableRoads("the file has no projection: give the place of its 0,0 as origin")
            latitudes = origin.latitude + np.degrees(y / EARTH_RADIUS_M)
            longitudes = origin.longitude + np.degrees(x / EARTH_RADIUS_M) / np.cos(np.radians(origin.latitude))
        else:
            over, up = (float(number) for number in self._location["netOffset"].split(","))
            try:
                longitudes, latitudes = Proj(projection)(x - over, y - up, inverse=True)
            except ProjError as fault:
                raise UnreadableRoads(f"the projection {projection[:100]!r} is unknown: {fault}") from None
        return list(zip(latitudes.tolist(), longitudes.tolist(), strict=True))


def _is_for_cars(lane: Element) -> bool:
    """Whether a lane is open to cars, by its allowed and disallowed vehicle classes."""
    allowed, barred = lane.get("allow"), lane.get("disallow", "")
    if allowed is not None:
        return _CARS in allowed.split() or allowed == "all"
    return _CARS not in barred.split() and barred != "all"
