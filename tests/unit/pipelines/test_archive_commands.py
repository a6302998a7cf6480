"""Archive commands report errors in their arguments before anything is started."""

from pathlib import Path

import pytest

from milepost.cli.main import main

TIMES = ["--from", "2030-01-01T00:00Z", "--to", "2030-01-01T01:00Z"]


@pytest.mark.parametrize(
    ("arguments", "fault"),
    [
        (["archive", "compact", "--archive", "gone"], "gone is not a folder"),
        (["archive", "compact", "--keep", "a while"], "--keep: 'a while' is not a duration"),
        (["archive", "compact", "--keep", "2 days"], "give at least 8 days"),
        (["archive", "files", "reports", "--from", "soon"], "--from: 'soon' is not an instant"),
        (["archive", "files", "reports", "--from", "2030-01-02T00:00Z", "--to", "2030-01-01T00:00Z"], "--to is not after --from"),
        (["archive", "files", "reports", "--area", "here"], "--area: "),
        (["backtest", "gone.toml", *TIMES], "gone.toml does not exist"),
        (["backtest", "a.toml", "b.toml", "c.toml", *TIMES], "one rule file, or two"),
        (["search", "gone.json"], "gone.json does not exist"),
        (["search", "queries.json"], "query 1 has a member 'areas'; did you mean 'area'?"),
        (["search", "queries.json", "--query", "x"], "a file of queries or options, not both"),
        (["search", "number.json"], "number.json is not an array"),
        (["search", "--query", "x &"], "QUERY_SYNTAX"),
        (["search", "--count", "0"], "--count is 0: give at least 1"),
        (["search", "--after", "here"], "pass the value of `more` from an earlier answer"),
        (["coverage", "17", "--to", "later"], "--to: 'later' is not an instant"),
    ],
)
def test_an_invalid_command_line_is_reported_before_anything_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], arguments: list[str], fault: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "data" / "pipelines" / "archive").mkdir(parents=True)
    (tmp_path / "queries.json").write_text('[{}, {"areas": 3}]')
    (tmp_path / "number.json").write_text("17")
    assert main(["pipeline", *arguments]) == 2
    assert fault in capsys.readouterr().err


def test_an_empty_archive_has_no_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["pipeline", "archive", "files", "reports", "--archive", "."]) == 0
    assert capsys.readouterr().out == ""
