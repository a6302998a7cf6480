"""The space-filling curve: properties of a key range hold for every place in it."""

from itertools import pairwise

import numpy as np
import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

import milepost.matching.points as points_module
from milepost.matching.points import PointIndex
from milepost.matching.z_order import KEY_MAX, NUMBER_BITS, cap_over, key_ranges_over, keys_of
from milepost.model.areas import Area, Box, Circle
from milepost.model.places import Place, vectors

CENTRES = [(50.0, 7.0), (0.0, 180.0), (89.99, 30.0), (-90.0, 0.0), (0.0, 0.0), (-33.0, -179.99)]
keys = st.integers(0, KEY_MAX)


@given(keys, st.integers(0, 60), st.integers(0, 2**32))
def test_the_cap_over_a_key_range_contains_every_place_in_it(first: int, bits: int, seed: int) -> None:
    last = min(KEY_MAX, first + (1 << bits))
    random = np.random.default_rng(seed)
    latitude, longitude = CENTRES[seed % len(CENTRES)]
    spread = 10.0 ** random.uniform(-4, 1.5)
    north = np.clip(latitude + random.uniform(-spread, spread, 400), -90, 90)
    east = (longitude + random.uniform(-spread, spread, 400) + 180) % 360 - 180
    found = keys_of(north, east, np.zeros(400, np.int32))
    if seed % 2:  # a key range that contains some of them
        first, last = (int(key) for key in sorted(random.choice(found, 2)))
    middle, angle = cap_over(first, last)
    is_on = (found >= np.uint64(first >> NUMBER_BITS << NUMBER_BITS)) & (found <= np.uint64(last))
    assume(is_on.any())
    assert (np.arccos(np.clip(vectors(north, east)[is_on] @ middle, -1, 1)) <= angle).all()


@given(st.integers(0, 2**32))
def test_key_ranges_over_a_box_have_the_keys_of_all_its_places_and_are_disjoint(seed: int) -> None:
    random = np.random.default_rng(seed)
    latitude, longitude = CENTRES[seed % len(CENTRES)]
    height = 10.0 ** random.uniform(-4, 1)
    south = min(latitude, 90 - height)
    west, width = longitude, float(random.uniform(0.1, 3)) * height
    box = Box(south, west, south + height, (west + width + 180) % 360 - 180)
    north = np.clip(south + random.uniform(0, height, 200), -90, 90)
    east = (west + random.uniform(0, width, 200) + 180) % 360 - 180
    found = key_ranges_over(box.boxes)
    assert all(before[1] < after[0] for before, after in pairwise(found))
    for key in keys_of(north, east, np.zeros(200, np.int32)).tolist():
        assert any(first <= key <= last for first, last in found)


@pytest.mark.parametrize("many", [0, 1_000])
@pytest.mark.parametrize("centre", CENTRES)
def test_leaves_entirely_in_the_cap_agree_with_a_test_of_every_point(
    many: int, centre: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(points_module, "MANY_LEAVES", many)
    random = np.random.default_rng(3)
    index, count = PointIndex(20_000), 20_000
    north = np.clip(centre[0] + random.normal(0, 0.5, count), -90, 90)
    east = (centre[1] + random.normal(0, 0.5, count) + 180) % 360 - 180
    index.move(np.arange(count), north, east)
    points = vectors(north, east)
    place = Place(float(north[0]), float(east[0]))
    areas: list[Area] = [Circle(place, radius_m) for radius_m in (50.0, 900.0, 20_000.0, 90_000.0, 15_000_000.0)]
    areas.append(Box(max(-90.0, place.latitude - 0.3), -180.0, min(90.0, place.latitude + 0.2), 180.0))
    for area in areas:
        assert sorted(index.inside(area).tolist()) == np.flatnonzero(area.contains(points)).tolist()
