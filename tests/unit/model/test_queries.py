"""Queries: the grammar, the printed form, the meaning, the normal form and the limits of each."""

import pickle

import pytest

from milepost.model.queries import (
    CLAUSES_MAX,
    LITERALS_MAX,
    QUERY_CHARACTERS_MAX,
    QUERY_DEPTH_MAX,
    And,
    Clause,
    HasTag,
    Not,
    OnTopic,
    Or,
    Query,
    atoms_of,
    holds,
    is_negated_only,
    normal_form,
    parse_query,
    point_at,
)
from milepost.model.queries.normal_form import COMBINATIONS_MAX, Expansion, TooManyAlternatives
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import Tag

A, B, C, D = (HasTag(Tag(name)) for name in "abcd")
PAIRS = [f"(a{number} | b{number})" for number in range(40)]


def refusal_of(text: str) -> Malformed:
    with pytest.raises(Malformed) as caught:
        parse_query(text)
    return caught.value


def form(text: str) -> list[str]:
    return [str(clause) for clause in normal_form(parse_query(text))]


# The grammar


@pytest.mark.parametrize(
    ("text", "query"),
    [
        ("a", A),
        ("!a", Not(A)),
        ("!!a", Not(Not(A))),
        ("a & b & c", And((A, B, C))),
        ("a | b | c", Or((A, B, C))),
        ("a & b | c & d", Or((And((A, B)), And((C, D))))),
        ("a & (b | c) & d", And((A, Or((B, C)), D))),
        ("!a & b", And((Not(A), B))),
        ("!(a & b)", Not(And((A, B)))),
        ("(a & b) & c", And((And((A, B)), C))),
        ("a | (b | c)", Or((A, Or((B, C))))),
        ("i-80:west/exit.3@utah", HasTag(Tag("i-80:west/exit.3@utah"))),
        ("überholverbot", HasTag(Tag("überholverbot"))),
        ("topic:city/+/parking/#", OnTopic("city/+/parking/#")),
        ('topic:"a b/(c)/#"', OnTopic("a b/(c)/#")),
        (r'topic:"say \"hi\" \\ o/"', OnTopic(r"say \"hi\" \ o/".replace(r"\"", '"'))),
        ('"topic:a"', HasTag(Tag("topic:a"))),
        ("topical", HasTag(Tag("topical"))),
        ("and & or", And((HasTag(Tag("and")), HasTag(Tag("or"))))),
    ],
)
def test_a_query_is_parsed_to_its_formula_and_the_formula_prints_as_the_query(text: str, query: Query) -> None:
    assert parse_query(text) == query
    assert str(query) == text


@pytest.mark.parametrize(
    ("text", "printed"),
    [
        ("((a))", "a"),
        ("a&b|c", "a & b | c"),
        (" ( a )\t&\n! ( b|c ) ", "a & !(b | c)"),
        ('"a"', "a"),
        ('topic:"a/b"', "topic:a/b"),
    ],
)
def test_needless_parentheses_spaces_and_quotes_are_not_printed(text: str, printed: str) -> None:
    assert str(parse_query(text)) == printed


@pytest.mark.parametrize(
    ("text", "at", "found", "expected"),
    [
        ("", 0, "the end", "a tag"),
        ("   ", 3, "the end", "a tag"),
        ("a b", 2, "'b'", "&, | or the end"),
        ("a & ", 4, "the end", "a tag"),
        ("a && b", 3, "'&'", "a tag"),
        ("a + b", 2, "'+'", "&, | or the end"),
        ("a)", 1, "')'", "&, | or the end"),
        ("a & (b | c", 10, "the end", "the ) of the ( at 4"),
        ("()", 1, "')'", "a tag"),
        ("!", 1, "the end", "a tag"),
        ("topic:", 6, "the end", "a topic filter"),
        ("topic: a", 6, "' '", "a topic filter"),
        ('a & "b', 6, "the end", "the closing quote of the one at 4"),
        ('"b\\', 3, "the end", "after a backslash"),
        (r'"b\n"', 3, "'n'", "after a backslash"),
    ],
)
def test_a_syntax_error_says_what_was_found_where_and_what_was_expected(text: str, at: int, found: str, expected: str) -> None:
    fault = refusal_of(text)
    assert fault.reason is Reason.QUERY_SYNTAX
    assert fault.at == at
    assert fault.detail.startswith(f"found {found} at {at}, expected ")
    assert expected in fault.detail


