"""Predicates: their meaning, and the positions of syntax errors (M24)."""

import pytest

from milepost.model.incidents import BadPredicate, fields_of, holds, parse_predicate
from milepost.model.incidents.predicates import PREDICATE_CHARACTERS_MAX, PREDICATE_DEPTH_MAX

BIN = {"reports": 5.0, "witnesses": 3.0, "weight": 2.5, "radius_m": 80.0, "age_s": 12.0, "mean_speed_mps": 4.0}


@pytest.mark.parametrize(
    ("text", "is_true"),
    [
        ("witnesses >= 3 and reports >= 5", True),
        ("witnesses > 3 and reports >= 5", False),
        ("witnesses > 3 or reports >= 5", True),
        ("weight < 2.5", False),
        ("weight <= 2.5", True),
        ("weight == 2.5", True),
        ("weight != 2.5", False),
        ("3 <= witnesses", True),
        ("reports > witnesses", True),
        ("radius_m > -1e2 and age_s<13", True),
        ("reports == 5 or reports == 6 and witnesses == 9", True),
        ("(reports == 5 or reports == 6) and witnesses == 9", False),
        ("not reports == 6 and witnesses == 9", False),
        ("not (reports == 6 and witnesses == 9)", True),
        ("not not reports == 5", True),
        ("mean_speed_mps < 5", True),
        ("mean_ice < 5", False),
        ("mean_ice >= 5", False),
        ("not mean_ice < 5", True),
        ("1 < 2", True),
    ],
)
def test_a_predicate_means(text: str, is_true: bool) -> None:
    assert holds(parse_predicate(text), BIN.get) is is_true


@pytest.mark.parametrize(
    ("text", "at", "detail"),
    [
        ("", 0, "found the end at 0"),
        ("reports", 7, "expected one of < <="),
        ("reports >=", 10, "an aggregate or a number"),
        ("reports >= 5 and", 16, "found the end"),
        ("reports => 5", 8, "found '='"),
        ("reports = 5", 8, "found '='"),
        ("reports >= 5 witnesses > 2", 13, "and, or, or the end"),
        ("report >= 5", 0, "did you mean 'reports'?"),
        ("witnesses >= 3 and mean_ > 1", 19, "mean_FIELD"),
        ("(reports >= 5", 13, "the ) of the ( at 0"),
        ("reports >= 5)", 12, "found ')'"),
        ("and reports >= 5", 0, "an aggregate or a number"),
        ("reports >= 1e999", 11, "not so large"),
        ("reports > 5 & age_s > 1", 12, "found '&'"),
        ("reports > -", 10, "found '-'"),
        ("__import__ > 1", 0, "reports, witnesses"),
    ],
)
def test_a_syntax_error_has_its_position(text: str, at: int, detail: str) -> None:
    with pytest.raises(BadPredicate) as raised:
        parse_predicate(text)
    assert raised.value.at == at
    assert detail in str(raised.value)


def test_texts_too_deep_or_too_long_are_refused() -> None:
    deep = "(" * PREDICATE_DEPTH_MAX + "reports > 1" + ")" * PREDICATE_DEPTH_MAX
    assert holds(parse_predicate(deep), BIN.get)
    with pytest.raises(BadPredicate, match="deep"):
        parse_predicate(f"({deep})")
    with pytest.raises(BadPredicate, match="deep"):
        parse_predicate("not " * (PREDICATE_DEPTH_MAX + 1) + "reports > 1")
    with pytest.raises(BadPredicate, match="characters"):
        parse_predicate("reports > 1".ljust(PREDICATE_CHARACTERS_MAX + 1))


def test_aggregates_that_do_not_matter_are_not_computed() -> None:
    requested = []

    def value_of(name: str) -> float:
        requested.append(name)
        return 0.0

    assert not holds(parse_predicate("reports > 5 and witnesses > 2"), value_of)
    assert requested == ["reports"]


def test_the_fields_that_cells_need_tallies_of() -> None:
    text = "reports > 1 and (mean_speed_mps < 3 or not (max_x > min_x)) and count_y > 1"
    assert fields_of(parse_predicate(text)) == {"speed_mps", "x", "y"}
