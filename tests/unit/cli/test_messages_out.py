"""Messages as lines."""

import pytest

from milepost.cli.message_output import as_json, as_line, by_format, shown_age, shown_body
from milepost.client.values import Received
from milepost.config.errors import UsageFault
from milepost.model import EndpointId, Instant, Place, Priority, tags
from milepost.wire.json_form import from_json

NOW = Instant(1_900_000_000_000_000_000)
SECOND = 1_000_000_000
FULL = Received(
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


def test_a_line_says_what_is_known() -> None:
    line = "road/i80  [bridge ice]  40.5,-111.25  safety  2 min ago  from car-7  (retained)  lane 2"
    assert as_line(FULL, NOW) == line
    assert as_line(Received("a", b"x", NOW), NOW) == "a  x"
    assert as_line(Received("a", b"", NOW), NOW) == "a"


def test_json_reads_back() -> None:
    assert from_json(as_json(FULL, NOW).encode()) == FULL.message
    assert "\n" not in as_json(FULL, NOW)


def test_a_format_is_filled_in() -> None:
    assert by_format("{topic} {seen_at}: {body}")(FULL, NOW) == "road/i80 2030-03-17T17:45:10Z: lane 2"
    assert by_format("{{}}{retained}")(Received("a", b"", NOW), NOW) == "{}"


@pytest.mark.parametrize(
    ("text", "complaint"),
    [("{topik}", "did you mean {topic}?"), ("{", "brace"), ("{}", "known are"), ("{topic.x}", "there is no {topic.x}")],
)
def test_a_format_that_cannot_be_filled_in_is_told(text: str, complaint: str) -> None:
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
def test_a_body_does_nothing_to_the_terminal(body: bytes, shown: str) -> None:
    assert shown_body(body) == shown
    assert as_line(Received("a\x1b", b"", NOW, source=EndpointId("b\x07")), NOW) == r"a\x1b  from b\x07"


@pytest.mark.parametrize(
    ("age_ns", "shown"),
    [(0, "now"), (5_000_000, "5 ms ago"), (1_500_000_000, "1.5 s ago"), (7_200 * SECOND, "2 h ago"), (-3 * SECOND, "3 s ahead")],
)
def test_an_age_is_said_as_one_would(age_ns: int, shown: str) -> None:
    assert shown_age(age_ns) == shown
