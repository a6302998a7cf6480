"""Tables, pages and results of an evaluation."""

import json
from pathlib import Path

from milepost_experiments.papers.report import (
    PAGE,
    RESULTS,
    Figure,
    Line,
    Report,
    Section,
    Table,
    as_json,
    as_markdown,
    as_text,
    save_report,
)

TABLE = Table("Times", ("load", "ms"), (("none", "1.5"), ("a lot", "12.0")), ("on loopback",))
FIGURE = Figure("times", "Times <by> load", "load", "ms", (Line("p50", [1, 2], [3, 4]),), reference_line=(10.0, "budget"))


def report(*violations: str) -> Report:
    section = Section("one", "1. One", "nothing", (TABLE,), (FIGURE,), {"ms": 1.5}, violations)
    return Report("mercury", "Mercury", "milepost paper mercury", (section,), is_quick=True, took_s=1.0)


def test_numbers_are_aligned_to_the_right() -> None:
    assert as_text(TABLE).splitlines() == [
        "  Times",
        "  load     ms",
        "  ─────  ────",
        "  none    1.5",
        "  a lot  12.0",
        "  on loopback",
    ]


def test_text_is_aligned_to_the_left() -> None:
    text = Table("Text", ("a", "b"), (("x", "long"), ("y", "s")), is_text=True)
    assert as_text(text).splitlines()[-1] == "  y  s"


def test_a_violation_is_named_with_its_section() -> None:
    assert report().violations == ()
    assert report("3 lost").violations == ("1. One: 3 lost",)
    assert as_json(report("3 lost"))["violations"] == ["1. One: 3 lost"]


def test_the_page_is_self_contained_and_figures_are_also_files(tmp_path: Path) -> None:
    save_report(report("3 < 4"), tmp_path)
    page = (tmp_path / PAGE).read_text()
    assert "data:image/png;base64," in page
    assert "3 &lt; 4" in page
    assert "Times &lt;by&gt; load" in page
    assert "http" not in page
    assert (tmp_path / "times.png").read_bytes()[:4] == b"\x89PNG"
    assert json.loads((tmp_path / RESULTS).read_text())["sections"]["one"] == {"setup": "nothing", "ms": 1.5}


def test_markdown_has_every_row_and_the_command() -> None:
    text = as_markdown(report())
    assert "`milepost paper mercury`" in text
    assert "| a lot | 12.0 |" in text
