"""The JSON form of cells, incidents and queries about them; `schema/incidents.schema.json` describes it.

As in `json_form`, decoding is strict, instants are ISO 8601 texts and every text carries a version; no integer here needs more
than 53 bits. Cells come from other processes, incidents from storage; both are validated.
"""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from milepost.model.areas import Circle
from milepost.model.incidents import (
    Bin,
    Cell,
    Conditions,
    EarlyWarning,
    Extent,
    Incident,
    IncidentChange,
    IncidentPhase,
    Square,
    Tally,
    TrackerState,
)
from milepost.model.incidents.cells import NO_TALLIES
from milepost.model.incidents.witnesses import Witnesses
from milepost.model.instants import Instant
from milepost.model.places import Place
from milepost.wire.geojson import area_to_geojson
from milepost.wire.json_form import PlaceForm
from milepost.wire.json_form.codec import Codec, Form, Notation, Standalone, Whole, absent, encode_any, encode_members
from milepost.wire.json_form.field_codecs import Base64, IsoInstant
from milepost.wire.theta_sketch import sketch_from_bytes, sketch_to_bytes
from milepost.wire.times import instant_to_text

INCIDENTS_SCHEMA_PATH: Final = Path(__file__).parent / "schema" / "incidents.schema.json"

CELL_BYTES_MAX: Final = 64_000

STATE_BYTES_MAX: Final = 200_000_000


def cell_to_json(cell: Cell) -> bytes:
    """Return the JSON text of a cell."""
    return encode_members(CellForm.write(cell))


def cell_from_json(data: bytes) -> Cell:
    """Return the cell of a JSON text; raises only `Malformed`."""
    return _CELLS.decode(data)


def cell_key(cell: Cell) -> str:
    """Return the key of a cell in the log, the same for every update of it."""
    return f"{cell.kind}/{cell.slot}/{cell.square.row}/{cell.square.column}"


class CellValue(NamedTuple):
    """The JSON text of a cell, not decoded yet."""

    reports: int
    data: bytes


def group_by_key(values: Iterable[bytes | None]) -> list[list[CellValue]]:
    """Group JSON texts of cells by the key of the cell, those with most reports first; an unreadable text is a group of its own.

    A stream publishes a cell again at each report, and of those with one key the one with most reports is valid: the others of
    a batch need not be decoded.
    """
    groups: dict[object, list[CellValue]] = {}
    for number, data in enumerate(values):
        if data is None:
            continue
        try:
            head = _CELL_HEADS.decode(data)
        except (msgspec.DecodeError, UnicodeError, RecursionError):
            groups[number] = [CellValue(0, data)]
        else:
            key = (head.kind, head.slot, head.row, head.column)
            groups.setdefault(key, []).append(CellValue(head.reports, data))
    return [sorted(some, key=lambda one: -one.reports) if len(some) > 1 else some for some in groups.values()]


class IncidentTexts:
    """The JSON texts of incidents, each encoded once: most incidents of a state are those of the state before."""

    def __init__(self) -> None:
        self._kept: dict[int, tuple[Incident, msgspec.Raw]] = {}
        """Texts by the identity of the incident, which lives as long as its entry."""
        self._used: dict[int, tuple[Incident, msgspec.Raw]] = {}

    def encode(self, incident: Incident) -> msgspec.Raw:
        """Return the JSON text of an incident."""
        name = id(incident)
        found = self._used.get(name) or self._kept.get(name) or (incident, msgspec.Raw(encode_any(IncidentForm.write(incident))))
        self._used[name] = found
        return found[1]

    def forget_unused(self) -> None:
        """Forget the texts that were not used since the last call."""
        self._kept, self._used = self._used, {}


def change_to_json(change: IncidentChange) -> bytes:
    """Return the JSON text of a change of an incident."""
    return encode_members(ChangeForm.write(change))


def conditions_to_json(found: tuple[Conditions, ...], at: Instant) -> bytes:
    """Return the JSON text of the current conditions in an area, as of *at* (M25)."""
    return encode_members(
        {"type": "conditions", "at": instant_to_text(at), "kinds": [ConditionsForm.write(one) for one in found]}
    )


EncodeIncident = Callable[[Incident], object]
"""Returns the members of an incident, or its JSON text."""


def state_to_json(state: TrackerState, encode: EncodeIncident | None = None) -> bytes:
    """Return the JSON text of the state to resume from after a restart."""
    incidents = list(map(encode or IncidentForm.write, state.incidents))
    return encode_members({"type": "incidents", "slots": dict(state.slots), "incidents": incidents})


def state_from_json(data: bytes) -> TrackerState:
    """Return the state of a JSON text; raises only `Malformed`."""
    return _STATES.decode(data)


