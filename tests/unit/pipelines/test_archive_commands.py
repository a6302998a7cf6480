"""Commands about the archive say what is wrong with what was typed, before anything is started."""

from pathlib import Path

import pytest

from milepost.cli.main import main

TIMES = ["--from", "2030-01-01T00:00Z", "--to", "2030-01-01T01:00Z"]


@pytest.mark.parametrize(
    ("words", "fault"),
    [
        (["archive", "compact", "--archive", "gone"], "gone is no folder"),
        (["archive", "compact", "--keep", "a while"], "--keep: 'a while' is no duration"),
        (["archive", "compact", "--keep", "2 days"], "at least 8 days are kept"),
        (["archive", "files", "reports", "--from", "soon"], "--from: 'soon' is no instant"),
        (["archive", "files", "reports", "--from", "2030-01-02T00:00Z", "--to", "2030-01-01T00:00Z"], "--to is not after --from"),
        (["archive", "files", "reports", "--area", "here"], "--area: "),
        (["backtest", "gone.toml", *TIMES], "gone.toml is not there"),
        (["backtest", "a.toml", "b.toml", "c.toml", *TIMES], "one rule file, or two"),
        (["lookback", "gone.json"], "gone.json is not there"),
        (["lookback", "questions.json"], "question 1 has a member 'areas'; did you mean 'area'?"),
        (["lookback", "questions.json", "--query", "x"], "a file of questions or options, not both"),
        (["lookback", "number.json"], "number.json is not an array"),
        (["lookback", "--query", "x &"], "QUERY_SYNTAX"),
        (["lookback", "--count", "0"], "--count is less than 1"),
        (["lookback", "--after", "here"], "give what it said as `more`"),
        (["coverage", "17", "--to", "later"], "--to: 'later' is no instant"),
    ],
)
def test_a_wrong_command_line_is_told_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], words: list[str], fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "pipelines" / "archive").mkdir(parents=True)
    (tmp_path / "questions.json").write_text('[{}, {"areas": 3}]')
    (tmp_path / "number.json").write_text("17")
    assert main(["pipeline", *words]) == 2
    assert fault in capsys.readouterr().err


def test_an_archive_of_nothing_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "archive", "files", "reports", "--archive", "."]) == 0
    assert capsys.readouterr().out == ""
