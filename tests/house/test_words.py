import pytest

from house.rules.tree import ROOT, Plant
from house.rules.words import word_faults


def test_names_are_not_empty_words() -> None:
    assert word_faults(ROOT) == []


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("src/milepost/utils.py", ""),
        ("src/milepost/helpers/text.py", ""),
        ("tests/manager.py", ""),
        ("src/milepost/edge.py", "class SessionManager: ..."),
        ("src/milepost/edge.py", "def touch(timestamp): ..."),
        ("src/milepost/edge.py", "last_timestamp_ns = 3"),
    ],
)
def test_an_empty_word_is_found(plant: Plant, name: str, text: str) -> None:
    assert len(word_faults(plant({name: text}))) == 1
