import subprocess
import sys

import pytest

from milepost.model.reasons import Malformed, Reason
from milepost.vetting import PayloadChecks, PayloadRule

SCHEMA = b'{"type": "object", "properties": {"speed": {"type": "number", "minimum": 0}}, "required": ["speed"]}'
PAYLOADS = PayloadChecks(
    [
        PayloadRule("plain/raw/#"),
        PayloadRule("plain/#", json=True),
        PayloadRule("+/speed", schema="speed.json"),
    ],
    {"speed.json": SCHEMA},
)


def reason(topic: str, payload: bytes) -> Reason | None:
    check = PAYLOADS.check_for(topic)
    verdict = None if check is None else check(payload)
    return None if verdict is None else verdict.reason


@pytest.mark.parametrize(
    ("topic", "payload", "expected"),
    [
        ("plain", b"{}", None),
        ("plain/a", b'{"a": [1, 2.5, null, "\xc3\xa9"]}', None),
        ("plain/a", b"{", Reason.PAYLOAD_NOT_JSON),
        ("plain/a", b"", Reason.PAYLOAD_NOT_JSON),
        ("plain/a", b"\xff", Reason.PAYLOAD_NOT_JSON),
        ("plain/a", b"{} {}", Reason.PAYLOAD_NOT_JSON),
        ("plain/a", b"NaN", Reason.PAYLOAD_NOT_JSON),
        ("plain/speed", b"1", None),
        ("plain/raw/a", b"\xff", None),
        ("other", b"\xff", None),
        ("$x/speed", b"\xff", None),
        ("bus/speed", b'{"speed": 3}', None),
        ("bus/speed", b'{"speed": -3}', Reason.PAYLOAD_SCHEMA),
        ("bus/speed", b"[]", Reason.PAYLOAD_SCHEMA),
        ("bus/speed", b"{", Reason.PAYLOAD_NOT_JSON),
        ("bus/speed", b"[" * 1000 + b"]" * 1000, Reason.PAYLOAD_SCHEMA),
    ],
)
def test_the_first_payload_rule_of_a_topic_decides(topic: str, payload: bytes, expected: Reason | None) -> None:
    assert reason(topic, payload) is expected


def test_a_topic_without_a_rule_has_no_check() -> None:
    assert PAYLOADS.check_for("other") is None
    assert PAYLOADS.check_for("plain/raw/a") is None
    assert PayloadChecks().check_for("a") is None


@pytest.mark.parametrize(
    ("payload", "detail"),
    [
        (b'{"speed": -3}', "speed: -3 is less than the minimum of 0"),
        (b"{}", 'the document: "speed" is a required property'),
    ],
)
def test_a_refusal_names_the_position_and_the_fault(payload: bytes, detail: str) -> None:
    check = PAYLOADS.check_for("bus/speed")
    assert check is not None
    verdict = check(payload)
    assert verdict is not None
    assert verdict.detail == detail


def test_the_refusal_of_a_long_value_is_short() -> None:
    check = PAYLOADS.check_for("bus/speed")
    assert check is not None
    verdict = check(b'{"speed": "' + b"x" * 10_000 + b'"}')
    assert verdict is not None
    assert len(verdict.detail) < 300


@pytest.mark.parametrize(
    "content",
    [
        b"{",
        b"[]",
        b'{"type": "objct"}',
        b'{"$ref": "#/gone"}',
        b'{"$ref": "http://127.0.0.1:9/x.json"}',
        b'{"$ref": "file:///etc/passwd"}',
        b'{"pattern": "("}',
    ],
)
def test_an_invalid_or_remote_schema_is_refused_at_startup(content: bytes) -> None:
    with pytest.raises(Malformed) as caught:
        PayloadChecks([PayloadRule("a", schema="x.json")], {"x.json": content})
    assert caught.value.reason is Reason.FIELD_RANGE
    assert "x.json" in caught.value.detail
    assert "\n" not in caught.value.detail


def test_a_remote_schema_is_not_fetched() -> None:
    with pytest.raises(Malformed, match="Retrieval is disabled"):
        PayloadChecks([PayloadRule("a", schema="x.json")], {"x.json": b'{"$ref": "http://127.0.0.1:9/x.json"}'})


def test_a_schema_that_was_not_given_is_refused() -> None:
    with pytest.raises(Malformed) as caught:
        PayloadChecks([PayloadRule("a", schema="x.json")])
    assert caught.value.reason is Reason.FIELD_MISSING


def test_a_rule_needs_a_filter() -> None:
    with pytest.raises(Malformed):
        PayloadRule("a/#/b")


def test_the_validator_is_imported_only_if_there_is_a_schema() -> None:
    code = (
        "import sys; from milepost.vetting import PayloadChecks, PayloadRule\n"
        "PayloadChecks([PayloadRule('a', json=True)]); sys.exit('jsonschema_rs' in sys.modules)"
    )
    subprocess.run([sys.executable, "-c", code], check=True)
