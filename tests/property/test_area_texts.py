"""Areas as GeoJSON and well-known text: every area survives encoding and decoding, and the only exception is `Malformed`."""

from collections.abc import Callable
from copy import deepcopy
from typing import Any

import orjson
import pytest
from hypothesis import event, example, given
from hypothesis import strategies as st

from milepost.model.areas import Area
from milepost.model.reasons import Malformed, Reason
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.wkt import area_from_wkt, area_to_wkt
from strategies import areas

AREA_REASONS = {reason for reason in Reason if 150 <= reason < 160}
"""Reasons for which a shape is refused. The remaining seconds and metres of an upstream are no part of its shape: values out of
range are refused as those of a field, with its name, in every encoding."""
LEFT_FIELDS = ("half_widths_m", "remaining seconds", "remaining metres")

GROWING_METRES = {
    "type": "MultiLineString",
    "coordinates": [[[10.0, 50.0], [11.0, 51.0]]],
    "half_widths_m": [12.5],
    "seconds_left": [[90.0, 30.0]],
    "metres_left": [[300.0, 900.0]],
}

scalars = st.none() | st.booleans() | st.integers() | st.just(10**400) | st.floats() | st.text(max_size=20)
names = st.sampled_from(["type", "coordinates", "geometries", "geometry", "properties", "bbox", "radius_m", "half_width_m"])
kinds = st.sampled_from(["Point", "LineString", "Polygon", "MultiPolygon", "GeometryCollection", "Box", "Feature", "Circle"])
json_values: st.SearchStrategy[Any] = st.recursive(
    scalars | kinds | st.lists(st.floats(-90, 90), min_size=2, max_size=2),
    lambda inner: (
        st.lists(inner, max_size=5)
        | st.dictionaries(st.text(max_size=10) | names, inner, max_size=5)
        | st.builds(lambda kind, members: {**members, "type": kind}, kinds, st.dictionaries(names, inner, max_size=4))
    ),
    max_leaves=40,
)
wkt_words = st.sampled_from(
    [
        "POLYGON ",
        "MULTIPOLYGON",
        "GEOMETRYCOLLECTION",
        "circle",
        "BOX",
        "CORRIDOR",
        "(",
        ")",
        ",",
        ";",
        " ",
        "EMPTY",
        "Z",
        "1",
        "-2.5e1",
        "\n",
    ]
)


def area_or_fault(read: Callable[[], Area]) -> Area | Malformed:
    """Return the area, or the reason of its refusal; any other exception fails the test."""
    try:
        area = read()
    except Malformed as fault:
        event(fault.reason.name)
        return fault
    event("taken")
    return area


def read_geojson(value: object) -> None:
    found = area_or_fault(lambda: area_from_geojson(value))
    if isinstance(found, Malformed):
        is_upstream_field = found.reason is Reason.FIELD_RANGE and any(name in found.detail for name in LEFT_FIELDS)
        assert found.reason in AREA_REASONS or is_upstream_field
        assert found.detail
    else:
        assert area_from_geojson(area_to_geojson(found)) == found


def read_wkt(text: str) -> None:
    found = area_or_fault(lambda: area_from_wkt(text))
    if isinstance(found, Malformed):
        assert found.reason in AREA_REASONS
        assert found.detail
        assert found.at is not None
        assert 0 <= found.at <= len(text)
    else:
        assert area_from_wkt(area_to_wkt(found)) == found


@given(areas)
def test_geojson_survives_encoding_and_decoding(area: Area) -> None:
    assert area_from_geojson(orjson.loads(orjson.dumps(area_to_geojson(area)))) == area


@given(areas)
def test_wkt_survives_encoding_and_decoding(area: Area) -> None:
    assert area_from_wkt(area_to_wkt(area)) == area


def test_remaining_metres_that_increase_along_a_stretch_are_out_of_range() -> None:
    with pytest.raises(Malformed) as caught:
        area_from_geojson(GROWING_METRES)
    assert caught.value.reason is Reason.FIELD_RANGE
    assert caught.value.detail.startswith("the remaining metres are 300.0 at the start of a stretch and 900.0 at its end")


@given(json_values)
@example(GROWING_METRES)
def test_any_json_value_is_an_area_or_malformed(value: object) -> None:
    read_geojson(value)


@given(st.text(max_size=60) | st.lists(wkt_words, max_size=30).map("".join))
@example("GEOMETRYCOLLECTION (" * 9000)
def test_any_string_is_an_area_or_malformed(text: str) -> None:
    read_wkt(text)


@given(areas, st.data())
def test_geojson_with_one_member_changed_is_an_area_or_malformed(area: Area, data: st.DataObject) -> None:
    value: Any = {"type": "Feature", "geometry": deepcopy(area_to_geojson(area)), "properties": {}}
    holder = value
    while True:
        key = data.draw(st.sampled_from(sorted(holder) if isinstance(holder, dict) else range(len(holder))))
        if not holder[key] or not isinstance(holder[key], dict | list) or data.draw(st.integers(0, 4)) == 0:
            break
        holder = holder[key]
    holder[key] = data.draw(scalars | json_values)
    read_geojson(value)


@given(areas, st.data())
def test_wkt_with_a_stretch_changed_is_an_area_or_malformed(area: Area, data: st.DataObject) -> None:
    text = area_to_wkt(area)
    first = data.draw(st.integers(0, len(text)))
    last = data.draw(st.integers(first, min(len(text), first + 5)))
    read_wkt(text[:first] + data.draw(st.text(max_size=3) | wkt_words) + text[last:])
