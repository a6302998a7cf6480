import pytest

from house.rules.glossary import WORDS_MAX, glossary_faults
from house.rules.tree import ROOT, Plant

HEAD = "| word | established term | meaning | code |\n|---|---|---|---|\n"
ROW = "| epoch | fencing token | orders claims | `milepost.model.site_records` |\n"


def test_every_word_of_the_glossary_has_an_established_term_and_code() -> None:
    assert glossary_faults(ROOT) == []


@pytest.mark.parametrize(
    ("rows", "fault"),
    [
        ("| epoch | | orders claims | `milepost.model.site_records` |", "docs/glossary.md: epoch has no established term"),
        ("| epoch | fencing token | | `milepost.model.site_records` |", "docs/glossary.md: epoch has no meaning"),
        ("| epoch | fencing token | orders claims | |", "docs/glossary.md: epoch has no code"),
        ("| epoch | fencing token | orders claims | sites |", "docs/glossary.md: epoch has no code"),
        (ROW + ROW, "docs/glossary.md lists epoch 2 times"),
    ],
)
def test_an_incomplete_or_repeated_word_is_found(plant: Plant, rows: str, fault: str) -> None:
    assert glossary_faults(plant({"docs/glossary.md": HEAD + rows})) == [fault]


def test_a_glossary_that_is_too_long_is_found(plant: Plant) -> None:
    rows = "".join(ROW.replace("epoch", f"word-{number}") for number in range(WORDS_MAX + 1))
    (fault,) = glossary_faults(plant({"docs/glossary.md": HEAD + rows}))
    assert fault == f"docs/glossary.md has {WORDS_MAX + 1} words, {WORDS_MAX} are allowed: use the established terms"
