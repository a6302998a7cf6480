"""Cells, incidents and conditions in JSON: they come back, the schema agrees, and nothing is repaired (M23-M25)."""

import re
import sqlite3
from base64 import b64encode
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import jsonschema_rs
import orjson
import pytest
from hypothesis import given

from milepost.model.areas import Circle
from milepost.model.incidents import EarlyWarning, EventKind, Grid, IncidentId, TrackerState
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.wire.incidents import (
    CELL_BYTES_MAX,
    INCIDENTS_SCHEMA_PATH,
    IncidentTexts,
    cell_from_json,
    cell_key,
    cell_to_json,
    change_to_json,
    conditions_to_json,
    early_warnings_from_json,
    early_warnings_to_json,
    state_from_json,
    state_to_json,
)
from milepost.wire.theta_sketch import sketch_to_bytes
from strategies import places
from unit.incidents.events import HOME, Event, after, away, cells_of, events, incidents_from
from unit.wire.test_schema import ODD, STRUCTURAL, changed

PAGE = (Path(__file__).parents[3] / "docs" / "reference" / "incidents.md").read_text()
SCHEMA = jsonschema_rs.Draft202012Validator(orjson.loads(INCIDENTS_SCHEMA_PATH.read_bytes()))
KIND = EventKind("Collision", "Collision", "reports >= 5", "Alert/Collision")
FOUND = [Event(f"car-{number}", away(10.0 * number), after(number), {"speed_mps": 1.5 * number}) for number in range(6)]
(CELL, *_) = cells_of(KIND, FOUND)
INCIDENTS = incidents_from(KIND, FOUND)
CHANGES = INCIDENTS.advance(after(10))


def maybe_refused(value: object, read: Callable[[bytes], object]) -> Reason | None:
    try:
        read(orjson.dumps(value))
    except Malformed as fault:
        return fault.reason
    return None


def verdict(value: object, read: Callable[[bytes], object]) -> str:
    is_valid, reason = SCHEMA.is_valid(value), maybe_refused(value, read)
    if reason is None:
        assert is_valid, f"the decoder accepts {value}, the schema does not"
        return "accepted"
    assert not (is_valid and reason in STRUCTURAL), f"the schema accepts {value}, the decoder refuses it with {reason.name}"
    return "value refused" if is_valid else "structure refused"


@pytest.mark.parametrize("cell", [CELL, *cells_of(KIND, events(100)), *cells_of(KIND, events(1, Place(-17.0, 180.0)))])
def test_a_cell_survives_encoding_and_decoding(cell: object) -> None:
    assert cell_from_json(cell_to_json(cell)) == cell  # type: ignore[arg-type]


def test_every_update_of_a_cell_has_the_same_key() -> None:
    assert cell_key(CELL) == f"Collision/{CELL.slot}/{CELL.square.row}/{CELL.square.column}"


def test_the_state_survives_encoding_and_decoding() -> None:
    state = INCIDENTS.state()
    assert len(state.incidents) == 1
    assert state_from_json(state_to_json(state)) == state
    assert state_from_json(state_to_json(TrackerState({}, ()))) == TrackerState({}, ())


def test_the_state_is_the_same_whether_its_incidents_are_encoded_again_or_not() -> None:
    texts = IncidentTexts()
    for number in (3, 2, 3, 1):  # some are new, some are left out
        some = [EarlyWarning(change.incident, 7, IncidentId("another") if number == 2 else None) for change in CHANGES[:number]]
        state = TrackerState({"Collision": number}, tuple(change.incident for change in CHANGES[:number]))
        assert state_to_json(state, texts.encode) == state_to_json(state)
        assert early_warnings_to_json(some, texts.encode) == early_warnings_to_json(some)
        assert early_warnings_from_json(early_warnings_to_json(some)) == tuple(some)
        texts.forget_unused()


def test_encoded_values_satisfy_the_schema() -> None:
    now = after(12)
    answers = INCIDENTS.around(Circle(HOME, 500.0), now), INCIDENTS.around(Circle(away(50_000), 5.0), now)
    texts = [cell_to_json(CELL), change_to_json(CHANGES[0]), state_to_json(INCIDENTS.state())]
    for text in (*texts, *(conditions_to_json(answer, now) for answer in answers)):
        SCHEMA.validate(orjson.loads(text))


