"""The point index: points are found at their position while leaves split and merge; the invariants hold after every change."""

import numpy as np
import pytest
from numpy.typing import ArrayLike, NDArray

from milepost.matching.points import LEAF, PointIndex
from milepost.matching.z_order import KEY_MAX, keys_of
from milepost.model.areas import Box, Circle
from milepost.model.places import Place, vectors
from milepost.model.reasons import Malformed, Reason

BUFFER_LEAVES = 8
BUFFER_SLOTS = BUFFER_LEAVES * LEAF

Known = dict[int, tuple[float, float]]


def check_invariants(index: PointIndex, known: Known) -> None:
    """Check the invariants in the docstring of the module."""
    directory = index._directory
    leaves = directory._leaves[: len(directory)].tolist()
    lows, highs = directory.low[leaves], directory.high[leaves]
    assert directory._lows == directory._low_keys[: len(directory)].tolist() == lows.tolist()
    assert (lows[0], highs[-1]) == (0, KEY_MAX)
    assert (lows[1:] == highs[:-1] + np.uint64(1)).all(), "key ranges follow each other without gap or overlap"
    assert (lows <= highs).all()
    assert len(set(leaves)) == len(leaves)
    assert not set(leaves) & set(index._free)
    assert index._leaves_allocated == BUFFER_LEAVES + len(leaves) + len(index._free), "every leaf is in use or free"
    assert not any(map(directory.owns, [*range(BUFFER_LEAVES), *index._free]))
    check_leaves(index, leaves)
    check_points(index, known)


def check_leaves(index: PointIndex, leaves: list[int]) -> None:
    for leaf in leaves:
        is_point = index._numbers[leaf] >= 0
        assert is_point.sum() == index._counts[leaf]
        keys = index._keys[leaf][is_point]
        assert ((index._directory.low[leaf] <= keys) & (keys <= index._directory.high[leaf])).all(), (
            "a point is in the leaf whose range contains its key"
        )
    assert not (index._numbers[:BUFFER_LEAVES].reshape(-1)[index._buffer_fill :] >= 0).any()


def check_points(index: PointIndex, known: Known) -> None:
    assert len(index) == len(known)
    assert (index._slot_of > 0).sum() == len(known)
    if not known:
        return
    numbers = np.array(list(known), np.int32)
    latitudes, longitudes = np.array(list(known.values())).T
    slots = index._slot_of[numbers] - 1
    assert (index._numbers.reshape(-1)[slots] == numbers).all(), "_slot_of has the slot of every point"
    assert (index._keys.reshape(-1)[slots] == keys_of(latitudes, longitudes, numbers)).all()
    is_known, where = index.positions_of(numbers)
    assert is_known.all()
    assert np.abs(where - vectors(latitudes, longitudes)).max() < 1e-15


def moved(index: PointIndex, known: Known, numbers: ArrayLike, latitudes: ArrayLike, longitudes: ArrayLike) -> None:
    index.move(numbers, latitudes, longitudes)
    places = zip(np.asarray(latitudes).tolist(), np.asarray(longitudes).tolist(), strict=True)
    known.update(zip(np.asarray(numbers).tolist(), places, strict=True))


def inside(index: PointIndex, latitude: float, longitude: float, radius_m: float) -> list[int]:
    return sorted(index.inside(Circle(Place(latitude, longitude), radius_m)).tolist())


def cloud(random: np.random.Generator, count: int, spread: float) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    return random.uniform(-spread, spread, count), random.uniform(-spread, spread, count)


def test_an_index_without_points_finds_none() -> None:
    index = PointIndex(10)
    assert inside(index, 0.0, 0.0, 1e6) == []
    assert index.positions_of(np.array([3], np.int32))[0].tolist() == [False]
    check_invariants(index, {})


def test_a_few_points_stay_in_the_insert_buffer_and_are_found_there() -> None:
    index, known = PointIndex(10), Known()
    moved(index, known, [1, 2, 3], [0.0, 0.0, 50.0], [0.0, 0.001, 7.0])
    assert inside(index, 0.0, 0.0, 500.0) == [1, 2]
    assert (len(index._directory), index._buffer_fill) == (1, 3)
    check_invariants(index, known)


def test_a_full_insert_buffer_is_flushed_into_leaves_and_every_point_is_found() -> None:
    index, known = PointIndex(2000), Known()
    random = np.random.default_rng(1)
    buffered = []
    for start in range(0, 2000, 100):
        moved(index, known, np.arange(start, start + 100), *cloud(random, 100, 0.1))
        check_invariants(index, known)
        buffered.append(index._buffer_fill)
    assert buffered[:7] == [100, 200, 300, 400, 500, 0, 100], "the sixth hundred flushes the buffer"
    assert len(index._directory) > 10, "leaves were cut"
    assert inside(index, 0.0, 0.0, 100_000.0) == list(range(2000))


