"""GeoJSON: the encoding of each shape, and refusals with their explanations."""

from typing import Any

import pytest

from milepost.model.areas import (
    POLYGON_POINTS_MAX,
    UNION_DEPTH_MAX,
    Area,
    Box,
    Circle,
    Corridor,
    Polygon,
    Stretch,
    Union,
    Upstream,
)
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire.geojson import area_from_geojson, area_to_geojson

RING = [[10.0, 50.0], [11.0, 50.0], [11.0, 51.0], [10.0, 50.0]]
HOLE = [[10.7, 50.2], [10.8, 50.2], [10.8, 50.3], [10.7, 50.2]]
OUTER = (Place(50.0, 10.0), Place(50.0, 11.0), Place(51.0, 11.0), Place(50.0, 10.0))
INNER = (Place(50.2, 10.7), Place(50.2, 10.8), Place(50.3, 10.8), Place(50.2, 10.7))
POINT: dict[str, Any] = {"type": "Point", "coordinates": [10.0, 50.0]}
LINE: dict[str, Any] = {"type": "LineString", "coordinates": [[10.0, 50.0], [11.0, 51.0]]}

WAYS: dict[str, Any] = {
    "type": "MultiLineString",
    "coordinates": [LINE["coordinates"]],
    "half_widths_m": [12.5],
    "seconds_left": [[90.0, 30.0]],
    "metres_left": [[900.0, 300.0]],
}

SHAPES: list[tuple[Area, dict[str, Any]]] = [
    (Circle(Place(50.0, 10.0), 500.0), {**POINT, "radius_m": 500.0}),
    (Corridor((Place(50.0, 10.0), Place(51.0, 11.0)), 25.5), {**LINE, "half_width_m": 25.5}),
    (
        Upstream.of((Stretch((Place(50.0, 10.0), Place(51.0, 11.0)), 12.5, 90.0, 30.0, 900.0, 300.0),)),
        WAYS,
    ),
    (Box(-10.0, 170.0, 10.0, -170.0), {"type": "Box", "bbox": [170.0, -10.0, -170.0, 10.0]}),
    (Polygon(OUTER), {"type": "Polygon", "coordinates": [RING]}),
    (Polygon(OUTER, (INNER,)), {"type": "Polygon", "coordinates": [RING, HOLE]}),
    (Union((Polygon(OUTER, (INNER,)), Polygon(OUTER))), {"type": "MultiPolygon", "coordinates": [[RING, HOLE], [RING]]}),
    (
        Union((Union((Circle(Place(50.0, 10.0), 1.0),)), Polygon(OUTER))),
        {
            "type": "GeometryCollection",
            "geometries": [
                {"type": "GeometryCollection", "geometries": [{**POINT, "radius_m": 1.0}]},
                {"type": "Polygon", "coordinates": [RING]},
            ],
        },
    ),
]


def refusal(value: object) -> Malformed:
    with pytest.raises(Malformed) as caught:
        area_from_geojson(value)
    return caught.value


@pytest.mark.parametrize(("area", "value"), SHAPES)
def test_each_shape_is_written_and_read(area: Area, value: dict[str, Any]) -> None:
    assert area_to_geojson(area) == value
    assert area_from_geojson(value) == area


@pytest.mark.parametrize(("area", "value"), SHAPES)
def test_feature_wraps_any_shape(area: Area, value: dict[str, Any]) -> None:
    assert area_from_geojson({"type": "Feature", "geometry": value, "properties": {"name": "x"}, "id": 7}) == area
    assert area_from_geojson({"type": "Feature", "geometry": value, "properties": None}) == area


def test_distance_may_be_among_the_properties_of_a_feature() -> None:
    circle = {"type": "Feature", "geometry": POINT, "properties": {"radius_m": 500, "colour": "red"}}
    assert area_from_geojson(circle) == Circle(Place(50.0, 10.0), 500.0)
    broker = {"type": "Feature", "geometry": LINE, "properties": {"half_width_m": 5}}
    assert area_from_geojson(broker) == Corridor((Place(50.0, 10.0), Place(51.0, 11.0)), 5.0)


def test_distance_given_twice_is_refused() -> None:
    error = refusal({"type": "Feature", "geometry": {**POINT, "radius_m": 5.0}, "properties": {"radius_m": 5.0}})
    assert error.reason is Reason.AREA_UNREADABLE
    assert "twice" in error.detail


