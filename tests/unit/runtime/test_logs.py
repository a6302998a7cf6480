import json

import pytest

from milepost.config.log_settings import Format, Level
from milepost.runtime.logs import SECOND_NS, Fact, Log

AT = 1_893_456_000 * SECOND_NS + 7_000_000  # 2030-01-01


class Desk:
    """A log whose lines and clock are in our hands."""

    def __init__(self, level: Level = Level.INFO, line_format: Format = Format.TEXT) -> None:
        self.lines: list[str] = []
        self.now = AT
        self.log = Log(level, line_format, write=self.lines.append, now=lambda: self.now, seldom_per_s=2)


def test_a_text_line_has_time_level_event_and_facts() -> None:
    desk = Desk()
    desk.log.info("session opened", client="truck-17", version=5, is_new=True)
    assert desk.lines == ["2030-01-01T00:00:00.007Z info    session opened client=truck-17 version=5 is_new=true\n"]


def test_a_json_line_has_the_same() -> None:
    desk = Desk(line_format=Format.JSON)
    desk.log.error("storage full", path="é\n", free=0.5, user=None)
    assert desk.lines[0].endswith("\n")
    assert json.loads(desk.lines[0]) == {
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
def test_what_a_peer_chose_cannot_forge_a_line(value: Fact, shown: str) -> None:
    desk = Desk()
    desk.log.info("seen", what=value)
    assert desk.lines[0] == f"2030-01-01T00:00:00.007Z info    seen what={shown}\n"


@pytest.mark.parametrize("level", list(Level))
def test_lines_below_the_level_are_not_written(level: Level) -> None:
    desk = Desk(level)
    for write in (desk.log.debug, desk.log.info, desk.log.warning, desk.log.error):
        write("x")
    desk.log.seldom("y")
    assert len(desk.lines) == 4 - list(Level).index(level) + (level in (Level.DEBUG, Level.INFO))
    assert desk.log.is_shown(level)


def test_repeated_events_are_counted_instead_of_shown() -> None:
    desk = Desk()
    for number in range(5):
        desk.log.seldom("refused", number=number)
    desk.log.seldom("other")
    assert [line.split(" info    ")[1] for line in desk.lines] == ["refused number=0\n", "refused number=1\n", "other\n"]
    desk.now += SECOND_NS
    desk.log.seldom("refused", number=5)
    assert desk.lines[-1].endswith("refused number=5 suppressed=3\n")


def test_the_count_is_told_after_the_events_have_stopped() -> None:
    desk = Desk()
    for _ in range(5):
        desk.log.seldom("refused")
    desk.log.tell_suppressed()
    assert len(desk.lines) == 2
    desk.now += SECOND_NS
    desk.log.tell_suppressed()
    desk.log.tell_suppressed()
    assert [line.split("Z ")[1] for line in desk.lines[2:]] == ["info    refused suppressed=3\n"]


def test_a_clock_set_back_does_not_silence_the_log() -> None:
    desk = Desk()
    for _ in range(3):
        desk.log.seldom("refused")
    desk.now -= 3600 * SECOND_NS
    desk.log.seldom("refused")
    assert len(desk.lines) == 3


@pytest.mark.parametrize("fault", [BrokenPipeError(), OSError(28, "No space left on device"), ValueError("closed")])
def test_a_log_that_cannot_be_written_is_counted_as_lost(fault: Exception) -> None:
    def fail(line: str) -> None:
        raise fault

    log = Log(write=fail)
    log.info("x")
    assert log.lost == 1


def test_lines_go_to_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    Log().info("started")
    assert capsys.readouterr().err.endswith("Z info    started\n")
