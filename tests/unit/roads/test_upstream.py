"""Upstream areas: one-way streets, roundabouts, dead ends, parallel carriageways, and the last exit (M26)."""

import numpy as np
import pytest

from milepost.model.areas import Motion, Upstream
from milepost.model.places import vectors
from milepost.roads import RoadNetwork, RoadPosition, UpstreamExtent, find_upstream_area
from unit.roads.small_networks import place, small_network

EAST, WEST = 90.0, 270.0


def upstream(network: RoadNetwork, road: str, offset_m: float, extent: UpstreamExtent) -> Upstream:
    area = find_upstream_area(network, [RoadPosition(network.ids.index(road), offset_m)], extent)
    assert area is not None
    return area


def seconds(area: Upstream, east_m: float, north_m: float, heading: float) -> float:
    """Return the remaining time at a place in this direction; NaN outside the area."""
    here = place(east_m, north_m)
    found = area.seconds_to_reach(vectors([here.latitude], [here.longitude]), Motion(np.array([heading]), np.array([10.0])))
    return float(found[0])


def holds(area: Upstream, east_m: float, north_m: float, heading: float) -> bool:
    return not np.isnan(seconds(area, east_m, north_m, heading))


def test_m26_a_one_way_street_is_upstream_as_far_back_as_the_time_limit() -> None:
    network = small_network({"a": (0, 0), "b": (500, 0), "c": (1000, 0), "d": (500, 500)}, "a>b", "b>c", "b>d")
    area = upstream(network, "bc", 300.0, UpstreamExtent(seconds=60))
    assert seconds(area, 700, 0, EAST) == pytest.approx(10.0, abs=0.1)
    assert seconds(area, 300, 0, EAST) == pytest.approx(50.0, abs=0.1)
    assert [holds(area, east, 0, EAST) for east in (830, 250, 150)] == [False, True, False]
    assert not holds(area, 700, 0, WEST)
    assert not holds(area, 500, 300, 0.0)


def test_m26_a_limit_in_metres_works_like_one_in_seconds() -> None:
    network = small_network({"a": (0, 0), "b": (500, 0), "c": (1000, 0), "d": (500, 500)}, "a>b", "b>c", "b>d", speed_mps=25.0)
    area = upstream(network, "bc", 300.0, UpstreamExtent(metres=400, lead_s=0.0))
    assert [holds(area, east, 0, EAST) for east in (450, 420, 360)] == [True, True, False]
    assert area.stretches[-1].start_m == pytest.approx(400.0, abs=0.2)


def test_m26_of_two_parallel_carriageways_only_the_one_that_leads_there_is_upstream() -> None:
    network = small_network({"a": (0, 0), "b": (1000, 0), "c": (0, 12), "d": (1000, 12)}, "a>b", "d>c")
    area = upstream(network, "ab", 900.0, UpstreamExtent(seconds=60))
    assert [holds(area, 600, 6, heading) for heading in (EAST, WEST)] == [True, False]


def test_m26_a_dead_end_is_left_by_a_u_turn() -> None:
    network = small_network({"a": (0, 0), "b": (300, 0), "c": (600, 0)}, "a-b", "b-c")
    area = upstream(network, "ba", 200.0, UpstreamExtent(seconds=120))
    assert seconds(area, 450, 0, WEST) == pytest.approx(35.0, abs=0.1)
    assert seconds(area, 550, 0, EAST) == pytest.approx(5.0 + 30.0 + 20.0, abs=0.1)


def test_m26_a_roundabout_is_followed_in_one_direction() -> None:
    ring = {
        "a": (0, 20),
        "b": (20, 0),
        "c": (0, -20),
        "d": (-20, 0),
        "n": (0, 300),
        "e": (300, 0),
        "s": (0, -300),
        "w": (-300, 0),
    }
    network = small_network(ring, "a>d", "d>c", "c>b", "b>a", "n-a", "e-b", "s-c", "w-d")
    area = upstream(network, "be", 200.0, UpstreamExtent(seconds=50, share_min=0.0))
    quarter_s = 800**0.5 / 10
    assert seconds(area, 0, -200, 0.0) == pytest.approx(18 + quarter_s + 20, abs=0.1)
    assert seconds(area, -200, 0, EAST) == pytest.approx(18 + 2 * quarter_s + 20, abs=0.1)
    assert seconds(area, 0, 200, 180.0) == pytest.approx(18 + 3 * quarter_s + 20, abs=0.1)
    assert not holds(area, 0, -200, 180.0)


def motorway(exit_at_m: float = 4_000.0) -> RoadNetwork:
    junctions = {"a": (0.0, 0.0), "x": (exit_at_m, 0.0), "b": (9_000.0, 0.0), "z": (exit_at_m + 300, -200.0)}
    return small_network(junctions, "a>x", "x>b", "x>z", speed_mps=25.0, lanes=2)


