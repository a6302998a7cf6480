"""The command lines of `milepost report`, and of the others over udp, as far as they need no edge."""

from pathlib import Path

import pytest

from milepost.cli import main as command


def status_of(*typed: str) -> int:
    try:
        return command.main(typed)
    except SystemExit as end:  # argparse ends the process itself
        return end.code if isinstance(end.code, int) else 1


@pytest.fixture
def line(tmp_path: Path) -> str:
    path = tmp_path / "line.geojson"
    path.write_text('{"type": "LineString", "coordinates": [[11.6, 48.1], [11.61, 48.1]]}')
    return str(path)


def test_help_has_examples(capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of("report", "--help") == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert "milepost report --along route.geojson" in text
    assert "udp+find://" in text


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (("--speed-kmh", "0"), "--speed-kmh: 0 is not above 0"),
        (("--speed-kmh", "5000"), "up to 1800"),
        (("--every-s", "0"), "--every-s: 0 is not from 0.01"),
        (("--laps", "0"), "--laps: 0 is not above 0"),
        (("--laps", "2", "--forever"), "not allowed with argument"),
        (("--url", "udp://"), "the URL 'udp://' is not"),
        (("--url", "udp://h", "--key", "k"), "--ca, --certificate and --key must be given together: --ca is missing"),
        (("--url", "mqtts://h", "--key", "k"), "--ca, --certificate and --key must be given together: --ca is missing"),
        (("--url", "udp://h", "--key", "k", "--certificate", "c", "--ca", "none.pub"), "none.pub does not exist"),
        (("--url", "udp://h", "--user", "ada"), "user is an option of MQTT only"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    typed: tuple[str, ...], complaint: str, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of("report", "--along", line, *typed) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert complaint in output.err


def test_a_file_without_a_line_string_is_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "point.geojson"
    assert status_of("report", "--along", str(path)) == 2
    path.write_text('{"type": "Point", "coordinates": [1, 2]}')
    assert status_of("report", "--along", str(path)) == 2
    missing, wrong = capsys.readouterr().err.splitlines()
    assert "does not exist" in missing
    assert "there is no LineString in it" in wrong


@pytest.mark.parametrize("typed", [("sub",), ("pub", "-t", "a", "-m", "x")])
def test_udp_requires_a_position(typed: tuple[str, ...], capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(*typed, "--url", "udp://127.0.0.1") == 2
    assert "give it with --at LAT,LON" in capsys.readouterr().err
