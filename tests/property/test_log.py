"""Logs behave like plain lists, whatever is appended, read and followed, and in every order of steps of a log in memory."""

import shutil
import tempfile
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule, run_state_machine_as_test

from conformance.logs import AppendOutcomes, EmbeddedLogs, Logs, MemoryLogs, ReceivedRecords
from effort import examples
from milepost.eventlog.log import Entry, Following, Log, Record, TopicEnd
from milepost.eventlog.memory import MemoryLog, MemoryStore
from milepost.model.instants import Instant

TOPICS = ("a", "b", "c")

topics = st.sampled_from(TOPICS)
values = st.none() | st.binary(max_size=6) | st.integers(3_000, 9_000).map(bytes)
entries = st.lists(st.builds(Entry, topics, st.sampled_from(["", "k", "Ω\0"]), values), max_size=8)
starts = st.sampled_from([TopicEnd.BEGINNING, TopicEnd.END]) | st.integers(0, 5)


class LogAgainstLists(RuleBasedStateMachine):
    """Two log objects over one store, changing readers, and a list for each topic."""

    def __init__(self, logs: Logs) -> None:
        super().__init__()
        self.logs = logs
        self.opened: list[Log] = [logs.open(), logs.open()]
        self.model: dict[str, list[Entry]] = {topic: [] for topic in TOPICS}
        self.readers: list[tuple[dict[str, int], ReceivedRecords, Following]] = []

    @rule(which=st.integers(0, 1), entries=entries)
    def append(self, which: int, entries: list[Entry]) -> None:
        confirmations = AppendOutcomes()
        self.opened[which].append(entries, confirmations.done(""))
        self.logs.wait_until(lambda: confirmations.outcomes == [("", None)])
        for entry in entries:
            self.model[entry.topic].append(entry)

    @rule(which=st.integers(0, 1), starts=st.dictionaries(topics, starts, min_size=1))
    def follow(self, which: int, starts: dict[str, int | TopicEnd]) -> None:
        begins = {
            topic: {TopicEnd.BEGINNING: 0, TopicEnd.END: len(self.model[topic])}[start] if isinstance(start, TopicEnd) else start
            for topic, start in starts.items()
        }
        begins = {topic: min(begin, len(self.model[topic])) for topic, begin in begins.items()}
        received = ReceivedRecords()
        self.readers.append((begins, received, self.opened[which].follow(begins, received, received.on_gap)))

    @rule(which=st.integers(0, 1), topic=topics, first=st.integers(0, 30), limit=st.integers(0, 20))
    def read(self, which: int, topic: str, first: int, limit: int) -> None:
        first = min(first, len(self.model[topic]))
        assert plain(self.opened[which].read(topic, first, limit)) == self.model[topic][first : first + limit]

    @rule(which=st.integers(0, 1))
    def reopen(self, which: int) -> None:
        self.check()
        self.opened[which].close()
        self.readers.clear()
        self.opened[1 - which].close()
        self.opened = [self.logs.open(), self.logs.open()]

    @rule()
    def check(self) -> None:
        """Check that every reader has all records from its start position, in order, once."""
        for begins, received, following in self.readers:
            self.logs.wait_until(partial(self.has_all, begins, received))
            following.close()
            for topic, begin in begins.items():
                assert plain([record for record in received.records if record.topic == topic]) == self.model[topic][begin:]
            assert received.gaps == []
        self.readers.clear()

    def has_all(self, begins: dict[str, int], received: ReceivedRecords) -> bool:
        return len(received.records) >= sum(len(self.model[topic]) - begin for topic, begin in begins.items())

    @invariant()
    def ends_are_those_of_the_lists(self) -> None:
        for topic, expected in self.model.items():
            assert self.opened[0].ends(topic) == (0, len(expected))

    def teardown(self) -> None:
        self.check()
        for log in self.opened:
            log.close()


def plain(records: list[Record]) -> list[Entry]:
    return [Entry(record.topic, record.key, record.value) for record in records]


class EmbeddedAgainstLists(LogAgainstLists):
    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp())
        super().__init__(EmbeddedLogs(self.folder))

    def teardown(self) -> None:
        super().teardown()
        shutil.rmtree(self.folder)


class MemoryAgainstLists(LogAgainstLists):
    def __init__(self) -> None:
        super().__init__(MemoryLogs())


