"""Map matching: by distance, heading and previous road; no road far from all (M26)."""

import numpy as np
import pytest

from milepost.model.areas import Motion
from milepost.roads import OFF_ROAD, MapMatcher, Road, build_network
from unit.roads.small_networks import degrees, small_network

CARRIAGEWAYS = small_network({"a": (0, 0), "b": (1000, 0), "c": (0, 12), "d": (1000, 12)}, "a>b", "d>c")
EAST, WEST = 90.0, 270.0


def motion(heading: float, speed: float, count: int = 1) -> Motion:
    return Motion(np.full(count, heading), np.full(count, speed))


def matched_road(east_m: float, north_m: float, how: Motion | None = None, previous_road: str | None = None) -> str | None:
    previous_roads = None if previous_road is None else np.array([CARRIAGEWAYS.ids.index(previous_road)], np.int32)
    latitude, longitude = degrees(east_m, north_m)
    road = int(MapMatcher(CARRIAGEWAYS).match([latitude], [longitude], how, previous_roads).roads[0])
    return None if road == OFF_ROAD else CARRIAGEWAYS.ids[road]


def test_m26_heading_decides_between_opposite_carriageways_despite_position_error() -> None:
    for north in (-8.0, 0.0, 6.0, 12.0, 20.0):
        assert matched_road(500, north, motion(EAST + 10, 15)) == "ab"
        assert matched_road(500, north, motion(WEST - 10, 15)) == "dc"


def test_m26_a_stationary_vehicle_is_matched_to_the_nearest_road_whatever_its_heading() -> None:
    assert matched_road(500, 2, motion(WEST, 0.5)) == "ab"
    assert matched_road(500, 2, motion(np.nan, 15)) == "ab"
    assert matched_road(500, 2) == "ab"


def test_m26_the_previous_road_decides_where_the_position_is_ambiguous() -> None:
    assert matched_road(500, 7, previous_road="ab") == "ab"
    assert matched_road(500, 5, previous_road="dc") == "dc"
    assert matched_road(500, -20, previous_road="dc") == "ab"


def test_m26_a_successor_of_the_previous_road_is_preferred() -> None:
    network = small_network({"a": (0, 0), "b": (500, 0), "c": (1000, 30), "d": (500, 20), "e": (1000, 50)}, "a>b", "b>c", "d>e")
    latitude, longitude = degrees(900, 36)
    roads = [
        int(MapMatcher(network).match([latitude], [longitude], motion(EAST, 10), np.array([previous_road], np.int32)).roads[0])
        for previous_road in (network.ids.index("ab"), network.ids.index("de"), OFF_ROAD)
    ]
    assert [network.ids[road] for road in roads] == ["bc", "de", "de"]


def test_m26_a_report_far_from_all_roads_is_on_none() -> None:
    latitudes, longitudes = zip(degrees(500, -49), degrees(500, -51), degrees(5_000, 5_000), degrees(-49, 0), strict=True)
    matched = MapMatcher(CARRIAGEWAYS).match(latitudes, longitudes)
    assert (matched.roads >= 0).tolist() == [True, False, False, True]
    assert matched.distances_m[[0, 3]] == pytest.approx([49.0, 49.0], abs=0.1)
    assert matched.offsets_m[[0, 3]] == pytest.approx([500.0, 0.0], abs=0.1)
    assert np.isnan(matched.offsets_m[1:3]).all()


def test_m26_a_network_may_lie_across_the_antimeridian() -> None:
    road = Road("r", [(-17.0, 179.999), (-17.0, -179.999)], 10.0, 1, "a", "b")
    matched = MapMatcher(build_network([road], [])).match([-17.0, -17.0, -17.0], [179.9995, -179.9995, 0.0], motion(EAST, 10, 3))
    assert matched.roads.tolist() == [0, 0, OFF_ROAD]
    assert matched.offsets_m[:2] == pytest.approx([53.2, 159.5], abs=0.5)


def test_reports_are_matched_alike_in_one_batch_and_one_by_one() -> None:
    random = np.random.default_rng(1)
    latitudes, longitudes = np.array([degrees(*point) for point in random.uniform(-80, 1080, (40_000, 2))]).T
    how = Motion(random.uniform(0, 360, 40_000), random.uniform(0, 20, 40_000))
    map_matcher = MapMatcher(CARRIAGEWAYS)
    whole = map_matcher.match(latitudes, longitudes, how)
    for row in range(0, 40_000, 4_001):
        one = map_matcher.match(latitudes[[row]], longitudes[[row]], how.only(np.array([row])))
        assert one.roads[0] == whole.roads[row]
        assert one.offsets_m[0] == pytest.approx(whole.offsets_m[row], nan_ok=True)


def test_an_invalid_search_distance_is_refused() -> None:
    with pytest.raises(ValueError, match="within_m"):
        MapMatcher(CARRIAGEWAYS, within_m=0.0)