def test_m26_the_area_extends_past_the_last_exit_however_short_the_limit() -> None:
    area = upstream(motorway(), "xb", 4_000.0, UpstreamExtent(seconds=30, lead_s=10.0))
    assert all(holds(area, east, 0, EAST) for east in (4_100, 6_000, 7_900))
    assert [holds(area, east, 0, EAST) for east in (3_800, 3_700)] == [True, False]
    assert not holds(area, 4_200, -133, 124.0)


def test_m26_a_merge_without_an_alternative_is_no_exit() -> None:
    junctions = {"a": (0.0, 0.0), "x": (4_000.0, 0.0), "m": (7_000.0, 0.0), "b": (9_000.0, 0.0), "z": (4_300.0, -200.0)}
    network = small_network(junctions, "a>x", "x>m", "m>b", "x>z", speed_mps=25.0)
    area = upstream(network, "mb", 1_000.0, UpstreamExtent(seconds=30, lead_s=10.0))
    assert [holds(area, east, 0, EAST) for east in (6_900, 4_100, 3_800, 3_700)] == [True, True, True, False]


def test_m26_unlikely_detours_are_excluded() -> None:
    around = {
        "a": (-900.0, 0.0),
        "b": (0.0, 0.0),
        "c": (600.0, 0.0),
        "d": (0.0, 600.0),
        "f": (600.0, 600.0),
        "g": (900.0, 0.0),
        "h": (0.0, 900.0),
    }
    network = small_network(around, "a>b", "b>c", "c>g", "c>f", "f>d", "d>b", "d>h")
    reached = {}
    for share_min in (0.0, 0.05):
        area = upstream(network, "bc", 300.0, UpstreamExtent(seconds=250, lead_s=1.0, share_min=share_min))
        reached[share_min] = [holds(area, -500, 0, EAST), holds(area, 0, 300, 180.0), holds(area, 600, 300, 0.0)]
    assert reached == {0.0: [True, True, True], 0.05: [True, True, False]}


def test_m26_the_search_for_an_exit_ends_at_ten_times_the_limit() -> None:
    area = upstream(motorway(), "xb", 4_000.0, UpstreamExtent(seconds=10))
    assert [holds(area, east, 0, EAST) for east in (5_550, 5_450)] == [True, False]


def test_m26_roads_with_little_traffic_to_the_place_are_excluded() -> None:
    junctions = {
        "a": (-300, 0),
        "b": (0, 0),
        "c": (300, 0),
        "d": (600, 0),
        "s": (0, -300),
        "t": (0, 300),
        "u": (300, 300),
        "v": (300, -300),
    }
    network = small_network(junctions, "a>b", "b>c", "c>d", "s>b", "b>t", "c>u", "v>c")
    reached = {}
    for share_min in (0.0, 0.08, 0.7):
        area = upstream(network, "cd", 100.0, UpstreamExtent(seconds=60, lead_s=1.0, share_min=share_min))
        reached[share_min] = [
            holds(area, -100, 0, EAST),
            holds(area, 0, -100, 0.0),
            holds(area, 200, 0, EAST),
            holds(area, 300, -100, 0.0),
        ]
    assert reached == {0.0: [True] * 4, 0.08: [True, False, True, True], 0.7: [False, False, True, False]}


def test_m26_a_place_on_a_two_way_street_has_two_road_positions() -> None:
    network = small_network({"a": (0, 0), "b": (1000, 0)}, "a-b")
    positions = [RoadPosition(network.ids.index("ab"), 500.0), RoadPosition(network.ids.index("ba"), 500.0)]
    area = find_upstream_area(network, positions, UpstreamExtent(seconds=30))
    assert area is not None
    assert holds(area, 400, 0, EAST)
    assert holds(area, 600, 0, WEST)
    assert not holds(area, 600, 0, EAST)


def test_nothing_is_upstream_of_the_start_of_a_road_without_predecessors() -> None:
    network = small_network({"a": (0, 0), "b": (1000, 0)}, "a>b")
    assert find_upstream_area(network, [RoadPosition(0, 0.0)], UpstreamExtent(seconds=30)) is None
    assert find_upstream_area(network, [], UpstreamExtent(seconds=30)) is None


def test_a_wider_road_is_a_wider_stretch() -> None:
    narrow, wide = (small_network({"a": (0, 0), "b": (1000, 0)}, "a>b", lanes=lanes) for lanes in (1, 4))
    widths = [
        upstream(network, "ab", 500.0, UpstreamExtent(seconds=9, noise_m=10.0)).stretches[0].half_width_m
        for network in (narrow, wide)
    ]
    assert widths == [11.6, 16.4]


@pytest.mark.parametrize(
    "options", [{}, {"seconds": 5.0, "metres": 5.0}, {"seconds": 0.0}, {"metres": float("inf")}, {"seconds": 5.0, "lead_s": -1.0}]
)
def test_an_invalid_upstream_extent_is_refused(options: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"must be above 0|one of the two"):
        UpstreamExtent(**options)
