"""The JSON form of cells, incidents and what is asked about them; `schema/incidents.schema.json` describes it.

As in `json_form`, nothing is repaired and instants are ISO 8601 texts; no integer here needs more than 53 bits. Cells come from
outside, incidents come back from where they were kept: both are read as strictly as they are written.
"""

from collections.abc import Iterable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Final

import orjson

from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId, endpoint_id
from milepost.model.incidents import Bin, Cell, Change, Conditions, Extent, Incident, IncidentId, Square, State, Tally, Warned
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire.geojson import area_from_geojson, area_to_geojson
from milepost.wire.json_form import reading
from milepost.wire.json_form.messages import read_place, write_place
from milepost.wire.json_form.reading import JsonObject, Members
from milepost.wire.times import instant_to_text

INCIDENTS_SCHEMA_PATH: Final = Path(__file__).parent / "schema" / "incidents.schema.json"

CELL_BYTES_MAX: Final = 64_000
"""Room for 64 of the longest ids, escaped."""

STATE_BYTES_MAX: Final = 200_000_000

CELL_MEMBERS: Final = (
    "type", "kind", "slot", "row", "column", "reports", "witnesses", "witness_count",
    "north_sum", "east_sum", "extent", "first_at", "last_at", "tallies",
)  # fmt: skip
TALLY_MEMBERS: Final = ("count", "total", "least", "greatest")
INCIDENT_MEMBERS: Final = (
    "type", "id", "kind", "centre", "radius_m", "reports", "witnesses", "weight", "squares",
    "raised_at", "hot_at", "told", "told_at",
)  # fmt: skip
CIRCLE_MEMBERS: Final = ("type", "coordinates", "radius_m")
WARNED_MEMBERS: Final = ("slot", "incident", "heir")
STATE_MEMBERS: Final = ("type", "slots", "incidents")

_NO_TALLIES: Final[Mapping[str, Tally]] = MappingProxyType({})


def cell_to_json(cell: Cell) -> bytes:
    """The cell, as the log has it."""
    found: JsonObject = {
        "type": "cell",
        "kind": cell.kind,
        "slot": cell.slot,
        "row": cell.square.row,
        "column": cell.square.column,
        "reports": cell.reports,
        "witnesses": sorted(cell.witnesses),
        "witness_count": cell.witness_count,
        "north_sum": cell.north_sum,
        "east_sum": cell.east_sum,
        "extent": list(cell.extent),
        "first_at": instant_to_text(cell.first_at),
        "last_at": instant_to_text(cell.last_at),
    }
    if cell.tallies:
        found["tallies"] = _write_tallies(cell.tallies)
    return orjson.dumps(found)


def cell_from_json(data: bytes) -> Cell:
    """The cell that a JSON text describes; raises nothing but `Malformed`."""
    members = Members(_loaded(data, CELL_BYTES_MAX), "cell", CELL_MEMBERS, kind="cell")
    return Cell(
        kind=members.need("kind", reading.text),
        slot=members.need("slot", reading.integer),
        square=Square(members.need("row", reading.integer), members.need("column", reading.integer)),
        reports=members.need("reports", reading.integer),
        witnesses=_once(members.need("witnesses", reading.texts)),
        witness_count=members.need("witness_count", reading.integer),
        north_sum=members.need("north_sum", reading.integer),
        east_sum=members.need("east_sum", reading.integer),
        extent=members.need("extent", _read_extent),
        first_at=members.need("first_at", reading.instant),
        last_at=members.need("last_at", reading.instant),
        tallies=members.maybe("tallies", _read_tallies, _NO_TALLIES),
    )


def cell_key(cell: Cell) -> str:
    """Under which the log has a cell: what it is told again under."""
    return f"{cell.kind}/{cell.slot}/{cell.square.row}/{cell.square.column}"


def change_to_json(change: Change) -> bytes:
    """What became of an incident."""
    at = instant_to_text(change.at)
    return orjson.dumps({"type": "change", "phase": change.phase.value, "at": at, "incident": write_incident(change.incident)})


def conditions_to_json(found: tuple[Conditions, ...], at: Instant) -> bytes:
    """The answer to "what is going on around here?", as of a time (M25)."""
    kinds = [
        {
            "kind": one.kind,
            "incidents": [write_incident(incident) for incident in one.incidents],
            "is_hot": one.is_hot,
            **({} if one.bin is None else {"bin": _write_bin(one.bin)}),
        }
        for one in found
    ]
    return orjson.dumps({"type": "conditions", "at": instant_to_text(at), "kinds": kinds})


def state_to_json(state: State) -> bytes:
    """What to go on from after a restart."""
    incidents = [write_incident(incident) for incident in state.incidents]
    return orjson.dumps({"type": "incidents", "slots": dict(state.slots), "incidents": incidents})


def state_from_json(data: bytes) -> State:
    """The state that a JSON text describes; raises nothing but `Malformed`."""
    members = Members(_loaded(data, STATE_BYTES_MAX), "incidents", STATE_MEMBERS, kind="incidents")
    slots = members.need("slots", _object)
    incidents = members.need("incidents", reading.array)
    return State(
        {name: reading.integer(slot, f"incidents.slots.{name[:64]}") for name, slot in slots.items()},
        tuple(_read_incident(one, f"incidents.incidents[{at}]") for at, one in enumerate(incidents)),
    )


