"""Formulas: equal queries are kept once, and a message finds exactly those that it makes true (T4, T13)."""

from itertools import combinations
from random import Random

import pytest

from milepost.matching import formulas as room
from milepost.matching.formulas import Formulas
from milepost.model.queries import Query, holds, parse_query
from milepost.model.reasons import Malformed, Reason

LETTERS = "abcde"
MESSAGES = [frozenset(some) for size in range(6) for some in combinations(LETTERS, size)]
NEGATED_ONLY = ["!a", "!a & !b", "!a | !b", "!(a | b)", "a | !b"]
MIXED = ["a & b", "a & !b", "a & b & c", "a & b & c & d", "a & b & c & d & e", "a & !b & !c & !d & !e", "a | b", "a & (b | c)"]
MORE = [
    "(a | b) & (c | d)",
    "a & b | c & !d",
    "a & !(b & c & d)",
    "!(a & b) & (c | d | e)",
    "topic:x & a & !b",
    "topic:x & !topic:+",
]
PLAIN = ["a", "b", "topic:x", "topic:#", "a & a", "a | a & b", "!!c"]


def true_for(formulas: Formulas, topic: str, tags: frozenset[str]) -> list[int]:
    plain, others = formulas.true_for(topic, tags)
    return sorted([*plain, *others.tolist()])


def check_all(formulas: Formulas, asked: dict[int, Query]) -> None:
    """Every message over five tags and two topics finds what the definition says."""
    for topic in ("x", "y/z"):
        for tags in MESSAGES:
            wanted = sorted(number for number, query in asked.items() if holds(query, topic, tags))
            assert true_for(formulas, topic, tags) == wanted, (topic, sorted(tags))


def ask_all(formulas: Formulas, texts: list[str]) -> dict[int, Query]:
    return {formulas.ask(query): query for query in map(parse_query, texts)}


def few_marks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "_MARK_MASK", 15)


@pytest.mark.parametrize("single_max", [0, 1, 128])
def test_t4_exactly_the_true_queries_are_found_each_once(single_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SINGLE_MAX", single_max)
    formulas = Formulas(64, 1024)
    asked = ask_all(formulas, PLAIN + NEGATED_ONLY + MIXED + MORE)
    assert len(asked) == len(formulas) > 20
    check_all(formulas, asked)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("a & b", "b & a"),
        ("a & (b | c)", "c & a | a & b"),
        ("!(a | b)", "!b & !a"),
        ("a", "a & (a | b)"),
        ("topic:x/# & a", "a & topic:x/#"),
        ("a & b & c & d & !e", "!e & d & (c & (b & a))"),
    ],
)
def test_t13_a_query_written_in_another_order_is_kept_once(one: str, other: str) -> None:
    formulas = Formulas(8, 1024)
    number = formulas.ask(parse_query(one))
    assert formulas.ask(parse_query(other)) == number
    assert len(formulas) == 1
    formulas.drop(number)
    assert len(formulas) == 1, "one still asks it"
    formulas.drop(number)
    assert len(formulas) == len(formulas._vocabulary) == 0


def test_a_query_of_one_atom_is_plain_and_needs_no_check() -> None:
    formulas = Formulas(8, 1024)
    number = formulas.ask(parse_query("a"))
    compound = formulas.ask(parse_query("a & !b"))
    plain, others = formulas.true_for("x", {"a"})
    assert (plain, others.tolist()) == ([number], [compound])


def test_beyond_so_many_clauses_under_an_atom_further_ones_are_filed_under_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SINGLE_MAX", 2)
    formulas = Formulas(64, 1024)
    texts = [f"{one} & {other} & t{number}" for number, (one, other) in enumerate(combinations("abcd", 2))]
    texts += [f"a & b & !n{number}" for number in range(6)]
    asked = ask_all(formulas, texts)
    assert formulas._pairs, "some must be filed under two"
    for extra in (frozenset({"t0"}), frozenset({"n1", "t5"}), frozenset()):
        for tags in (frozenset("ab"), frozenset("acd"), frozenset("a"), frozenset("abcd")):
            wanted = sorted(number for number, query in asked.items() if holds(query, "x", tags | extra))
            assert true_for(formulas, "x", tags | extra) == wanted
    for number in asked:
        formulas.drop(number)
    assert not formulas._pairs
    assert len(formulas._vocabulary) == 0


def test_a_clause_may_have_many_more_atoms_than_its_columns() -> None:
    formulas = Formulas(64, 1024)
    wanted = [f"t{number}" for number in range(40)]
    number = formulas.ask(parse_query(" & ".join([*wanted, *(f"!n{at}" for at in range(40))])))
    assert true_for(formulas, "x", frozenset(wanted)) == [number]
    for missing in wanted:
        assert true_for(formulas, "x", frozenset(wanted) - {missing}) == []
    for unwanted in (0, 1, 2, 39):
        assert true_for(formulas, "x", frozenset([*wanted, f"n{unwanted}"])) == []
    assert true_for(formulas, "x", frozenset(wanted)) == [number], "what was true for one message is not for the next"