class AnyOrder(RuleBasedStateMachine):
    """A log in memory whose steps run in any order: the guarantees hold after each of them."""

    def __init__(self) -> None:
        super().__init__()
        self.now = 0
        self.store = MemoryStore(lambda: Instant(self.now))
        self.reading = self.store.open()
        self.logs: list[MemoryLog] = []
        self.appended: dict[tuple[int, str], list[int]] = {}
        self.confirmations: dict[int, list[int]] = {}
        self.calls: dict[int, list[int]] = {}
        self.of_call: dict[int, list[tuple[int, str, int]]] = {}
        self.readers: list[ReceivedRecords] = []
        self.members: list[ReceivedRecords] = []
        self.next = 0

    @precondition(lambda self: len(self.logs) < 3)
    @rule()
    def open(self) -> None:
        self.logs.append(self.store.open())

    @precondition(lambda self: bool(self.logs))
    @rule(data=st.data(), names=st.lists(topics, max_size=4))
    def append(self, data: st.DataObject, names: list[str]) -> None:
        log = data.draw(st.sampled_from(self.logs))
        call = self.next = self.next + 1
        made = []
        for name in names:
            self.next += 1
            self.appended.setdefault((log.number, name), []).append(self.next)
            made.append(Entry(name, str(log.number), b"%d" % self.next))
        self.calls.setdefault(log.number, []).append(call)
        self.of_call[call] = [(log.number, entry.topic, int(entry.value or b"0")) for entry in made]
        log.append(made, lambda _: self.confirmations.setdefault(log.number, []).append(call))

    @precondition(lambda self: bool(self.logs))
    @rule(data=st.data(), is_member=st.booleans())
    def read(self, data: st.DataObject, is_member: bool) -> None:
        log, received = data.draw(st.sampled_from(self.logs)), ReceivedRecords()
        if is_member:
            box: list[Any] = []
            box.append(log.join("g", TOPICS, partial(self.take_and_commit, received, box), received.on_gap))
            self.members.append(received)
        else:
            log.follow(dict.fromkeys(TOPICS, 0), received, received.on_gap)
            self.readers.append(received)

    def take_and_commit(self, received: ReceivedRecords, box: list[Any], records: list[Record]) -> None:
        received(records)
        box[0].commit(records[0].topic, records[-1].offset + 1)

    @precondition(lambda self: bool(self.store.ready()))
    @rule(data=st.data(), count=st.integers(1, 5))
    def run(self, data: st.DataObject, count: int) -> None:
        for _ in range(count):
            if ready := self.store.ready():
                step = data.draw(st.sampled_from(ready))
                step.run()
                step.run()  # a step that is no longer ready does nothing
                self.now += 1

    @precondition(lambda self: len(self.logs) > 1)
    @rule(data=st.data(), written=st.integers(0, 3))
    def kill(self, data: st.DataObject, written: int) -> None:
        log = data.draw(st.sampled_from(self.logs))
        log.kill(written=written)
        self.logs.remove(log)

    @invariant()
    def guarantees_hold(self) -> None:
        there = {topic: self.reading.read(topic, 0, 10_000) for topic in TOPICS}
        for (number, topic), expected in self.appended.items():
            own = [int(record.value or b"0") for record in there[topic] if record.key == str(number)]
            assert own == expected[: len(own)], "the records of one log object are stored in order, once, without gaps"
        for number, confirmations in self.confirmations.items():
            assert confirmations == self.calls[number][: len(confirmations)], "appends are confirmed in the order of calls"
            for call in confirmations:
                for _, topic, value in self.of_call[call]:
                    assert any(record.value == b"%d" % value for record in there[topic]), (
                        "an append is confirmed only when its records are stored"
                    )
        for received in self.readers:
            for topic in TOPICS:
                own_records = [record for record in received.records if record.topic == topic]
                assert own_records == there[topic][: len(own_records)], "a reader receives a prefix of the topic"
        for topic in TOPICS:
            offsets = {record.offset for received in self.members for record in received.records if record.topic == topic}
            assert offsets == set(range(len(offsets))), "a group misses nothing"

    def teardown(self) -> None:
        """At the end all confirmed records are stored, and all live readers have all records."""
        self.store.run_all()
        assert self.store.ready() == []
        self.guarantees_hold()


@pytest.mark.parametrize(("machine", "count"), [(EmbeddedAgainstLists, 10), (MemoryAgainstLists, 50), (AnyOrder, 50)])
def test_a_log_behaves_like_plain_lists(machine: type[RuleBasedStateMachine], count: int) -> None:
    run_state_machine_as_test(
        machine,
        settings=settings(max_examples=examples(fast=count, full=5 * count), stateful_step_count=30, deadline=None),
    )
