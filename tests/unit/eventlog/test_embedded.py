from random import Random

from hypothesis import given
from hypothesis import strategies as st

from milepost.eventlog.embedded.retention import COMPACT_BYTES, COMPACT_SMALL_BYTES, COMPACT_SMALL_S, TopicState, wants_compacting
from milepost.eventlog.embedded.rows import OFFSETS_MAX, number_of
from milepost.eventlog.log import REMOVALS_STAY_S, divide, maybe_gap
from milepost.model.instants import SECOND_NS

wishes = st.dictionaries(st.integers(0, 5), st.frozensets(st.sampled_from("abcdefg")), max_size=5)


@given(wishes)
def test_every_topic_goes_to_one_member_that_wishes_for_it(members: dict[int, frozenset[str]]) -> None:
    division = divide(members)
    assert division.keys() == {topic for topics in members.values() for topic in topics}
    assert all(topic in members[member] for topic, member in division.items())


@given(st.sets(st.integers(), min_size=1, max_size=6), st.frozensets(st.text(max_size=3), max_size=20))
def test_members_that_wish_for_the_same_get_the_same_number_but_for_one(members: set[int], topics: frozenset[str]) -> None:
    division = divide(dict.fromkeys(members, topics))
    shares = [list(division.values()).count(member) for member in members]
    assert max(shares) - min(shares) <= 1


@given(wishes, st.randoms())
def test_the_division_is_the_same_in_whatever_order_members_are_known(members: dict[int, frozenset[str]], random: Random) -> None:
    shuffled = list(members.items())
    random.shuffle(shuffled)
    assert divide(dict(shuffled)) == divide(members)


def test_a_reader_misses_something_only_outside_of_what_is_there() -> None:
    assert [maybe_gap("t", position, 5, 9) is None for position in range(3, 11)] == [False, False, *[True] * 5, False]
    assert "records 3 to 4 are gone" in str(maybe_gap("t", 3, 5, 9))
    assert "ends before 9, and 12 was to be read" in str(maybe_gap("t", 12, 5, 9))


def test_numbers_are_in_the_order_of_topics_and_then_of_offsets() -> None:
    places = [(1, 0), (1, 1), (1, OFFSETS_MAX - 1), (2, 0), (2, 7), (3, 0)]
    numbers = [number_of(*place) for place in places]
    assert numbers == sorted(set(numbers))
    assert number_of(2**22, OFFSETS_MAX - 1) < 2**63


def state(*, total: int, compacted: int, compacted_at_s: int, end: int = 9, compacted_to: int = 5) -> TopicState:
    at = compacted_at_s * SECOND_NS
    return TopicState(1, 0, end, total, 0, 0, 1, compacted_to, compacted, at)


def wants(topic: TopicState, now_s: int) -> bool:
    return wants_compacting(topic, now_s * SECOND_NS)


def test_a_topic_is_compacted_when_as_much_is_new_as_old_and_that_is_much() -> None:
    assert wants(state(total=2 * COMPACT_BYTES, compacted=COMPACT_BYTES, compacted_at_s=1_000), 1_000)
    assert not wants(state(total=2 * COMPACT_BYTES - 1, compacted=COMPACT_BYTES, compacted_at_s=1_000), 1_000)
    assert not wants(state(total=5 * COMPACT_BYTES - 1, compacted=5 * COMPACT_BYTES // 2, compacted_at_s=1_000), 1_000)


def test_a_small_topic_is_compacted_now_and_then_if_anything_is_new() -> None:
    small, large = COMPACT_SMALL_BYTES - 1, COMPACT_SMALL_BYTES
    for total, wait_s, end, meant in (
        (small, COMPACT_SMALL_S, 9, True),
        (small, COMPACT_SMALL_S - 1, 9, False),
        (small, COMPACT_SMALL_S, 5, False),
        (large, COMPACT_SMALL_S, 9, False),
    ):
        assert wants(state(total=total, compacted=total, compacted_at_s=1_000, end=end), 1_000 + wait_s) is meant


def test_a_topic_is_compacted_when_removals_may_have_become_old() -> None:
    large = state(total=10 * COMPACT_SMALL_BYTES, compacted=10 * COMPACT_SMALL_BYTES, compacted_at_s=1_000, end=5)
    assert wants(large, 1_000 + REMOVALS_STAY_S)
    assert not wants(large, 1_000 + REMOVALS_STAY_S - 1)
