"""The catalogue of logs: appending, following, reading. A class that has a fixture `logs` inherits the claims and runs them.

A topic is one order, and a reader goes back to an offset it remembers (M8); what is sent is read in that order, and kept (M9).

`log_group_claims.py` has those about groups, `log_keeping_claims.py` those that need a clock which can be moved.
"""

import pytest

from conformance.logs import Heard, Logs, Told
from milepost.eventlog.log import (
    BATCH_RECORDS_MAX,
    RECORD_BYTES_MAX,
    TOPIC_CHARACTERS_MAX,
    Edge,
    Entry,
    Log,
    LogRefused,
    LogUnavailable,
    Record,
    Since,
    Start,
    TopicSettings,
    read_to_end,
)
from milepost.model.instants import Instant


def numbered(topic: str, start: int, end: int) -> list[Entry]:
    """Entries with numbers for values, and every tenth key the same."""
    return [Entry(topic, f"k{number % 10}", b"%d" % number) for number in range(start, end)]


def bodies(start: int, end: int) -> list[bytes]:
    return [b"%d" % number for number in range(start, end)]


def append(logs: Logs, log: Log, entries: list[Entry]) -> None:
    """Append and wait until it is safe."""
    told = Told()
    log.append(entries, told.done(""))
    logs.wait_until(lambda: bool(told.outcomes))
    assert told.outcomes == [("", None)]


