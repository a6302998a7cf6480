"""Upstream of a spot: one-way streets, roundabouts, dead ends, carriageways side by side, and the last exit (M26)."""

import numpy as np
import pytest

from milepost.model.areas import Going, Upstream
from milepost.model.places import vectors
from milepost.roads import Network, Reach, Spot, maybe_upstream
from unit.roads.drawn import drawn, place

EAST, WEST = 90.0, 270.0


def upstream(network: Network, road: str, offset_m: float, reach: Reach) -> Upstream:
    area = maybe_upstream(network, [Spot(network.ids.index(road), offset_m)], reach)
    assert area is not None
    return area


def seconds(area: Upstream, east_m: float, north_m: float, heading: float) -> float:
    """What is left at a place for who goes that way; NaN for who is not inside."""
    here = place(east_m, north_m)
    found = area.seconds_to_reach(vectors([here.latitude], [here.longitude]), Going(np.array([heading]), np.array([10.0])))
    return float(found[0])


def holds(area: Upstream, east_m: float, north_m: float, heading: float) -> bool:
    return not np.isnan(seconds(area, east_m, north_m, heading))


def test_m26_a_one_way_street_belongs_to_it_as_far_back_as_the_seconds_reach() -> None:
    network = drawn({"a": (0, 0), "b": (500, 0), "c": (1000, 0), "d": (500, 500)}, "a>b", "b>c", "b>d")
    area = upstream(network, "bc", 300.0, Reach(seconds=60))
    assert seconds(area, 700, 0, EAST) == pytest.approx(10.0, abs=0.1)
    assert seconds(area, 300, 0, EAST) == pytest.approx(50.0, abs=0.1)
    assert [holds(area, east, 0, EAST) for east in (830, 250, 150)] == [False, True, False]
    assert not holds(area, 700, 0, WEST)
    assert not holds(area, 500, 300, 0.0)


def test_m26_metres_limit_it_as_seconds_do() -> None:
    network = drawn({"a": (0, 0), "b": (500, 0), "c": (1000, 0), "d": (500, 500)}, "a>b", "b>c", "b>d", speed_mps=25.0)
    area = upstream(network, "bc", 300.0, Reach(metres=400, lead_s=0.0))
    assert [holds(area, east, 0, EAST) for east in (450, 420, 360)] == [True, True, False]
    assert area.stretches[-1].start_m == pytest.approx(400.0, abs=0.2)


def test_m26_of_carriageways_side_by_side_only_the_one_that_leads_there_belongs_to_it() -> None:
    network = drawn({"a": (0, 0), "b": (1000, 0), "c": (0, 12), "d": (1000, 12)}, "a>b", "d>c")
    area = upstream(network, "ab", 900.0, Reach(seconds=60))
    assert [holds(area, 600, 6, heading) for heading in (EAST, WEST)] == [True, False]


def test_m26_a_dead_end_is_left_by_turning_back() -> None:
    network = drawn({"a": (0, 0), "b": (300, 0), "c": (600, 0)}, "a-b", "b-c")
    area = upstream(network, "ba", 200.0, Reach(seconds=120))
    assert seconds(area, 450, 0, WEST) == pytest.approx(35.0, abs=0.1)
    assert seconds(area, 550, 0, EAST) == pytest.approx(5.0 + 30.0 + 20.0, abs=0.1)


def test_m26_a_roundabout_is_driven_around_one_way() -> None:
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
    network = drawn(ring, "a>d", "d>c", "c>b", "b>a", "n-a", "e-b", "s-c", "w-d")
    area = upstream(network, "be", 200.0, Reach(seconds=50, share_min=0.0))
    quarter_s = 800**0.5 / 10
    assert seconds(area, 0, -200, 0.0) == pytest.approx(18 + quarter_s + 20, abs=0.1)
    assert seconds(area, -200, 0, EAST) == pytest.approx(18 + 2 * quarter_s + 20, abs=0.1)
    assert seconds(area, 0, 200, 180.0) == pytest.approx(18 + 3 * quarter_s + 20, abs=0.1)
    assert not holds(area, 0, -200, 180.0)


def motorway(exit_at_m: float = 4_000.0) -> Network:
    junctions = {"a": (0.0, 0.0), "x": (exit_at_m, 0.0), "b": (9_000.0, 0.0), "z": (exit_at_m + 300, -200.0)}
    return drawn(junctions, "a>x", "x>b", "x>z", speed_mps=25.0, lanes=2)