def early_warnings_to_json(some: Iterable[EarlyWarning], encode: EncodeIncident | None = None) -> bytes:
    """Return the JSON text of early warnings, to resume from after a restart."""
    encode = encode or IncidentForm.write
    warnings = [
        {"slot": one.slot, "incident": encode(one.incident)} | ({} if one.successor is None else {"successor": one.successor})
        for one in some
    ]
    return encode_members({"type": "early", "warnings": warnings})


def early_warnings_from_json(data: bytes) -> tuple[EarlyWarning, ...]:
    """Return the early warnings of a JSON text; raises only `Malformed`."""
    return _EARLY.decode(data)


class TallyForm(Form, frozen=True):
    """Aggregates of a payload field."""

    MODEL = Tally
    count: Whole
    total: Whole
    least: Whole
    greatest: Whole


def _cell(row: int, column: int, **others: Any) -> Cell:
    return Cell(square=Square(row, column), **others)


class SketchText(Notation):
    """Witnesses, as a theta sketch in base64."""

    @staticmethod
    def write(value: Witnesses) -> bytes:
        """Return the bytes, which msgspec encodes in base64."""
        return sketch_to_bytes(value)

    @staticmethod
    def read(value: object) -> Witnesses:
        """Return the witnesses."""
        return sketch_from_bytes(Base64.read(value))


class _CellHead(msgspec.Struct):
    """The members of a cell that tell which of several is valid."""

    kind: str
    slot: int
    row: int
    column: int
    reports: int


class CellForm(Standalone, frozen=True, tag="cell"):
    """The reports of one kind in one square and slot."""

    MODEL = _cell
    PATHS = {"row": "square.row", "column": "square.column"}  # noqa: RUF012
    kind: str
    slot: Whole
    row: Whole
    column: Whole
    reports: Whole
    witnesses: SketchText
    north_sum: Whole
    east_sum: Whole
    extent: Extent
    first_at: IsoInstant
    last_at: IsoInstant
    tallies: dict[str, TallyForm] = absent(NO_TALLIES)


class CircleForm(Form, frozen=True, tag_field="type", tag="Point"):
    """A circle in GeoJSON, longitude first."""

    coordinates: tuple[float, float]
    radius_m: float

    @classmethod
    def write(cls, value: Circle) -> dict[str, object]:
        """Return the members of a circle."""
        return area_to_geojson(value)

    def value(self) -> Circle:
        """Return the circle."""
        longitude, latitude = self.coordinates
        return Circle(Place(latitude, longitude), self.radius_m)


class IncidentForm(Form, frozen=True, tag_field="type", tag="incident"):
    """An incident."""

    MODEL = Incident
    id: str
    kind: str
    centre: PlaceForm
    radius_m: float
    reports: Whole
    witnesses: Whole
    weight: float
    squares: frozenset[Square]
    raised_at: IsoInstant
    hot_at: IsoInstant
    alert_area: CircleForm
    alerted_at: IsoInstant


class ChangeForm(Standalone, frozen=True, tag="change"):
    """A change of an incident."""

    MODEL = IncidentChange
    phase: IncidentPhase
    at: IsoInstant
    incident: IncidentForm


class BinForm(Form, frozen=True):
    """The reports of nine squares."""

    MODEL = Bin
    PATHS = {"row": "square.row", "column": "square.column"}  # noqa: RUF012
    row: Whole
    column: Whole
    reports: Whole
    witnesses: Whole
    weight: float
    centre: PlaceForm
    radius_m: float
    first_at: IsoInstant
    last_at: IsoInstant
    tallies: dict[str, TallyForm]


class ConditionsForm(Form, frozen=True, kw_only=True):
    """Incidents and reports of one kind in an area."""

    MODEL = Conditions
    kind: str
    incidents: tuple[IncidentForm, ...]
    is_hot: bool
    bin: BinForm = absent(None)


class StateForm(Standalone, frozen=True, tag="incidents"):
    """The active incidents, and the last evaluated slot of each kind."""

    MODEL = TrackerState
    slots: dict[str, Whole]
    incidents: tuple[IncidentForm, ...]


class EarlyWarningForm(Form, frozen=True):
    """An early warning."""

    MODEL = EarlyWarning
    slot: Whole
    incident: IncidentForm
    successor: str = absent(None)


class EarlyWarningsForm(Standalone, frozen=True, tag="early"):
    """All early warnings."""

    MODEL = staticmethod(lambda warnings: warnings)
    warnings: tuple[EarlyWarningForm, ...]


_CELL_HEADS: Final = msgspec.json.Decoder(_CellHead)
_CELLS: Final = Codec[Cell]("cell", CellForm, bytes_max=CELL_BYTES_MAX)
_STATES: Final = Codec[TrackerState]("incidents", StateForm, bytes_max=STATE_BYTES_MAX)
_EARLY: Final = Codec[tuple[EarlyWarning, ...]]("early", EarlyWarningsForm, bytes_max=STATE_BYTES_MAX)