def test_sparse_leaves_are_merged() -> None:
    index, known = PointIndex(4000), Known()
    random = np.random.default_rng(2)
    moved(index, known, np.arange(4000), *cloud(random, 4000, 0.1))
    most = len(index._directory)
    assert most > 50
    for start in range(0, 3900, 20):
        index.remove(np.arange(start, start + 20))
        for number in range(start, start + 20):
            del known[number]
        check_invariants(index, known)
    assert len(index._directory) < most / 4, "sparse leaves were joined"
    assert inside(index, 0.0, 0.0, 100_000.0) == list(range(3900, 4000))


def test_of_several_moves_of_one_point_in_a_batch_the_last_counts() -> None:
    index, known = PointIndex(10), Known()
    moved(index, known, [4, 5, 4, 4], [0.0, 0.0, 10.0, 20.0], [0.0, 0.0, 0.0, 0.0])
    assert known[4] == (20.0, 0.0)
    check_invariants(index, known)
    assert inside(index, 0.0, 0.0, 500.0) == [5]
    moved(index, known, [5, 4, 5], [1.0, 1.0, 2.0], [0.0, 0.0, 0.0])
    assert (inside(index, 1.0, 0.0, 500.0), inside(index, 2.0, 0.0, 500.0)) == ([4], [5])
    check_invariants(index, known)


def test_a_point_that_moves_within_its_leaf_is_found_at_its_new_place() -> None:
    index, known = PointIndex(1000), Known()
    random = np.random.default_rng(3)
    moved(index, known, np.arange(1000), *cloud(random, 1000, 0.1))
    slots = index._slot_of.copy()
    moved(index, known, [7], [known[7][0] + 1e-7], [known[7][1]])
    assert (index._slot_of == slots).all()
    assert 7 in inside(index, *known[7], 0.005)
    check_invariants(index, known)


def everywhere(seed: int) -> tuple[PointIndex, Known]:
    """Points 1 to 800 all over the Earth, so that there are leaves; capacity for a few more."""
    index, known = PointIndex(1000), Known()
    random = np.random.default_rng(seed)
    moved(index, known, np.arange(1, 801), random.uniform(-90, 90, 800), random.uniform(-180, 180, 800))
    return index, known


@pytest.mark.parametrize("longitude", [180.0, -180.0, 179.9999999, -179.9999999])
@pytest.mark.parametrize("asked", [180.0, -180.0, 179.9995, -179.9995])
def test_points_across_the_antimeridian_are_found(longitude: float, asked: float) -> None:
    index, known = everywhere(4)
    moved(index, known, [0], [12.0], [longitude])
    assert 0 in inside(index, 12.0, asked, 500.0)
    assert 0 in index.inside(Box(11.0, 179.0, 13.0, -179.0)).tolist()
    check_invariants(index, known)


@pytest.mark.parametrize("longitude", [180.0, -180.0])
@pytest.mark.parametrize("box", [Box(11.0, 179.0, 13.0, 180.0), Box(11.0, -180.0, 13.0, -179.0), Box(11.0, -180.0, 13.0, 180.0)])
def test_a_point_on_the_antimeridian_is_found_from_both_sides_by_either_longitude(longitude: float, box: Box) -> None:
    index, known = everywhere(4)
    moved(index, known, [0], [12.0], [longitude])
    assert 0 in index.inside(box).tolist()


@pytest.mark.parametrize("latitude", [90.0, -90.0, 89.99999, -89.99999])
@pytest.mark.parametrize("longitude", [0.0, 180.0, -180.0, 77.0])
def test_points_around_the_poles_are_found(latitude: float, longitude: float) -> None:
    index, known = everywhere(5)
    moved(index, known, [0], [latitude], [longitude])
    pole = 90.0 if latitude > 0 else -90.0
    for asked in (0.0, -123.0, 180.0):
        assert 0 in inside(index, pole, asked, 5.0)
        assert 0 in inside(index, pole - 1e-4 if pole > 0 else pole + 1e-4, asked, 20.0)
    check_invariants(index, known)


def test_a_thousand_points_at_one_place_are_all_found_and_can_move_away() -> None:
    index, known = PointIndex(1200), Known()
    moved(index, known, np.arange(1000), np.full(1000, 50.0), np.full(1000, 7.0))
    moved(index, known, np.arange(1000, 1200), np.full(200, 50.0), np.full(200, 7.1))
    assert inside(index, 50.0, 7.0, 1.0) == list(range(1000))
    check_invariants(index, known)
    moved(index, known, np.arange(500), np.full(500, -50.0), np.full(500, 7.0))
    assert inside(index, 50.0, 7.0, 1.0) == list(range(500, 1000))
    assert inside(index, -50.0, 7.0, 1.0) == list(range(500))
    check_invariants(index, known)


