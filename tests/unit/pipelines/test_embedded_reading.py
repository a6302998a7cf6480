"""The range of a batch over the embedded log."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.sources.embedded import PARTITION_OFFSETS, next_position, ranges

ends = st.dictionaries(
    st.sampled_from("abcd"),
    st.tuples(st.integers(0, 100), st.integers(0, 100)).map(lambda two: (min(two), max(two))),
    min_size=1,
)
starts = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 120))


@given(starts, ends, st.none() | st.integers(1, 200))
def test_a_batch_moves_forward_within_its_limit(
    start: dict[str, int], found: dict[str, tuple[int, int]], most: int | None
) -> None:
    reached = next_position(start, found, most)
    assert reached.keys() == found.keys()
    taken = {topic: at - max(start.get(topic, first), first) for topic, at in reached.items() for first, _ in [found[topic]]}
    assert all(at >= start.get(topic, 0) for topic, at in reached.items())
    assert sum(count for count in taken.values() if count > 0) <= (1_000 if most is None else most)


@given(starts, ends)
def test_without_a_limit_a_batch_reaches_the_end(start: dict[str, int], found: dict[str, tuple[int, int]]) -> None:
    reached = next_position(start, found, None)
    assert reached == {topic: max(end, start.get(topic, first)) for topic, (first, end) in found.items()}


@given(starts, ends, st.integers(1, 50))
def test_repeated_batches_reach_the_end(start: dict[str, int], found: dict[str, tuple[int, int]], most: int) -> None:
    reached, batches = start, 0
    while (further := next_position(reached, found, most)) != reached:
        reached, batches = further, batches + 1
        assert batches <= 500
    assert all(reached[topic] >= end for topic, (_, end) in found.items())


def test_small_topics_leave_the_rest_of_the_limit_to_others() -> None:
    assert next_position({}, {"a": (0, 1_000), "b": (0, 2), "c": (0, 0)}, 10) == {"a": 8, "b": 2, "c": 0}


@given(st.integers(0, 100_000), st.integers(0, 100_000))
def test_ranges_are_adjacent_and_complete(first: int, end: int) -> None:
    found = ranges({"a": first}, {"a": end})
    assert [at for one in found for at in (one.first, one.end)] == sorted(at for one in found for at in (one.first, one.end))
    assert sum(one.end - one.first for one in found) == max(0, end - first)
    assert all(one.end - one.first <= PARTITION_OFFSETS for one in found)


def test_large_topics_share_the_limit_equally() -> None:
    assert next_position({"a": 3}, {"a": (0, 1_000), "b": (0, 1_000)}, 10) == {"a": 8, "b": 5}