def test_a_distance_that_a_shape_does_not_have_is_refused() -> None:
    polygon = {"type": "Polygon", "coordinates": [RING]}
    assert "'radius_m'" in refusal({**polygon, "radius_m": 5.0}).detail
    assert "'half_width_m'" in refusal({"type": "Feature", "geometry": polygon, "properties": {"half_width_m": 5}}).detail
    assert "'half_width_m'" in refusal({**POINT, "radius_m": 5.0, "half_width_m": 5}).detail


def test_bbox_beside_a_polygon_is_passed_over() -> None:
    assert area_from_geojson({"type": "Polygon", "coordinates": [RING], "bbox": [10, 50, 11, 51]}) == Polygon(OUTER)


def test_polygon_cut_at_the_antimeridian_is_a_union() -> None:
    east = [[170.0, 0.0], [180.0, 0.0], [180.0, 10.0], [170.0, 10.0], [170.0, 0.0]]
    west = [[-180.0, 0.0], [-170.0, 0.0], [-170.0, 10.0], [-180.0, 10.0], [-180.0, 0.0]]
    union = area_from_geojson({"type": "MultiPolygon", "coordinates": [[east], [west]]})
    assert union.contains(Place(5.0, 175.0).vector[None]).all()
    assert union.contains(Place(5.0, -175.0).vector[None]).all()


@pytest.mark.parametrize(
    ("value", "detail"),
    [
        (None, "null, not a JSON object"),
        ([], "a list, not a JSON object"),
        ("POLYGON", "'POLYGON', not a JSON object"),
        ({}, "the type is null"),
        ({"type": 7}, "the type is 7"),
        ({"type": ["Point"]}, "the type is a list"),
        ({"type": "polygon", "coordinates": [RING]}, "the type is 'polygon', not one of Point"),
        ({"type": "FeatureCollection", "features": []}, "the type is 'FeatureCollection'"),
        ({"type": "x" * 1000}, "...,"),
        ({"type": "Polygon"}, "the Polygon has no coordinates"),
        ({"type": "GeometryCollection"}, "has no geometries"),
        ({"type": "Box"}, "has no bbox"),
        (POINT, "has no radius_m"),
        (LINE, "has no half_width_m"),
        ({"type": "MultiLineString", "coordinates": [LINE["coordinates"]]}, "has no half_widths_m"),
        ({**WAYS, "seconds_left": [[90.0]]}, "each of seconds_left is two numbers"),
        ({**WAYS, "metres_left": [["9", 3]]}, "metres_left is '9', not a number"),
        ({**WAYS, "radius_m": 5}, "'radius_m'"),
        ({"type": "Polygon", "coordinates": [RING], "crs": {}}, "'crs'"),
        ({"type": "Feature"}, "the Feature has no geometry"),
        ({"type": "Feature", "geometry": None}, "the geometry is null"),
        ({"type": "Feature", "geometry": POINT, "properties": []}, "properties is a list"),
        ({"type": "Feature", "geometry": POINT, "radius_m": 5}, "'radius_m'"),
        ({"type": "Feature", "geometry": {"type": "Feature", "geometry": POINT}}, "the type is 'Feature'"),
        ({"type": "Polygon", "coordinates": RING}, "a point is 10.0"),
        ({"type": "Polygon", "coordinates": [[RING]]}, "a point has 4 members"),
        ({"type": "Polygon", "coordinates": {}}, "is an object, not a list of rings"),
        ({"type": "Polygon", "coordinates": "abc"}, "not a list of rings"),
        ({"type": "MultiPolygon", "coordinates": [RING]}, "a point is 10.0"),
        ({"type": "GeometryCollection", "geometries": [5]}, "each of the geometries is 5"),
        ({"type": "Point", "coordinates": ["10", 50.0], "radius_m": 5}, "a longitude is '10', not a number"),
        ({"type": "Point", "coordinates": [10.0, True], "radius_m": 5}, "a latitude is true, not a number"),
        ({"type": "Point", "coordinates": [10.0, 10**400], "radius_m": 5}, "300 digits"),
        ({"type": "Point", "coordinates": [10.0, 50.0, 100.0], "radius_m": 5}, "leave out the altitude"),
        ({"type": "Point", "coordinates": [10.0], "radius_m": 5}, "1 members"),
        ({**POINT, "radius_m": "500"}, "radius_m is '500'"),
        ({**POINT, "radius_m": 10**5000}, "300 digits"),
        ({"type": "Box", "bbox": [0, 0, 0, 1, 1, 1]}, "6 numbers"),
        ({"type": "Box", "bbox": [0, 0, 1, None]}, "null, not a number"),
        ({"type": "Point", "coordinates": [10.0, 50.0], "radius_m": 5, None: 1}, "unknown member null"),
    ],
)
def test_an_invalid_area_is_refused_with_an_explanation(value: object, detail: str) -> None:
    error = refusal(value)
    assert error.reason is Reason.AREA_UNREADABLE
    assert detail in error.detail
    assert len(error.detail) < 200


