"""A process that dies at each of its appends, and in the middle of it: whoever comes next leaves no trace of that (D10)."""

import json
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence

import pytest

from live.federation.town import wait_until
from live.handlers.fake_edge import SITE, FakeEdge
from milepost.eventlog.log import Done, Entry, Following, Log, LogUnavailable, Lost, Record, Start, Take, TopicSettings
from milepost.handlers import Handler, Message, Store, ledger
from milepost.handlers.administration import read_table, write
from milepost.handlers.names import COMPACTED, dead_letter_topic, ledger_topic
from milepost.handlers.partition import Partition
from milepost.handlers.records import NOTE, VALUE_MARK, note_from_bytes
from milepost.model.retry import RetryPolicy
from milepost.runtime.logs import Log as Lines

COUNT = {"type": "object", "properties": {"count": {"type": "integer"}}}
REQUESTS = 6


class DyingLog:
    """A log of a process that dies while it appends for the n-th time: so many records of that still arrive."""

    def __init__(self, log: Log, dies_at: int, arrive: int) -> None:
        self._log = log
        self._left = dies_at
        self._arrive = arrive
        self.is_dead = False

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.is_dead:
            return
        if self._left == 0:
            self.is_dead = True
            self._log.append(entries[: self._arrive])
            return
        self._left -= 1
        self._log.append(entries, done)

    def make(self, topic: str, settings: TopicSettings | None = None) -> None:
        self._log.make(topic, settings)

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Following:
        return self._log.follow(starts, take, lost)

    def __getattr__(self, name: str) -> object:
        return getattr(self._log, name)


