"""A process that crashes at each of its appends, and in the middle of one: its successor repairs everything (D10)."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from live.federation.deployment import wait_until
from live.handlers.fake_edge import SITE, FakeEdge
from milepost.eventlog.log import Done, Entry, Following, Log, LogUnavailable, OnGap, OnRecords, Record, Start, TopicSettings
from milepost.handlers import Handler, Message, Store, ledger
from milepost.handlers.administration import read_table, write
from milepost.handlers.partition import Partition
from milepost.handlers.records import NOTE, VALUE_PREFIX, note_from_bytes
from milepost.handlers.topic_names import COMPACTED, dead_letter_topic, ledger_topic
from milepost.model.retry import RetryPolicy
from milepost.runtime.structured_log import StructuredLog

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}}
REQUESTS = 6


class CrashingLog:
    """The log of a process that crashes in its n-th append, of which the first `arrive` records are still written."""

    def __init__(self, log: Log, crashes_at: int, arrive: int) -> None:
        self._log = log
        self._left = crashes_at
        self._arrive = arrive
        self.has_crashed = False

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.has_crashed:
            return
        if self._left == 0:
            self.has_crashed = True
            self._log.append(entries[: self._arrive])
            return
        self._left -= 1
        self._log.append(entries, done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        self._log.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], take: OnRecords, lost: OnGap) -> Following:
        return self._log.follow(starts, take, lost)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


class UnreliableLog(CrashingLog):
    """A log that accepts every append only at the third attempt: the first is refused, the second fails."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, 0, 0)
        self._attempts = 0

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        self._attempts += 1
        if self._attempts % 3 == 1:
            raise LogUnavailable("the outbox is full")
        if self._attempts % 3 == 2:
            assert done is not None
            done(LogUnavailable("the disk is full"))
        else:
            self._log.append(entries, done)


def counting() -> Handler:
    """Return a handler that counts, and removes every other stored value."""
    app = Handler("count")

    @app.on("count", accepts=COUNT, answers=COUNT)
    def count(request: dict[str, int], message: Message, store: Store) -> dict[str, int]:
        last = store.get("count", 0)
        assert isinstance(last, int)
        store.put("count", last + 1)
        store.remove(f"seen/{last - 1}")
        store.put(f"seen/{last}", request)
        if request["count"] == 3:
            raise RuntimeError
        return {"count": last + 1}

    return app


def partition(log: Log, since: int = 10**18) -> Partition:
    clock = iter(range(since, 2 * 10**18)).__next__
    return Partition(counting(), 0, SITE, log, StructuredLog(write=lambda _: None), Counter(), clock)


def serve_the_rest(edge: FakeEdge, log: Log) -> None:
    served = partition(log)
    served.start()
    wait_until(lambda: edge.position("count") == REQUESTS, "all requests")
    served.close(10.0)


def check(edge: FakeEdge) -> None:
    answers = [(answer.message.topic, json.loads(answer.message.body)) for answer in edge.answers()]
    assert answers == [
        ("count/accept", {"count": 1}),
        ("count/accept", {"count": 2}),
        ("count/accept", {"count": 3}),
        ("count/reject", {"reason": "the service failed"}),
        ("count/accept", {"count": 4}),
        ("count/accept", {"count": 5}),
    ]
    assert list(read_table(edge.log, dead_letter_topic("count"))) == ["0.0"]
    claimed = ledger.PartitionLedger(edge.log, "count", 0, 1, partition(edge.log)._cancelled)
    claimed.claim()
    assert claimed.store.values == {"count": b"5", "seen/4": b'{"count":5}'}
    claimed.close()


