"""The catalogue of logs: groups. A class that has a fixture `logs` inherits the claims and runs them."""

from collections.abc import Sequence

from conformance.log_claims import append, bodies, numbered
from conformance.logs import Heard, Logs
from milepost.eventlog.log import Log, Member, Record


class Worker:
    """A member that commits what it was handed, unless told otherwise, and remembers what happened in which order."""

    def __init__(self, log: Log, group: str, topics: Sequence[str], *, commits: bool = True) -> None:
        self.heard = Heard()
        self.has: frozenset[str] = frozenset()
        self._commits = commits
        self._member: list[Member] = []
        self._early: list[tuple[str, int]] = []
        self._member.append(log.join(group, topics, self._take, self.heard.lost, changed=self._changed))
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

    def _take(self, records: Sequence[Record]) -> None:
        assert records[0].topic in self.has, "a record of a topic that this member was not told to have"
        self.heard(records)
        if self._commits:
            self.commit(records[0].topic, records[-1].offset + 1)


class GroupClaims:
    """Joining, dividing, committing, leaving."""

    def test_members_divide_the_topics_evenly_and_each_record_goes_to_one_of_them(self, logs: Logs) -> None:
        # M30
        writing, topics = logs.open(), [logs.topic() for _ in range(6)]
        workers = [Worker(logs.open(), f"g-{topics[0]}", topics) for _ in range(3)]
        logs.wait_until(lambda: all(len(worker.has) == 2 for worker in workers))
        assert frozenset().union(*(worker.has for worker in workers)) == set(topics)
        for number in range(50):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: sum(len(worker.heard.records) for worker in workers) >= 300)
        logs.settle()
        for topic in topics:
            (whole,) = [worker.heard.values(topic) for worker in workers if topic in worker.has]
            assert whole == bodies(0, 50)
        assert sum(len(worker.heard.records) for worker in workers) == 300

    def test_a_group_begins_with_the_oldest_record(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        append(logs, log, numbered(topic, 0, 10))
        worker = Worker(log, f"g-{topic}", [topic])
        logs.wait_until(lambda: len(worker.heard.records) >= 10)
        assert worker.heard.values(topic) == bodies(0, 10)

    def test_whoever_comes_next_begins_with_what_was_not_committed(self, logs: Logs) -> None:
        log, topic, group = logs.open(), logs.topic(), f"g-{logs.topic()}"
        append(logs, log, numbered(topic, 0, 10))
        first = Worker(log, group, [topic], commits=False)
        logs.wait_until(lambda: len(first.heard.records) >= 10)
        first.commit(topic, 4)
        first.close()
        assert logs.open().committed(group) == {topic: 4}
        second = Worker(logs.open(), group, [topic])
        logs.wait_until(lambda: len(second.heard.records) >= 6)
        logs.settle()
        assert second.heard.values(topic) == bodies(4, 10)
        logs.wait_until(lambda: log.committed(group) == {topic: 10})

    def test_what_was_committed_is_known_to_all_and_stays(self, logs: Logs) -> None:
        log, one, other, group = logs.open(), logs.topic(), logs.topic(), f"g-{logs.topic()}"
        assert log.committed(group) == {}
        append(logs, log, [*numbered(one, 0, 3), *numbered(other, 0, 5)])
        Worker(log, group, [one, other])
        logs.wait_until(lambda: log.committed(group) == {one: 3, other: 5})
        log.close()
        assert logs.open().committed(group) == {one: 3, other: 5}
        assert logs.open().committed(f"{group}-other") == {}

    def test_groups_know_nothing_of_each_other(self, logs: Logs) -> None:
        log, topic = logs.open(), logs.topic()
        workers = [Worker(log, f"g-{number}-{topic}", [topic]) for number in range(2)]
        append(logs, log, numbered(topic, 0, 20))
        logs.wait_until(lambda: all(len(worker.heard.records) >= 20 for worker in workers))
        assert [worker.heard.values(topic) for worker in workers] == [bodies(0, 20)] * 2

    def test_when_a_member_leaves_the_others_take_over_without_gap_or_double(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(4)], f"g-{logs.topic()}"
        leaving, staying = Worker(logs.open(), group, topics), Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(leaving.has) == len(staying.has) == 2)
        for number in range(60):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
            if number == 30:
                logs.wait_until(lambda: bool(leaving.heard.records))
                leaving.close()
        logs.wait_until(lambda: len(staying.has) == 4)
        logs.wait_until(lambda: len(leaving.heard.records) + len(staying.heard.records) >= 240)
        logs.settle()
        for topic in topics:
            assert leaving.heard.values(topic) + staying.heard.values(topic) == bodies(0, 60)

    def test_a_newcomer_gets_its_share_without_gap_or_double(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(4)], f"g-{logs.topic()}"
        first = Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(first.has) == 4)
        for number in range(60):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: len(first.heard.records) >= 40)
        second = Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(first.has) == len(second.has) == 2)
        for number in range(60, 80):
            writing.append([entry for topic in topics for entry in numbered(topic, number, number + 1)])
        logs.wait_until(lambda: len(first.heard.records) + len(second.heard.records) >= 320)
        logs.settle()
        assert not first.has & second.has
        for topic in topics:
            assert first.heard.values(topic) + second.heard.values(topic) == bodies(0, 80)

    def test_a_commit_for_a_topic_that_went_to_another_is_ignored(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(2)], f"g-{logs.topic()}"
        first = Worker(logs.open(), group, topics, commits=False)
        append(logs, writing, [entry for topic in topics for entry in numbered(topic, 0, 9)])
        logs.wait_until(lambda: len(first.heard.records) == 18)
        second = Worker(logs.open(), group, topics, commits=False)
        logs.wait_until(lambda: len(first.has) == len(second.has) == 1)
        (theirs,), (own,) = second.has, first.has
        logs.wait_until(lambda: len(second.heard.values(theirs)) == 9)
        second.commit(theirs, 3)
        first.commit(theirs, 9)
        first.commit(own, 5)
        logs.wait_until(lambda: len(writing.committed(group)) == 2)
        logs.settle()
        assert writing.committed(group) == {theirs: 3, own: 5}

    def test_members_may_wish_for_different_topics(self, logs: Logs) -> None:
        writing, both, only, group = logs.open(), logs.topic(), logs.topic(), f"g-{logs.topic()}"
        one, other = Worker(logs.open(), group, [both, only]), Worker(logs.open(), group, [both])
        logs.wait_until(lambda: one.has | other.has == {both, only} and not one.has & other.has)
        assert only in one.has
        append(logs, writing, [*numbered(both, 0, 5), *numbered(only, 0, 5)])
        logs.wait_until(lambda: len(one.heard.records) + len(other.heard.records) >= 10)
        assert one.heard.values(only) == bodies(0, 5)
        assert one.heard.values(both) + other.heard.values(both) == bodies(0, 5)

    def test_a_log_that_is_closed_leaves_its_groups(self, logs: Logs) -> None:
        writing, topics, group = logs.open(), [logs.topic() for _ in range(2)], f"g-{logs.topic()}"
        closing = logs.open()
        leaving, staying = Worker(closing, group, topics), Worker(logs.open(), group, topics)
        logs.wait_until(lambda: len(leaving.has) == len(staying.has) == 1)
        closing.close()
        logs.wait_until(lambda: len(staying.has) == 2)
        append(logs, writing, [entry for topic in topics for entry in numbered(topic, 0, 5)])
        logs.wait_until(lambda: len(staying.heard.records) >= 10)
        assert leaving.heard.records == []
