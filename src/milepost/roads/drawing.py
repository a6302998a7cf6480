"""A road network as people look at it: lines of GeoJSON, each street once where its two directions lie on each other."""

import orjson

from milepost.roads.network import Network


def to_geojson(network: Network) -> bytes:
    """A FeatureCollection with a line for every road, and what is known of it; longitude before latitude."""
    features = []
    for road, name in enumerate(network.ids):
        points = slice(network.first[road], network.first[road + 1])
        line = [list(pair) for pair in zip(network.longitudes[points].tolist(), network.latitudes[points].tolist(), strict=True)]
        known = {"road": name, "lanes": int(network.lanes[road]), "speed_mps": round(float(network.speeds_mps[road]), 2)}
        features.append({"type": "Feature", "properties": known, "geometry": {"type": "LineString", "coordinates": line}})
    return orjson.dumps({"type": "FeatureCollection", "features": features})
