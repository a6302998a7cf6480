"""The JSON form: every value survives encoding and decoding, schema and decoder agree on structure, and any text is handled."""

from collections.abc import Callable
from copy import deepcopy

import jsonschema_rs
import orjson
from hypothesis import event, given
from hypothesis import strategies as st

from milepost.model.messages import Message
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import PublishDatagram
from milepost.wire.json_form import SCHEMA_PATH, Value, from_json, to_json
from strategies import json_values

SCHEMA = jsonschema_rs.Draft202012Validator(orjson.loads(SCHEMA_PATH.read_bytes()))
STRUCTURAL = {Reason.MALFORMED, Reason.FIELD_MISSING, Reason.FIELD_UNKNOWN, Reason.FIELD_TYPE, Reason.AREA_UNREADABLE}
"""Reasons that the schema must detect, too; the others are about values, where the decoder may be stricter."""

ODD = [None, True, 1.5, -1, 2**40, "", "1", "x", "a b", [], {}, ["x"], [[1, 2]], {"type": "Point"}, "2030-01-01T00:00:00Z"]


def nodes(value: object) -> list[dict[str, object] | list[object]]:
    """Every object and array inside a value, itself included."""
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else []
    here = [value] if isinstance(value, dict | list) else []
    return [*here, *(node for part in inner for node in nodes(part))]


def mutate(value: object, draw: Callable[..., object]) -> None:
    """Change one member of one object or array inside the value: removed, duplicated, renamed, or replaced by an odd value."""
    node = draw(st.sampled_from([node for node in nodes(value) if node]))
    odd = deepcopy(draw(st.sampled_from(ODD)))
    if isinstance(node, list):
        at = draw(st.integers(0, len(node) - 1))
        assert isinstance(at, int)
        node[at : at + 1] = draw(st.sampled_from([[], [odd], [node[at], deepcopy(node[at])], [node[at], odd]]))  # type: ignore[call-overload]
        return
    assert isinstance(node, dict)
    name = draw(st.sampled_from(sorted(node)))
    what = draw(st.sampled_from(["remove", "replace", "rename", "add"]))
    if what in ("remove", "rename"):
        held = node.pop(name)
        odd = held if what == "rename" else odd
    if what != "remove":
        other = draw(st.sampled_from(["id", "place", "area", "extra", "", "type", "radius_m", "bbox"]))
        node[str(name if what == "replace" else other)] = odd


@given(json_values)
def test_every_value_survives_encoding_and_decoding(value: Value) -> None:
    back = from_json(to_json(value))
    assert back == value
    assert type(back) is type(value)
    message, again = (found.message if isinstance(found, PublishDatagram) else found for found in (value, back))
    if isinstance(message, Message) and isinstance(again, Message):
        assert {name: type(held) for name, held in again.fields.items()} == {k: type(v) for k, v in message.fields.items()}


@given(json_values)
def test_encoded_values_satisfy_the_schema(value: Value) -> None:
    SCHEMA.validate(orjson.loads(to_json(value)))


@given(json_values)
def test_equal_values_give_equal_text(value: Value) -> None:
    data = to_json(value)
    assert to_json(from_json(data)) == data


@given(json_values, st.data())
def test_schema_and_decoder_agree_on_structure(value: Value, data: st.DataObject) -> None:
    changed = orjson.loads(to_json(value))
    for _ in range(data.draw(st.integers(1, 2))):
        mutate(changed, data.draw)
    is_valid = SCHEMA.is_valid(changed)
    try:
        back = from_json(orjson.dumps(changed))
    except Malformed as fault:
        event(f"schema {'accepts' if is_valid else 'refuses'}, decoder refuses")
        reason = fault.reason
    else:
        event("decoder accepts")
        assert is_valid
        assert from_json(to_json(back)) == back
        return
    assert not (is_valid and reason in STRUCTURAL), reason


@given(st.binary(max_size=100))
def test_random_bytes_are_refused(data: bytes) -> None:
    try:
        from_json(data)
    except Malformed as fault:
        event(fault.reason.name)


@given(json_values, st.data())
def test_a_flipped_bit_or_a_truncation_is_refused_or_decodes_to_a_valid_value(value: Value, data: st.DataObject) -> None:
    text = bytearray(to_json(value))
    bit = data.draw(st.integers(0, 8 * len(text) - 1))
    text[bit // 8] ^= 1 << bit % 8
    for found in (bytes(text), bytes(text[: bit // 8])):
        try:
            back = from_json(found)
        except Malformed as fault:
            event(fault.reason.name)
        else:
            assert from_json(to_json(back)) == back
