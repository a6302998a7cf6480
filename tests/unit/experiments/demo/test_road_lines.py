"""Roads as GeoJSON lines for a map."""

import json

from milepost_experiments.demo.startup import to_geojson
from unit.roads.small_networks import small_network


def test_every_road_is_a_line_with_longitude_before_latitude() -> None:
    network = small_network({"a": (0, 0), "b": (500, 0), "c": (500, 300)}, "a>b", "b-c", speed_mps=13.888, lanes=2)
    found = json.loads(to_geojson(network))
    assert found["type"] == "FeatureCollection"
    assert [one["properties"]["road"] for one in found["features"]] == ["ab", "bc", "cb"]
    assert found["features"][0]["properties"] == {"road": "ab", "lanes": 2, "speed_mps": 13.89}
    first = found["features"][0]["geometry"]
    assert first["type"] == "LineString"
    assert first["coordinates"] == [[place.longitude, place.latitude] for place in network.places_of(0)]