def test_m25_the_reply_has_the_current_conditions() -> None:
    answer = orjson.loads(conditions_to_json(INCIDENTS.around(Circle(HOME, 500.0), after(12)), after(12)))
    (kind,) = answer["kinds"]
    assert (kind["kind"], kind["is_hot"], kind["bin"]["reports"]) == ("Collision", True, 6)
    assert [incident["id"] for incident in kind["incidents"]] == [CHANGES[0].incident.id]
    assert kind["bin"]["tallies"]["speed_mps"] == {"count": 6, "total": 22_500, "least": 0, "greatest": 7_500}


@pytest.mark.parametrize(
    ("value", "read"),
    [(orjson.loads(cell_to_json(CELL)), cell_from_json), (orjson.loads(state_to_json(INCIDENTS.state())), state_from_json)],
)
def test_schema_and_decoder_agree_on_every_change(value: object, read: Callable[[bytes], object]) -> None:
    assert verdict(value, read) == "accepted"
    counts = Counter(verdict(one, read) for one in changed(value))
    assert counts["structure refused"] > len(ODD)
    assert counts["value refused"] > 0


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"extra": 1}, Reason.FIELD_UNKNOWN),
        ({"reports": "5"}, Reason.FIELD_TYPE),
        ({"reports": 5.5}, Reason.FIELD_TYPE),
        ({"reports": 0}, Reason.FIELD_RANGE),
        ({"witnesses": ["car-0"]}, Reason.FIELD_TYPE),
        ({"witnesses": "car-0"}, Reason.FIELD_TYPE),
        ({"witnesses": ""}, Reason.FIELD_RANGE),
        ({"witnesses": b64encode(sketch_to_bytes(CELL.witnesses)[:-1]).decode()}, Reason.FIELD_RANGE),
        ({"extent": [1, 2, 3]}, Reason.FIELD_TYPE),
        ({"first_at": "noon"}, Reason.TIME_UNREADABLE),
        ({"tallies": {"x": {"count": 1}}}, Reason.FIELD_MISSING),
        ({"tallies": []}, Reason.FIELD_TYPE),
        ({"type": "bell"}, Reason.FIELD_RANGE),
        ({"v": 2}, Reason.VERSION_UNKNOWN),
        ({"v": 2, "type": "bell"}, Reason.VERSION_UNKNOWN),
    ],
)
def test_an_invalid_cell_is_refused_with_a_reason(change: dict[str, object], reason: Reason) -> None:
    with pytest.raises(Malformed) as raised:
        cell_from_json(orjson.dumps({**orjson.loads(cell_to_json(CELL)), **change}))
    assert raised.value.reason is reason


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (b"", Reason.MALFORMED),
        (b"{", Reason.MALFORMED),
        (b"[]", Reason.FIELD_TYPE),
        (b" " * (CELL_BYTES_MAX + 1), Reason.MESSAGE_TOO_LARGE),
    ],
)
def test_a_text_that_is_no_cell_is_refused(text: bytes, reason: Reason) -> None:
    with pytest.raises(Malformed) as raised:
        cell_from_json(text)
    assert raised.value.reason is reason


@given(places)
def test_the_sql_of_the_page_computes_the_grid_position_of_a_place(place: Place) -> None:
    """SQLite in place of Spark: it lacks integer div, least and greatest under these names."""
    (text,) = re.findall(r"^```sql\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    for there, here in ((" div ", " / "), ("least(", "min("), ("greatest(", "max("), ("bigint", "integer")):
        text = text.replace(there, here)
    with sqlite3.connect(":memory:") as database:
        database.execute("create table reports (latitude real, longitude real)")
        database.execute("insert into reports values (?, ?)", (place.latitude, place.longitude))
        found = database.execute(text).fetchone()
    database.close()
    square, north, east = Grid(150.0).locate(place)
    assert found == (*square, north, east)


def test_the_examples_of_the_page_are_cells_and_predicates() -> None:
    cells = re.findall(r"^```cell\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    predicates = re.findall(r"^```predicate\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    assert cells
    assert predicates
    for text in cells:
        assert incidents_from(KIND, []).add(cell_from_json(text.encode())) is None
    for line in "".join(predicates).splitlines():
        EventKind("Ice", "t", line, None)
