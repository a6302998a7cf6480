"""Upstream: points on a stretch that move along it, the remaining time, and every refusal (M26)."""

from dataclasses import replace

import numpy as np
import pytest

from milepost.model.areas import (
    UPSTREAM_POINTS_MAX,
    UPSTREAM_STRETCHES_MAX,
    Circle,
    Motion,
    Stretch,
    Union,
    Upstream,
    contains_moving,
    depends_on_heading,
    touches,
)
from milepost.model.places import Place, Vectors, moved, vectors
from milepost.model.reasons import Malformed, Reason

HERE = Place(52.5, 13.4)


def path(*steps: tuple[float, float], start: Place = HERE) -> tuple[Place, ...]:
    """From a place on by bearings and metres."""
    found = [start]
    for bearing, metres in steps:
        found.append(moved(found[-1], bearing, metres))
    return tuple(found)


def east_then_north(start: Place = HERE) -> Upstream:
    """300 m to the east and 100 m to the north, 40 s in all, of which 10 are left at the end."""
    return Upstream.of((Stretch(path((90, 300), (0, 100), start=start), 12.0, 50.0, 10.0, 500.0, 100.0),))


def at(*places: Place) -> Vectors:
    return vectors([place.latitude for place in places], [place.longitude for place in places])


def motion(*moves: tuple[float, float]) -> Motion:
    headings, speeds = zip(*moves, strict=True)
    return Motion(np.array(headings), np.array(speeds))


def test_m26_a_stretch_has_its_stated_width_and_ends_at_its_last_point() -> None:
    area, middle = east_then_north(), moved(HERE, 90, 150)
    places = [
        moved(middle, 0, 11.9),
        moved(middle, 180, 11.9),
        moved(middle, 0, 12.1),
        moved(HERE, 270, 11.9),
        moved(HERE, 270, 12.1),
    ]
    assert area.contains(at(*places)).tolist() == [True, True, False, True, False]


@pytest.mark.parametrize("start", [HERE, Place(-17.0, 179.999), Place(89.9, 30.0)])
def test_m26_a_vehicle_in_the_opposite_direction_is_not_on_the_stretch(start: Place) -> None:
    area, middle = east_then_north(start), moved(start, 90, 150)
    moves = motion((90, 10), (30.5, 10), (149.5, 10), (270, 10), (0, 10), (180, 10))
    assert area.holds(at(*[middle] * 6), moves).tolist() == [True, True, True, False, False, False]


def test_m26_a_stationary_vehicle_or_one_without_heading_counts_by_its_place() -> None:
    area, middle = east_then_north(), moved(HERE, 90, 150)
    moves = motion((270, 1.9), (270, 2.1), (np.nan, 10), (np.nan, np.nan), (270, np.nan))
    assert area.holds(at(*[middle] * 5), moves).tolist() == [True, False, True, True, False]
    assert not area.holds(at(moved(HERE, 180, 50)), motion((np.nan, np.nan))).any()


def test_m26_at_a_bend_both_directions_are_along_the_stretch() -> None:
    bend = moved(HERE, 90, 300)
    assert east_then_north().holds(at(bend, bend, bend), motion((90, 9), (0, 9), (225, 9))).tolist() == [True, True, False]


def test_m26_the_remaining_time_decreases_linearly_along_the_path() -> None:
    area, bend = east_then_north(), moved(HERE, 90, 300)
    places = [HERE, moved(HERE, 90, 100), bend, moved(bend, 0, 50), moved(bend, 0, 100), moved(HERE, 180, 100)]
    seconds = area.seconds_to_reach(at(*places))
    assert seconds[:5] == pytest.approx([50.0, 40.0, 20.0, 15.0, 10.0], abs=0.01)
    assert np.isnan(seconds[5])


def test_m26_of_two_parallel_stretches_the_one_in_the_same_direction_gives_the_time() -> None:
    east = Stretch(path((90, 400)), 15.0, 40.0, 0.0, 400.0, 0.0)
    west = Stretch(path((270, 400), start=moved(moved(HERE, 90, 400), 0, 10)), 15.0, 940.0, 900.0, 9400.0, 9000.0)
    area, between = Upstream.of((east, west)), moved(moved(HERE, 90, 200), 0, 7)
    assert area.seconds_to_reach(at(between)) == pytest.approx([920.0], abs=0.01)
    both = area.seconds_to_reach(at(between, between), motion((90, 10), (270, 10)))
    assert both == pytest.approx([20.0, 920.0], abs=0.01)


def test_m26_headings_count_inside_unions_too_but_only_on_roads() -> None:
    area, middle = east_then_north(), moved(HERE, 90, 150)
    around = Circle(moved(middle, 0, 1_000), 100.0)
    both = Union((around, area))
    places, moves = at(middle, middle, moved(middle, 0, 1_000)), motion((90, 10), (270, 10), (270, 10))
    assert contains_moving(both, places, moves).tolist() == [True, False, True]
    assert both.contains(places).tolist() == [True, True, True]
    assert (depends_on_heading(both), depends_on_heading(area), depends_on_heading(around)) == (True, True, False)


