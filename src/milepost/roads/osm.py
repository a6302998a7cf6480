"""Road networks of OpenStreetMap extracts (.osm XML, also compressed, and .osm.pbf).

Rules:
- ways are split at nodes that they share with others; a two-way street becomes two roads, the second with a minus in its name;
- where no speed or number of lanes is tagged, the default of the kind of road applies (`_ROAD_KINDS`);
- turn restrictions via a node are applied; those via a way, by time of day or for other vehicles only are ignored;
- every fault of the file is an `UnreadableRoads`.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import pairwise
from typing import IO, Final, NamedTuple

import osmium

from milepost.roads.network import LANES_MAX, Road, RoadNetwork, UnreadableRoads, build_network

BYTES_MAX: Final = 2_000_000_000
_KMH: Final = 1 / 3.6
_MPH: Final = 0.44704
_SLOWEST_MPS: Final = 1.0
_FASTEST_MPS: Final = 90.0

_ROAD_KINDS: Final[Mapping[str, tuple[float, int]]] = {
    "motorway": (120, 2), "motorway_link": (60, 1), "trunk": (100, 2), "trunk_link": (60, 1), "primary": (60, 1),
    "primary_link": (50, 1), "secondary": (50, 1), "secondary_link": (50, 1), "tertiary": (50, 1), "tertiary_link": (40, 1),
    "unclassified": (50, 1), "residential": (30, 1), "living_street": (10, 1), "service": (20, 1),
}  # fmt: skip
"""Default speed limit in km/h, and lanes per direction."""
_NAMED_SPEEDS: Final[Mapping[str, float]] = {
    "none": 130,
    "walk": 7,
    "urban": 50,
    "rural": 100,
    "motorway": 130,
    "living_street": 10,
}
_FORBIDDEN: Final = frozenset({"no", "private", "agricultural", "forestry", "delivery"})


class _Way(NamedTuple):
    id: int
    nodes: tuple[int, ...]
    tags: Mapping[str, str]


class _TurnRestriction(NamedTuple):
    """Turn restriction from one way into another via a node: forbidden, or (`is_only`) the only one allowed."""

    start: int
    over: int
    end: int
    is_only: bool


class _Piece(NamedTuple):
    """Part of a way between two junctions, in one direction, with the road made from it."""

    way: int
    road: Road
    first: int
    last: int


def read_osm(file: IO[bytes]) -> RoadNetwork:
    """Return the network of an open file."""
    data = file.read(BYTES_MAX + 1)
    if len(data) > BYTES_MAX:
        raise UnreadableRoads(f"the extract has more than {BYTES_MAX:,} bytes: cut out the region you need (osmium extract)")
    try:
        ways, restrictions = _ways_and_restrictions(data)
        places = _places_of(data, {node for way in ways for node in way.nodes})
    except (RuntimeError, ValueError) as fault:
        raise UnreadableRoads(f"this is not an OpenStreetMap extract: {fault}") from None
    junctions = _junctions(ways)
    pieces = [piece for way in ways for piece in _pieces(way, junctions, places)]
    return build_network([piece.road for piece in pieces], _turns(pieces, restrictions))


def _objects(data: bytes, kinds: osmium.osm.osm_entity_bits) -> Iterator[object]:
    yield from osmium.FileProcessor(osmium.io.FileBuffer(data, _format(data)), kinds)


def _format(data: bytes) -> str:
    """Return libosmium's name of the file format."""
    if data[6:15] == b"OSMHeader":
        return "pbf"
    packed = {b"\x1f\x8b": ".gz", b"BZ": ".bz2"}.get(data[:2], "")
    if not packed and not data[:200].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(b"<"):
        raise ValueError("neither XML nor PBF; give an .osm or .osm.pbf file")
    return f"osm{packed}"


def _ways_and_restrictions(data: bytes) -> tuple[list[_Way], list[_TurnRestriction]]:
    """Return the ways open to cars, and the turn restrictions."""
    ways, restrictions = list[_Way](), list[_TurnRestriction]()
    for one in _objects(data, osmium.osm.WAY | osmium.osm.RELATION):
        if isinstance(one, osmium.osm.Way):
            tags = dict(one.tags)
            nodes = tuple(node.ref for node in one.nodes)
            if _is_for_cars(tags) and len(nodes) > 1:
                ways.append(_Way(one.id, nodes, tags))
        elif isinstance(one, osmium.osm.Relation) and (restriction := _maybe_restriction(one)) is not None:
            restrictions.append(restriction)
    return ways, restrictions


def _is_for_cars(tags: Mapping[str, str]) -> bool:
    if tags.get("highway") not in _ROAD_KINDS or tags.get("area") == "yes":
        return False
    access = next((tags[name] for name in ("motorcar", "motor_vehicle", "vehicle", "access") if name in tags), "yes")
    return access not in _FORBIDDEN


