"""The command lines of `milepost pub` and `milepost sub`, as far as they need no edge."""

import pytest

from milepost.cli import main as command


def status_of(*typed: str) -> int:
    try:
        return command.main(typed)
    except SystemExit as end:  # argparse ends the process itself
        return end.code if isinstance(end.code, int) else 1


@pytest.mark.parametrize("verb", ["pub", "sub"])
def test_help_has_examples(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert status_of(verb, "--help") == 0
    text = capsys.readouterr().out
    assert "examples:" in text
    assert f"milepost {verb} -t" in text


@pytest.mark.parametrize(
    ("typed", "complaint"),
    [
        (("pub", "-m", "x"), "required: -t/--topic"),
        (("pub", "-t", "a"), "one of the arguments -m/--message --file --stdin-lines is required"),
        (("pub", "-t", "a", "-m", "x", "--file", "y"), "not allowed with argument"),
        (("pub", "-t", "a", "-m", "x", "--to-everyone", "--within", "circle 1,2 3"), "not allowed with argument"),
        (("pub", "-t", "a", "-m", "x", "--place", "1;2"), "--place: 105 FIELD_TYPE"),
        (("pub", "-t", "a", "-m", "x", "--tag", "no spaces"), "--tag: 112 TAG_CHARACTER"),
        (("pub", "-t", "a", "-m", "x", "--to-area", "round 1,2 3"), "--to-area: 158 AREA_UNREADABLE"),
        (("pub", "-t", "a", "-m", "x", "--valid-for", "soon"), "--valid-for: 161 TIME_UNREADABLE"),
        (("pub", "-t", "a", "-m", "x", "--sign"), "a signed message is valid for at most 24 hours: give --valid-for"),
        (("pub", "-t", "a", "-m", "x", "--sign", "--valid-for", "2d"), "valid for at most 24 hours: give --valid-for"),
        (("pub", "-t", "a", "-m", "x", "--url", "http://h"), "does not begin with mqtt://"),
        (("sub", "--url", "http://h"), "mqtt://, mqtts://, ws://, wss://, udp://, udp+srv://, udp+find://"),
        (("pub", "-t", "a", "-m", "x", "--place", "-111.891,40.7608"), "are latitude and longitude swapped?"),
        (("pub", "-t", "a", "-m", "x", "--priority", "high"), "invalid choice: 'high'"),
        (("sub", "--query", "a &"), "--query: 140 QUERY_SYNTAX"),
        (("sub", "-t", "a/#/b"), "--topic: 123 TOPIC_WILDCARD"),
        (("sub", "--time-window", "tomorrow"), "--time-window: 161 TIME_UNREADABLE"),
        (("sub", "--area", "around 5"), "give it with --at"),
        (("sub", "--at", "x"), "--at: 105 FIELD_TYPE"),
        (("sub", "--count", "0"), "--count: 0 is not above 0"),
        (("sub", "--timeout", "-1"), "--timeout: -1.0 is not above 0"),
        (("sub", "--json", "--format", "x"), "not allowed with argument"),
    ],
)
def test_a_wrong_command_line_is_one_line_and_status_2(
    typed: tuple[str, ...], complaint: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert status_of(*typed) == 2
    output = capsys.readouterr()
    assert (output.out, output.err.count("\n")) == ("", 1)
    assert complaint in output.err