def test_m26_an_upstream_touches_what_is_within_its_width() -> None:
    area, middle = east_then_north(), moved(HERE, 90, 150)
    wide = Upstream.of((*area.stretches, Stretch(path((90, 100), start=moved(HERE, 0, 5_000)), 40.0, 9.0, 0.0, 90.0, 0.0)))
    assert touches(area, Circle(moved(middle, 180, 50), 39.0))
    assert not touches(area, Circle(moved(middle, 180, 50), 37.0))
    assert touches(wide, Circle(moved(HERE, 0, 5_090), 51.0))
    assert not touches(wide, Circle(moved(HERE, 0, 5_090), 49.0))
    assert touches(Circle(middle, 5_000.0), area)


def test_m26_an_area_of_hundreds_of_stretches_is_found_by_its_boxes() -> None:
    starts = [moved(moved(HERE, 0, 250.0 * (number // 20)), 90, 250.0 * (number % 20)) for number in range(400)]
    area = Upstream.of(tuple(Stretch(path((90, 200), start=start), 10.0, 9.0, 1.0, 200.0, 1.0) for start in starts))
    middles = [moved(start, 90, 100) for start in starts]
    assert area.contains(at(*middles)).all()
    assert not area.contains(at(*[moved(place, 0, 100) for place in middles])).any()
    for place in middles:
        assert any(box.south <= place.latitude <= box.north and box.west <= place.longitude <= box.east for box in area.boxes)
    assert len(area.boxes) < 20


def refusal(**changed: object) -> Reason:
    values = {
        "path": path((90, 100)),
        "half_width_m": 10.0,
        "start_s": 9.0,
        "end_s": 1.0,
        "start_m": 90.0,
        "end_m": 9.0,
        **changed,
    }
    with pytest.raises(Malformed) as caught:
        Upstream.of((Stretch(**values),))  # type: ignore[arg-type]
    return caught.value.reason


def test_an_invalid_stretch_is_refused() -> None:
    assert refusal(path=(HERE,)) is Reason.AREA_EMPTY
    assert refusal(path=(HERE, HERE)) is Reason.AREA_EMPTY
    assert refusal(path=(HERE, Place(-HERE.latitude, HERE.longitude - 180))) is Reason.AREA_EMPTY
    assert refusal(half_width_m=0.0) is Reason.AREA_RADIUS
    for name, value in (
        ("start_s", 0.5),
        ("end_s", -1.0),
        ("start_m", 1e7),
        ("end_m", float("nan")),
        ("start_s", True),
        ("end_m", 91),
    ):
        assert refusal(**{name: value}) is Reason.FIELD_RANGE


def test_an_empty_or_too_large_upstream_is_refused() -> None:
    one = Stretch(path((90, 100)), 10.0, 9.0, 1.0, 90.0, 9.0)
    long = Stretch(path(*[(90, 10.0)] * 50), 10.0, 9.0, 1.0, 90.0, 9.0)
    for stretches, reason in (
        ((), Reason.AREA_EMPTY),
        ((one,) * (UPSTREAM_STRETCHES_MAX + 1), Reason.AREA_TOO_COMPLEX),
        ((long,) * (UPSTREAM_POINTS_MAX // 51 + 1), Reason.AREA_TOO_COMPLEX),
    ):
        with pytest.raises(Malformed) as caught:
            Upstream.of(stretches)
        assert caught.value.reason is reason
    assert len(Upstream.of((one,) * UPSTREAM_STRETCHES_MAX).stretches) == UPSTREAM_STRETCHES_MAX


def test_a_few_points_are_compared_without_clusters_with_the_same_result() -> None:
    starts = [moved(HERE, 37.0 * number, 90.0 * number) for number in range(60)]
    stretches = tuple(
        Stretch(path((number * 31.0, 150.0), start=start), 9.0, 9.0, 1.0, 200.0, 1.0) for number, start in enumerate(starts)
    )
    places = [moved(start, bearing, metres) for start in starts for bearing, metres in ((0, 8.9), (90, 9.1), (200, 60))]
    together = Upstream.of(stretches).contains(at(*places))
    assert [bool(Upstream.of(stretches).contains(at(place))[0]) for place in places] == together.tolist()
    assert 60 < together.sum() < len(places)


def test_the_columns_of_stretches_are_checked_like_the_stretches() -> None:
    columns = east_then_north().columns
    columns.check()
    assert Upstream(columns).stretches == east_then_north().stretches
    wrong = {
        Reason.COORDINATE_RANGE: replace(columns, latitudes=columns.latitudes + 60.0),
        Reason.AREA_RADIUS: replace(columns, half_widths_m=-columns.half_widths_m),
        Reason.FIELD_RANGE: replace(columns, start_s=columns.end_s - 1),
        Reason.AREA_EMPTY: replace(columns, counts=columns.counts - 2),
    }
    for reason, one in wrong.items():
        with pytest.raises(Malformed) as caught:
            one.check()
        assert caught.value.reason is reason
