"""Conformance suite of logs: retention, compaction and queue limits; for logs whose clock and writes a test controls."""

from threading import Thread
from time import sleep

import pytest

from conformance.log_group_suite import Worker
from conformance.log_suite import append, bodies, numbered
from conformance.logs import AppendOutcomes, ReceivedRecords, TimedLogs
from milepost.eventlog.log import Entry, Log, LogLost, LogUnavailable, Since, TopicEnd, TopicSettings

MINUTE = 60.0
HOUR = 60 * MINUTE
APPENDS_MAX = 1_000
COMPACTED = TopicSettings(is_compacted=True)


def keys(log: Log, topic: str) -> list[tuple[str, bytes | None]]:
    """Return keys and values of a topic, without the records of `poke`."""
    first, end = log.ends(topic)
    return [(record.key, record.value) for record in log.read(topic, first, end) if record.key != "poke"]


def poke(logs: TimedLogs, log: Log, topic: str) -> None:
    """Append a record, because a log is cleaned after appends."""
    append(logs, log, [Entry(topic, "poke", b"")])


class RetentionSuite:
    """Compaction and retention."""

    def test_a_compacted_topic_retains_the_last_record_of_each_key_at_its_offset(self, logs: TimedLogs) -> None:
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        log.make(topic, COMPACTED)
        append(logs, log, numbered(topic, 0, 5_000))
        append(logs, log, [Entry(topic, "k3", b"later"), Entry(topic, "once", b"1")])
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: len(keys(log, topic)) <= 11)
        expected = [(f"k{number % 10}", b"%d" % number) for number in range(4_990, 5_000) if number != 4_993]
        assert keys(log, topic) == [*expected, ("k3", b"later"), ("once", b"1")]
        assert log.ends(topic) == (4_990, 5_003)
        log.follow({topic: 0}, received, received.on_gap)
        logs.wait_until(lambda: len(received.records) >= 12)
        assert [record.offset for record in received.records] == [4_990, 4_991, 4_992, *range(4_994, 5_003)]
        assert received.gaps == []

    def test_compaction_continues_with_new_records(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        for round_number in range(4):
            append(logs, log, [Entry(topic, f"k{number}", b"%d" % round_number) for number in range(round_number, 6)])
            logs.pass_time(10 * MINUTE)
            poke(logs, log, topic)
            logs.wait_until(lambda: len(keys(log, topic)) == 6)
        assert sorted(keys(log, topic)) == [("k0", b"0"), ("k1", b"1"), ("k2", b"2"), ("k3", b"3"), ("k4", b"3"), ("k5", b"3")]

    def test_a_removed_key_disappears_and_after_an_hour_its_tombstone_too(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        append(logs, log, [Entry(topic, "a", b"1"), Entry(topic, "b", b"2"), Entry(topic, "a", None)])
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("b", b"2"), ("a", None)])
        logs.pass_time(45 * MINUTE)
        poke(logs, log, topic)
        logs.wait_idle()
        assert keys(log, topic) == [("b", b"2"), ("a", None)]
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("b", b"2")])

    def test_a_removed_key_can_be_appended_again(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        append(logs, log, [Entry(topic, "a", b"1"), Entry(topic, "a", None), Entry(topic, "a", b"2")])
        logs.pass_time(2 * HOUR)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("a", b"2")])

    def test_a_compacted_topic_has_no_retention_by_age(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, TopicSettings(retention_s=60, retention_bytes=10, is_compacted=True))
        append(logs, log, [Entry(topic, f"k{number}", bytes(100)) for number in range(10)])
        logs.pass_time(100 * HOUR)
        poke(logs, log, topic)
        logs.wait_idle()
        assert len(keys(log, topic)) == 10

    def test_expired_records_are_removed_and_their_readers_get_a_gap(self, logs: TimedLogs) -> None:
        # M9
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        log.make(topic, TopicSettings(retention_s=60))
        append(logs, log, numbered(topic, 0, 10))
        logs.pass_time(50)
        append(logs, log, numbered(topic, 10, 15))
        logs.pass_time(11)
        append(logs, log, numbered(topic, 15, 16))
        logs.wait_until(lambda: log.ends(topic) == (10, 16))
        with pytest.raises(LogLost, match=f"{topic}: records 3 to 9 are gone"):
            log.read(topic, 3, 100)
        assert [record.value for record in log.read(topic, 10, 100)] == bodies(10, 16)
        received_before: list[int] = []
        log.follow({topic: 3}, received, lambda _: received_before.append(len(received.records)))
        logs.wait_until(lambda: len(received.records) >= 6)
        assert received.values(topic) == bodies(10, 16)
        assert received_before == [0]
        other = ReceivedRecords()
        log.follow({topic: TopicEnd.BEGINNING}, other, other.on_gap)
        logs.wait_until(lambda: len(other.records) >= 6)
        assert other.gaps == []

    def test_a_topic_whose_records_all_expired_is_empty_and_keeps_its_next_offset(self, logs: TimedLogs) -> None:
        log, topic, other = logs.open(), logs.topic(), logs.topic()
        log.make(topic, TopicSettings(retention_s=60))
        append(logs, log, numbered(topic, 0, 10))
        logs.pass_time(30)
        append(logs, log, numbered(topic, 10, 11))
        logs.pass_time(59)
        append(logs, log, [*numbered(other, 0, 1), *numbered(topic, 11, 12)])
        logs.wait_until(lambda: log.ends(topic) == (10, 12))

    def test_the_oldest_records_are_removed_beyond_the_size_limit(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, TopicSettings(retention_s=0, retention_bytes=1_000))
        for number in range(10):
            append(logs, log, [Entry(topic, "k", bytes(99 - logs.overhead_bytes)) for _ in range(10)])
            assert log.ends(topic)[1] == 10 * (number + 1)
        logs.wait_until(lambda: log.ends(topic) == (90, 100))
        logs.pass_time(1_000 * HOUR)
        poke(logs, log, topic)
        logs.wait_until(lambda: log.ends(topic) == (91, 101))

    def test_changed_settings_apply_from_then_on(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic)
        append(logs, log, numbered(topic, 0, 100))
        log.make(topic)
        logs.pass_time(HOUR)
        poke(logs, log, topic)
        logs.wait_idle()
        assert log.ends(topic) == (0, 101)
        log.make(topic, TopicSettings(retention_s=60))
        poke(logs, log, topic)
        logs.wait_until(lambda: log.ends(topic)[0] == 100)

    def test_a_follower_that_keeps_up_misses_nothing(self, logs: TimedLogs) -> None:
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        log.make(topic, TopicSettings(retention_s=60))
        log.follow({topic: 0}, received, received.on_gap)
        for round_number in range(10):
            append(logs, log, numbered(topic, round_number * 50, round_number * 50 + 50))
            logs.wait_until(lambda count=round_number * 50 + 50: len(received.records) == count)  # type: ignore[misc]
            logs.pass_time(50)
        assert received.values(topic) == bodies(0, 500)
        assert received.gaps == []

    def test_a_group_that_was_away_too_long_gets_a_gap(self, logs: TimedLogs) -> None:
        log, topic, group = logs.open(), logs.topic(), f"g-{logs.topic()}"
        log.make(topic, TopicSettings(retention_s=60))
        append(logs, log, numbered(topic, 0, 4))
        first = Worker(log, group, [topic])
        logs.wait_until(lambda: log.committed(group) == {topic: 4})
        first.close()
        append(logs, log, numbered(topic, 4, 10))
        logs.pass_time(61)
        append(logs, log, numbered(topic, 10, 12))
        logs.wait_until(lambda: log.ends(topic) == (10, 12))
        second = Worker(log, group, [topic])
        logs.wait_until(lambda: len(second.received.records) >= 2)
        assert second.received.values(topic) == bodies(10, 12)
        assert [str(gap).split(",")[0] for gap in second.received.gaps] == [f"{topic}: records 4 to 9 are gone"]

    def test_a_follower_beyond_the_end_gets_a_gap_and_starts_at_the_end(self, logs: TimedLogs) -> None:
        log, topic, received = logs.open(), logs.topic(), ReceivedRecords()
        append(logs, log, numbered(topic, 0, 5))
        log.follow({topic: 9}, received, received.on_gap)
        logs.wait_until(lambda: len(received.gaps) == 1)
        append(logs, log, numbered(topic, 5, 7))
        logs.wait_until(lambda: len(received.records) >= 2)
        assert received.values(topic) == bodies(5, 7)
        assert len(received.gaps) == 1

    def test_times_never_decrease_even_if_the_clock_is_set_back(self, logs: TimedLogs) -> None:
        log, other, topic, received = logs.open(), logs.open(), logs.topic(), ReceivedRecords()
        append(logs, log, numbered(topic, 0, 3))
        logs.pass_time(-HOUR)
        append(logs, other, numbered(topic, 3, 6))
        logs.pass_time(HOUR + 1)
        append(logs, log, numbered(topic, 6, 9))
        times = [record.appended_at for record in log.read(topic, 0, 10)]
        assert times[0] == times[5] < times[6]
        log.follow({topic: Since(times[6])}, received, received.on_gap)
        logs.wait_until(lambda: len(received.records) >= 3)
        assert received.values(topic) == bodies(6, 9)


