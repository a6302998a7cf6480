import json

import pytest

from milepost.config.log_format import Format, Level
from milepost.runtime.structured_log import SECOND_NS, FieldValue, StructuredLog

AT = 1_893_456_000 * SECOND_NS + 7_000_000  # 2030-01-01


class RecordedLog:
    """A log with recorded lines and a clock that the test sets."""

    def __init__(self, level: Level = Level.INFO, line_format: Format = Format.TEXT) -> None:
        self.lines: list[str] = []
        self.now = AT
        self.log = StructuredLog(level, line_format, write=self.lines.append, now=lambda: self.now, limited_per_s=2)


def test_a_text_line_has_time_level_event_and_fields() -> None:
    recorded = RecordedLog()
    recorded.log.info("session opened", client="truck-17", version=5, is_new=True)
    assert recorded.lines == ["2030-01-01T00:00:00.007Z info    session opened client=truck-17 version=5 is_new=true\n"]


def test_a_json_line_has_the_same_fields() -> None:
    recorded = RecordedLog(line_format=Format.JSON)
    recorded.log.error("storage full", path="é\n", free=0.5, user=None)
    assert recorded.lines[0].endswith("\n")
    assert json.loads(recorded.lines[0]) == {
        "time": "2030-01-01T00:00:00.007Z", "level": "error", "event": "storage full", "path": "é\n", "free": 0.5, "user": None,
    }  # fmt: skip


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        ("a/b:c", "a/b:c"),
        ("straße", "straße"),
        ("", '""'),
        ("two words", '"two words"'),
        ('say "x"', '"say \\"x\\""'),
        ("a=b", '"a=b"'),
        ("\n2030 info forged", '"\\n2030 info forged"'),
        ("\x1b[31m", '"\\u001b[31m"'),
        ("\x9b31m\u2028", '"\\u009b31m\\u2028"'),
        ("\ud800", '"\\ud800"'),
        ("x" * 600, "x" * 509 + "..."),
        (3, "3"),
        (None, "null"),
    ],
)
def test_input_of_a_peer_cannot_forge_a_log_line(value: FieldValue, shown: str) -> None:
    recorded = RecordedLog()
    recorded.log.info("seen", what=value)
    assert recorded.lines[0] == f"2030-01-01T00:00:00.007Z info    seen what={shown}\n"


@pytest.mark.parametrize("level", list(Level))
def test_lines_below_the_level_are_not_written(level: Level) -> None:
    recorded = RecordedLog(level)
    for write in (recorded.log.debug, recorded.log.info, recorded.log.warning, recorded.log.error):
        write("x")
    recorded.log.info_limited("y")
    assert len(recorded.lines) == 4 - list(Level).index(level) + (level in (Level.DEBUG, Level.INFO))
    assert recorded.log.is_shown(level)


def test_repeated_events_are_counted_instead_of_logged() -> None:
    recorded = RecordedLog()
    for number in range(5):
        recorded.log.info_limited("refused", number=number)
    recorded.log.info_limited("other")
    assert [line.split(" info    ")[1] for line in recorded.lines] == ["refused number=0\n", "refused number=1\n", "other\n"]
    recorded.now += SECOND_NS
    recorded.log.info_limited("refused", number=5)
    assert recorded.lines[-1].endswith("refused number=5 suppressed=3\n")


def test_the_number_of_suppressed_lines_is_logged_after_the_events_stop() -> None:
    recorded = RecordedLog()
    for _ in range(5):
        recorded.log.info_limited("refused")
    recorded.log.log_suppressed()
    assert len(recorded.lines) == 2
    recorded.now += SECOND_NS
    recorded.log.log_suppressed()
    recorded.log.log_suppressed()
    assert [line.split("Z ")[1] for line in recorded.lines[2:]] == ["info    refused suppressed=3\n"]


def test_a_clock_set_back_does_not_silence_the_log() -> None:
    recorded = RecordedLog()
    for _ in range(3):
        recorded.log.info_limited("refused")
    recorded.now -= 3600 * SECOND_NS
    recorded.log.info_limited("refused")
    assert len(recorded.lines) == 3


@pytest.mark.parametrize("fault", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_lines_that_cannot_be_written_are_counted_as_lost(fault: Exception) -> None:
    def fail(line: str) -> None:
        raise fault

    log = StructuredLog(write=fail)
    log.info("x")
    assert log.lost == 1


def test_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    StructuredLog().info("started")
    assert capsys.readouterr().err.endswith("Z info    started\n")
