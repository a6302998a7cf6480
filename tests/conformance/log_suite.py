"""Conformance suite of logs: appending, following, reading. A test class with a fixture `logs` inherits the tests.

A topic is totally ordered, and a reader can resume from an offset (M8); records are read in the order of appends (M9).

`log_group_suite.py` is about consumer groups, `log_retention_suite.py` needs a clock that tests can advance.
"""

import pytest

from conformance.logs import AppendOutcomes, Logs, ReceivedRecords
from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    RECORD_BYTES_MAX,
    TOPIC_CHARACTERS_MAX,
    Entry,
    Log,
    LogRefused,
    LogUnavailable,
    Record,
    Since,
    Start,
    TopicEnd,
    TopicSettings,
    read_to_end,
)
from milepost.model.instants import Instant


def numbered(topic: str, start: int, end: int) -> list[Entry]:
    """Return entries with numbers as values and ten different keys."""
    return [Entry(topic, f"k{number % 10}", b"%d" % number) for number in range(start, end)]


def bodies(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def append(logs: Logs, log: Log, entries: list[Entry]) -> None:
    """Append, and wait for the confirmation."""
    confirmations = AppendOutcomes()
    log.append(entries, confirmations.done(""))
    logs.wait_until(lambda: bool(confirmations.outcomes))
    assert confirmations.outcomes == [("", None)]


class LogSuite:
    """Appending, following, reading."""

    def test_records_are_read_in_the_order_of_appends_without_duplicates(self, logs: Logs) -> None:
        # M8, M9
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        log.follow({topic: TopicEnd.BEGINNING}, received, received.on_gap)
        for start in range(0, 3_000, 7):
            log.append(numbered(topic, start, min(start + 7, 3_000)))
        logs.wait_until(lambda: len(received.records) >= 3_000)
        logs.wait_idle()
        assert received.values(topic) == bodies(0, 3_000)
        assert received.gaps == []

    def test_a_record_is_read_as_it_was_appended(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        entries = [
            Entry(topic, "", b""),
            Entry(topic, "Ω\n語", bytes(range(256))),
            Entry(topic, "k", None),
            Entry(topic, "k" * 500, b"x"),
        ]
        append(logs, log, entries)
        records = log.read(topic, 0, 10)
        assert [Entry(record.topic, record.key, record.value) for record in records] == entries
        assert all(type(record) is Record for record in records)

    def test_the_largest_record_is_accepted(self, logs: Logs) -> None:
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        largest = Entry(topic, "key", b"x" * (RECORD_BYTES_MAX - logs.overhead_bytes - 3))
        append(logs, log, [largest])
        log.follow({topic: 0}, received, received.on_gap)
        logs.wait_until(lambda: bool(received.records))
        assert received.values(topic) == [largest.value]

    def test_offsets_increase_from_zero_and_times_never_decrease(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        for start in range(0, 50, 5):
            append(logs, log, numbered(topic, start, start + 5))
        records = log.read(topic, 0, 100)
        assert [record.offset for record in records] == list(range(50))
        times = [record.appended_at for record in records]
        assert times == sorted(times)
        assert times[0] > 0

    @pytest.mark.parametrize("start", [0, 7, 19, 20, 25, TopicEnd.BEGINNING, TopicEnd.END])
    def test_following_begins_at_the_start_position(self, logs: Logs, start: Start) -> None:
        # M8
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        append(logs, log, numbered(topic, 0, 20))
        if start == 25:
            append(logs, log, numbered(topic, 20, 25))
        following = log.follow({topic: start}, received, received.on_gap)
        append(logs, log, numbered(topic, 25 if start == 25 else 20, 30))
        begin = {TopicEnd.BEGINNING: 0, TopicEnd.END: 20}[start] if isinstance(start, TopicEnd) else start
        assert isinstance(begin, int)
        logs.wait_until(lambda: len(received.records) >= 30 - begin)
        logs.wait_idle()
        assert received.values(topic) == bodies(begin, 30)
        assert received.gaps == []
        following.close()

    def test_following_from_a_time_begins_with_the_first_record_of_that_time_or_later(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        for start in range(0, 40, 4):
            append(logs, log, numbered(topic, start, start + 4))
            logs.tick()
        records = log.read(topic, 0, 100)
        assert records[16].appended_at == records[17].appended_at < records[20].appended_at
        for time in (
            0,
            records[0].appended_at,
            records[17].appended_at,
            records[17].appended_at + 1,
            records[-1].appended_at + 1,
        ):
            received = ReceivedRecords()
            following = log.follow({topic: Since(Instant(time))}, received, received.on_gap)
            expected = [record for record in records if record.appended_at >= time]
            logs.wait_until(lambda received=received, expected=expected: len(received.records) >= len(expected))  # type: ignore[misc]
            logs.wait_idle()
            assert received.records == expected
            following.close()

    def test_two_topics_are_followed_together_each_in_order(self, logs: Logs) -> None:
        log, one, other, received = logs.open(), logs.topic(), logs.topic(), ReceivedRecords()
        append(logs, log, numbered(one, 0, 10))
        log.follow({one: 5, other: TopicEnd.BEGINNING}, received, received.on_gap)
        for number in range(10, 200):
            log.append([*numbered(one, number, number + 1), *numbered(other, number, number + 1)])
        logs.wait_until(lambda: len(received.records) >= 195 + 190)
        logs.wait_idle()
        assert received.values(one) == bodies(5, 200)
        assert received.values(other) == bodies(10, 200)

    def test_batches_are_of_one_topic_and_not_too_large(self, logs: Logs) -> None:
        log, one, other, received = logs.open(), logs.topic(), logs.topic(), ReceivedRecords()
        append(logs, log, [*numbered(one, 0, 2_500), *numbered(other, 0, 2_500)])
        log.follow({one: 0, other: 0}, received, received.on_gap)
        logs.wait_until(lambda: len(received.records) >= 5_000)
        assert max(len(batch) for batch in received.batches) <= BATCH_RECORDS_MAX
        assert received.values(one) == received.values(other) == bodies(0, 2_500)

    def test_several_followers_of_several_log_objects_get_all_records(self, logs: Logs) -> None:
        writing, topic = logs.open(), logs.topic()
        readers = [ReceivedRecords() for _ in range(4)]
        for received in readers:
            logs.open().follow({topic: TopicEnd.END}, received, received.on_gap)
        for number in range(200):
            writing.append(numbered(topic, number, number + 1))
        logs.wait_until(lambda: all(len(received.records) >= 200 for received in readers))
        assert [received.values(topic) for received in readers] == [bodies(0, 200)] * 4

    def test_done_is_called_in_the_order_of_the_appends(self, logs: Logs) -> None:
        log, confirmations = logs.open(), AppendOutcomes()
        topics = [logs.topic() for _ in range(3)]
        for number in range(300):
            log.append(numbered(topics[number % 3], number, number + number % 4), confirmations.done(number))
        logs.wait_until(lambda: len(confirmations.outcomes) >= 300)
        assert confirmations.outcomes == [(number, None) for number in range(300)]

    def test_a_confirmed_append_can_be_read_by_a_new_reader(self, logs: Logs) -> None:
        writing, reading, topic = logs.open(), logs.open(), logs.topic()
        found: list[int] = []
        for number in range(20):
            writing.append(numbered(topic, number, number + 1), lambda _: found.append(len(reading.read(topic, 0, 100))))
        logs.wait_until(lambda: len(found) >= 20)
        assert all(there >= number for number, there in enumerate(found, start=1))

    def test_concurrent_log_objects_each_keep_their_own_order(self, logs: Logs) -> None:
        one, other, topic, received = logs.open(), logs.open(), logs.topic(), ReceivedRecords()
        for number in range(300):
            one.append([Entry(topic, "one", b"%d" % number)])
            other.append([Entry(topic, "other", b"%d" % number)])
        logs.open().follow({topic: TopicEnd.BEGINNING}, received, received.on_gap)
        logs.wait_until(lambda: len(received.records) >= 600)
        logs.wait_idle()
        for key in ("one", "other"):
            assert [record.value for record in received.records if record.key == key] == bodies(0, 300)
        offsets = [record.offset for record in received.records]
        assert offsets == sorted(set(offsets))

    def test_a_closed_follower_receives_nothing_more(self, logs: Logs) -> None:
        log, topic, received, other = logs.open(), logs.topic(), ReceivedRecords(), ReceivedRecords()
        following = log.follow({topic: 0}, received, received.on_gap)
        log.follow({topic: 0}, other, other.on_gap)
        append(logs, log, numbered(topic, 0, 5))
        logs.wait_until(lambda: len(received.records) >= 5)
        following.close()
        following.close()
        append(logs, log, numbered(topic, 5, 10))
        logs.wait_until(lambda: len(other.records) >= 10)
        logs.wait_idle()
        assert received.values(topic) == bodies(0, 5)

    def test_following_creates_missing_topics(self, logs: Logs) -> None:
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        log.follow({topic: TopicEnd.END}, received, received.on_gap)
        assert topic in log.topics()
        append(logs, log, numbered(topic, 0, 1))
        logs.wait_until(lambda: len(received.records) == 1)

    def test_topics_are_listed_in_order(self, logs: Logs) -> None:
        log = logs.open()
        names = [logs.topic() for _ in range(3)]
        log.make(names[2])
        append(logs, log, numbered(names[0], 0, 1))
        log.make(names[1], TopicSettings(is_compacted=True))
        log.make(names[1])
        listed = logs.open().topics()
        assert [name for name in listed if name in names] == sorted(names)
        assert listed == sorted(set(listed))

    def test_reading_returns_at_most_the_limit_and_does_not_wait(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        append(logs, log, numbered(topic, 0, 2_500))
        assert [record.value for record in log.read(topic, 10, 5)] == bodies(10, 15)
        assert [record.value for record in log.read(topic, 300, 2_000)] == bodies(300, 2_300)
        assert [record.value for record in log.read(topic, 2_490, 100)] == bodies(2_490, 2_500)
        assert log.read(topic, 2_500, 10) == []
        assert log.read(topic, 0, 0) == []
        assert log.read(logs.topic(), 0, 10) == []

    def test_a_topic_is_read_to_the_end_it_had_at_the_start(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        append(logs, log, numbered(topic, 0, 2_500))
        batches = read_to_end(log, topic, 10)
        first = next(batches)
        append(logs, log, numbered(topic, 2_500, 2_600))
        rest = [record for records in batches for record in records]
        assert [record.value for record in (*first, *rest)] == bodies(10, 2_500)
        assert list(read_to_end(log, topic, 2_600)) == []
        assert list(read_to_end(log, logs.topic())) == []

    def test_the_ends_are_the_oldest_and_the_next_offset(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        assert log.ends(topic) == (0, 0)
        log.make(topic)
        assert log.ends(topic) == (0, 0)
        append(logs, log, numbered(topic, 0, 12))
        assert logs.open().ends(topic) == (0, 12)

    @pytest.mark.parametrize("name", ["", "a/b", "ü", "a b", "x" * (TOPIC_CHARACTERS_MAX + 1), "..", "a\n"])
    def test_a_name_that_not_every_log_supports_is_refused(self, logs: Logs, name: str) -> None:
        log, received = logs.open(), ReceivedRecords()
        for attempt in (
            lambda: log.append([Entry(name, "k", b"")]),
            lambda: log.make(name),
            lambda: log.follow({name: 0}, received, received.on_gap),
            lambda: log.read(name, 0, 1),
            lambda: log.ends(name),
            lambda: log.join("group", [name], received, received.on_gap),
            lambda: log.join(name, [logs.topic()], received, received.on_gap),
            lambda: log.committed(name),
        ):
            with pytest.raises(LogRefused, match=r"is not a valid (topic|group) name"):
                attempt()

    def test_a_name_of_all_allowed_characters_is_accepted(self, logs: Logs) -> None:
        log = logs.open()
        name = f"{logs.topic()}.A_z-0".ljust(100, "x")
        append(logs, log, numbered(name, 0, 1))
        assert log.ends(name) == (0, 1)

    def test_an_oversized_record_refuses_the_whole_append(self, logs: Logs) -> None:
        log, topic, confirmations = logs.open(), logs.topic(), AppendOutcomes()
        large = Entry(topic, "ü" * 10, b"x" * (RECORD_BYTES_MAX - 19))
        with pytest.raises(LogRefused, match=f"a record of {RECORD_BYTES_MAX + 1} bytes.* in parts"):
            log.append([Entry(topic, "k", b""), large], confirmations.done("large"))
        append(logs, log, numbered(topic, 0, 1))
        assert [record.value for record in log.read(topic, 0, 10)] == bodies(0, 1)
        assert confirmations.outcomes == []

    def test_a_key_that_cannot_be_encoded_is_refused(self, logs: Logs) -> None:
        with pytest.raises(LogRefused, match="UTF-8"):
            logs.open().append([Entry(logs.topic(), "\ud800", b"")])

    def test_closing_finishes_pending_appends(self, logs: Logs) -> None:
        log, topic, confirmations, received = logs.open(), logs.topic(), AppendOutcomes(), ReceivedRecords()
        log.follow({topic: 0}, received, received.on_gap)
        for number in range(50):
            log.append(numbered(topic, number * 20, number * 20 + 20), confirmations.done(number))
        log.close()
        assert confirmations.outcomes == [(number, None) for number in range(50)]
        count = len(received.records)
        assert [record.value for record in logs.open().read(topic, 0, 2_000)] == bodies(0, 1_000)
        logs.wait_idle()
        assert len(received.records) == count
        log.close()

    def test_a_closed_log_raises(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        log.close()
        with pytest.raises(LogUnavailable, match="closed"):
            log.append(numbered(topic, 0, 1))
        with pytest.raises(LogUnavailable, match="closed"):
            log.read(topic, 0, 1)

    def test_callbacks_may_append(self, logs: Logs) -> None:
        log, one, other, received = logs.open(), logs.topic(), logs.topic(), ReceivedRecords()
        log.follow(
            {one: 0}, lambda records: log.append([Entry(other, "copied", record.value) for record in records]), received.on_gap
        )
        log.follow({other: 0}, received, received.on_gap)
        log.append(numbered(one, 0, 1), lambda _: log.append(numbered(one, 1, 2), lambda _: log.append(numbered(one, 2, 3))))
        logs.wait_until(lambda: len(received.records) >= 3)
        assert received.values(other) == bodies(0, 3)

    def test_an_empty_append_is_confirmed(self, logs: Logs) -> None:
        append(logs, logs.open(), [])
