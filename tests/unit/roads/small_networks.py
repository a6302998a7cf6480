"""Small hand-made road networks: places in metres east and north of one point."""

from collections.abc import Mapping

from milepost.model.places import Place
from milepost.roads import Road, RoadNetwork, build_network

ORIGIN = Place(50.0, 7.0)
A_DEGREE_M = 111_195.08


def place(east_m: float, north_m: float) -> Place:
    return Place(*degrees(east_m, north_m))


def degrees(east_m: float, north_m: float) -> tuple[float, float]:
    return ORIGIN.latitude + north_m / A_DEGREE_M, ORIGIN.longitude + east_m / A_DEGREE_M / 0.6427876


def small_network(
    junctions: Mapping[str, tuple[float, float]], *streets: str, speed_mps: float = 10.0, lanes: int = 1
) -> RoadNetwork:
    """`a>b` is one road, `a-b` two; at a junction every road that begins there is a successor."""
    roads = []
    for street in streets:
        start, mark, end = street[:1], street[1], street[2:]
        for one, other in ((start, end), (end, start))[: 2 if mark == "-" else 1]:
            points = [degrees(*junctions[one]), degrees(*junctions[other])]
            roads.append(Road(f"{one}{other}", points, speed_mps, lanes, one, other))
    turns = [
        (number, into)
        for number, road in enumerate(roads)
        for into, on in enumerate(roads)
        if road.to_junction == on.from_junction
    ]
    return build_network(roads, turns)


def names(network: RoadNetwork, roads: list[int]) -> set[str]:
    return {network.ids[road] for road in roads}
