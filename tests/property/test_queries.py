"""Queries: random formulas print and parse to themselves, equal their normal form, and any text is handled."""

from typing import TypeAlias

from hypothesis import assume, example, given, reject
from hypothesis import strategies as st

from milepost.model.queries import (
    CLAUSES_MAX,
    LITERALS_MAX,
    And,
    Clause,
    HasTag,
    Not,
    OnTopic,
    Or,
    Query,
    holds,
    normal_form,
    parse_query,
    point_at,
)
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import Tag

Outcome: TypeAlias = tuple[Clause, ...] | Reason

TAGS = ["a", "b", "c", "d", "e"]
FILTERS = ["a/#", "a/+", "a/b", "+/b", "#", "a"]
TOPICS = ["a", "a/b", "a/c", "b/b", "c", "$SYS/b", "a/b/c"]

few_atoms = st.sampled_from([HasTag(Tag(tag)) for tag in TAGS] + [OnTopic(topic_filter) for topic_filter in FILTERS])
odd_tags = st.text(st.sampled_from("aé7_-.:/@Ω"), min_size=1, max_size=8) | st.sampled_from(["topic:", "topic:a", "and", "topic"])
levels = st.sampled_from(["+", "", "a b", "(c)", '"', "\\", '\\"', "|", "&!", "a|b", "ü", "\u2028", "topic:", "\xa0"])
odd_filters = st.lists(levels, min_size=1, max_size=5).map("/".join).filter(bool)
heaps = st.lists(st.sampled_from(["(", "!", "a & ", "b | ", "topic:c/# ", ")", "a", "!(", '"', "not "]), max_size=300).map(
    "".join
)
odd_atoms = odd_tags.map(lambda text: HasTag(Tag(text))) | odd_filters.map(OnTopic)

alternatives = (
    st.lists(st.integers(0, 30).map(lambda number: HasTag(Tag(f"t{number}"))), min_size=2, max_size=4).map(tuple).map(Or)
)
near_the_limit = st.lists(alternatives, min_size=3, max_size=6).map(tuple).map(And)
"""Formulas of some ten to a thousand alternatives: about as many are refused as not."""


def formulas(atoms: st.SearchStrategy[HasTag] | st.SearchStrategy[HasTag | OnTopic]) -> st.SearchStrategy[Query]:
    def larger(parts: st.SearchStrategy[Query]) -> st.SearchStrategy[Query]:
        several = st.lists(parts, min_size=2, max_size=4).map(tuple)
        return parts.map(Not) | several.map(And) | several.map(Or)

    return st.recursive(atoms, larger, max_leaves=25)


def outcome(query: Query) -> Outcome:
    try:
        return normal_form(query)
    except Malformed as fault:
        return fault.reason


def clause_holds(clause: Clause, topic: str, tags: set[str]) -> bool:
    is_wanted = all(holds(atom, topic, tags) for atom in clause.required)
    return is_wanted and not any(holds(atom, topic, tags) for atom in clause.excluded)


def literals(clause: Clause) -> set[tuple[object, bool]]:
    return {(atom, True) for atom in clause.required} | {(atom, False) for atom in clause.excluded}


def shuffled(query: Query, draw: st.DrawFn) -> Query:
    match query:
        case Not(part):
            return Not(shuffled(part, draw))
        case And(parts):
            return And(tuple(shuffled(part, draw) for part in draw(st.permutations(parts))))
        case Or(parts):
            return Or(tuple(shuffled(part, draw) for part in draw(st.permutations(parts))))
        case _:
            return query


def maybe_fault(text: str) -> Malformed | None:
    try:
        parse_query(text)
    except Malformed as fault:
        return fault
    return None


@st.composite
def formulas_and_reorderings(draw: st.DrawFn) -> tuple[Query, Query]:
    query = draw(formulas(few_atoms) | near_the_limit)
    return query, shuffled(query, draw)


@given(formulas(odd_atoms))
def test_every_formula_prints_as_a_query_that_parses_to_the_same_formula(query: Query) -> None:
    assert parse_query(str(query)) == query


@given(formulas(few_atoms), st.data())
def test_every_printed_pair_of_parentheses_is_necessary(query: Query, data: st.DataObject) -> None:
    text = str(query)
    openings = [at for at, character in enumerate(text) if character == "("]
    assume(openings)
    opening = data.draw(st.sampled_from(openings))
    depth, closing = 1, opening
    while depth:
        closing += 1
        depth += {"(": 1, ")": -1}.get(text[closing], 0)
    assert parse_query(text[:opening] + text[opening + 1 : closing] + text[closing + 1 :]) != query


@given(formulas(few_atoms))
def test_the_normal_form_matches_exactly_what_the_query_matches(query: Query) -> None:
    result = outcome(query)
    assume(result is not Reason.QUERY_TOO_COMPLEX)
    clauses = () if isinstance(result, Reason) else result
    for topic in TOPICS:
        for number in range(2 ** len(TAGS)):
            tags = {tag for bit, tag in enumerate(TAGS) if number >> bit & 1}
            assert any(clause_holds(clause, topic, tags) for clause in clauses) is holds(query, topic, tags)


@given(formulas(few_atoms))
def test_no_clause_is_contradictory_or_follows_from_another_and_all_are_within_limits(query: Query) -> None:
    clauses = outcome(query)
    if isinstance(clauses, Reason):
        reject()
    assert 1 <= len(clauses) <= CLAUSES_MAX
    assert sum(len(literals(clause)) for clause in clauses) <= LITERALS_MAX
    for clause in clauses:
        assert not clause.required & clause.excluded
        assert not any(literals(other) <= literals(clause) for other in clauses if other is not clause)


@given(formulas_and_reorderings())
def test_the_order_of_parts_changes_neither_the_normal_form_nor_a_refusal(queries: tuple[Query, Query]) -> None:
    one, other = queries
    assert outcome(one) == outcome(other)


@given(st.text() | heaps | st.text(st.sampled_from('ab &|!()"\\/+#:\n')))
@example("topic:" * 3)
@example("\ud800")
@example('topic:"\ud800"')
@example("a & b" + "\x00")
def test_any_text_is_parsed_or_refused_at_one_of_its_characters(text: str) -> None:
    fault = maybe_fault(text)
    if fault is None:
        query = parse_query(text)
        assert parse_query(str(query)) == query
    else:
        assert fault.at is not None
        assert 0 <= fault.at <= len(text)
        assert point_at(text, fault.at).count("\n") == 1