class UnwillingLog(DyingLog):
    """A log that takes every append only at the third attempt: it is full at first, and then fails."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, 0, 0)
        self._attempts = 0

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        self._attempts += 1
        if self._attempts % 3 == 1:
            raise LogUnavailable("too much waits")
        if self._attempts % 3 == 2:
            assert done is not None
            done(LogUnavailable("the disk is full"))
        else:
            self._log.append(entries, done)


def counting() -> Handler:
    """Counts, and forgets every other value that it kept."""
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
    return Partition(counting(), 0, SITE, log, Lines(write=lambda _: None), Counter(), clock)


def serve_the_rest(edge: FakeEdge, log: Log) -> None:
    served = partition(log)
    served.start()
    wait_until(lambda: edge.position("count") == REQUESTS, "all requests")
    served.close(10.0)


def check(edge: FakeEdge) -> None:
    answers = [(said.message.topic, json.loads(said.message.body)) for said in edge.answers()]
    assert answers == [
        ("count/accept", {"count": 1}),
        ("count/accept", {"count": 2}),
        ("count/accept", {"count": 3}),
        ("count/reject", {"reason": "the service failed"}),
        ("count/accept", {"count": 4}),
        ("count/accept", {"count": 5}),
    ]
    assert list(read_table(edge.log, dead_letter_topic("count"))) == ["0.0"]
    claimed = ledger.Ledger(edge.log, "count", 0, 1, partition(edge.log)._over)
    claimed.claim()
    assert claimed.store.values == {"count": b"5", "seen/4": b'{"count":5}'}
    claimed.close()


@pytest.fixture
def asked(edge: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> FakeEdge:
    """An edge with some requests, of which two are written down at a time."""
    monkeypatch.setattr(ledger, "BATCH_REQUESTS_MAX", 2)
    monkeypatch.setattr("milepost.handlers.calls.CALL_RETRY", RetryPolicy(0.0, 0.0, retries_max=2))
    edge.log.make(dead_letter_topic("count"), COMPACTED)
    for number in range(REQUESTS):
        edge.ask("count", "count", {"count": number})
    return edge


@pytest.mark.parametrize("arrive", range(5))
@pytest.mark.parametrize("dies_at", range(8))
def test_a_process_that_dies_at_an_append_leaves_no_trace(asked: FakeEdge, dies_at: int, arrive: int) -> None:
    log = DyingLog(asked.log, dies_at, arrive)
    dying = partition(log)  # type: ignore[arg-type]
    dying.start()
    wait_until(lambda: log.is_dead, "its death")
    dying.close(0.0)
    serve_the_rest(asked, asked.log)
    check(asked)


def test_a_log_that_is_away_is_waited_for(asked: FakeEdge, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("milepost.handlers.ledger.APPEND_RETRY", RetryPolicy(0.01, 0.01))
    serve_the_rest(asked, UnwillingLog(asked.log))  # type: ignore[arg-type]
    check(asked)


class Holding(DyingLog):
    """A log of a process that is stopped at its first append with such a key that tells of requests, and goes on later."""

    def __init__(self, log: Log, key: str) -> None:
        super().__init__(log, 0, 0)
        self._key = key
        self.held: Callable[[], None] | None = None

    def is_it(self, entry: Entry) -> bool:
        return entry.key.startswith(self._key) and (entry.key != NOTE or bool(note_from_bytes(entry.value or b"").pending))

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.held is None and self.is_it(entries[0]):
            self.held = lambda: self._log.append(entries, done)
        else:
            self._log.append(entries, done)


def test_a_part_that_another_has_claimed_says_nothing_any_more(asked: FakeEdge) -> None:
    hold = Holding(asked.log, NOTE)
    first = partition(hold, since=15 * 10**17)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: hold.held is not None, "its first note")
    serve_the_rest(asked, asked.log)
    assert hold.held is not None
    hold.held()
    wait_until(lambda: first.is_over, "that it knows")
    first.close(0.0)
    check(asked)


class Blind(Holding):
    """The same for one that also reads nothing while it is stopped, and its append goes first when it goes on."""

    def __init__(self, log: Log) -> None:
        super().__init__(log, NOTE)
        self.sees = threading.Event()
        self.sees.set()

    def append(self, entries: Sequence[Entry], done: Done | None = None) -> None:
        if self.held is None and self.is_it(entries[0]):
            self.sees.clear()
        super().append(entries, done)

    def follow(self, starts: Mapping[str, Start], take: Take, lost: Lost) -> Following:
        def see(records: Sequence[Record]) -> None:
            self.sees.wait()
            take(records)

        return self._log.follow(starts, see, lost)


def test_a_note_that_is_written_counts_only_if_nobody_had_claimed_the_part_before(asked: FakeEdge) -> None:
    blind = Blind(asked.log)
    first = partition(blind, since=15 * 10**17)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: blind.held is not None, "its first note")
    serve_the_rest(asked, asked.log)
    assert blind.held is not None
    blind.held()
    wait_until(lambda: asked.position("count") < REQUESTS, "the late note")
    time.sleep(0.3)  # it has time to say what it should not
    blind.sees.set()
    wait_until(lambda: first.is_over, "that it knows")
    first.close(0.0)
    check(asked)


@pytest.mark.parametrize("key", [NOTE, VALUE_MARK])
def test_what_a_late_writer_has_spoiled_is_written_again(asked: FakeEdge, key: str) -> None:
    hold = Holding(asked.log, key)
    first = partition(hold)  # type: ignore[arg-type]
    first.start()
    wait_until(lambda: hold.held is not None, "its first note, or what follows from it")
    second = partition(asked.log)
    second.start()
    wait_until(lambda: book_of(asked) == (REQUESTS, b"5"), "all requests")
    assert hold.held is not None
    hold.held()
    wait_until(lambda: book_of(asked) != (REQUESTS, b"5"), "what came late")
    until = time.monotonic() + 10
    while book_of(asked) != (REQUESTS, b"5"):
        assert time.monotonic() < until
        second.repair()
    first.close(0.0)
    second.close(10.0)
    check(asked)


def book_of(edge: FakeEdge) -> tuple[int, bytes]:
    """The last note and the last value of the count as they stand in the log, whoever wrote them."""
    count = read_table(edge.log, ledger_topic("count", 0)).get(f"{VALUE_MARK}count", b"")
    return edge.position("count"), count.partition(b"\n")[2]


def test_a_table_has_the_last_value_of_each_key(edge: FakeEdge) -> None:
    assert read_table(edge.log, "table") == {}
    rows = (("a", b"1"), ("b", b"2"), ("a", b"3"), ("b", None), ("c", b"4"))
    write(edge.log, [Entry("table", key, value) for key, value in rows])
    assert read_table(edge.log, "table") == {"a": b"3", "c": b"4"}
