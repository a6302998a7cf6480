"""Cells: which multicast group a place and an area have (M34)."""

import pytest

from milepost.model.areas import Box, Circle
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason

GRID = MulticastGrid("239.192.0.0", 256, 4243, 0.01)


def test_the_group_of_a_place_is_counted_from_the_first() -> None:
    coarse = MulticastGrid("239.192.0.250", 100, 4243, 10.0)
    assert coarse.group_at(Place(-90.0, -180.0)) == "239.192.0.250"  # row 0, column 0
    assert coarse.group_at(Place(-85.0, -165.0)) == "239.192.0.251"  # row 0, column 1
    assert coarse.group_at(Place(-75.0, -180.0)) == "239.192.1.25"  # row 1: 31 further
    assert coarse.group_at(Place(-80.0, 180.0)) == "239.192.1.25"  # the antimeridian has one column, whichever way it is written


@pytest.mark.parametrize("centre", [Place(40.7608, -111.891), Place(0.0, 179.999), Place(-60.0, -179.9999), Place(89.9, 0.0)])
def test_every_place_of_an_area_has_one_of_its_groups(centre: Place) -> None:
    area = Circle(centre, 3_000.0)
    groups = GRID.find_groups_over(area, 1_000_000)
    assert groups is not None
    around = [Place(max(-90.0, min(90.0, centre.latitude + n)), (centre.longitude + e + 540) % 360 - 180) for n, e in _steps()]
    inside = [place for place in around if area.contains(place.vector.reshape(1, 3))[0]]
    assert len(inside) > 20
    assert {GRID.group_at(place) for place in inside} <= groups


def _steps() -> list[tuple[float, float]]:
    return [(n / 500, e / 500) for n in range(-15, 16) for e in range(-15, 16)]


def test_a_small_area_has_few_groups_and_a_large_one_too_many() -> None:
    assert GRID.find_groups_over(Circle(Place(40.7608, -111.8951), 10.0), 10) == frozenset(
        {GRID.group_at(Place(40.7608, -111.8951))}
    )
    assert GRID.find_groups_over(Box(-10.0, -10.0, 10.0, 10.0), 1_000) is None


def test_a_box_around_the_earth_has_all_columns() -> None:
    coarse = MulticastGrid("239.0.0.0", 65_536, 4243, 10.0)
    groups = coarse.find_groups_over(Box(1.0, -180.0, 9.0, 180.0), 1_000)
    assert groups is not None
    assert len(groups) == 36


@pytest.mark.parametrize(
    ("group", "groups", "port", "side_deg"),
    [
        ("10.0.0.1", 1, 1, 1.0),
        ("239.255.255.255", 2, 1, 1.0),
        ("239.0.0", 1, 1, 1.0),
        ("239.0.0.0.", 1, 1, 1.0),
        ("239.0.0.256", 1, 1, 1.0),
        ("239.0.0.0", 0, 1, 1.0),
        ("239.0.0.0", 1, 0, 1.0),
        ("239.0.0.0", 1, 1, 0.0),
        ("239.0.0.0", 1, 1, float("nan")),
    ],
)
def test_an_invalid_multicast_grid_is_refused(group: str, groups: int, port: int, side_deg: float) -> None:
    with pytest.raises(Malformed) as fault:
        MulticastGrid(group, groups, port, side_deg)
    assert fault.value.reason is Reason.FIELD_RANGE
