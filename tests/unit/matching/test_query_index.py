"""The query index: equal queries are stored once, and a message finds exactly those that it satisfies (T4, T13)."""

from itertools import combinations
from random import Random

import pytest

from milepost.matching import query_index as module
from milepost.matching.query_index import QueryIndex
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
SIMPLE = ["a", "b", "topic:x", "topic:#", "a & a", "a | a & b", "!!c"]


def satisfied_by(index: QueryIndex, topic: str, tags: frozenset[str]) -> list[int]:
    simple, others = index.satisfied_by(topic, tags)
    return sorted([*simple, *others.tolist()])


def check_all(index: QueryIndex, queries: dict[int, Query]) -> None:
    """Compare with the definition for every message over five tags and two topics."""
    for topic in ("x", "y/z"):
        for tags in MESSAGES:
            expected = sorted(number for number, query in queries.items() if holds(query, topic, tags))
            assert satisfied_by(index, topic, tags) == expected, (topic, sorted(tags))


def acquire_all(index: QueryIndex, texts: list[str]) -> dict[int, Query]:
    return {index.acquire(query): query for query in map(parse_query, texts)}


def few_hashes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_HASH_MASK", 15)


@pytest.mark.parametrize("single_max", [0, 1, 128])
def test_t4_exactly_the_satisfied_queries_are_found_each_once(single_max: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SINGLE_MAX", single_max)
    index = QueryIndex(64, 1024)
    queries = acquire_all(index, SIMPLE + NEGATED_ONLY + MIXED + MORE)
    assert len(queries) == len(index) > 20
    check_all(index, queries)


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
def test_t13_equivalent_queries_are_stored_once(one: str, other: str) -> None:
    index = QueryIndex(8, 1024)
    number = index.acquire(parse_query(one))
    assert index.acquire(parse_query(other)) == number
    assert len(index) == 1
    index.release(number)
    assert len(index) == 1, "one still asks it"
    index.release(number)
    assert len(index) == len(index._vocabulary) == 0


def test_a_query_of_one_atom_is_simple_and_needs_no_check() -> None:
    index = QueryIndex(8, 1024)
    number = index.acquire(parse_query("a"))
    compound = index.acquire(parse_query("a & !b"))
    simple, others = index.satisfied_by("x", {"a"})
    assert (simple, others.tolist()) == ([number], [compound])


def test_beyond_a_limit_of_clauses_per_atom_further_ones_are_indexed_under_two_atoms(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SINGLE_MAX", 2)
    index = QueryIndex(64, 1024)
    texts = [f"{one} & {other} & t{number}" for number, (one, other) in enumerate(combinations("abcd", 2))]
    texts += [f"a & b & !n{number}" for number in range(6)]
    queries = acquire_all(index, texts)
    assert index._clauses_by_pair, "some must be filed under two"
    for extra in (frozenset({"t0"}), frozenset({"n1", "t5"}), frozenset()):
        for tags in (frozenset("ab"), frozenset("acd"), frozenset("a"), frozenset("abcd")):
            expected = sorted(number for number, query in queries.items() if holds(query, "x", tags | extra))
            assert satisfied_by(index, "x", tags | extra) == expected
    for number in queries:
        index.release(number)
    assert not index._clauses_by_pair
    assert len(index._vocabulary) == 0


def test_a_clause_may_have_many_more_atoms_than_its_columns() -> None:
    index = QueryIndex(64, 1024)
    expected = [f"t{number}" for number in range(40)]
    number = index.acquire(parse_query(" & ".join([*expected, *(f"!n{at}" for at in range(40))])))
    assert satisfied_by(index, "x", frozenset(expected)) == [number]
    for missing in expected:
        assert satisfied_by(index, "x", frozenset(expected) - {missing}) == []
    for unwanted in (0, 1, 2, 39):
        assert satisfied_by(index, "x", frozenset([*expected, f"n{unwanted}"])) == []
    assert satisfied_by(index, "x", frozenset(expected)) == [number], "the truth values of one message do not leak into the next"


@pytest.mark.parametrize(
    ("text", "has_negated_only_clause"), [("!a", True), ("a | !b", True), ("a & !b", False), ("a", False), ("a | b", False)]
)
def test_t13_only_a_clause_of_negations_alone_must_be_checked_for_every_message(text: str, has_negated_only_clause: bool) -> None:
    index = QueryIndex(8, 1024)
    number = index.acquire(parse_query(text))
    assert index.has_negated_only_clause(number) is has_negated_only_clause
    assert satisfied_by(index, "x", frozenset({"z"})) == ([number] if has_negated_only_clause else [])
    index.release(number)
    assert satisfied_by(index, "x", frozenset({"z"})) == []


def test_queries_with_colliding_hashes_are_distinguished(monkeypatch: pytest.MonkeyPatch) -> None:
    few_hashes(monkeypatch)
    index = QueryIndex(16, 1024)
    texts = [*MIXED, *MORE[:4]]
    queries = acquire_all(index, texts)
    assert len(queries) == len(texts)
    check_all(index, queries)
    assert {index.acquire(query) for query in queries.values()} == set(queries), "the second use gets the number of the first"
    for number in queries:
        index.release(number)
        index.release(number)
    assert len(index) == len(index._vocabulary) == 0
    check_all(index, {})


def test_after_a_colliding_query_was_released_the_others_are_still_found_and_released(monkeypatch: pytest.MonkeyPatch) -> None:
    few_hashes(monkeypatch)
    index = QueryIndex(16, 1024)
    queries = acquire_all(index, MIXED)
    for number in list(queries)[::2]:
        index.release(number)
        del queries[number]
    check_all(index, queries)
    for number in queries:
        index.release(number)
    assert len(index) == len(index._vocabulary) == 0


def test_query_numbers_are_reused() -> None:
    index = QueryIndex(2, 1024)
    for round_number in range(20):
        one, other = index.acquire(parse_query(f"a{round_number} & b")), index.acquire(parse_query(f"c{round_number}"))
        assert {one, other} == {0, 1}
        assert satisfied_by(index, "x", frozenset({f"a{round_number}", "b", f"c{round_number}"})) == [0, 1]
        index.release(one)
        index.release(other)


def test_a_full_vocabulary_refuses_a_query_and_stores_nothing() -> None:
    index = QueryIndex(8, 3)
    number = index.acquire(parse_query("a"))
    index.acquire(parse_query("b"))
    with pytest.raises(Malformed) as caught:
        index.acquire(parse_query("c & d"))
    assert caught.value.reason is Reason.VOCABULARY_FULL
    assert len(index._vocabulary) == 2
    assert satisfied_by(index, "x", frozenset("acd")) == [number]


def test_a_query_without_room_for_its_clauses_is_refused_and_stores_nothing() -> None:
    index = QueryIndex(1, 1024)
    with pytest.raises(Malformed, match="room for 3 clauses") as caught:
        index.acquire(parse_query("a & b | c & d | e & f | g & h | i & j"))
    assert caught.value.reason is Reason.SUBSCRIPTIONS_FULL
    assert len(index) == len(index._vocabulary) == 0
    number = index.acquire(parse_query("a & b | c & d | g & h"))
    assert satisfied_by(index, "x", frozenset("gh")) == [number]


@pytest.mark.parametrize("seed", range(3))
def test_after_random_changes_the_index_agrees_with_the_definition(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "SINGLE_MAX", 2)
    random = Random(seed)
    index, queries, askers = QueryIndex(64, 1024), dict[int, Query](), dict[int, int]()
    texts = SIMPLE + NEGATED_ONLY + MIXED + MORE
    for _ in range(300):
        if askers and random.random() < 0.48:
            number = random.choice(list(askers))
            index.release(number)
            askers[number] -= 1
            if not askers[number]:
                del askers[number], queries[number]
        else:
            query = parse_query(random.choice(texts))
            number = index.acquire(query)
            queries[number] = query
            askers[number] = askers.get(number, 0) + 1
        tags = random.choice(MESSAGES)
        assert satisfied_by(index, "x", tags) == sorted(number for number, query in queries.items() if holds(query, "x", tags))
    assert len(index) == len(queries) > 0


def test_a_refused_query_of_long_clauses_leaves_no_state() -> None:
    index = QueryIndex(8, 4096)
    queries = 0
    for round_number in range(8):
        query = parse_query(" & ".join(f"t{round_number}-{number}" for number in range(20)))
        try:
            index.acquire(query)
        except Malformed:
            continue
        queries += 1
    assert 0 < len(index) == queries < 8
    assert len(index._vocabulary) == 20 * queries
