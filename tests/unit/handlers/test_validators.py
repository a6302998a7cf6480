from pathlib import Path

import pytest

from milepost.handlers.handler import ANSWER_BYTES_MAX, ANYTHING, NOTHING, Validator
from milepost.model.reasons import Malformed, Reason

HERE = Path(__file__).parent
SPEED = {"type": "object", "properties": {"speed": {"type": "number", "maximum": 100}}, "required": ["speed"]}


def refusal(body: bytes) -> Reason:
    with pytest.raises(Malformed) as fault:
        Validator(SPEED, HERE).read(body)
    return fault.value.reason


def test_a_valid_body_is_decoded() -> None:
    assert Validator(SPEED, HERE).read(b'{"speed": 3}') == {"speed": 3}


@pytest.mark.parametrize("body", [b"", b"{", b"\xff", b"speed"])
def test_a_body_that_is_not_json_is_refused(body: bytes) -> None:
    assert refusal(body) is Reason.PAYLOAD_NOT_JSON


@pytest.mark.parametrize("body", [b"{}", b'{"speed": "3"}', b'{"speed": 101}', b"[]", b"null"])
def test_types_presence_and_limits_are_checked(body: bytes) -> None:
    # D11
    assert refusal(body) is Reason.PAYLOAD_SCHEMA


def test_answers_are_validated_in_their_encoded_form() -> None:
    validator = Validator(SPEED, HERE)
    assert validator.write({"speed": 3}) == b'{"speed":3}'
    for answer in ({"speed": 101}, {}, {"speed": float("nan")}, {"speed": object()}, {1, 2}):
        with pytest.raises(Malformed):
            validator.write(answer)


def test_the_size_of_an_answer_is_limited() -> None:
    anything = Validator(ANYTHING, HERE)
    assert len(anything.write(b"x" * ANSWER_BYTES_MAX)) == ANSWER_BYTES_MAX
    with pytest.raises(Malformed) as fault:
        anything.write(b"x" * (ANSWER_BYTES_MAX + 1))
    assert fault.value.reason is Reason.MESSAGE_TOO_LARGE


def test_anything_accepts_and_returns_bytes() -> None:
    anything = Validator(ANYTHING, HERE)
    assert anything.read(b"\xff") == b"\xff"
    with pytest.raises(Malformed, match="bytes"):
        anything.write({})


def test_nothing_refuses_an_answer() -> None:
    with pytest.raises(Malformed, match="NOTHING"):
        Validator(NOTHING, HERE).write({})


def test_a_schema_may_be_a_file_beside_the_handler(tmp_path: Path) -> None:
    (tmp_path / "speed.json").write_text('{"type": "integer"}')
    for name in ("speed.json", Path("speed.json")):
        assert Validator(name, tmp_path).read(b"3") == 3


def test_an_invalid_schema_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        Validator("gone.json", tmp_path)
    with pytest.raises(ValueError, match="schema"):
        Validator({"type": "speed"}, tmp_path)
