import pytest

from milepost.eventlog.log import Entry, LogLost, LogUnavailable, Record, TopicSettings
from milepost.eventlog.memory import MemoryLog, MemoryStore, Step, StepKind
from milepost.model.instants import SECOND_NS, Instant


class Clock:
    """A clock that a test advances."""

    now_s = 1_000

    def __call__(self) -> Instant:
        return Instant(self.now_s * SECOND_NS)


class Reader:
    """A reader that records its records and gaps."""

    def __init__(self) -> None:
        self.received: list[Record] = []
        self.gaps: list[LogLost] = []

    def follow(self, log: MemoryLog, *topics: str) -> None:
        log.follow(dict.fromkeys(topics, 0), self.received.extend, self.gaps.append)

    @property
    def values(self) -> list[bytes | None]:
        return [record.value for record in self.received]


def ready(store: MemoryStore) -> list[tuple[str, int, str]]:
    return [(step.kind.value, step.log, step.name) for step in store.ready()]


def only_step(store: MemoryStore, kind: StepKind, name: str | None = None) -> Step:
    (step,) = [step for step in store.ready() if step.kind is kind and name in (None, step.name)]
    return step


def test_nothing_happens_until_a_step_is_run() -> None:
    store, reader, confirmed = MemoryStore(Clock()), Reader(), list[Exception | None]()
    log = store.open()
    reader.follow(log, "t")
    assert ready(store) == []
    log.append([Entry("t", "k", b"1")], confirmed.append)
    assert ready(store) == [("write", 1, "t")]
    assert log.ends("t") == (0, 0)
    store.ready()[0].run()
    assert log.ends("t") == (0, 1)
    assert ready(store) == [("confirm", 1, ""), ("read", 1, "t")]
    only_step(store, StepKind.READ).run()
    assert reader.values == [b"1"]
    assert confirmed == []
    only_step(store, StepKind.CONFIRM).run()
    assert confirmed == [None]
    assert ready(store) == []


def test_appends_to_other_topics_may_overtake_but_are_confirmed_in_order() -> None:
    store, confirmed = MemoryStore(Clock()), list[int]()
    log = store.open()
    log.append([Entry("a", "", b"1"), Entry("b", "", b"2")], lambda _: confirmed.append(1))
    log.append([Entry("b", "", b"3"), Entry("c", "", b"4")], lambda _: confirmed.append(2))
    assert ready(store) == [("write", 1, "a"), ("write", 1, "b"), ("write", 1, "c")]
    only_step(store, StepKind.WRITE, "c").run()
    only_step(store, StepKind.WRITE, "b").run()
    only_step(store, StepKind.WRITE, "b").run()
    assert [record.value for record in log.read("b", 0, 9)] == [b"2", b"3"]
    assert ready(store) == [("write", 1, "a")]
    store.run_all()
    assert confirmed == [1, 2]


def test_a_step_that_is_no_longer_ready_does_nothing() -> None:
    store, reader, confirmed = MemoryStore(Clock()), Reader(), list[int]()
    log = store.open()
    reader.follow(log, "t")
    for number in (1, 2):
        log.append([Entry("t", "", b"%d" % number)], lambda _, number=number: confirmed.append(number))  # type: ignore[misc]
    steps: list[Step] = []
    while found := store.ready():
        steps += found
        found[0].run()
    for step in steps:
        step.run()
    assert reader.values == [b"1", b"2"]
    assert confirmed == [1, 2]
    assert log.ends("t") == (0, 2)


@pytest.mark.parametrize(("written", "left"), [(0, []), (1, [b"1"]), (2, [b"1", b"2"]), (9, [b"1", b"2", b"3"])])
def test_a_kill_drops_pending_writes_except_the_given_number(written: int, left: list[bytes]) -> None:
    store, reader, own, confirmed = MemoryStore(Clock()), Reader(), Reader(), list[Exception | None]()
    log, other = store.open(), store.open()
    reader.follow(other, "t")
    own.follow(log, "t")
    for number in (1, 2, 3):
        log.append([Entry("t", "", b"%d" % number)], confirmed.append)
    steps = store.ready()
    log.kill(written=written)
    for step in steps:
        step.run()
    store.run_all()
    assert reader.values == left
    assert own.values == []
    assert confirmed == []
    with pytest.raises(LogUnavailable, match="closed"):
        log.append([Entry("t", "", b"4")])


def test_topics_of_a_killed_member_are_free_after_its_lease_expires() -> None:
    store, readers = MemoryStore(Clock()), [Reader(), Reader()]
    logs = [store.open(), store.open()]
    members = [
        log.join("g", ["a", "b"], reader.received.extend, reader.gaps.append) for log, reader in zip(logs, readers, strict=True)
    ]
    store.run_all()
    logs[0].append([Entry(topic, "", topic.encode()) for topic in ("a", "b")])
    store.run_all()
    assert sorted(reader.values for reader in readers) == [[b"a"], [b"b"]]
    members[0].commit("a", 1)
    members[0].commit("b", 1)
    logs[0].kill()
    assert ready(store) == [("expire", 1, "g")]
    assert store.open().committed("g") == {}
    store.run_all()
    assert readers[1].values == [b"b", b"a"]


def test_a_commit_takes_effect_when_its_step_runs_and_the_member_still_has_the_topic() -> None:
    store, reader = MemoryStore(Clock()), Reader()
    log, other = store.open(), store.open()
    member = log.join("g", ["a", "b"], reader.received.extend, reader.gaps.append)
    store.run_all()
    member.commit("a", 3)
    member.commit("b", 4)
    assert log.committed("g") == {}
    only_step(store, StepKind.COMMIT).run()
    assert log.committed("g") == {"a": 3}
    other.join("g", ["a", "b"], reader.received.extend, reader.gaps.append)
    while rebalancing := [step for step in store.ready() if step.kind is StepKind.REBALANCE]:
        rebalancing[0].run()
    store.run_all()
    assert log.committed("g") == {"a": 3}


def test_cleaning_runs_as_a_step_and_last_of_all() -> None:
    clock = Clock()
    store, reader, late = MemoryStore(clock), Reader(), Reader()
    log = store.open()
    log.make("t", TopicSettings(retention_s=60))
    reader.follow(log, "t")
    log.append([Entry("t", "", b"1")])
    only_step(store, StepKind.WRITE).run()
    clock.now_s += 61
    assert ("clean", 0, "t") in ready(store)
    store.run_all()
    assert reader.values == [b"1"]
    assert reader.gaps == []
    late.follow(log, "t")
    store.run_all()
    assert [str(gap) for gap in late.gaps] == ["t: records 0 to 0 are gone, removed by its retention"]
    assert ready(store) == []


def test_endless_steps_are_detected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.eventlog.memory.STEPS_MAX", 100)
    store = MemoryStore(Clock())
    log = store.open()
    log.follow({"t": 0}, lambda _: log.append([Entry("t", "", b"")]), print)
    log.append([Entry("t", "", b"")])
    with pytest.raises(AssertionError, match="further steps"):
        store.run_all()