@pytest.mark.parametrize(
    ("value", "reason"),
    [
        ({"type": "Point", "coordinates": [50.0, 100.0], "radius_m": 5}, Reason.COORDINATE_RANGE),
        ({"type": "Point", "coordinates": [float("nan"), 0.0], "radius_m": 5}, Reason.COORDINATE_RANGE),
        ({**POINT, "radius_m": -5}, Reason.AREA_RADIUS),
        ({**WAYS, "half_widths_m": []}, Reason.FIELD_RANGE),
        ({**WAYS, "seconds_left": [[30.0, 90.0]]}, Reason.FIELD_RANGE),
        ({"type": "Polygon", "coordinates": []}, Reason.AREA_EMPTY),
        ({"type": "Polygon", "coordinates": [[]]}, Reason.AREA_RING),
        ({"type": "Polygon", "coordinates": [RING[:-1]]}, Reason.AREA_RING),
        ({"type": "MultiPolygon", "coordinates": []}, Reason.AREA_EMPTY),
        ({"type": "GeometryCollection", "geometries": []}, Reason.AREA_EMPTY),
        ({"type": "Box", "bbox": [0, 1, 1, 0]}, Reason.AREA_EMPTY),
        ({"type": "LineString", "coordinates": [], "half_width_m": 5}, Reason.AREA_EMPTY),
        ({"type": "LineString", "coordinates": [[0, 0]] * 1001, "half_width_m": 5}, Reason.AREA_TOO_COMPLEX),
        ({"type": "Polygon", "coordinates": [[[0, 0]] * (POLYGON_POINTS_MAX + 1)]}, Reason.AREA_TOO_COMPLEX),
        ({"type": "Polygon", "coordinates": [RING] * (POLYGON_POINTS_MAX // 4 + 1)}, Reason.AREA_TOO_COMPLEX),
        ({"type": "MultiPolygon", "coordinates": [[RING]] * 65}, Reason.AREA_TOO_COMPLEX),
    ],
)
def test_faults_of_the_area_itself_keep_their_reason(value: object, reason: Reason) -> None:
    assert refusal(value).reason is reason


def nested(levels: int) -> dict[str, Any]:
    value = {**POINT, "radius_m": 5.0}
    for _ in range(levels):
        value = {"type": "GeometryCollection", "geometries": [value]}
    return value


def test_collections_within_collections_end_at_the_stated_level() -> None:
    area_from_geojson(nested(UNION_DEPTH_MAX))
    assert refusal(nested(UNION_DEPTH_MAX + 1)).reason is Reason.AREA_TOO_COMPLEX
    assert refusal(nested(100_000)).reason is Reason.AREA_TOO_COMPLEX


def test_parts_are_counted_while_they_are_read_not_after() -> None:
    wide: dict[str, Any] = {**POINT, "radius_m": 5.0}
    for _ in range(UNION_DEPTH_MAX):
        wide = {"type": "GeometryCollection", "geometries": [wide] * 64}
    assert "65 parts" in refusal(wide).detail, "16 million of them would take minutes"


def test_a_value_that_contains_itself_is_refused() -> None:
    loop: dict[str, Any] = {"type": "GeometryCollection"}
    loop["geometries"] = [loop]
    assert refusal(loop).reason is Reason.AREA_TOO_COMPLEX
    endless: list[Any] = []
    endless.append(endless)
    assert refusal({"type": "Polygon", "coordinates": endless}).reason is Reason.AREA_UNREADABLE
