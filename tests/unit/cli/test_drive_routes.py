"""Routes of simulated vehicles: parsing, positions and headings."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.cli.drive_routes import DriveRoute, route_from_geojson
from milepost.model.places import Place, distance_m
from milepost.model.reasons import Malformed

CORNER = [Place(48.1, 11.6), Place(48.1, 11.61), Place(48.105, 11.61)]
SQUARE = [*CORNER, Place(48.105, 11.6), CORNER[0]]
LINE = {"type": "LineString", "coordinates": [[11.6, 48.1], [11.61, 48.1]]}


@pytest.mark.parametrize(
    "document",
    [
        LINE,
        {"type": "Feature", "geometry": LINE},
        {"type": "FeatureCollection", "features": [{"type": "Feature", "geometry": None}, {"type": "Feature", "geometry": LINE}]},
        {"type": "GeometryCollection", "geometries": [{"type": "Point", "coordinates": [1, 2]}, LINE]},
    ],
)
def test_the_first_line_of_a_document_is_the_route(document: object) -> None:
    route = route_from_geojson(json.dumps(document).encode())
    assert route.at(0).place == Place(48.1, 11.6)
    assert route.length_m == pytest.approx(distance_m(Place(48.1, 11.6), Place(48.1, 11.61)))


@pytest.mark.parametrize(
    "text",
    [
        b"",
        b"[1]",
        b'{"type": "Point", "coordinates": [1, 2]}',
        b'{"type": "LineString"}',
        b'{"type": "LineString", "coordinates": [1, 2]}',
        b'{"type": "LineString", "coordinates": [[1, 2]]}',
        b'{"type": "LineString", "coordinates": [[1, 2], [1, 2]]}',
        b'{"type": "LineString", "coordinates": [[1, 2], ["x", "y"]]}',
        b'{"type": "LineString", "coordinates": [[48, 11], [11, 148]]}',
        b'{"type": "FeatureCollection", "features": 7}',
    ],
)
def test_an_invalid_route_is_malformed(text: bytes) -> None:
    with pytest.raises(Malformed):
        route_from_geojson(text)


@given(driven=st.floats(0, 20_000), places=st.sampled_from([CORNER, SQUARE]))
def test_positions_are_no_farther_apart_than_the_distance_driven(driven: float, places: list[Place]) -> None:
    route = DriveRoute(places)
    assert distance_m(route.at(driven).place, route.at(driven + 10).place) <= 10.01


def test_the_heading_follows_the_route_and_reverses_at_the_end() -> None:
    route = DriveRoute(CORNER)
    east_m = distance_m(CORNER[0], CORNER[1])
    assert route.at(1).heading_deg == pytest.approx(90, abs=0.1)
    assert route.at(east_m + 1).heading_deg == pytest.approx(0, abs=0.1)
    assert route.at(route.length_m + 1).heading_deg == pytest.approx(180, abs=0.1)
    assert route.at(2 * route.length_m - 1).heading_deg == pytest.approx(270, abs=0.1)
    assert distance_m(route.at(2 * route.length_m).place, CORNER[0]) < 0.01


def test_a_closed_route_is_driven_in_laps() -> None:
    route = DriveRoute(SQUARE)
    assert route.at(route.length_m + 5).heading_deg == pytest.approx(90, abs=0.1)
    assert distance_m(route.at(route.length_m + 5).place, route.at(5).place) < 0.01