def test_m26_the_area_goes_back_past_the_last_exit_however_short_the_limit_is() -> None:
    area = upstream(motorway(), "xb", 4_000.0, Reach(seconds=30, lead_s=10.0))
    assert all(holds(area, east, 0, EAST) for east in (4_100, 6_000, 7_900))
    assert [holds(area, east, 0, EAST) for east in (3_800, 3_700)] == [True, False]
    assert not holds(area, 4_200, -133, 124.0)


def test_m26_where_two_roads_meet_and_nobody_can_leave_is_no_exit() -> None:
    junctions = {"a": (0.0, 0.0), "x": (4_000.0, 0.0), "m": (7_000.0, 0.0), "b": (9_000.0, 0.0), "z": (4_300.0, -200.0)}
    network = drawn(junctions, "a>x", "x>m", "m>b", "x>z", speed_mps=25.0)
    area = upstream(network, "mb", 1_000.0, Reach(seconds=30, lead_s=10.0))
    assert [holds(area, east, 0, EAST) for east in (6_900, 4_100, 3_800, 3_700)] == [True, True, True, False]


def test_m26_detours_that_few_would_drive_are_left_out() -> None:
    around = {
        "a": (-900.0, 0.0),
        "b": (0.0, 0.0),
        "c": (600.0, 0.0),
        "d": (0.0, 600.0),
        "f": (600.0, 600.0),
        "g": (900.0, 0.0),
        "h": (0.0, 900.0),
    }
    network = drawn(around, "a>b", "b>c", "c>g", "c>f", "f>d", "d>b", "d>h")
    reached = {}
    for share_min in (0.0, 0.05):
        area = upstream(network, "bc", 300.0, Reach(seconds=250, lead_s=1.0, share_min=share_min))
        reached[share_min] = [holds(area, -500, 0, EAST), holds(area, 0, 300, 180.0), holds(area, 600, 300, 0.0)]
    assert reached == {0.0: [True, True, True], 0.05: [True, True, False]}


def test_m26_it_gives_up_looking_for_an_exit_at_ten_times_the_limit() -> None:
    area = upstream(motorway(), "xb", 4_000.0, Reach(seconds=10))
    assert [holds(area, east, 0, EAST) for east in (5_550, 5_450)] == [True, False]


def test_m26_roads_of_whose_traffic_little_comes_by_are_left_out() -> None:
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
    network = drawn(junctions, "a>b", "b>c", "c>d", "s>b", "b>t", "c>u", "v>c")
    reached = {}
    for share_min in (0.0, 0.08, 0.7):
        area = upstream(network, "cd", 100.0, Reach(seconds=60, lead_s=1.0, share_min=share_min))
        reached[share_min] = [
            holds(area, -100, 0, EAST),
            holds(area, 0, -100, 0.0),
            holds(area, 200, 0, EAST),
            holds(area, 300, -100, 0.0),
        ]
    assert reached == {0.0: [True] * 4, 0.08: [True, False, True, True], 0.7: [False, False, True, False]}


def test_m26_a_place_on_both_sides_of_a_street_is_two_spots() -> None:
    network = drawn({"a": (0, 0), "b": (1000, 0)}, "a-b")
    spots = [Spot(network.ids.index("ab"), 500.0), Spot(network.ids.index("ba"), 500.0)]
    area = maybe_upstream(network, spots, Reach(seconds=30))
    assert area is not None
    assert holds(area, 400, 0, EAST)
    assert holds(area, 600, 0, WEST)
    assert not holds(area, 600, 0, EAST)


def test_nothing_is_upstream_of_the_start_of_a_road_that_nobody_comes_into() -> None:
    network = drawn({"a": (0, 0), "b": (1000, 0)}, "a>b")
    assert maybe_upstream(network, [Spot(0, 0.0)], Reach(seconds=30)) is None
    assert maybe_upstream(network, [], Reach(seconds=30)) is None


def test_a_wider_road_is_a_wider_stretch() -> None:
    narrow, wide = (drawn({"a": (0, 0), "b": (1000, 0)}, "a>b", lanes=lanes) for lanes in (1, 4))
    widths = [
        upstream(network, "ab", 500.0, Reach(seconds=9, noise_m=10.0)).stretches[0].half_width_m for network in (narrow, wide)
    ]
    assert widths == [11.6, 16.4]


@pytest.mark.parametrize(
    "said", [{}, {"seconds": 5.0, "metres": 5.0}, {"seconds": 0.0}, {"metres": float("inf")}, {"seconds": 5.0, "lead_s": -1.0}]
)
def test_a_reach_that_is_none_is_refused(said: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"reach|say how many"):
        Reach(**said)
