"""The grid: squares as high and wide as they should be, closed round the Earth (M23)."""

from math import cos, radians

import pytest

from milepost.model.incidents import Grid, Square
from milepost.model.places import EARTH_RADIUS_M, Place

DEGREE_M = EARTH_RADIUS_M * radians(1)
GRID = Grid(150.0)


@pytest.mark.parametrize("latitude", [-89.0, -60.0, -33.9, 0.0, 12.0, 40.76, 64.0, 80.0, 89.0])
def test_squares_are_nearly_square(latitude: float) -> None:
    row = GRID.locate(Place(latitude, 0.0)).square.row
    width_m = 360 / GRID.columns(row) * cos(radians(latitude)) * DEGREE_M
    assert GRID.height / 1e7 * DEGREE_M == pytest.approx(150.0, rel=0.001)
    assert width_m == pytest.approx(150.0, rel=0.02)


def test_both_ends_of_the_antimeridian_are_one_place() -> None:
    assert GRID.locate(Place(10.0, 180.0)) == GRID.locate(Place(10.0, -180.0))


def test_a_block_continues_across_the_antimeridian() -> None:
    west = GRID.locate(Place(10.0, -180.0)).square
    columns = GRID.columns(west.row)
    assert west.column == 0
    assert {near.column for near in GRID.block(west) if near.row == west.row} == {columns - 1, 0, 1}
    assert GRID.locate(Place(10.0, 179.9999)).square in GRID.block(west)


def test_the_poles_have_squares_and_no_rows_beyond() -> None:
    for pole in (-90.0, 90.0):
        square, north, east = GRID.locate(Place(pole, 17.0))
        assert GRID.holds(square, north, east)
        assert {near.row for near in GRID.block(square)} <= set(range(GRID.rows))


@pytest.mark.parametrize(
    ("square", "north", "east"),
    [
        (Square(-1, 0), 0, 0),
        (Square(GRID.rows, 0), 0, 0),
        (Square(60_000, -1), 0, 0),
        (Square(60_000, GRID.columns(60_000)), 0, 0),
        (Square(60_000, 5), GRID.height + 1, 0),
        (Square(60_000, 5), 0, 20_000),
    ],
)
def test_squares_outside_the_grid_are_detected(square: Square, north: int, east: int) -> None:
    assert not GRID.holds(square, north, east)


def test_middles_are_in_their_squares() -> None:
    places = [Place(latitude, longitude) for latitude in (-80.0, -1.0, 0.0, 41.3, 89.9) for longitude in (-180.0, -3.0, 179.9)]
    squares = [GRID.locate(place).square for place in places]
    for (x, y, z), place in zip(GRID.middles(squares).tolist(), places, strict=True):
        expected = place.vector.tolist()
        assert max(abs(one - other) for one, other in zip((x, y, z), expected, strict=True)) * EARTH_RADIUS_M < 150.0


def test_a_place_a_little_beyond_the_pole_is_the_pole() -> None:
    assert GRID.place(1_800_000_000.5, 0).latitude == 90.0