@pytest.mark.parametrize("bad", [-1, 10, 2**31 - 1])
def test_a_number_beyond_the_limit_is_refused_and_changes_nothing(bad: int) -> None:
    index, known = PointIndex(10), Known()
    moved(index, known, [1], [0.0], [0.0])
    with pytest.raises(Malformed, match="0 to 9") as caught:
        index.move([1, bad], [5.0, 5.0], [0.0, 0.0])
    assert caught.value.reason is Reason.ENDPOINTS_FULL
    with pytest.raises(Malformed, match="0 to 9"):
        index.remove([1, bad])
    assert inside(index, 0.0, 0.0, 500.0) == [1]
    check_invariants(index, known)


def test_an_empty_batch_changes_nothing() -> None:
    index = PointIndex(10)
    index.move([], [], [])
    index.remove([])
    check_invariants(index, {})


def test_removing_an_unknown_point_or_one_twice_is_harmless() -> None:
    index, known = PointIndex(10), Known()
    moved(index, known, [1, 2], [0.0, 0.0], [0.0, 0.0])
    index.remove([2, 2, 5])
    index.remove([2])
    del known[2]
    assert inside(index, 0.0, 0.0, 500.0) == [1]
    check_invariants(index, known)


def test_positions_of_distinguishes_known_from_unknown_points() -> None:
    index = PointIndex(10)
    index.move([3], [10.0], [20.0])
    is_known, where = index.positions_of(np.array([2, 3, 3], np.int32))
    assert is_known.tolist() == [False, True, True]
    assert np.abs(where[1:] - vectors([10.0] * 2, [20.0] * 2)).max() < 1e-15


@pytest.mark.parametrize("seed", range(6))
def test_the_invariants_hold_after_random_moves(seed: int) -> None:
    random = np.random.default_rng(seed)
    index, known = PointIndex(1500), Known()
    for turn in range(60):
        count = int(random.integers(1, (30, 400)[turn % 7 == 0]))
        points = random.integers(0, 1500, count)
        spread = float(random.choice([0.0, 1e-5, 0.01, 3.0, 80.0]))
        north, east = cloud(random, count, spread)
        middle = random.choice([-89.9, -17.0, 0.0, 50.0, 90.0])
        moved(index, known, points, np.clip(middle + north, -90, 90), (178.0 * (seed % 2) + east + 180) % 360 - 180)
        if turn % 3 == 2:
            gone = random.integers(0, 1500, count)
            index.remove(gone)
            for number in gone.tolist():
                known.pop(number, None)
        check_invariants(index, known)
        centre = Place(*list(known.values())[-1]) if known else Place(0.0, 0.0)
        circle = Circle(centre, float(random.choice([10.0, 5e3, 1e6])))
        numbers, places = list(known), np.array(list(known.values())).reshape(-1, 2)
        held = circle.contains(vectors(places[:, 0], places[:, 1]))
        assert sorted(index.inside(circle).tolist()) == sorted(np.array(numbers, np.int32)[held].tolist())
    assert len(index._directory) > 5


def test_a_small_search_visits_few_leaves() -> None:
    index = PointIndex(20_000)
    random = np.random.default_rng(6)
    index.move(np.arange(20_000), *cloud(random, 20_000, 1.0))
    few = index._leaves_over(Circle(Place(0.3, 0.3), 500.0))
    assert len(few) < len(index._directory) / 10


def test_a_fleet_that_moves_far_and_often_never_exhausts_the_leaves() -> None:
    index, known = PointIndex(5_000), Known()
    random = np.random.default_rng(7)
    for turn in range(12):
        north, east = cloud(random, 5_000, 0.2)
        moved(index, known, np.arange(5_000), north + 5 * turn, east + 7 * turn)
    check_invariants(index, known)


@pytest.mark.parametrize(
    ("numbers", "latitudes", "longitudes", "reason"),
    [
        ([1, 2], [0.0, float("nan")], [0.0, 0.0], Reason.COORDINATE_RANGE),
        ([1, 2], [0.0, 0.0], [0.0, 180.5], Reason.COORDINATE_RANGE),
        ([1, 2], [-91.0, 0.0], [0.0, 0.0], Reason.COORDINATE_RANGE),
        ([1, 2], [float("inf"), 0.0], [0.0, 0.0], Reason.COORDINATE_RANGE),
        ([1, 2**32 + 2], [0.0, 0.0], [0.0, 0.0], Reason.ENDPOINTS_FULL),
        ([-1, 2], [0.0, 0.0], [0.0, 0.0], Reason.ENDPOINTS_FULL),
    ],
)
def test_a_batch_with_a_value_out_of_range_is_refused_and_moves_no_point(
    numbers: list[int], latitudes: list[float], longitudes: list[float], reason: Reason
) -> None:
    index = PointIndex(100)
    index.move([1], [50.0], [7.0])
    with pytest.raises(Malformed) as caught:
        index.move(np.array(numbers, np.int64), latitudes, longitudes)
    assert caught.value.reason is reason
    assert index.inside(Circle(Place(50.0, 7.0), 10.0)).tolist() == [1]
    assert len(index) == 1


def test_an_empty_batch_moves_no_point() -> None:
    index = PointIndex(100)
    index.move([], [], [])
    index.remove([])
    assert len(index) == 0
