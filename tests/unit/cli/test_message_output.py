"""Received messages as text lines, in a custom format, and as JSON."""

import pytest

from milepost.cli.message_output import as_json, as_line, by_format, shown_age, shown_body
from milepost.client.messages import ReceivedMessage
from milepost.config.errors import UsageFault
from milepost.model import EndpointId, Instant, Place, Priority, tags
from milepost.wire.json_form import from_json

NOW = Instant(1_900_000_000_000_000_000)
SECOND = 1_000_000_000
FULL = ReceivedMessage(
    "road/i80",
    b"lane 2",
    NOW,
    tags=tags(["ice", "bridge"]),
    place=Place(40.5, -111.25),
    source=EndpointId("car-7"),
    seen_at=Instant(NOW - 90 * SECOND),
    priority=Priority.SAFETY,
    qos=1,
    is_retained=True,
)


def test_a_line_has_the_available_metadata() -> None:
    line = "road/i80  [bridge ice]  40.5,-111.25  safety  2 min ago  from car-7  (retained)  lane 2"
    assert as_line(FULL, NOW) == line
    assert as_line(ReceivedMessage("a", b"x", NOW), NOW) == "a  x"
    assert as_line(ReceivedMessage("a", b"", NOW), NOW) == "a"


def test_json_output_can_be_decoded() -> None:
    assert from_json(as_json(FULL, NOW).encode()) == FULL.message
    assert "\n" not in as_json(FULL, NOW)


def test_a_format_is_filled_in() -> None:
    assert by_format("{topic} {seen_at}: {body}")(FULL, NOW) == "road/i80 2030-03-17T17:45:10Z: lane 2"
    assert by_format("{{}}{retained}")(ReceivedMessage("a", b"", NOW), NOW) == "{}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{topik}", "did you mean {topic}?"), ("{", "brace"), ("{}", "known fields:"), ("{topic.x}", "there is no field {topic.x}")],
)
def test_an_invalid_format_is_reported(text: str, complaint: str) -> None:
    with pytest.raises(UsageFault, match="--format") as fault:
        by_format(text)
    assert complaint in str(fault.value)


@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("grün".encode(), "grün"),
        (b"\x1b[2J\n", r"\x1b[2J\n"),
        (b"\xff\x00", "<2 bytes: ff 00>"),
        (b"\xff" * 40, f"<40 bytes: {'ff ' * 31}ff...>"),
        ("\u202e".encode(), r"\u202e"),
    ],
)
def test_control_characters_of_a_body_are_escaped(body: bytes, shown: str) -> None:
    assert shown_body(body) == shown
    assert as_line(ReceivedMessage("a\x1b", b"", NOW, source=EndpointId("b\x07")), NOW) == r"a\x1b  from b\x07"


@pytest.mark.parametrize(
    ("age_ns", "shown"),
    [(0, "now"), (5_000_000, "5 ms ago"), (1_500_000_000, "1.5 s ago"), (7_200 * SECOND, "2 h ago"), (-3 * SECOND, "in 3 s")],
)
def test_an_age_has_a_suitable_unit(age_ns: int, shown: str) -> None:
    assert shown_age(age_ns) == shown