@pytest.mark.parametrize(
    ("text", "hint"),
    [
        ("a and b", "write & for and"),
        ("a OR b", "write | for OR"),
        ("not a", "write ! for not"),
        ("a & not b", "write ! for not"),
    ],
)
def test_a_query_with_word_operators_gets_a_hint_of_the_symbols(text: str, hint: str) -> None:
    assert refusal_of(text).detail.endswith(hint)


def test_a_syntax_error_without_word_operators_has_no_hint() -> None:
    assert "write" not in refusal_of("a & not & b c").detail


@pytest.mark.parametrize(
    ("text", "reason", "at"),
    [
        ("a & topic:b/c+/d", Reason.TOPIC_WILDCARD, 12),
        (r'topic:"\"\"/c#"', Reason.TOPIC_WILDCARD, 12),
        ('topic:""', Reason.TOPIC_EMPTY, 7),
        ('a & "b c"', Reason.TAG_CHARACTER, 6),
        ('a & ""', Reason.TAG_EMPTY, 5),
        ("a & " + "b" * 65, Reason.TAG_TOO_LONG, 4),
        ("a & topic:$share/group/b", Reason.QUERY_SYNTAX, 10),
    ],
)
def test_an_invalid_tag_or_filter_keeps_its_reason_and_its_position_in_the_query(text: str, reason: Reason, at: int) -> None:
    fault = refusal_of(text)
    assert (fault.reason, fault.at) == (reason, at)
    assert fault.detail.endswith(f"at {at} of the query")


def test_a_shared_filter_is_refused_inside_a_query() -> None:
    with pytest.raises(Malformed, match="share the whole subscription") as caught:
        OnTopic("$share/group/a")
    assert caught.value.reason is Reason.QUERY_SYNTAX


# The finger


def test_the_caret_stands_below_the_character() -> None:
    assert point_at("a & & b", 4) == "a & & b\n    ^"


def test_the_caret_may_stand_after_the_end() -> None:
    assert point_at("a &", 3) == "a &\n   ^"


@pytest.mark.parametrize("at", [0, 37, 38, 500, 961, 962, 999, 1000])
def test_of_a_long_text_an_excerpt_is_shown_with_the_caret_below_the_same_character(at: int) -> None:
    text = "".join(chr(ord("a") + number % 26) for number in range(1000))
    shown, caret = point_at(text, at).split("\n")
    assert len(shown) <= 82
    assert (shown + "$")[caret.index("^")] == (text + "$")[at]


def test_line_breaks_do_not_move_the_caret() -> None:
    assert point_at("a\n& &", 4) == "a & &\n    ^"


# The limits


def test_the_length_limit_of_a_text_is_exact_to_the_character() -> None:
    text = "a".ljust(QUERY_CHARACTERS_MAX)
    assert parse_query(text) == A
    fault = refusal_of(text + " ")
    assert (fault.reason, fault.at) == (Reason.QUERY_TOO_LONG, QUERY_CHARACTERS_MAX)


def test_a_text_that_would_print_too_long_is_refused() -> None:
    assert refusal_of("&".join(["a"] * 2000)).reason is Reason.QUERY_TOO_LONG


@pytest.mark.parametrize(("opening", "closing"), [("!", ""), ("(", ")"), ("!(", ")"), ("a & (b | ", ")")])
def test_texts_nested_however_deep_are_refused_with_a_reason(opening: str, closing: str) -> None:
    for levels in (33, 100, 400):
        fault = refusal_of(opening * levels + "a" + closing * levels)
        assert fault.reason is Reason.QUERY_TOO_DEEP
        assert fault.at is not None