@pytest.fixture
def requested(edge: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> FakeEdge:
    """An edge with some requests, of which two are committed at a time."""
    monkeypatch.setattr(ledger, "BATCH_REQUESTS_MAX", 2)
    monkeypatch.setattr("milepost.handlers.calls.CALL_RETRY", RetryPolicy(0.0, 0.0, retries_max=2))
    edge.log.make(dead_letter_topic("count"), COMPACTED)
    for number in range(REQUESTS):
        edge.send_request("count", "count", {"count": number})
    return edge


@pytest.mark.parametrize("arrive", range(5))
@pytest.mark.parametrize("crashes_at", range(8))
def test_a_process_that_crashes_at_an_append_leaves_no_trace(requested: FakeEdge, crashes_at: int, arrive: int) -> None:
    log = CrashingLog(requested.log, crashes_at, arrive)
    crashing = partition(log)  # type: ignore[arg-type]
    crashing.start()
    wait_until(lambda: log.has_crashed, "the crash")
    crashing.close(0.0)
    serve_the_rest(requested, requested.log)
    check(requested)


def test_a_partition_waits_for_an_unavailable_log(requested: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.handlers.ledger.APPEND_RETRY", RetryPolicy(0.01, 0.01))
    serve_the_rest(requested, UnreliableLog(requested.log))  # type: ignore[arg-type]
    check(requested)


class PausingLog(CrashingLog):
    """The log of a process that is paused at its first append under a key, other than an empty note, and resumed later."""

    def __init__(self, log: Log, key: str) -> None:
        super().__init__(log, 0, 0)
        self._key = key
        self.held: Callable[[], None] | None = None

    def is_held(self, entry: Entry) -> bool:
        return entry.key.startswith(self._key) and (entry.key != NOTE or bool(note_from_bytes(entry.value or b"").pending))

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.held is None and self.is_held(entries[0]):
            self.held = lambda: self._log.append(entries, done)
        else:
            self._log.append(entries, done)


def test_a_partition_claimed_by_another_process_appends_nothing(requested: FakeEdge) -> None:
    hold = PausingLog(requested.log, NOTE)
    first = partition(hold, since=15 * 10**17)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: hold.held is not None, "its first note")
    serve_the_rest(requested, requested.log)
    assert hold.held is not None
    hold.held()
    wait_until(lambda: first.has_ended, "the process notices")
    first.close(0.0)
    check(requested)


class BlindPausingLog(PausingLog):
    """The same, but the process also reads nothing while paused, and its append comes first when it is resumed."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, NOTE)
        self.can_read = threading.Event()
        self.can_read.set()

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.held is None and self.is_held(entries[0]):
            self.can_read.clear()
        super().append(entries, done)

    def follow(self, starts: Mapping[str, Start], take: OnRecords, lost: OnGap) -> Following:
        def read(records: Sequence[Record]) -> None:
            self.can_read.wait()
            take(records)

        return self._log.follow(starts, read, lost)


def test_a_note_written_after_another_claim_has_no_effect(requested: FakeEdge) -> None:
    blind = BlindPausingLog(requested.log)
    first = partition(blind, since=15 * 10**17)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: blind.held is not None, "its first note")
    serve_the_rest(requested, requested.log)
    assert blind.held is not None
    blind.held()
    wait_until(lambda: requested.position("count") < REQUESTS, "the late note")
    time.sleep(0.3)  # time to append what it must not
    blind.can_read.set()
    wait_until(lambda: first.has_ended, "the process notices")
    first.close(0.0)
    check(requested)


@pytest.mark.parametrize("key", [NOTE, VALUE_PREFIX])
def test_records_overwritten_by_a_late_writer_are_rewritten(requested: FakeEdge, key: str) -> None:
    hold = PausingLog(requested.log, key)
    first = partition(hold)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: hold.held is not None, "its first note, or an entry after it")
    second = partition(requested.log)
    second.start()
    wait_until(lambda: ledger_of(requested) == (REQUESTS, b"5"), "all requests")
    assert hold.held is not None
    hold.held()
    wait_until(lambda: ledger_of(requested) != (REQUESTS, b"5"), "the late record")
    until = time.monotonic() + 10
    while ledger_of(requested) != (REQUESTS, b"5"):
        assert time.monotonic() < until
        second.repair()
    first.close(0.0)
    second.close(10.0)
    check(requested)


def ledger_of(edge: FakeEdge) -> tuple[int, bytes]:
    """Return the last noted position and the last value of the count in the log, whichever process wrote them."""
    count = read_table(edge.log, ledger_topic("count", 0)).get(f"{VALUE_PREFIX}count", b"")
    return edge.position("count"), count.partition(b"\n")[2]


def test_a_table_has_the_last_value_of_each_key(edge: FakeEdge) -> None:
    assert read_table(edge.log, "table") == {}
    rows = (("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None), ("c", b"4"))
    write(edge.log, [Entry("table", key, value) for key, value in rows])
    assert read_table(edge.log, "table") == {"a": b"3", "c": b"4"}