def _maybe_restriction(relation: osmium.osm.Relation) -> _TurnRestriction | None:
    tags = dict(relation.tags)
    kind = tags.get("restriction", "")
    if tags.get("type") != "restriction" or "motorcar" in tags.get("except", "") or not kind.startswith(("no_", "only_")):
        return None
    members = {member.role: member for member in relation.members}
    if set(members) != {"from", "via", "to"} or members["via"].type != "n":
        return None
    return _TurnRestriction(members["from"].ref, members["via"].ref, members["to"].ref, kind.startswith("only_"))


def _places_of(data: bytes, node_ids: set[int]) -> dict[int, tuple[float, float]]:
    places = {}
    for one in _objects(data, osmium.osm.NODE):
        if isinstance(one, osmium.osm.Node) and one.id in node_ids and one.location.valid():
            places[one.id] = one.location.lat, one.location.lon
    return places


def _junctions(ways: list[_Way]) -> set[int]:
    """Return the nodes used by more than one way or twice by one, and the ends of all ways."""
    used = Counter(node for way in ways for node in way.nodes)
    return {node for node, count in used.items() if count > 1} | {node for way in ways for node in (way.nodes[0], way.nodes[-1])}


def _pieces(way: _Way, junctions: set[int], places: Mapping[int, tuple[float, float]]) -> Iterator[_Piece]:
    """Yield the roads of a way, without the parts outside the extract (nodes without a place)."""
    cuts = [at for at, node in enumerate(way.nodes) if node in junctions]
    forward, backward = _directions(way.tags)
    for number, (first, last) in enumerate(pairwise(cuts)):
        nodes = way.nodes[first : last + 1]
        if any(node not in places for node in nodes) or len({places[node] for node in nodes}) < 2:
            continue
        if forward:
            yield _piece(way, f"{way.id}#{number}", nodes, places, "forward", is_both=backward)
        if backward:
            yield _piece(way, f"-{way.id}#{number}", nodes[::-1], places, "backward", is_both=forward)


def _piece(
    way: _Way, name: str, nodes: tuple[int, ...], places: Mapping[int, tuple[float, float]], side: str, *, is_both: bool
) -> _Piece:
    points = [places[node] for node in nodes]
    speed_mps, lanes = _speed_mps(way.tags, side), _lanes(way.tags, side, is_both=is_both)
    return _Piece(way.id, Road(name, points, speed_mps, lanes, str(nodes[0]), str(nodes[-1])), nodes[0], nodes[-1])


def _directions(tags: Mapping[str, str]) -> tuple[bool, bool]:
    """Return whether driving is allowed in the direction of the way's nodes, and in the opposite direction."""
    oneway = tags.get("oneway")
    if oneway in ("-1", "reverse"):
        return False, True
    is_implied = tags.get("junction") in ("roundabout", "circular") or tags["highway"] in ("motorway", "motorway_link")
    is_oneway = oneway in ("yes", "true", "1") or (oneway is None and is_implied)
    return True, not is_oneway


def _speed_mps(tags: Mapping[str, str], side: str) -> float:
    text = tags.get(f"maxspeed:{side}", tags.get("maxspeed", "")).strip().lower()
    number, _, unit = text.partition(" ")
    speed_mps = _ROAD_KINDS[tags["highway"]][0] * _KMH
    if number.isdigit():
        speed_mps = int(number) * (_MPH if unit == "mph" else _KMH)
    elif (name := text.rpartition(":")[2]) in _NAMED_SPEEDS:
        speed_mps = _NAMED_SPEEDS[name] * _KMH
    return min(max(speed_mps, _SLOWEST_MPS), _FASTEST_MPS)


def _lanes(tags: Mapping[str, str], side: str, *, is_both: bool) -> int:
    own, total = tags.get(f"lanes:{side}", ""), tags.get("lanes", "")
    lanes = _ROAD_KINDS[tags["highway"]][1]
    if own.isdigit():
        lanes = int(own)
    elif total.isdigit():
        lanes = int(total) // 2 if is_both else int(total)
    return min(max(lanes, 1), LANES_MAX)


def _turns(pieces: list[_Piece], restrictions: list[_TurnRestriction]) -> Iterator[tuple[int, int]]:
    """Yield the allowed turns from each road into the roads that begin at its end."""
    beginning: dict[int, list[int]] = {}
    for number, piece in enumerate(pieces):
        beginning.setdefault(piece.first, []).append(number)
    forbidden = {
        (restriction.start, restriction.over, restriction.end) for restriction in restrictions if not restriction.is_only
    }
    only: dict[tuple[int, int], set[int]] = {}
    for restriction in restrictions:
        if restriction.is_only:
            only.setdefault((restriction.start, restriction.over), set()).add(restriction.end)
    for number, piece in enumerate(pieces):
        allowed = only.get((piece.way, piece.last))
        for other in beginning.get(piece.last, ()):
            into = pieces[other].way
            if (piece.way, piece.last, into) not in forbidden and (allowed is None or into in allowed):
                yield number, other