@pytest.mark.parametrize(("opening", "closing"), [("!", ""), ("(", ")")])
def test_texts_nested_to_the_limit_are_parsed(opening: str, closing: str) -> None:
    parse_query(opening * QUERY_DEPTH_MAX + "a" + closing * QUERY_DEPTH_MAX)


def test_formulas_constructed_directly_are_refused_beyond_the_depth_limit() -> None:
    query: Query = A
    for _ in range(QUERY_DEPTH_MAX):
        query = Not(query)
    assert parse_query(str(query)) == query
    with pytest.raises(Malformed) as caught:
        Not(query)
    assert caught.value.reason is Reason.QUERY_TOO_DEEP


def test_a_formula_that_shares_its_parts_cannot_grow_without_limit() -> None:
    query: Query = A
    while 2 * len(str(query)) < QUERY_CHARACTERS_MAX:
        query = And((query, query))
    with pytest.raises(Malformed) as caught:
        And((query, query))
    assert caught.value.reason is Reason.QUERY_TOO_LONG


def test_the_printed_length_is_counted_to_the_character() -> None:
    long = And((Or((A, OnTopic("x" * 1020))), Not(Or((B, OnTopic("x" * 1020)))), OnTopic("x" * 1020), OnTopic("y" * 984)))
    assert len(str(And((long, C)))) == QUERY_CHARACTERS_MAX
    with pytest.raises(Malformed) as caught:
        And((long, HasTag(Tag("cc"))))
    assert caught.value.reason is Reason.QUERY_TOO_LONG


@pytest.mark.parametrize("kind", [And, Or])
@pytest.mark.parametrize("parts", [(), (A,)])
def test_an_operator_with_fewer_than_two_parts_is_refused(kind: type[And] | type[Or], parts: tuple[Query, ...]) -> None:
    with pytest.raises(Malformed, match="at least 2 parts"):
        kind(parts)


def test_a_formula_with_a_bad_tag_or_filter_cannot_be_built() -> None:
    with pytest.raises(Malformed):
        HasTag(Tag("a b"))
    with pytest.raises(Malformed):
        OnTopic("a/#/b")


def test_equal_formulas_have_equal_hashes_and_survive_pickling() -> None:
    one, other = parse_query("a & !(b | topic:c/#)"), parse_query("a&!(b|topic:c/#)")
    assert len({one, other}) == 1
    assert pickle.loads(pickle.dumps(one)) == one


# The meaning


@pytest.mark.parametrize(
    ("text", "topic", "tags", "is_true"),
    [
        ("collision & (i80 | i15) & !cleared", "t", {"collision", "i15"}, True),
        ("collision & (i80 | i15) & !cleared", "t", {"collision", "i15", "cleared"}, False),
        ("collision & (i80 | i15) & !cleared", "t", {"collision"}, False),
        ("topic:city/+/parking/#", "city/nord/parking", set(), True),
        ("topic:city/+/parking/# & !topic:city/nord/#", "city/nord/parking/p1", set(), False),
        ("topic:#", "$SYS/load", set(), False),
        ("!topic:#", "$SYS/load", set(), True),
        ("Collision", "t", {"collision"}, False),
    ],
)
def test_a_query_matches_according_to_its_operators(text: str, topic: str, tags: set[str], is_true: bool) -> None:
    assert holds(parse_query(text), topic, tags) is is_true


# The normal form


@pytest.mark.parametrize(
    ("text", "clauses"),
    [
        ("a", ["a"]),
        ("!a", ["!a"]),
        ("a & (b | c) & !d", ["a & b & !d", "a & c & !d"]),
        ("!(a & b)", ["!a", "!b"]),
        ("!(a | !b)", ["b & !a"]),
        ("a | a & b", ["a"]),
        ("a & b | b & a", ["a & b"]),
        ("a | b & !b", ["a"]),
        ("a | !a", ["!a", "a"]),
        ("(a | b) & (a | c)", ["a", "b & c"]),
        ("topic:x/# & a", ["a & topic:x/#"]),
    ],
)
def test_the_normal_form_lists_the_minimal_alternatives(text: str, clauses: list[str]) -> None:
    assert form(text) == clauses


