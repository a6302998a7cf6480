import pytest

from house.rules.papers import REQUIREMENTS, paper_faults
from house.rules.tree import ROOT, Plant

ROWS = {one: f"| {one} | something | | not yet |" for one in REQUIREMENTS}


def test_every_requirement_has_one_true_row() -> None:
    assert paper_faults(ROOT) == []


def test_there_are_as_many_requirements_as_the_papers_have() -> None:
    assert len(REQUIREMENTS) == 34 + 15 + 15 + 15 + 28


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"M7": ""}, "M7 has 0 rows in docs/papers.md"),
        ({"M7": "| M7 | x | | not yet |\n| M7 | y | | not yet |"}, "M7 has 2 rows in docs/papers.md"),
        ({"M7": "| M7 | x | | not yet |\n| T99 | y | | not yet |"}, "T99 in docs/papers.md is no requirement"),
        ({"M7": "| M7 | | | not yet |"}, "M7 does not say what it is"),
        ({"M7": "| M7 | x | | soon |"}, "M7 is shown by 'soon': name a file of tests or bench, or say 'not yet'"),
        ({"M7": "| M7 | x | | `tests/gone.py` |"}, "M7 is shown by tests/gone.py, which is not there"),
        ({"M7": "| M7 | x | | `tests/other.py` |"}, "M7 is shown by tests/other.py, which does not mention it"),
    ],
)
def test_a_false_row_is_found(plant: Plant, change: dict[str, str], fault: str) -> None:
    table = "\n".join({**ROWS, **change}.values())
    assert paper_faults(plant({"docs/papers.md": table, "tests/other.py": "M77 and XM7"})) == [fault]


def test_a_row_with_evidence_passes(plant: Plant) -> None:
    table = "\n".join({**ROWS, "M7": "| M7 | x | `src` | `tests/other.py::test_m7` |"}.values())
    assert paper_faults(plant({"docs/papers.md": table, "tests/other.py": "def test_m7_report(): ..."})) == []
