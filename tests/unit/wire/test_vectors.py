"""The published test vectors and the code agree, both ways; so a client written from them can talk to this one."""

import re

import orjson
import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.wire.datagrams import decode, encode
from milepost.wire.json_form import DATAGRAM_FORMS, Value, from_json, to_json
from scripts.make_vectors import VECTORS, written

PAGE = (VECTORS.parents[2] / "docs" / "reference" / "wire.md").read_text()
FILE = orjson.loads(VECTORS.read_bytes())


def bytes_of(vector: dict[str, object]) -> bytes:
    times = vector.get("times", 1)
    assert isinstance(times, int)
    return bytes.fromhex(str(vector["hex"])) * times


def named(part: str) -> pytest.MarkDecorator:
    return pytest.mark.parametrize("vector", [pytest.param(vector, id=vector["name"]) for vector in FILE[part]])


def value_of(vector: dict[str, object]) -> Value:
    return from_json(orjson.dumps(vector["value"]))


@named("accepted")
def test_the_bytes_decode_to_the_value(vector: dict[str, object]) -> None:
    assert decode(bytes_of(vector)) == value_of(vector)


@named("accepted")
def test_the_value_encodes_to_these_bytes(vector: dict[str, object]) -> None:
    value = value_of(vector)
    assert encode(value).hex() == vector["hex"]  # type: ignore[arg-type]  # the vectors hold datagrams only
    assert orjson.loads(to_json(value)) == vector["value"]


@named("refused")
def test_the_bytes_are_refused_for_the_stated_reason(vector: dict[str, object]) -> None:
    with pytest.raises(Malformed) as found:
        decode(bytes_of(vector))
    assert (found.value.reason.value, found.value.reason.name) == (vector["reason"], vector["reason_name"])


@named("refused_json")
def test_the_text_is_refused_for_the_stated_reason(vector: dict[str, object]) -> None:
    with pytest.raises(Malformed) as found:
        from_json(str(vector["json"]).encode())
    assert (found.value.reason.value, found.value.reason.name) == (vector["reason"], vector["reason_name"])


def test_the_file_is_what_the_script_writes() -> None:
    assert VECTORS.read_bytes() == written()


def test_the_vectors_hold_every_type_of_datagram_and_every_structural_reason() -> None:
    assert {vector["value"]["type"] for vector in FILE["accepted"]} == {form.__struct_config__.tag for form in DATAGRAM_FORMS}
    reasons = {vector["reason"] for vector in [*FILE["refused"], *FILE["refused_json"]]}
    assert {reason.value for reason in Reason if 100 <= reason < 107} <= reasons


def test_the_wire_document_gives_the_bytes_of_a_vector() -> None:
    shown = re.sub(r"\s", "", "".join(re.findall(r"^    ((?:[0-9a-f]{2} ?)+)", PAGE, re.MULTILINE)))
    assert shown in [vector["hex"] for vector in FILE["accepted"]]


def test_the_json_of_the_wire_document_can_be_sent() -> None:
    (shown,) = re.findall(r"^```json\n(.*?)^```", PAGE, re.MULTILINE | re.DOTALL)
    value = from_json(shown.encode())
    assert orjson.loads(to_json(value)) == orjson.loads(shown)
