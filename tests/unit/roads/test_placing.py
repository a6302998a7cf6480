"""Placing reports on roads: the nearest, by heading, by the road before, and none (M26)."""

import numpy as np
import pytest

from milepost.model.areas import Going
from milepost.roads import NOT_ON_A_ROAD, Placing, Road, network_of
from unit.roads.drawn import degrees, drawn

CARRIAGEWAYS = drawn({"a": (0, 0), "b": (1000, 0), "c": (0, 12), "d": (1000, 12)}, "a>b", "d>c")
EAST, WEST = 90.0, 270.0


def going(heading: float, speed: float, count: int = 1) -> Going:
    return Going(np.full(count, heading), np.full(count, speed))


def placed_on(east_m: float, north_m: float, how: Going | None = None, before: str | None = None) -> str | None:
    known = None if before is None else np.array([CARRIAGEWAYS.ids.index(before)], np.int32)
    latitude, longitude = degrees(east_m, north_m)
    road = int(Placing(CARRIAGEWAYS).place([latitude], [longitude], how, known).roads[0])
    return None if road == NOT_ON_A_ROAD else CARRIAGEWAYS.ids[road]


def test_m26_heading_decides_between_opposite_carriageways_in_spite_of_the_noise() -> None:
    for north in (-8.0, 0.0, 6.0, 12.0, 20.0):
        assert placed_on(500, north, going(EAST + 10, 15)) == "ab"
        assert placed_on(500, north, going(WEST - 10, 15)) == "dc"


def test_m26_who_stands_is_where_it_is_nearest_whatever_its_heading() -> None:
    assert placed_on(500, 2, going(WEST, 0.5)) == "ab"
    assert placed_on(500, 2, going(np.nan, 15)) == "ab"
    assert placed_on(500, 2) == "ab"


def test_m26_the_road_before_decides_where_the_place_does_not() -> None:
    assert placed_on(500, 7, before="ab") == "ab"
    assert placed_on(500, 5, before="dc") == "dc"
    assert placed_on(500, -20, before="dc") == "ab"


def test_m26_one_goes_on_into_the_road_that_the_one_before_leads_into() -> None:
    network = drawn({"a": (0, 0), "b": (500, 0), "c": (1000, 30), "d": (500, 20), "e": (1000, 50)}, "a>b", "b>c", "d>e")
    latitude, longitude = degrees(900, 36)
    roads = [
        int(Placing(network).place([latitude], [longitude], going(EAST, 10), np.array([before], np.int32)).roads[0])
        for before in (network.ids.index("ab"), network.ids.index("de"), NOT_ON_A_ROAD)
    ]
    assert [network.ids[road] for road in roads] == ["bc", "de", "de"]


def test_m26_who_is_far_from_all_roads_is_on_none() -> None:
    latitudes, longitudes = zip(degrees(500, -49), degrees(500, -51), degrees(5_000, 5_000), degrees(-49, 0), strict=True)
    placed = Placing(CARRIAGEWAYS).place(latitudes, longitudes)
    assert (placed.roads >= 0).tolist() == [True, False, False, True]
    assert placed.distances_m[[0, 3]] == pytest.approx([49.0, 49.0], abs=0.1)
    assert placed.offsets_m[[0, 3]] == pytest.approx([500.0, 0.0], abs=0.1)
    assert np.isnan(placed.offsets_m[1:3]).all()


def test_m26_a_network_may_lie_across_the_antimeridian() -> None:
    road = Road("r", [(-17.0, 179.999), (-17.0, -179.999)], 10.0, 1, "a", "b")
    placed = Placing(network_of([road], [])).place([-17.0, -17.0, -17.0], [179.9995, -179.9995, 0.0], going(EAST, 10, 3))
    assert placed.roads.tolist() == [0, 0, NOT_ON_A_ROAD]
    assert placed.offsets_m[:2] == pytest.approx([53.2, 159.5], abs=0.5)


def test_reports_are_placed_alike_in_one_batch_and_one_by_one() -> None:
    random = np.random.default_rng(1)
    latitudes, longitudes = np.array([degrees(*point) for point in random.uniform(-80, 1080, (40_000, 2))]).T
    how = Going(random.uniform(0, 360, 40_000), random.uniform(0, 20, 40_000))
    placing = Placing(CARRIAGEWAYS)
    whole = placing.place(latitudes, longitudes, how)
    for row in range(0, 40_000, 4_001):
        one = placing.place(latitudes[[row]], longitudes[[row]], how.only(np.array([row])))
        assert one.roads[0] == whole.roads[row]
        assert one.offsets_m[0] == pytest.approx(whole.offsets_m[row], nan_ok=True)


def test_a_distance_that_is_none_is_refused() -> None:
    with pytest.raises(ValueError, match="within_m"):
        Placing(CARRIAGEWAYS, within_m=0.0)