def test_a_clause_prints_its_required_and_excluded_atoms() -> None:
    assert normal_form(parse_query("a & !topic:b/#")) == (Clause(frozenset({A}), frozenset({OnTopic("b/#")})),)


@pytest.mark.parametrize("text", ["a & !a", "!(a | !a)", "(a | b) & !a & !b"])
def test_a_query_that_no_message_can_match_is_refused(text: str) -> None:
    with pytest.raises(Malformed) as caught:
        form(text)
    assert caught.value.reason is Reason.QUERY_NEVER_TRUE


@pytest.mark.parametrize(("text", "answers"), [("a & !b", [False]), ("!a & !b", [True]), ("!a | b", [True, False])])
def test_a_clause_without_required_atoms_is_negated_only(text: str, answers: list[bool]) -> None:
    assert [is_negated_only(clause) for clause in normal_form(parse_query(text))] == answers


def test_the_limit_of_alternatives_is_exact() -> None:
    names = [f"t{number}" for number in range(CLAUSES_MAX + 1)]
    assert len(form(" | ".join(names[:-1]))) == CLAUSES_MAX
    with pytest.raises(Malformed, match=f"has {CLAUSES_MAX + 1} alternatives, {CLAUSES_MAX} are allowed") as caught:
        form(" | ".join(names))
    assert caught.value.reason is Reason.QUERY_TOO_COMPLEX


def test_as_many_literals_as_allowed_are_kept_and_one_more_is_refused() -> None:
    names = [f"t{number}" for number in range(LITERALS_MAX + 1)]
    assert len(form(" & ".join(names[:-1]))) == 1
    with pytest.raises(Malformed, match=f"name {LITERALS_MAX + 1} tags") as caught:
        form(" & ".join(names))
    assert caught.value.reason is Reason.QUERY_TOO_COMPLEX


@pytest.mark.parametrize("text", [" & ".join(PAIRS), "!(" + " | ".join(PAIRS).replace(" | b", " & b") + ")"])
def test_a_formula_of_a_trillion_alternatives_is_refused_before_they_are_built(text: str) -> None:
    query = parse_query(text)
    with pytest.raises(Malformed, match="over 1,000,000,000,000 alternatives") as caught:
        normal_form(query)
    assert caught.value.reason is Reason.QUERY_TOO_COMPLEX
    expansion = Expansion({atom: number for number, atom in enumerate(atoms_of(query))})
    with pytest.raises(TooManyAlternatives):
        expansion.clauses(query, True)
    assert expansion.combinations < 4 * CLAUSES_MAX


def test_the_work_on_a_formula_is_limited_also_where_each_step_stays_small() -> None:
    same = " | ".join(f"x{number}" for number in range(CLAUSES_MAX - 1))
    alternatives = [f"({same} | y{number})" for number in range(5)]
    assert len(form(" & ".join(alternatives[:4]))) == CLAUSES_MAX
    with pytest.raises(Malformed) as caught:
        form(" & ".join(alternatives))
    assert caught.value.reason is Reason.QUERY_TOO_COMPLEX
    assert COMBINATIONS_MAX < 5 * CLAUSES_MAX**2


def test_small_parts_are_expanded_first_because_they_absorb_most() -> None:
    with pytest.raises(Malformed):
        form(" & ".join(PAIRS[:7]))
    assert form(" & ".join([*PAIRS[:7], "a0", "a1", "a2"])) == form(" & ".join(["a0", "a1", "a2", *PAIRS[3:7]]))


def test_the_normal_form_does_not_depend_on_the_order_of_equally_large_parts() -> None:
    narrowing = [f"(!b{number} & x | !b{number} & y)" for number in range(7)]
    for parts in ([*PAIRS[:7], *narrowing], [*narrowing, *PAIRS[:7]]):
        with pytest.raises(Malformed) as caught:
            form(" & ".join(parts))
        assert caught.value.reason is Reason.QUERY_TOO_COMPLEX
