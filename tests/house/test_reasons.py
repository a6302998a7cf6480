from collections import Counter

from house.rules.tree import ROOT
from milepost.model.reasons import Reason
from scripts.write_reasons import page


def test_every_reason_has_advice_of_its_own() -> None:
    sentences = Counter(reason.advice for reason in Reason)
    assert [sentence for sentence, count in sentences.items() if count > 1] == []
    assert [reason.name for reason in Reason if not (reason.advice.endswith(".") and reason.advice[0].isupper())] == []


def test_no_number_is_used_twice() -> None:
    assert [name for name, member in Reason.__members__.items() if member.name != name] == []


def test_the_page_of_reasons_is_up_to_date() -> None:
    written = (ROOT / "docs" / "reference" / "reasons.md").read_text()
    assert written == page(), "run: make reasons"


def test_the_page_lists_every_reason_with_number_and_advice() -> None:
    rows = [line for line in page().splitlines() if line[:2] == "| " and line[2].isdigit()]
    assert len(rows) == len(Reason)
    assert f"| {Reason.COORDINATE_RANGE.value} | `COORDINATE_RANGE` | {Reason.COORDINATE_RANGE.advice} |" in rows
