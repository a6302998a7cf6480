"""The catalogue of logs: what goes with time, and what does not fit; for logs whose clock and writing a test has in its hands."""

from threading import Thread
from time import sleep

import pytest

from conformance.log_claims import append, bodies, numbered
from conformance.log_group_claims import Worker
from conformance.logs import Heard, TimedLogs, Told
from milepost.eventlog.log import Edge, Entry, Log, LogLost, LogUnavailable, Since, TopicSettings

MINUTE = 60.0
HOUR = 60 * MINUTE
APPENDS_MAX = 1_000
COMPACTED = TopicSettings(is_compacted=True)


def keys(log: Log, topic: str) -> list[tuple[str, bytes | None]]:
    """What is there, but for what `poke` has left."""
    first, end = log.ends(topic)
    return [(record.key, record.value) for record in log.read(topic, first, end) if record.key != "poke"]


def poke(logs: TimedLogs, log: Log, topic: str) -> None:
    """Logs are cleaned by those who append."""
    append(logs, log, [Entry(topic, "poke", b"")])


class KeepingClaims:
    """Compaction and retention."""

    def test_a_compacted_topic_keeps_the_last_of_each_key_in_its_place(self, logs: TimedLogs) -> None:
        log, topic, heard = logs.open(), logs.topic(), Heard()
        log.make(topic, COMPACTED)
        append(logs, log, numbered(topic, 0, 5_000))
        append(logs, log, [Entry(topic, "k3", b"later"), Entry(topic, "once", b"1")])
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: len(keys(log, topic)) <= 11)
        meant = [(f"k{number % 10}", b"%d" % number) for number in range(4_990, 5_000) if number != 4_993]
        assert keys(log, topic) == [*meant, ("k3", b"later"), ("once", b"1")]
        assert log.ends(topic) == (4_990, 5_003)
        log.follow({topic: 0}, heard, heard.lost)
        logs.wait_until(lambda: len(heard.records) >= 12)
        assert [record.offset for record in heard.records] == [4_990, 4_991, 4_992, *range(4_994, 5_003)]
        assert heard.losses == []

    def test_compaction_goes_on_with_what_is_new(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        for turn in range(4):
            append(logs, log, [Entry(topic, f"k{number}", b"%d" % turn) for number in range(turn, 6)])
            logs.pass_time(10 * MINUTE)
            poke(logs, log, topic)
            logs.wait_until(lambda: len(keys(log, topic)) == 6)
        assert sorted(keys(log, topic)) == [("k0", b"0"), ("k1", b"1"), ("k2", b"2"), ("k3", b"3"), ("k4", b"3"), ("k5", b"3")]

    def test_a_removed_key_goes_and_after_an_hour_its_removal_too(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        append(logs, log, [Entry(topic, "a", b"1"), Entry(topic, "b", b"2"), Entry(topic, "a", None)])
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("b", b"2"), ("a", None)])
        logs.pass_time(45 * MINUTE)
        poke(logs, log, topic)
        logs.settle()
        assert keys(log, topic) == [("b", b"2"), ("a", None)]
        logs.pass_time(10 * MINUTE)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("b", b"2")])

    def test_a_key_that_was_removed_can_come_again(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, COMPACTED)
        append(logs, log, [Entry(topic, "a", b"1"), Entry(topic, "a", None), Entry(topic, "a", b"2")])
        logs.pass_time(2 * HOUR)
        poke(logs, log, topic)
        logs.wait_until(lambda: keys(log, topic) == [("a", b"2")])

    def test_a_compacted_topic_forgets_nothing_for_its_age(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, TopicSettings(retention_s=60, retention_bytes=10, is_compacted=True))
        append(logs, log, [Entry(topic, f"k{number}", bytes(100)) for number in range(10)])
        logs.pass_time(100 * HOUR)
        poke(logs, log, topic)
        logs.settle()
        assert len(keys(log, topic)) == 10

    def test_records_that_are_too_old_go_and_whoever_asks_for_them_is_told(self, logs: TimedLogs) -> None:
        # M9
        log, topic, heard = logs.open(), logs.topic(), Heard()
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
        heard_before: list[int] = []
        log.follow({topic: 3}, heard, lambda _: heard_before.append(len(heard.records)))
        logs.wait_until(lambda: len(heard.records) >= 6)
        assert heard.values(topic) == bodies(10, 16)
        assert heard_before == [0]
        other = Heard()
        log.follow({topic: Edge.BEGINNING}, other, other.lost)
        logs.wait_until(lambda: len(other.records) >= 6)
        assert other.losses == []

    def test_a_topic_of_which_all_is_too_old_is_empty_and_goes_on_counting(self, logs: TimedLogs) -> None:
        log, topic, other = logs.open(), logs.topic(), logs.topic()
        log.make(topic, TopicSettings(retention_s=60))
        append(logs, log, numbered(topic, 0, 10))
        logs.pass_time(30)
        append(logs, log, numbered(topic, 10, 11))
        logs.pass_time(59)
        append(logs, log, [*numbered(other, 0, 1), *numbered(topic, 11, 12)])
        logs.wait_until(lambda: log.ends(topic) == (10, 12))

    def test_oldest_records_go_while_there_are_too_many_bytes(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic, TopicSettings(retention_s=0, retention_bytes=1_000))
        for number in range(10):
            append(logs, log, [Entry(topic, "k", bytes(99)) for _ in range(10)])
            assert log.ends(topic)[1] == 10 * (number + 1)
        logs.wait_until(lambda: log.ends(topic) == (90, 100))
        logs.pass_time(1_000 * HOUR)
        poke(logs, log, topic)
        logs.wait_until(lambda: log.ends(topic) == (91, 101))

    def test_other_settings_count_from_then_on(self, logs: TimedLogs) -> None:
        log, topic = logs.open(), logs.topic()
        log.make(topic)
        append(logs, log, numbered(topic, 0, 100))
        log.make(topic)
        logs.pass_time(HOUR)
        poke(logs, log, topic)
        logs.settle()
        assert log.ends(topic) == (0, 101)
        log.make(topic, TopicSettings(retention_s=60))
        poke(logs, log, topic)
        logs.wait_until(lambda: log.ends(topic)[0] == 100)

    def test_a_follower_that_keeps_up_loses_nothing(self, logs: TimedLogs) -> None:
        log, topic, heard = logs.open(), logs.topic(), Heard()
        log.make(topic, TopicSettings(retention_s=60))
        log.follow({topic: 0}, heard, heard.lost)
        for turn in range(10):
            append(logs, log, numbered(topic, turn * 50, turn * 50 + 50))
            logs.wait_until(lambda turn=turn: len(heard.records) == turn * 50 + 50)  # type: ignore[misc]
            logs.pass_time(50)
        assert heard.values(topic) == bodies(0, 500)
        assert heard.losses == []

    def test_a_group_that_was_away_for_too_long_is_told_what_it_missed(self, logs: TimedLogs) -> None:
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
        logs.wait_until(lambda: len(second.heard.records) >= 2)
        assert second.heard.values(topic) == bodies(10, 12)
        assert [str(gap).split(",")[0] for gap in second.heard.losses] == [f"{topic}: records 4 to 9 are gone"]

    def test_a_follower_that_stands_behind_the_end_is_told_and_begins_there(self, logs: TimedLogs) -> None:
        log, topic, heard = logs.open(), logs.topic(), Heard()
        append(logs, log, numbered(topic, 0, 5))
        log.follow({topic: 9}, heard, heard.lost)
        logs.wait_until(lambda: len(heard.losses) == 1)
        append(logs, log, numbered(topic, 5, 7))
        logs.wait_until(lambda: len(heard.records) >= 2)
        assert heard.values(topic) == bodies(5, 7)
        assert len(heard.losses) == 1

    def test_times_never_go_back_even_if_the_clock_does(self, logs: TimedLogs) -> None:
        log, other, topic, heard = logs.open(), logs.open(), logs.topic(), Heard()
        append(logs, log, numbered(topic, 0, 3))
        logs.pass_time(-HOUR)
        append(logs, other, numbered(topic, 3, 6))
        logs.pass_time(HOUR + 1)
        append(logs, log, numbered(topic, 6, 9))
        times = [record.appended_at for record in log.read(topic, 0, 10)]
        assert times[0] == times[5] < times[6]
        log.follow({topic: Since(times[6])}, heard, heard.lost)
        logs.wait_until(lambda: len(heard.records) >= 3)
        assert heard.values(topic) == bodies(6, 9)