def warned_to_json(some: Iterable[Warned]) -> bytes:
    """What was told early, to go on from after a restart."""
    found = [
        {"slot": one.slot, "incident": write_incident(one.incident), **({"heir": one.heir} if one.heir else {})} for one in some
    ]
    return orjson.dumps(found)


def warned_from_json(data: bytes) -> tuple[Warned, ...]:
    """What was told early; raises nothing but `Malformed`."""
    some = reading.array(_loaded(data, STATE_BYTES_MAX), "early")
    return tuple(_read_warned(one, f"early[{at}]") for at, one in enumerate(some))


def _read_warned(value: object, where: str) -> Warned:
    members = Members(value, where, WARNED_MEMBERS)
    heir = members.maybe("heir", reading.text, "")
    return Warned(
        members.need("incident", _read_incident), members.need("slot", reading.integer), IncidentId(heir) if heir else None
    )


def write_incident(incident: Incident) -> JsonObject:
    """The members of an incident."""
    return {
        "type": "incident",
        "id": incident.id,
        "kind": incident.kind,
        "centre": write_place(incident.centre),
        "radius_m": incident.radius_m,
        "reports": incident.reports,
        "witnesses": incident.witnesses,
        "weight": incident.weight,
        "squares": [list(square) for square in sorted(incident.squares)],
        "raised_at": instant_to_text(incident.raised_at),
        "hot_at": instant_to_text(incident.hot_at),
        "told": area_to_geojson(incident.told),
        "told_at": instant_to_text(incident.told_at),
    }


def _read_incident(value: object, where: str) -> Incident:
    members = Members(value, where, INCIDENT_MEMBERS, kind="incident")
    return Incident(
        id=IncidentId(members.need("id", reading.text)),
        kind=members.need("kind", reading.text),
        centre=members.need("centre", read_place),
        radius_m=members.need("radius_m", reading.number),
        reports=members.need("reports", reading.integer),
        witnesses=members.need("witnesses", reading.integer),
        weight=members.need("weight", reading.number),
        squares=members.need("squares", _read_squares),
        raised_at=members.need("raised_at", reading.instant),
        hot_at=members.need("hot_at", reading.instant),
        told=members.need("told", _read_circle),
        told_at=members.need("told_at", reading.instant),
    )


def _write_bin(one: Bin) -> JsonObject:
    return {
        "row": one.square.row,
        "column": one.square.column,
        "reports": one.reports,
        "witnesses": one.witnesses,
        "weight": one.weight,
        "centre": write_place(one.centre),
        "radius_m": one.radius_m,
        "first_at": instant_to_text(one.first_at),
        "last_at": instant_to_text(one.last_at),
        "tallies": _write_tallies(one.tallies),
    }


def _write_tallies(tallies: Mapping[str, Tally]) -> JsonObject:
    return {name: {part: getattr(tallies[name], part) for part in TALLY_MEMBERS} for name in sorted(tallies)}


def _read_tallies(value: object, where: str) -> Mapping[str, Tally]:
    found = {name: _read_tally(tally, f"{where}.{name[:64]}") for name, tally in _object(value, where).items()}
    return MappingProxyType(found)


def _read_tally(value: object, where: str) -> Tally:
    members = Members(value, where, TALLY_MEMBERS)
    return Tally(*(members.need(part, reading.integer) for part in TALLY_MEMBERS))


def _read_extent(value: object, where: str) -> Extent:
    edges = reading.integers(value, where)
    if len(edges) != 4:
        raise Malformed(Reason.FIELD_TYPE, f"{where} has {len(edges)} numbers, not the four of [south, west, north, east]")
    return Extent(*edges)


def _read_squares(value: object, where: str) -> frozenset[Square]:
    pairs = [reading.integers(pair, f"{where}[{at}]") for at, pair in enumerate(reading.array(value, where))]
    if any(len(pair) != 2 for pair in pairs):
        raise Malformed(Reason.FIELD_TYPE, f"{where} has other things than pairs [row, column]")
    return frozenset(Square(*pair) for pair in pairs)


def _read_circle(value: object, where: str) -> Circle:
    Members(value, where, CIRCLE_MEMBERS, kind="Point")
    circle = area_from_geojson(value)
    assert isinstance(circle, Circle), "a Point that is an area is a circle"
    return circle


def _once(names: list[str]) -> frozenset[EndpointId]:
    found = frozenset(map(endpoint_id, names))
    if len(found) != len(names):
        raise Malformed(Reason.FIELD_RANGE, "cell.witnesses names somebody twice")
    return found


def _object(value: object, where: str) -> JsonObject:
    if not isinstance(value, dict):
        raise reading.wrong_type(value, where, "an object")
    return value


def _loaded(data: bytes, size_max: int) -> object:
    if len(data) > size_max:
        raise Malformed(Reason.MESSAGE_TOO_LARGE, f"{len(data)} bytes of JSON, {size_max} are allowed")
    try:
        return orjson.loads(data)
    except orjson.JSONDecodeError as fault:
        raise Malformed(Reason.MALFORMED, f"no JSON: {fault.msg} at {fault.pos}", at=fault.pos) from None