@pytest.mark.parametrize(
    ("text", "is_keyless"), [("!a", True), ("a | !b", True), ("a & !b", False), ("a", False), ("a | b", False)]
)
def test_t13_only_a_clause_of_negations_alone_must_be_checked_for_every_message(text: str, is_keyless: bool) -> None:
    formulas = Formulas(8, 1024)
    number = formulas.ask(parse_query(text))
    assert formulas.is_keyless(number) is is_keyless
    assert true_for(formulas, "x", frozenset({"z"})) == ([number] if is_keyless else [])
    formulas.drop(number)
    assert true_for(formulas, "x", frozenset({"z"})) == []


def test_queries_whose_marks_collide_are_told_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    few_marks(monkeypatch)
    formulas = Formulas(16, 1024)
    texts = [*MIXED, *MORE[:4]]
    asked = ask_all(formulas, texts)
    assert len(asked) == len(texts)
    check_all(formulas, asked)
    assert {formulas.ask(query) for query in asked.values()} == set(asked), "the second asker gets the first one's number"
    for number in asked:
        formulas.drop(number)
        formulas.drop(number)
    assert len(formulas) == len(formulas._vocabulary) == 0
    check_all(formulas, {})


def test_when_a_colliding_query_went_the_others_are_still_found_and_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    few_marks(monkeypatch)
    formulas = Formulas(16, 1024)
    asked = ask_all(formulas, MIXED)
    for number in list(asked)[::2]:
        formulas.drop(number)
        del asked[number]
    check_all(formulas, asked)
    for number in asked:
        formulas.drop(number)
    assert len(formulas) == len(formulas._vocabulary) == 0


def test_numbers_of_queries_are_used_again() -> None:
    formulas = Formulas(2, 1024)
    for turn in range(20):
        one, other = formulas.ask(parse_query(f"a{turn} & b")), formulas.ask(parse_query(f"c{turn}"))
        assert {one, other} == {0, 1}
        assert true_for(formulas, "x", frozenset({f"a{turn}", "b", f"c{turn}"})) == [0, 1]
        formulas.drop(one)
        formulas.drop(other)


def test_a_vocabulary_without_room_refuses_and_takes_no_name() -> None:
    formulas = Formulas(8, 3)
    number = formulas.ask(parse_query("a"))
    formulas.ask(parse_query("b"))
    with pytest.raises(Malformed) as caught:
        formulas.ask(parse_query("c & d"))
    assert caught.value.reason is Reason.VOCABULARY_FULL
    assert len(formulas._vocabulary) == 2
    assert true_for(formulas, "x", frozenset("acd")) == [number]


def test_without_room_for_its_clauses_a_query_is_refused_and_takes_no_name() -> None:
    formulas = Formulas(1, 1024)
    with pytest.raises(Malformed, match="room for 3 clauses") as caught:
        formulas.ask(parse_query("a & b | c & d | e & f | g & h | i & j"))
    assert caught.value.reason is Reason.SUBSCRIPTIONS_FULL
    assert len(formulas) == len(formulas._vocabulary) == 0
    number = formulas.ask(parse_query("a & b | c & d | g & h"))
    assert true_for(formulas, "x", frozenset("gh")) == [number]


@pytest.mark.parametrize("seed", range(3))
def test_through_a_random_life_the_definition_is_kept(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "SINGLE_MAX", 2)
    random = Random(seed)
    formulas, asked, askers = Formulas(64, 1024), dict[int, Query](), dict[int, int]()
    texts = PLAIN + NEGATED_ONLY + MIXED + MORE
    for _ in range(300):
        if askers and random.random() < 0.48:
            number = random.choice(list(askers))
            formulas.drop(number)
            askers[number] -= 1
            if not askers[number]:
                del askers[number], asked[number]
        else:
            query = parse_query(random.choice(texts))
            number = formulas.ask(query)
            asked[number] = query
            askers[number] = askers.get(number, 0) + 1
        tags = random.choice(MESSAGES)
        assert true_for(formulas, "x", tags) == sorted(number for number, query in asked.items() if holds(query, "x", tags))
    assert len(formulas) == len(asked) > 0


def test_a_refused_query_of_long_clauses_leaves_nothing_behind() -> None:
    formulas = Formulas(8, 4096)
    asked = 0
    for turn in range(8):
        query = parse_query(" & ".join(f"t{turn}-{number}" for number in range(20)))
        try:
            formulas.ask(query)
        except Malformed:
            continue
        asked += 1
    assert 0 < len(formulas) == asked < 8
    assert len(formulas._vocabulary) == 20 * asked