class BoundClaims:
    """What waits is bounded."""

    def test_more_than_can_wait_is_not_taken_and_all_that_was_taken_is_written(self, logs: TimedLogs) -> None:
        log, topic, told = logs.open(), logs.topic(), Told()
        log.make(topic)
        with logs.stalled():
            taken = fill(log, [Entry(topic, "k", b"x")] * 1_000, told)
            assert told.outcomes == []
        logs.wait_until(lambda: len(told.outcomes) == taken)
        assert told.outcomes == [(number, None) for number in range(taken)]
        assert log.ends(topic) == (0, 1_000 * taken)
        append(logs, log, numbered(topic, 0, 1))

    def test_what_waits_is_bounded_in_bytes_too(self, logs: TimedLogs) -> None:
        log, topic, told = logs.open(), logs.topic(), Told()
        log.make(topic)
        with logs.stalled():
            taken = fill(log, [Entry(topic, "k", bytes(500_000))], told)
        logs.wait_until(lambda: len(told.outcomes) == taken)
        assert log.ends(topic) == (0, taken)

    def test_closing_waits_for_what_cannot_be_written_yet(self, logs: TimedLogs) -> None:
        log, topic, told = logs.open(), logs.topic(), Told()
        log.make(topic)
        closing = Thread(target=log.close)
        with logs.stalled():
            for number in range(3):
                log.append(numbered(topic, number, number + 1), told.done(number))
                sleep(0.02)  # a writer that has begun with the first has not yet seen the others
            closing.start()
            closing.join(0.1)
        closing.join()
        assert told.outcomes == [(number, None) for number in range(3)]
        assert [record.value for record in logs.open().read(topic, 0, 10)] == bodies(0, 3)


def fill(log: Log, entries: list[Entry], told: Told) -> int:
    """Append until it is refused; how often it was not."""
    for number in range(APPENDS_MAX):
        try:
            log.append(entries, told.done(number))
        except LogUnavailable as fault:
            assert "wait to be written already" in str(fault)  # noqa: PT017
            assert number > 10
            return number
    raise AssertionError("it was never refused")
