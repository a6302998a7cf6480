"""Conformance suite of logs: consumer groups. A test class with a fixture `logs` inherits the tests."""

from collections.abc import Sequence

from conformance.log_suite import append, bodies, numbered
from conformance.logs import Logs, ReceivedRecords
from milepost.eventlog.log import Log, Member, Record


class Worker:
    """A member that records its batches and, with *commits*, commits each of them."""

    def __init__(self, log: Log, group: str, topics: Sequence[str], *, commits: bool = True) -> None:
        self.received = ReceivedRecords()
        self.has: frozenset[str] = frozenset()
        self._commits = commits
        self._member: list[Member] = []
        self._early: list[tuple[str, int]] = []
        self._member.append(log.join(group, topics, self._on_records, self.received.on_gap, changed=self._changed))
        for topic, offset in self._early:
            self.commit(topic, offset)

    def commit(self, topic: str, offset: int) -> None:
        if self._member:
            self._member[0].commit(topic, offset)
        else:
            self._early.append((topic, offset))

    def close(self) -> None:
        self._member[0].close()

    def _changed(self, topics: frozenset[str]) -> None:
        assert topics != self.has
        self.has = topics

    def _on_records(self, records: Sequence[Record]) -> None:
        assert records[0].topic in self.has, "a record of a topic that is not assigned to this member"
        self.received(records)
        if self._commits:
            self.commit(records[0].topic, records[-1].offset + 1)


class GroupSuite:
    """Joining, assignment, commits, leaving."""

    def test_topics_are_assigned_evenly_and_each_record_goes_to_one_member(self, logs: Logs) -> None:
        # M30
        writing, topics = logs.open(), [logs.topic() for _ in range(6)]
        workers = [Worker(logs.open(), f"g-{topics[0]}", topics) for _ in range(3)]
        logs.wait_until(lambda: all(len(worker.has) == 2 for worker in workers))
        assert frozenset().union(*(worker.has for worker in workers)) == set(topics)
        for number in range(50):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: sum(len(worker.received.records) for worker in workers) >= 300)
        logs.wait_idle()
        for topic in topics:
            (whole,) = [worker.received.values(topic) for worker in workers if topic in worker.has]
            assert whole == bodies(0, 50)
        assert sum(len(worker.received.records) for worker in workers) == 300

    def test_a_group_begins_with_the_oldest_record(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        append(logs, log, numbered(topic, 0, 10))
        worker = Worker(log, f"g-{topic}", [topic])
        logs.wait_until(lambda: len(worker.received.records) >= 10)
        assert worker.received.values(topic) == bodies(0, 10)

    def test_the_next_member_resumes_from_the_committed_offset(self, logs: Logs) -> None:
        log, topic, group = logs.open(), logs.topic(), f"g-{logs.topic()}"
        append(logs, log, numbered(topic, 0, 10))
        first = Worker(log, group, [topic], commits=False)
        logs.wait_until(lambda: len(first.received.records) >= 10)
        first.commit(topic, 4)
        first.close()
        assert logs.open().committed(group) == {topic: 4}
        second = Worker(logs.open(), group, [topic])
        logs.wait_until(lambda: len(second.received.records) >= 6)
        logs.wait_idle()
        assert second.received.values(topic) == bodies(4, 10)
        logs.wait_until(lambda: log.committed(group) == {topic: 10})

    def test_committed_offsets_are_visible_to_all_and_persistent(self, logs: Logs) -> None:
        log, one, other, group = logs.open(), logs.topic(), logs.topic(), f"g-{logs.topic()}"
        assert log.committed(group) == {}
        append(logs, log, [*numbered(one, 0, 3), *numbered(other, 0, 5)])
        Worker(log, group, [one, other])
        logs.wait_until(lambda: log.committed(group) == {one: 3, other: 5})
        log.close()
        assert logs.open().committed(group) == {one: 3, other: 5}
        assert logs.open().committed(f"{group}-other") == {}

    def test_groups_are_independent(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        workers = [Worker(log, f"g-{number}-{topic}", [topic]) for number in range(2)]
        append(logs, log, numbered(topic, 0, 20))
        logs.wait_until(lambda: all(len(worker.received.records) >= 20 for worker in workers))
        assert [worker.received.values(topic) for worker in workers] == [bodies(0, 20)] * 2

    def test_when_a_member_leaves_the_others_take_over_without_gap_or_duplicate(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(4)], f"g-{logs.topic()}"
        leaving, staying = Worker(logs.open(), group, topics), Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(leaving.has) == len(staying.has) == 2)
        for number in range(60):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
            if number == 30:
                logs.wait_until(lambda: bool(leaving.received.records))
                leaving.close()
        logs.wait_until(lambda: len(staying.has) == 4)
        logs.wait_until(lambda: len(leaving.received.records) + len(staying.received.records) >= 240)
        logs.wait_idle()
        for topic in topics:
            assert leaving.received.values(topic) + staying.received.values(topic) == bodies(0, 60)

    def test_a_new_member_gets_its_share_without_gap_or_duplicate(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(4)], f"g-{logs.topic()}"
        first = Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(first.has) == 4)
        for number in range(60):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: len(first.received.records) >= 40)
        second = Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(first.has) == len(second.has) == 2)
        for number in range(60, 80):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: len(first.received.records) + len(second.received.records) >= 320)
        logs.wait_idle()
        assert not first.has & second.has
        for topic in topics:
            assert first.received.values(topic) + second.received.values(topic) == bodies(0, 80)

    def test_a_commit_for_a_topic_assigned_to_another_member_is_ignored(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(2)], f"g-{logs.topic()}"
        first = Worker(logs.open(), group, topics, commits=False)
        append(logs, writing, [entry for topic in topics for entry in numbered(topic, 0, 9)])
        logs.wait_until(lambda: len(first.received.records) == 18)
        second = Worker(logs.open(), group, topics, commits=False)
        logs.wait_until(lambda: len(first.has) == len(second.has) == 1)
        (theirs,), (own,) = second.has, first.has
        logs.wait_until(lambda: len(second.received.values(theirs)) == 9)
        second.commit(theirs, 3)
        first.commit(theirs, 9)
        first.commit(own, 5)
        logs.wait_until(lambda: len(writing.committed(group)) == 2)
        logs.wait_idle()
        assert writing.committed(group) == {theirs: 3, own: 5}

    def test_members_may_request_different_topics(self, logs: Logs) -> None:
        writing, both, only, group = logs.open(), logs.topic(), logs.topic(), f"g-{logs.topic()}"
        one, other = Worker(logs.open(), group, [both, only]), Worker(logs.open(), group, [both])
        logs.wait_until(lambda: one.has | other.has == {both, only} and not one.has & other.has)
        assert only in one.has
        append(logs, writing, [*numbered(both, 0, 5), *numbered(only, 0, 5)])
        logs.wait_until(lambda: len(one.received.records) + len(other.received.records) >= 10)
        assert one.received.values(only) == bodies(0, 5)
        assert one.received.values(both) + other.received.values(both) == bodies(0, 5)

    def test_a_closed_log_leaves_its_groups(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(2)], f"g-{logs.topic()}"
        closing = logs.open()
        leaving, staying = Worker(closing, group, topics), Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(leaving.has) == len(staying.has) == 1)
        closing.close()
        logs.wait_until(lambda: len(staying.has) == 2)
        append(logs, writing, [entry for topic in topics for entry in numbered(topic, 0, 5)])
        logs.wait_until(lambda: len(staying.received.records) >= 10)
        assert leaving.received.records == []
