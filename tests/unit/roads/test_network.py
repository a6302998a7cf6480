"""The road network: successors, entrances and exits, and invalid networks (M26)."""

import numpy as np
import pytest

from milepost.roads import Road, UnreadableRoads, build_network
from unit.roads.small_networks import degrees, names, place, small_network

CROSSING = {"w": (-100.0, 0.0), "x": (0.0, 0.0), "e": (100.0, 0.0), "n": (0.0, 100.0)}


def test_m26_roads_lead_into_those_that_begin_where_they_end() -> None:
    network = small_network(CROSSING, "w-x", "x-e", "x>n")
    number = network.ids.index
    assert names(network, network.successors(number("wx"))) == {"xe", "xn"}
    assert {network.ids[road] for road, _, _ in network.predecessors(number("xe"))} == {"wx"}
    assert network.successors(number("xn")) == []


def test_m26_a_u_turn_is_a_successor_only_where_there_is_no_other() -> None:
    network = small_network(CROSSING, "w-x", "x-e", "x-n")
    assert names(network, network.successors(network.ids.index("xw"))) == {"wx"}
    assert names(network, network.successors(network.ids.index("wx"))) == {"xe", "xn"}


def test_m26_egress_and_ingress_mark_exits_and_entrances() -> None:
    network = small_network(
        {"a": (0, 0), "b": (1000, 0), "c": (2000, 0), "d": (3000, 0), "f": (1500, -500), "g": (1500, 500)},
        "a>b",
        "b>c",
        "c>d",
        "b>f",
        "g>c",
    )
    leave = {name for name, has in zip(network.ids, network.has_egress, strict=True) if has}
    join = {name for name, has in zip(network.ids, network.has_ingress, strict=True) if has}
    assert (leave, join) == ({"ab"}, {"cd"})


def test_most_traffic_goes_straight_on() -> None:
    network = small_network(CROSSING, "w>x", "x>e", "x>n")
    shares = {network.ids[road]: network.predecessors(road) for road in range(3)}
    assert [share for _, _, share in shares["xe"]] == [0.75]
    assert [share for _, _, share in shares["xn"]] == [0.25]


def test_an_offset_along_a_road_is_scaled_to_its_stated_length() -> None:
    points = [degrees(0, 0), degrees(100, 0), degrees(100, 0), degrees(100, 100)]
    network = build_network([Road("a", points, 10.0, 1, "x", "y", length_m=400.0)], [])
    assert network.first.tolist() == [0, 3]
    assert network.along_m == pytest.approx([0.0, 200.0, 400.0], abs=0.01)
    for offset_m, (east, north) in ((100.0, (50, 0)), (300.0, (100, 50)), (500.0, (100, 100))):
        found, expected = network.at(0, offset_m), place(east, north)
        assert (found.latitude, found.longitude) == pytest.approx((expected.latitude, expected.longitude), abs=1e-6)


def test_the_distance_across_a_junction_is_measured() -> None:
    roads = [
        Road("a", [degrees(0, 0), degrees(100, 0)], 10.0, 1, "x", "y"),
        Road("b", [degrees(130, 40), degrees(300, 40)], 10.0, 1, "y", "z"),
    ]
    assert build_network(roads, [(0, 1)]).across_m == pytest.approx([50.0], abs=0.05)


@pytest.mark.parametrize(
    ("road", "why"),
    [
        (Road("r", [(50.0, 7.0)], 10.0, 1, "a", "b"), "'r' has 1 points"),
        (Road("r", [(50.0, 7.0), (50.0, 7.0)], 10.0, 1, "a", "b"), "'r' has no length"),
        (Road("r", [(50.0, 7.0), (50.1, 7.0)], 0.0, 1, "a", "b"), "'r' has a speed limit of 0.0"),
        (Road("r", [(50.0, 7.0), (50.1, 7.0)], float("nan"), 1, "a", "b"), "'r' has a speed limit"),
        (Road("r", [(50.0, 7.0), (50.1, 7.0)], 10.0, 0, "a", "b"), "'r' has 0 lanes"),
        (Road("r", [(50.0, 7.0), (91.0, 7.0)], 10.0, 1, "a", "b"), "'r' has an invalid point: latitude 91.0"),
        (Road("r", [(50.0, 7.0), (np.inf, 7.0)], 10.0, 1, "a", "b"), "'r' has an invalid point"),
    ],
)
def test_an_invalid_road_is_refused_by_name(road: Road, why: str) -> None:
    good = Road("g", [(50.0, 7.0), (50.1, 7.0)], 10.0, 1, "a", "b")
    with pytest.raises(UnreadableRoads, match=why):
        build_network([good, road], [])


def test_a_network_without_roads_is_refused() -> None:
    with pytest.raises(UnreadableRoads, match="no roads for cars"):
        build_network([], [])