class QueueLimitSuite:
    """The limits of the append queue."""

    def test_appends_beyond_the_queue_limit_are_refused_and_all_accepted_ones_are_written(self, logs: TimedLogs) -> None:
        log, topic, confirmations = logs.open(), logs.topic(), AppendOutcomes()
        log.make(topic)
        with logs.blocked_writes():
            accepted = fill(log, [Entry(topic, "k", b"x")] * 1_000, confirmations)
            assert confirmations.outcomes == []
        logs.wait_until(lambda: len(confirmations.outcomes) == accepted)
        assert confirmations.outcomes == [(number, None) for number in range(accepted)]
        assert log.ends(topic) == (0, 1_000 * accepted)
        append(logs, log, numbered(topic, 0, 1))

    def test_the_append_queue_is_also_limited_in_bytes(self, logs: TimedLogs) -> None:
        log, topic, confirmations = logs.open(), logs.topic(), AppendOutcomes()
        log.make(topic)
        with logs.blocked_writes():
            accepted = fill(log, [Entry(topic, "k", bytes(500_000))], confirmations)
        logs.wait_until(lambda: len(confirmations.outcomes) == accepted)
        assert log.ends(topic) == (0, accepted)

    def test_closing_waits_for_appends_that_cannot_be_written_yet(self, logs: TimedLogs) -> None:
        log, topic, confirmations = logs.open(), logs.topic(), AppendOutcomes()
        log.make(topic)
        closing = Thread(target=log.close)
        with logs.blocked_writes():
            for number in range(3):
                log.append(numbered(topic, number, number + 1), confirmations.done(number))
                sleep(0.02)  # the writer has begun with the first and has not seen the others
            closing.start()
            closing.join(0.1)
        closing.join()
        assert confirmations.outcomes == [(number, None) for number in range(3)]
        assert [record.value for record in logs.open().read(topic, 0, 10)] == bodies(0, 3)


def fill(log: Log, entries: list[Entry], confirmations: AppendOutcomes) -> int:
    """Append until an append is refused; return the number of accepted ones."""
    for number in range(APPENDS_MAX):
        try:
            log.append(entries, confirmations.done(number))
        except LogUnavailable as fault:
            assert "wait to be written already" in str(fault)  # noqa: PT017
            assert number > 10
            return number
    raise AssertionError("no append was refused")