class LogClaims:
    """Appending, following, reading."""

    def test_records_come_in_the_order_of_the_appends_and_once(self, logs: Logs) -> None:
        # M8, M9
        log, topic, heard = logs.open(), logs.topic(), Heard()
        log.follow({topic: Edge.BEGINNING}, heard, heard.lost)
        for start in range(0, 3_000, 7):
            log.append(numbered(topic, start, min(start + 7, 3_000)))
        logs.wait_until(lambda: len(heard.records) >= 3_000)
        logs.settle()
        assert heard.values(topic) == bodies(0, 3_000)
        assert heard.losses == []

    def test_a_record_comes_back_as_it_was_appended(self, logs: Logs) -> None:
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

    def test_the_largest_record_is_taken(self, logs: Logs) -> None:
        log, topic, heard = logs.open(), logs.topic(), Heard()
        largest = Entry(topic, "key", b"x" * (RECORD_BYTES_MAX - 3))
        append(logs, log, [largest])
        log.follow({topic: 0}, heard, heard.lost)
        logs.wait_until(lambda: bool(heard.records))
        assert heard.values(topic) == [largest.value]

    def test_offsets_grow_from_nought_and_times_never_go_back(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        for start in range(0, 50, 5):
            append(logs, log, numbered(topic, start, start + 5))
        records = log.read(topic, 0, 100)
        assert [record.offset for record in records] == list(range(50))
        times = [record.appended_at for record in records]
        assert times == sorted(times)
        assert times[0] > 0

    @pytest.mark.parametrize("start", [0, 7, 19, 20, 25, Edge.BEGINNING, Edge.END])
    def test_following_begins_where_it_was_asked_to(self, logs: Logs, start: Start) -> None:
        # M8
        log, topic, heard = logs.open(), logs.topic(), Heard()
        append(logs, log, numbered(topic, 0, 20))
        if start == 25:
            append(logs, log, numbered(topic, 20, 25))
        following = log.follow({topic: start}, heard, heard.lost)
        append(logs, log, numbered(topic, 25 if start == 25 else 20, 30))
        begin = {Edge.BEGINNING: 0, Edge.END: 20}[start] if isinstance(start, Edge) else start
        assert isinstance(begin, int)
        logs.wait_until(lambda: len(heard.records) >= 30 - begin)
        logs.settle()
        assert heard.values(topic) == bodies(begin, 30)
        assert heard.losses == []
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
            heard = Heard()
            following = log.follow({topic: Since(Instant(time))}, heard, heard.lost)
            meant = [record for record in records if record.appended_at >= time]
            logs.wait_until(lambda heard=heard, meant=meant: len(heard.records) >= len(meant))  # type: ignore[misc]
            logs.settle()
            assert heard.records == meant
            following.close()

    def test_two_topics_are_followed_together_each_in_order(self, logs: Logs) -> None:
        log, one, other, heard = logs.open(), logs.topic(), logs.topic(), Heard()
        append(logs, log, numbered(one, 0, 10))
        log.follow({one: 5, other: Edge.BEGINNING}, heard, heard.lost)
        for number in range(10, 200):
            log.append([*numbered(one, number, number + 1), *numbered(other, number, number + 1)])
        logs.wait_until(lambda: len(heard.records) >= 195 + 190)
        logs.settle()
        assert heard.values(one) == bodies(5, 200)
        assert heard.values(other) == bodies(10, 200)

    def test_batches_are_of_one_topic_and_not_too_large(self, logs: Logs) -> None:
        log, one, other, heard = logs.open(), logs.topic(), logs.topic(), Heard()
        append(logs, log, [*numbered(one, 0, 2_500), *numbered(other, 0, 2_500)])
        log.follow({one: 0, other: 0}, heard, heard.lost)
        logs.wait_until(lambda: len(heard.records) >= 5_000)
        assert max(len(batch) for batch in heard.batches) <= BATCH_RECORDS_MAX
        assert heard.values(one) == heard.values(other) == bodies(0, 2_500)

    def test_several_followers_of_several_log_objects_get_all_of_it(self, logs: Logs) -> None:
        writing, topic = logs.open(), logs.topic()
        readers = [Heard() for _ in range(4)]
        for heard in readers:
            logs.open().follow({topic: Edge.END}, heard, heard.lost)
        for number in range(200):
            writing.append(numbered(topic, number, number + 1))
        logs.wait_until(lambda: all(len(heard.records) >= 200 for heard in readers))
        assert [heard.values(topic) for heard in readers] == [bodies(0, 200)] * 4

    def test_done_is_called_in_the_order_of_the_appends(self, logs: Logs) -> None:
        log, told = logs.open(), Told()
        topics = [logs.topic() for _ in range(3)]
        for number in range(300):
            log.append(numbered(topics[number % 3], number, number + number % 4), told.done(number))
        logs.wait_until(lambda: len(told.outcomes) >= 300)
        assert told.outcomes == [(number, None) for number in range(300)]

    def test_what_was_told_as_done_can_be_read_by_somebody_who_comes_then(self, logs: Logs) -> None:
        writing, reading, topic = logs.open(), logs.open(), logs.topic()
        found: list[int] = []
        for number in range(20):
            writing.append(numbered(topic, number, number + 1), lambda _: found.append(len(reading.read(topic, 0, 100))))
        logs.wait_until(lambda: len(found) >= 20)
        assert all(there >= number for number, there in enumerate(found, start=1))

    def test_two_log_objects_at_work_keep_each_its_own_order(self, logs: Logs) -> None:
        one, other, topic, heard = logs.open(), logs.open(), logs.topic(), Heard()
        for number in range(300):
            one.append([Entry(topic, "one", b"%d" % number)])
            other.append([Entry(topic, "other", b"%d" % number)])
        logs.open().follow({topic: Edge.BEGINNING}, heard, heard.lost)
        logs.wait_until(lambda: len(heard.records) >= 600)
        logs.settle()
        for key in ("one", "other"):
            assert [record.value for record in heard.records if record.key == key] == bodies(0, 300)
        offsets = [record.offset for record in heard.records]
        assert offsets == sorted(set(offsets))

    def test_a_follower_that_is_closed_hears_nothing_more(self, logs: Logs) -> None:
        log, topic, heard, other = logs.open(), logs.topic(), Heard(), Heard()
        following = log.follow({topic: 0}, heard, heard.lost)
        log.follow({topic: 0}, other, other.lost)
        append(logs, log, numbered(topic, 0, 5))
        logs.wait_until(lambda: len(heard.records) >= 5)
        following.close()
        following.close()
        append(logs, log, numbered(topic, 5, 10))
        logs.wait_until(lambda: len(other.records) >= 10)
        logs.settle()
        assert heard.values(topic) == bodies(0, 5)

    def test_following_makes_topics_that_are_not_there(self, logs: Logs) -> None:
        log, topic, heard = logs.open(), logs.topic(), Heard()
        log.follow({topic: Edge.END}, heard, heard.lost)
        assert topic in log.topics()
        append(logs, log, numbered(topic, 0, 1))
        logs.wait_until(lambda: len(heard.records) == 1)

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

    def test_reading_gives_at_most_what_was_asked_for_and_does_not_wait(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        append(logs, log, numbered(topic, 0, 2_500))
        assert [record.value for record in log.read(topic, 10, 5)] == bodies(10, 15)
        assert [record.value for record in log.read(topic, 300, 2_000)] == bodies(300, 2_300)
        assert [record.value for record in log.read(topic, 2_490, 100)] == bodies(2_490, 2_500)
        assert log.read(topic, 2_500, 10) == []
        assert log.read(topic, 0, 0) == []
        assert log.read(logs.topic(), 0, 10) == []

    def test_a_topic_is_read_to_the_end_that_it_had_at_the_beginning(self, logs: Logs) -> None:
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
    def test_a_name_that_not_every_log_can_have_is_refused(self, logs: Logs, name: str) -> None:
        log, heard = logs.open(), Heard()
        for attempt in (
            lambda: log.append([Entry(name, "k", b"")]),
            lambda: log.make(name),
            lambda: log.follow({name: 0}, heard, heard.lost),
            lambda: log.read(name, 0, 1),
            lambda: log.ends(name),
            lambda: log.join("group", [name], heard, heard.lost),
            lambda: log.join(name, [logs.topic()], heard, heard.lost),
            lambda: log.committed(name),
        ):
            with pytest.raises(LogRefused, match=r"is no name for a (topic|group)"):
                attempt()

    def test_a_name_of_all_that_is_allowed_is_taken(self, logs: Logs) -> None:
        log = logs.open()
        name = f"{logs.topic()}.A_z-0".ljust(100, "x")
        append(logs, log, numbered(name, 0, 1))
        assert log.ends(name) == (0, 1)

    def test_a_record_that_is_too_large_is_refused_with_all_that_came_along(self, logs: Logs) -> None:
        log, topic, told = logs.open(), logs.topic(), Told()
        large = Entry(topic, "ü" * 10, b"x" * (RECORD_BYTES_MAX - 19))
        with pytest.raises(LogRefused, match=f"a record of {RECORD_BYTES_MAX + 1} bytes.* in parts"):
            log.append([Entry(topic, "k", b""), large], told.done("large"))
        append(logs, log, numbered(topic, 0, 1))
        assert [record.value for record in log.read(topic, 0, 10)] == bodies(0, 1)
        assert told.outcomes == []

    def test_a_key_that_is_no_text_is_refused(self, logs: Logs) -> None:
        with pytest.raises(LogRefused, match="UTF-8"):
            logs.open().append([Entry(logs.topic(), "\ud800", b"")])

    def test_closing_finishes_what_was_appended(self, logs: Logs) -> None:
        log, topic, told, heard = logs.open(), logs.topic(), Told(), Heard()
        log.follow({topic: 0}, heard, heard.lost)
        for number in range(50):
            log.append(numbered(topic, number * 20, number * 20 + 20), told.done(number))
        log.close()
        assert told.outcomes == [(number, None) for number in range(50)]
        count = len(heard.records)
        assert [record.value for record in logs.open().read(topic, 0, 2_000)] == bodies(0, 1_000)
        logs.settle()
        assert len(heard.records) == count
        log.close()

    def test_a_log_that_was_closed_says_so(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        log.close()
        with pytest.raises(LogUnavailable, match="closed"):
            log.append(numbered(topic, 0, 1))
        with pytest.raises(LogUnavailable, match="closed"):
            log.read(topic, 0, 1)

    def test_done_and_take_may_append(self, logs: Logs) -> None:
        log, one, other, heard = logs.open(), logs.topic(), logs.topic(), Heard()
        log.follow({one: 0}, lambda records: log.append([Entry(other, "taken", record.value) for record in records]), heard.lost)
        log.follow({other: 0}, heard, heard.lost)
        log.append(numbered(one, 0, 1), lambda _: log.append(numbered(one, 1, 2), lambda _: log.append(numbered(one, 2, 3))))
        logs.wait_until(lambda: len(heard.records) >= 3)
        assert heard.values(other) == bodies(0, 3)

    def test_an_append_of_nothing_is_done(self, logs: Logs) -> None:
        append(logs, logs.open(), [])
