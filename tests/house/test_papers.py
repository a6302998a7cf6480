import pytest

from house.rules.papers import REQUIREMENTS, paper_faults
from house.rules.tree import ROOT, Plant

ROWS = {one: f"| {one} | something | | not yet |" for one in REQUIREMENTS}


def test_every_requirement_has_one_row_with_evidence() -> None:
    assert paper_faults(ROOT) == []


def test_there_are_as_many_requirements_as_the_papers_have() -> None:
    assert len(REQUIREMENTS) == 40 + 18 + 19 + 16 + 33


FILES = {
    "tests/other.py": "# M7\n\ndef test_m77() -> None:\n    # XM7\n    ...\n\ndef test_it() -> None:\n    # D9, M7\n    ...\n",
    "bench/results/hub.md": "| work | ours |\n|---|--:|\n| moves, lost | 0 |\n",
}


@pytest.mark.parametrize(
    ("change", "fault"),
    [
        ({"M7": ""}, "M7 has 0 rows in docs/papers.md"),
        ({"M7": "| M7 | x | | not yet |\n| M7 | y | | not yet |"}, "M7 has 2 rows in docs/papers.md"),
        ({"M7": "| M7 | x | | not yet |\n| T99 | y | | not yet |"}, "T99 in docs/papers.md is no requirement"),
        ({"M7": "| M7 | | | not yet |"}, "M7 does not say what it is"),
        ({"M7": "| M7 | x | | soon |"}, "M7 is shown by 'soon': name test functions or rows of results, or say 'not yet'"),
        ({"M7": "| M7 | x | | `tests/gone.py::test_it` |"}, "M7 is shown by tests/gone.py::test_it, which is not there"),
        ({"M7": "| M7 | x | | `tests/other.py::test_gone` |"}, "M7 is shown by tests/other.py::test_gone, which is not there"),
        (
            {"M7": "| M7 | x | | `tests/other.py::test_m77` |"},
            "M7 is shown by tests/other.py::test_m77, which does not mention it",
        ),
        (
            {"M7": "| M7 | x | | `tests/other.py` |"},
            "M7 is shown by tests/other.py, which is neither a test function nor a row of results",
        ),
        (
            {"M7": "| M7 | x | | `bench/results/hub.md: moves, doubled` |"},
            "M7 is shown by bench/results/hub.md: moves, doubled, which is not there",
        ),
        (
            {"M7": "| M7 | x | | partly: `tests/other.py::test_it` |"},
            "M7 is shown by 'partly: `tests/other.py::test_it`': name test functions or rows of results, or say 'not yet'",
        ),
    ],
)
def test_a_false_row_is_found(plant: Plant, change: dict[str, str], fault: str) -> None:
    table = "\n".join({**ROWS, **change}.values())
    assert paper_faults(plant({"docs/papers.md": table, **FILES})) == [fault]


@pytest.mark.parametrize(
    "shown",
    [
        "`tests/other.py::test_it`",
        "`tests/other.py::test_it`, `bench/results/hub.md: moves, lost`",
        "partly (no DHCP): `tests/other.py::test_it`",
    ],
)
def test_a_row_with_evidence_passes(plant: Plant, shown: str) -> None:
    table = "\n".join({**ROWS, "M7": f"| M7 | x | `src` | {shown} |"}.values())
    assert paper_faults(plant({"docs/papers.md": table, **FILES})) == []
