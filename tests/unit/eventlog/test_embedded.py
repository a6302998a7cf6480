from random import Random

from hypothesis import given
from hypothesis import strategies as st

from milepost.eventlog.embedded.retention import COMPACT_BYTES, COMPACT_SMALL_BYTES, COMPACT_SMALL_S, TopicState, needs_compaction
from milepost.eventlog.embedded.rows import OFFSETS_MAX, number_of
from milepost.eventlog.log import TOMBSTONE_S, assign_topics, maybe_gap
from milepost.model.instants import SECOND_NS

requests = st.dictionaries(st.integers(0, 5), st.frozensets(st.sampled_from("abcdefg")), max_size=5)


@given(requests)
def test_every_topic_is_assigned_to_one_member_that_requested_it(members: dict[int, frozenset[str]]) -> None:
    assignment = assign_topics(members)
    assert assignment.keys() == {topic for topics in members.values() for topic in topics}
    assert all(topic in members[member] for topic, member in assignment.items())


@given(st.sets(st.integers(), min_size=1, max_size=6), st.frozensets(st.text(max_size=3), max_size=20))
def test_members_with_equal_requests_get_equal_shares_up_to_one(members: set[int], topics: frozenset[str]) -> None:
    assignment = assign_topics(dict.fromkeys(members, topics))
    shares = [list(assignment.values()).count(member) for member in members]
    assert max(shares) - min(shares) <= 1


@given(requests, st.randoms())
def test_the_assignment_does_not_depend_on_the_order_of_members(members: dict[int, frozenset[str]], random: Random) -> None:
    shuffled = list(members.items())
    random.shuffle(shuffled)
    assert assign_topics(dict(shuffled)) == assign_topics(members)


def test_a_gap_is_reported_only_outside_the_stored_offsets() -> None:
    assert [maybe_gap("t", position, 5, 9) is None for position in range(3, 11)] == [False, False, *[True] * 5, False]
    assert "records 3 to 4 are gone" in str(maybe_gap("t", 3, 5, 9))
    assert "offset 12 is beyond its end, 9" in str(maybe_gap("t", 12, 5, 9))


def test_record_numbers_sort_by_topic_and_then_by_offset() -> None:
    places = [(1, 0), (1, 1), (1, OFFSETS_MAX - 1), (2, 0), (2, 7), (3, 0)]
    numbers = [number_of(*place) for place in places]
    assert numbers == sorted(set(numbers))
    assert number_of(2**22, OFFSETS_MAX - 1) < 2**63


def state(*, total: int, compacted: int, compacted_at_s: int, end: int = 9, compacted_to: int = 5) -> TopicState:
    at = compacted_at_s * SECOND_NS
    return TopicState(1, 0, end, total, 0, 0, 1, compacted_to, compacted, at)


def is_due(topic: TopicState, now_s: int) -> bool:
    return needs_compaction(topic, now_s * SECOND_NS)


def test_a_topic_is_compacted_when_the_new_bytes_reach_the_minimum_and_the_compacted_ones() -> None:
    assert is_due(state(total=2 * COMPACT_BYTES, compacted=COMPACT_BYTES, compacted_at_s=1_000), 1_000)
    assert not is_due(state(total=2 * COMPACT_BYTES - 1, compacted=COMPACT_BYTES, compacted_at_s=1_000), 1_000)
    assert not is_due(state(total=5 * COMPACT_BYTES - 1, compacted=5 * COMPACT_BYTES // 2, compacted_at_s=1_000), 1_000)


def test_a_small_topic_is_compacted_periodically_if_there_are_new_records() -> None:
    small, large = COMPACT_SMALL_BYTES - 1, COMPACT_SMALL_BYTES
    for total, wait_s, end, expected in (
        (small, COMPACT_SMALL_S, 9, True),
        (small, COMPACT_SMALL_S - 1, 9, False),
        (small, COMPACT_SMALL_S, 5, False),
        (large, COMPACT_SMALL_S, 9, False),
    ):
        assert is_due(state(total=total, compacted=total, compacted_at_s=1_000, end=end), 1_000 + wait_s) is expected


def test_a_topic_is_compacted_when_tombstones_may_have_expired() -> None:
    large = state(total=10 * COMPACT_SMALL_BYTES, compacted=10 * COMPACT_SMALL_BYTES, compacted_at_s=1_000, end=5)
    assert is_due(large, 1_000 + TOMBSTONE_S)
    assert not is_due(large, 1_000 + TOMBSTONE_S - 1)
