import pytest

from house.rules.documents import document_faults
from house.rules.tree import ROOT, Plant

SOURCE = """
from enum import IntEnum
class Reason(IntEnum):
    MALFORMED = 100
class Circle:
    radius_m: float
    def contains(self): ...
LIMIT_MAX = 3
"""


def test_documents_refer_to_existing_names() -> None:
    assert document_faults(ROOT) == []


def tree_with(document: str) -> dict[str, str]:
    return {
        "README.md": document,
        "Makefile": "test: env\n\ttrue\ntest-fast:\n\ttrue\n",
        "src/milepost/model/areas.py": SOURCE,
        "tests/unit/test_areas.py": "def test_rim(): ...",
        "docs/walk.md": "# The walk of a message\n",
    }


@pytest.mark.parametrize(
    "text",
    [
        "`src/milepost/model/roads.py`",
        "`tests/unit/test_roads.py`",
        "`tests/unit/test_areas.py::test_gone`",
        "`docs/gone/`",
        "`bench/results/NAME.json`",
        "`gone.toml`",
        "[walk](docs/gone.md)",
        "[walk](docs/walk.md#another-heading)",
        "`make tests`",
        "`make test gone`",
        "```\nCI=true make gone\n```",
        "`milepost.model.roads`",
        "`milepost.model.areas.Square`",
        "`milepost.model.areas.Circle.area`",
        "`areas.Square`",
        "`Reason.GONE`",
        "`GONE_WRONG`",
        "`SquareArea`",
        "`no_such_name`",
        "`no_such_name(message)`",
    ],
)
def test_a_name_that_does_not_exist_is_found(plant: Plant, text: str) -> None:
    assert len(document_faults(plant(tree_with(f"See {text}\n" if not text.startswith("```") else text)))) == 1


@pytest.mark.parametrize(
    "text",
    [
        "`src/milepost/model/areas.py` `src/milepost/model/` `tests/unit/test_areas.py::test_rim`",
        "`tests/unit/NAME.py` `areas.py`",
        "[walk](docs/walk.md#the-walk-of-a-message) [site](https://example.org)",
        "`make test` `make test-fast` `make` `CI=true make test`",
        "```\nmake test   # all of it\n```",
        "`milepost.model` `milepost.model.areas.Circle.contains` `areas.Circle` `Reason.MALFORMED`",
        "`Circle` `radius_m` `LIMIT_MAX`",
        "`a & (b | !c)` `asyncio.run` `city/+/parking/#`",
    ],
)
def test_an_existing_name_passes(plant: Plant, text: str) -> None:
    assert document_faults(plant(tree_with(text))) == []


def test_a_missing_path_is_found_in_the_source(plant: Plant) -> None:
    root = plant(
        {**tree_with(""), "src/milepost/wire.py": '"""See `docs/wire.md` and `docs/walk.md`; `a_name` is not looked at."""'}
    )
    assert document_faults(root) == ["src/milepost/wire.py names docs/wire.md, a path that is not there"]


def test_the_changelog_may_name_removed_code(plant: Plant) -> None:
    assert document_faults(plant({**tree_with(""), "CHANGELOG.md": "Removed `milepost.model.roads`."})) == []
