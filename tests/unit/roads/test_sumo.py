"""Networks of SUMO: lanes for cars, connections, projections, and invalid files (M26)."""

import gzip
from io import BytesIO

import pytest

from milepost.model.places import Place, distance_m
from milepost.roads import RoadNetwork, UnreadableRoads
from milepost.roads.sumo import read_sumo

UTM = '<location netOffset="-500000.00,-4982950.40" projParameter="+proj=utm +zone=33 +ellps=WGS84 +units=m +no_defs"/>'
"""On the zone's own meridian, 15° east, where the arc from the equator to 45° north is 4,984,944.378 m long, times 0.9996."""
FLAT = '<location netOffset="0.00,0.00" projParameter="!"/>'
LANE = '<lane id="{0}_{1}" index="{1}" speed="13.89" length="{2}" shape="{3}" {4}/>'
HERE = Place(52.4, 13.5)


def lane(edge: str, index: int, shape: str, more: str = "", length: float = 100.0) -> str:
    return LANE.format(edge, index, length, shape, more)


def edge(name: str, start: str, end: str, *lanes: str) -> str:
    return f'<edge id="{name}" from="{start}" to="{end}" priority="1">{"".join(lanes)}</edge>'


TOWN = (
    edge(
        "ab",
        "a",
        "b",
        lane("ab", 0, "0,-5 100,-5", 'allow="pedestrian"'),
        lane("ab", 1, "0,-2 100,-2"),
        lane("ab", 2, "0,1 100,1"),
    ),
    edge("ba", "b", "a", lane("ba", 0, "100,5 0,5", 'disallow="tram rail"')),
    edge("bc", "b", "c", lane("bc", 0, "120,0 220,0", 'allow="passenger bus"')),
    edge("foot", "b", "c", lane("foot", 0, "120,9 220,9", 'allow="pedestrian bicycle"')),
    edge("rail", "b", "c", lane("rail", 0, "120,8 220,8", 'disallow="all"')),
    f'<edge id=":b_0" function="internal">{lane(":b_0", 0, "100,-2 120,0")}</edge>',
    '<junction id="b" type="priority" x="110" y="0" incLanes="" intLanes="" shape=""/>',
    '<connection from="ab" to="bc" fromLane="1" toLane="0" via=":b_0_0" dir="s" state="M"/>',
    '<connection from="ab" to="ba" fromLane="2" toLane="0" dir="t" state="m"/>',
    '<connection from="ab" to="foot" fromLane="0" toLane="0" dir="s" state="M"/>',
    '<connection from=":b_0" to="bc" fromLane="0" toLane="0" dir="s" state="M"/>',
)


def net(*parts: str) -> bytes:
    return f'<?xml version="1.0" encoding="UTF-8"?>\n<net version="1.20">{"".join(parts)}</net>'.encode()


def read(data: bytes, origin: Place | None = None) -> RoadNetwork:
    return read_sumo(BytesIO(data), origin=origin)


def test_m26_sumo_edges_for_cars_become_roads_along_their_middle_lane() -> None:
    network = read(net(FLAT, *TOWN), HERE)
    assert network.ids == ("ab", "ba", "bc")
    assert network.lanes.tolist() == [2, 1, 1]
    assert network.speeds_mps == pytest.approx([13.89] * 3)
    assert distance_m(network.at(0, 0.0), HERE) == pytest.approx(1.0, abs=0.02)
    assert distance_m(network.at(0, 0.0), network.at(0, 100.0)) == pytest.approx(100.0, abs=0.05)


def test_m26_connections_become_successors_without_u_turns_and_lanes_closed_to_cars() -> None:
    network = read(net(FLAT, *TOWN), HERE)
    assert network.successors(0) == [2]
    assert [(road, round(across_m)) for road, across_m, _ in network.predecessors(2)] == [(0, 20)]


def test_m26_metres_are_converted_by_the_projection_of_the_file_compressed_or_not() -> None:
    for data in (net(UTM, *TOWN), gzip.compress(net(UTM, *TOWN))):
        network = read(data)
        assert distance_m(network.at(0, 0.0), Place(45.0, 15.0)) == pytest.approx(1.0, abs=0.05)
        assert distance_m(network.at(0, 0.0), network.at(2, 100.0)) == pytest.approx(220.0, abs=1.5)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "not an XML file"),
        (b"net", "not an XML file"),
        (net(UTM, *TOWN)[:-20], "not an XML file"),
        (gzip.compress(net(UTM, *TOWN))[:-20], "cannot be decompressed"),
        (b"\x1f\x8b" + b"x" * 50, "cannot be decompressed"),
        (b"<routes/>", "root element is 'routes', not 'net'"),
        (net(UTM), "no edge of the file is open to cars"),
        (net(FLAT, *TOWN), "has no projection"),
        (net(*TOWN), "has no projection"),
        (net('<location netOffset="0,0" projParameter="+proj=nothing"/>', *TOWN), "projection '.proj=nothing' is unknown"),
        (net('<location netOffset="0" projParameter="+proj=utm +zone=33"/>', *TOWN), "cannot be read"),
        (net('<location projParameter="+proj=utm +zone=33"/>', *TOWN), "cannot be read: 'netOffset'"),
        (net(UTM, edge("ab", "a", "b", '<lane index="0" speed="1" length="1"/>')), "cannot be read: 'shape'"),
        (net(UTM, edge("ab", "a", "b", lane("ab", 0, "0,0 x,1"))), "cannot be read"),
        (net(UTM, edge("ab", "a", "b", lane("ab", 0, "0,0"))), "'ab' has 1 points"),
        (net(UTM, *TOWN, "<connection from='ab'/>"), "cannot be read: 'to'"),
    ],
)
def test_an_invalid_sumo_file_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableRoads, match=why):
        read(data)
