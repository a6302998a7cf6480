"""OpenStreetMap extracts: directions, speeds, lanes, junctions, turn restrictions, and invalid files (M26)."""

import gzip
from io import BytesIO
from pathlib import Path

import osmium
import pytest

from milepost.roads import RoadNetwork, UnreadableRoads
from milepost.roads.osm import read_osm
from unit.roads.small_networks import degrees, names

NODES = {1: (0, 0), 2: (300, 0), 3: (600, 0), 4: (300, 300), 5: (300, -300), 6: (300, 150)}


def way(number: int, nodes: tuple[int, ...], **tags: str) -> str:
    refs = "".join(f'<nd ref="{node}"/>' for node in nodes)
    return f'<way id="{number}" version="1">{refs}{_tags(tags)}</way>'


def ban(kind: str, start: int, over: int, end: int, **tags: str) -> str:
    members = f'<member type="way" ref="{start}" role="from"/><member type="node" ref="{over}" role="via"/>'
    members += f'<member type="way" ref="{end}" role="to"/>'
    return f'<relation id="9" version="1">{members}{_tags({"type": "restriction", "restriction": kind, **tags})}</relation>'


def _tags(tags: dict[str, str]) -> str:
    return "".join(f'<tag k="{name.replace("__", ":")}" v="{value}"/>' for name, value in tags.items())


def extract(*parts: str, without: int = 0) -> bytes:
    nodes = [(number, *degrees(*metres)) for number, metres in NODES.items() if number != without]
    said = "".join(f'<node id="{number}" version="1" lat="{north:.7f}" lon="{east:.7f}"/>' for number, north, east in nodes)
    return f"<?xml version='1.0'?><osm version='0.6'>{said}{''.join(parts)}</osm>".encode()


def read(*parts: str, without: int = 0) -> RoadNetwork:
    return read_osm(BytesIO(extract(*parts, without=without)))


MAIN, SIDE = way(10, (1, 2, 3), highway="primary"), way(11, (4, 6, 2), highway="residential", oneway="yes")


def successors(network: RoadNetwork, road: str) -> set[str]:
    return names(network, network.successors(network.ids.index(road)))


def test_m26_ways_are_split_at_junctions_and_two_way_unless_tagged_one_way() -> None:
    network = read(MAIN, SIDE)
    assert set(network.ids) == {"10#0", "-10#0", "10#1", "-10#1", "11#0"}
    assert successors(network, "11#0") == {"10#1", "-10#0"}
    assert successors(network, "10#0") == {"10#1"}
    assert network.lengths_m[network.ids.index("11#0")] == pytest.approx(300.0, abs=0.5)
    assert network.first[network.ids.index("11#0") + 1] - network.first[network.ids.index("11#0")] == 3


@pytest.mark.parametrize(
    ("tags", "roads"),
    [
        ({"highway": "primary"}, {"10#0", "-10#0"}),
        ({"highway": "primary", "oneway": "-1"}, {"-10#0"}),
        ({"highway": "motorway"}, {"10#0"}),
        ({"highway": "motorway", "oneway": "no"}, {"10#0", "-10#0"}),
        ({"highway": "tertiary", "junction": "roundabout"}, {"10#0"}),
    ],
)
def test_m26_tags_determine_the_driving_directions(tags: dict[str, str], roads: set[str]) -> None:
    assert set(read(way(10, (1, 2), **tags)).ids) == roads


@pytest.mark.parametrize(
    "tags",
    [
        {"highway": "footway"},
        {"highway": "primary", "access": "no"},
        {"highway": "service", "motor_vehicle": "private"},
        {"highway": "primary", "area": "yes"},
        {"railway": "rail"},
    ],
)
def test_m26_ways_closed_to_cars_are_no_roads(tags: dict[str, str]) -> None:
    assert set(read(way(10, (1, 2), **tags), way(11, (2, 3), highway="primary", oneway="yes")).ids) == {"11#0"}


@pytest.mark.parametrize(
    ("tags", "kmh", "lanes"),
    [
        ({}, 50.0, 1),
        ({"maxspeed": "70", "lanes": "4"}, 70.0, 2),
        ({"maxspeed": "30 mph", "lanes": "3", "lanes__forward": "2"}, 48.28, 2),
        ({"maxspeed": "none", "oneway": "yes", "lanes": "3"}, 130.0, 3),
        ({"maxspeed": "DE:rural", "lanes": "many"}, 100.0, 1),
        ({"maxspeed": "signals", "lanes": "0"}, 50.0, 1),
        ({"maxspeed": "50", "maxspeed__forward": "80"}, 80.0, 1),
        ({"maxspeed": "0"}, 3.6, 1),
    ],
)
def test_m26_speed_and_lanes_are_as_tagged_or_the_default_of_the_road_kind(tags: dict[str, str], kmh: float, lanes: int) -> None:
    network = read(way(10, (1, 2), highway="secondary", **tags))
    number = network.ids.index("10#0")
    assert (network.speeds_mps[number] * 3.6, network.lanes[number]) == (pytest.approx(kmh, abs=0.01), lanes)


def test_m26_turn_restrictions_remove_successors() -> None:
    assert successors(read(MAIN, SIDE, ban("no_left_turn", 11, 2, 10)), "11#0") == set()
    south = way(12, (2, 5), highway="residential", oneway="yes")
    assert successors(read(MAIN, SIDE, south, ban("only_straight_on", 11, 2, 12)), "11#0") == {"12#0"}
    assert successors(read(MAIN, SIDE, south, ban("no_entry", 11, 2, 12, **{"except": "motorcar"})), "11#0") == {
        "10#1",
        "-10#0",
        "12#0",
    }
    assert successors(read(MAIN, SIDE, south, ban("no_u_turn", 77, 2, 12)), "11#0") == {"10#1", "-10#0", "12#0"}


def test_m26_roads_that_leave_the_extract_are_excluded() -> None:
    assert set(read(MAIN, SIDE, without=3).ids) == {"10#0", "-10#0", "11#0"}


def test_m26_compressed_xml_and_pbf_are_read_alike(tmp_path: Path) -> None:
    data = extract(MAIN, SIDE)
    with osmium.SimpleWriter(str(tmp_path / "town.osm.pbf")) as writer:
        for one in osmium.FileProcessor(osmium.io.FileBuffer(data, "osm")):
            writer.add(one)
    plain, packed, pbf = (
        read_osm(BytesIO(some)) for some in (data, gzip.compress(data), (tmp_path / "town.osm.pbf").read_bytes())
    )
    for other in (packed, pbf):
        assert other.ids == plain.ids
        assert other.latitudes.tolist() == plain.latitudes.tolist()
        assert other.onward.tolist() == plain.onward.tolist()


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "neither XML nor PBF"),
        (b"PK\x03\x04 a zip", "neither XML nor PBF"),
        (b"<osm version='0.6'", "not an OpenStreetMap extract"),
        (b"<html/>", "not an OpenStreetMap extract"),
        (b"\x00\x00\x00\x0d\x0a\x09OSMHeader\x18", "not an OpenStreetMap extract"),
        (gzip.compress(extract(MAIN))[:-30], "not an OpenStreetMap extract"),
        (extract(), "no roads for cars"),
    ],
)
def test_an_invalid_extract_is_refused_with_the_reason(data: bytes, why: str) -> None:
    with pytest.raises(UnreadableRoads, match=why):
        read_osm(BytesIO(data))
