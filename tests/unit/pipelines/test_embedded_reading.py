"""The range of a batch over the embedded log, and the records of a small one."""

import pickle
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from milepost.cli.main import main
from milepost.eventlog.log import Entry
from milepost.model.durability import Durability
from milepost.pipelines.sources.embedded import (
    PARTITION_OFFSETS,
    PLANNED_BYTES_MAX,
    PLANNED_RECORDS_MAX,
    BatchAppender,
    LogStreamReader,
    next_position,
    ranges,
)

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


def test_topics_share_the_limit_in_proportion_to_their_records() -> None:
    assert next_position({}, {"a": (0, 900), "b": (0, 90), "c": (0, 0)}, 110) == {"a": 100, "b": 10, "c": 0}
    assert next_position({"a": 3}, {"a": (0, 1_003), "b": (0, 1_000)}, 10) == {"a": 8, "b": 5}


@given(st.lists(st.integers(1, 5_000), min_size=2, max_size=4), st.integers(100, 2_000))
def test_topics_reach_the_end_of_a_backlog_in_the_same_batch(counts: list[int], most: int) -> None:
    found = {str(number): (0, count) for number, count in enumerate(counts)}
    reached, ended = dict[str, int](), dict[str, int]()
    for batch in range(sum(counts) // most + 2):
        reached = next_position(reached, found, most)
        ended |= {topic: batch for topic, at in reached.items() if at == found[topic][1] and topic not in ended}
    assert ended.keys() == found.keys()
    assert max(ended.values()) == -(-sum(counts) // most) - 1
    large = [ended[str(number)] for number, count in enumerate(counts) if count > sum(counts) // most]
    assert max(ended.values()) - min(large, default=max(ended.values())) <= 1


@given(st.integers(0, 100_000), st.integers(0, 100_000), st.integers(5_000, PARTITION_OFFSETS))
def test_ranges_are_adjacent_and_complete(first: int, end: int, per_task: int) -> None:
    found = ranges({"a": first}, {"a": end}, per_task)
    assert [at for one in found for at in (one.first, one.end)] == sorted(at for one in found for at in (one.first, one.end))
    assert sum(one.end - one.first for one in found) == max(0, end - first)
    assert all(one.end - one.first <= per_task for one in found)


@pytest.fixture
def appender(tmp_path: Path) -> Iterator[BatchAppender]:
    with closing(BatchAppender(tmp_path, Durability.PROCESS_CRASH)) as found:
        yield found


@contextmanager
def closing_reader(reader: LogStreamReader) -> Iterator[LogStreamReader]:
    try:
        yield reader
    finally:
        reader.stop()


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[LogStreamReader]:
    with closing_reader(LogStreamReader(tmp_path, ["a", "b"], None, PARTITION_OFFSETS, "")) as found:
        yield found


def test_a_small_batch_is_sent_with_its_plan_as_its_task_would_read_it(appender: BatchAppender, reader: LogStreamReader) -> None:
    appender.append([Entry("a", str(number), b"x" * 500) for number in range(PLANNED_RECORDS_MAX)], None)
    start, end = {"a": 7, "b": 0}, {"a": 4_500, "b": 0}
    (partition,) = reader.partitions(start, end)
    planned = list(reader.getCache(start, end) or [])
    assert sum(batch.num_rows for batch in planned) == 4_493
    assert planned == list(reader.read(partition))


@pytest.mark.parametrize(
    "entries",
    [
        [Entry("a", "", b"")] * (PLANNED_RECORDS_MAX + 1),
        [Entry("a", "", b"x" * 800_000)] * (PLANNED_BYTES_MAX // 800_000 + 1),
        [Entry("a", "", b""), Entry("b", "", b"")],
    ],
    ids=["many records", "large records", "several topics"],
)
def test_a_larger_batch_is_left_to_its_tasks(appender: BatchAppender, reader: LogStreamReader, entries: list[Entry]) -> None:
    appender.append(entries, None)
    start = reader.initialOffset()
    end = reader.latestOffset(start, reader.getDefaultReadLimit())
    assert reader.getCache(start, end) is None
    assert sum(batch.num_rows for one in reader.partitions(start, end) for batch in reader.read(one)) == len(entries)


def test_a_small_batch_of_several_tasks_is_left_to_them(appender: BatchAppender, tmp_path: Path) -> None:
    appender.append([Entry("a", "", b"")] * 10, None)
    with closing_reader(LogStreamReader(tmp_path, ["a"], 10, 5, "")) as reader:
        assert len(reader.partitions({"a": 0}, {"a": 10})) == 2
        assert reader.getCache({"a": 0}, {"a": 10}) is None


def test_a_reader_with_the_key_of_a_site_can_be_sent_to_the_process_that_plans(tmp_path: Path) -> None:
    assert main(["trust", "site-key", str(tmp_path / "key")]) == 0
    reader = LogStreamReader(tmp_path, ["a"], 10, 5, str(tmp_path / "key"))
    assert isinstance(pickle.loads(pickle.dumps(reader)), LogStreamReader)  # made by this test
