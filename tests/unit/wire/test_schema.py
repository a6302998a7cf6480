"""The published schema and the decoder agree on structure: over every single change to every published test vector."""

from collections import Counter
from collections.abc import Iterator

import jsonschema_rs
import orjson
import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.wire.json_form import SCHEMA_PATH, from_json
from scripts.make_vectors import VECTORS

SCHEMA = jsonschema_rs.Draft202012Validator(orjson.loads(SCHEMA_PATH.read_bytes()))
VALUES = {vector["name"]: vector["value"] for vector in orjson.loads(VECTORS.read_bytes())["accepted"]}
STRUCTURAL = {Reason.MALFORMED, Reason.FIELD_MISSING, Reason.FIELD_UNKNOWN, Reason.FIELD_TYPE, Reason.AREA_UNREADABLE}
"""Reasons that the schema must detect, too; the others are about values, where the decoder may be stricter."""

ODD = [None, True, False, 1.5, -1, 400, 2**40, "", "1", "x", "a b", [], {}, ["x"], [1, 2], [[1, 2]], {"x": 1}, {"type": "Point"}]


def changed(value: object) -> Iterator[object]:
    """Iterate over the value with one change somewhere inside: a member removed, duplicated, unknown, or odd."""
    yield from ODD
    if isinstance(value, dict):
        yield value | {"extra": 1}
        for name, held in value.items():
            others = {key: other for key, other in value.items() if key != name}
            yield others
            yield others | {name + "_": held}
            yield from ({**value, name: inner} for inner in changed(held))
    if isinstance(value, list):
        yield [*value, *value]
        yield value[1:]
        for at, held in enumerate(value):
            yield from ([*value[:at], inner, *value[at + 1 :]] for inner in changed(held))


def maybe_refused(value: object) -> Reason | None:
    try:
        from_json(orjson.dumps(value))
    except Malformed as fault:
        return fault.reason
    return None


def verdict(value: object) -> str:
    is_valid, reason = SCHEMA.is_valid(value), maybe_refused(value)
    if reason is None:
        assert is_valid, f"the decoder accepts {value}, the schema does not"
        return "accepted"
    assert not (is_valid and reason in STRUCTURAL), f"the schema accepts {value}, the decoder refuses it with {reason.name}"
    return "value refused" if is_valid else "structure refused"


@pytest.mark.parametrize("name", VALUES)
def test_schema_and_decoder_agree_on_every_change_to(name: str) -> None:
    assert verdict(VALUES[name]) == "accepted"
    counts = Counter(verdict(value) for value in changed(VALUES[name]))
    assert counts["structure refused"] > len(ODD)


def test_changes_reach_all_three_outcomes() -> None:
    counts = Counter(verdict(value) for value in changed(VALUES["publish, no defaults"]))
    assert set(counts) == {"structure refused", "value refused", "accepted"}
