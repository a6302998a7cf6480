"""Full or removed disks, held locks, blocking readers: reported, tolerated, and recovered from."""

import os
import signal
import sqlite3
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import closing, suppress
from pathlib import Path

import pytest

from conformance.log_group_suite import Worker
from conformance.log_retention_suite import keys, poke
from conformance.log_suite import append, bodies, numbered
from conformance.logs import AppendOutcomes, EmbeddedLogs, ReceivedRecords
from live.eventlog.embedded_processes import running, wait_until
from live.storage.test_disks import Disk
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import PAGE_BYTES, open_database
from milepost.eventlog.embedded.group import RENEW_S
from milepost.eventlog.embedded.retention import EVERY_S
from milepost.eventlog.embedded.rows import BATCH_BYTES_MAX
from milepost.eventlog.embedded.writer import WAL_PAGES_MAX, WRITE_TIMEOUT_S
from milepost.eventlog.log import RECORD_BYTES_MAX, Entry, LogUnavailable, Record, TopicEnd, TopicSettings
from milepost.model.durability import Durability


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[EmbeddedLogs]:
    logs = EmbeddedLogs(tmp_path / "log")
    yield logs
    logs.close()


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Disk]:
    if os.geteuid() != 0:
        pytest.skip("only root may mount a disk; fix: sudo make test")
    disk = Disk(tmp_path)
    yield disk
    disk.remove()


def fault_of(log: EmbeddedLog, entries: list[Entry]) -> str:
    """Append, and return the fault."""
    confirmations = AppendOutcomes()
    log.append(entries, confirmations.done(""))
    wait_until(lambda: bool(confirmations.outcomes))
    fault = confirmations.outcomes[0][1]
    assert isinstance(fault, LogUnavailable)
    return str(fault)


def test_a_full_disk_is_retried_then_reported_and_recovered_from(disk: Disk) -> None:
    log, confirmations = EmbeddedLog(disk.at / "log", Durability.PROCESS_CRASH), AppendOutcomes()
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    began = time.monotonic()
    for number in range(3):
        log.append([Entry("t", "", bytes(500_000))], confirmations.done(number))
    wait_until(lambda: len(confirmations.outcomes) == 3)
    assert time.monotonic() - began > WRITE_TIMEOUT_S
    assert confirmations.labels == [0, 1, 2]
    assert all("the disk is full: writing resumes" in str(fault) for _, fault in confirmations.outcomes)
    assert "the disk is full" in (log.fault or "")
    log.append([Entry("t", "", b"later")], confirmations.done(3))
    ballast.unlink()
    wait_until(lambda: len(confirmations.outcomes) == 4)
    assert confirmations.outcomes[3] == (3, None)
    assert log.fault is None
    assert [record.value for record in log.read("t", 0, 10)] == [b"later"]
    log.close()


def test_a_briefly_full_disk_fails_no_append(disk: Disk) -> None:
    log, confirmations, received = EmbeddedLog(disk.at / "log", Durability.PROCESS_CRASH), AppendOutcomes(), ReceivedRecords()
    log.follow({"t": 0}, received, received.on_gap)
    ballast = disk.at / "ballast"
    with suppress(OSError), ballast.open("wb", buffering=0) as file:
        while file.write(bytes(4096)):
            pass
    for number in range(20):
        log.append([Entry("t", "", b"%d" % number + bytes(20_000))], confirmations.done(number))
    wait_until(lambda: log.fault is not None)
    ballast.unlink()
    wait_until(lambda: len(confirmations.outcomes) == 20)
    assert confirmations.outcomes == [(number, None) for number in range(20)]
    wait_until(lambda: len(received.records) == 20)
    assert [record.offset for record in received.records] == list(range(20))
    log.close()


def test_a_lock_held_too_long_fails_all_waiting_appends_and_later_ones_are_written(logs: EmbeddedLogs) -> None:
    log, confirmations = logs.open(), AppendOutcomes()
    log.make("t")
    with logs.blocked_writes():
        began = time.monotonic()
        for number in range(20):
            log.append(numbered("t", number, number + 1), confirmations.done(number))
            time.sleep(0.01)  # the first is written alone, the others wait
        wait_until(lambda: len(confirmations.outcomes) == 20)
        assert WRITE_TIMEOUT_S < time.monotonic() - began < 1.8 * WRITE_TIMEOUT_S
    assert confirmations.labels == list(range(20))
    assert all("another process has locked it for too long" in str(fault) for _, fault in confirmations.outcomes)
    append(logs, log, numbered("t", 20, 21))
    assert [record.value for record in log.read("t", 0, 100)] == bodies(20, 21)


def test_a_removed_directory_is_detected_and_used_again_when_it_is_back(tmp_path: Path) -> None:
    log, received = EmbeddedLog(tmp_path / "log", Durability.PROCESS_CRASH), ReceivedRecords()
    log.follow({"t": 0}, received, received.on_gap)
    (tmp_path / "log").rename(tmp_path / "away")
    assert "was removed or replaced: put it back" in fault_of(log, numbered("t", 0, 1))
    wait_until(lambda: "was removed or replaced" in (log.fault or ""))
    (tmp_path / "away").rename(tmp_path / "log")
    confirmations = AppendOutcomes()
    log.append(numbered("t", 1, 2), confirmations.done(""))
    wait_until(lambda: confirmations.outcomes == [("", None)])
    wait_until(lambda: received.values("t") == bodies(1, 2))
    wait_until(lambda: log.fault is None)
    log.close()


def spoil_descriptors(file: Path) -> None:
    """Make every open descriptor of a file read-only."""
    for entry in Path("/proc/self/fd").iterdir():
        if entry.is_symlink() and entry.readlink() == file:
            readable = os.open(file, os.O_RDONLY)
            os.dup2(readable, int(entry.name), inheritable=False)
            os.close(readable)


def test_a_broken_connection_is_replaced(logs: EmbeddedLogs, tmp_path: Path) -> None:
    log = logs.open()
    append(logs, log, numbered("t", 0, 1))
    spoil_descriptors(tmp_path / "log" / "log.db-wal")
    append(logs, log, numbered("t", 1, 2))
    assert [record.value for record in log.read("t", 0, 10)] == bodies(0, 2)


def test_a_blocking_callback_delays_no_other_reader(logs: EmbeddedLogs) -> None:
    log, received, go_on = logs.open(), ReceivedRecords(), threading.Event()
    blocked: list[Record] = []

    def block(records: Sequence[Record]) -> None:
        go_on.wait()
        blocked.extend(records)

    log.follow({"t": 0}, block, received.on_gap)
    log.follow({"t": 0}, received, received.on_gap)
    for number in range(100):
        append(logs, log, numbered("t", number, number + 1))
    wait_until(lambda: len(received.records) == 100)
    assert blocked == []
    go_on.set()
    wait_until(lambda: len(blocked) == 100)


def test_a_batch_of_large_records_is_limited_in_bytes(logs: EmbeddedLogs) -> None:
    log, received = logs.open(), ReceivedRecords()
    append(logs, log, [Entry("t", "", bytes(RECORD_BYTES_MAX))] * 20)
    log.follow({"t": 0}, received, received.on_gap)
    wait_until(lambda: len(received.records) == 20)
    assert max(len(batch) for batch in received.batches) * RECORD_BYTES_MAX < BATCH_BYTES_MAX + RECORD_BYTES_MAX


def takeover_s(logs: EmbeddedLogs, group: str) -> float:
    """Return the seconds until another member has the topics of one that has left."""
    leaving, staying = (Worker(logs.open(), group, ["t", "u"]) for _ in range(2))
    wait_until(lambda: len(leaving.has) == len(staying.has) == 1)
    began = time.monotonic()
    leaving.close()
    wait_until(lambda: len(staying.has) == 2)
    return time.monotonic() - began


def test_topics_of_a_leaving_member_are_reassigned_before_the_next_lease_renewal(logs: EmbeddedLogs) -> None:
    assert min(takeover_s(logs, f"g{number}") for number in range(5)) < RENEW_S / 4


def test_closing_waits_for_the_running_callback(logs: EmbeddedLogs) -> None:
    log, received, entered, go_on, left = logs.open(), ReceivedRecords(), threading.Event(), threading.Event(), threading.Event()

    def block(records: Sequence[Record]) -> None:
        entered.set()
        go_on.wait()
        left.set()

    following = log.follow({"t": 0}, block, received.on_gap)
    append(logs, log, numbered("t", 0, 1))
    entered.wait()
    closing_thread = threading.Thread(target=following.close)
    closing_thread.start()
    closing_thread.join(0.2)
    assert closing_thread.is_alive()
    go_on.set()
    closing_thread.join()
    assert left.is_set()


def test_a_callback_that_raises_does_not_stop_others(logs: EmbeddedLogs, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))
    log, received = logs.open(), ReceivedRecords()

    def fail(what: object) -> None:
        raise RuntimeError("told")

    log.follow({"t": 0}, fail, received.on_gap)
    log.follow({"t": 0}, received, received.on_gap)
    log.append(numbered("t", 0, 1), fail)
    append(logs, log, numbered("t", 1, 2))
    wait_until(lambda: len(received.records) == 2)
    wait_until(lambda: len(raised) >= 2)
    assert set(raised) == {"told"}


def test_a_bug_in_the_writer_leaves_no_caller_waiting(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    raised: list[str] = []
    monkeypatch.setattr(threading, "excepthook", lambda args: raised.append(str(args.exc_value)))

    def fail() -> int:
        time.sleep(0.1)
        raise RuntimeError("no clock")

    log, confirmations = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH, clock_ns=fail), AppendOutcomes()
    for number in range(3):
        log.append(numbered("t", number, number + 1), confirmations.done(number))
        time.sleep(0.02)
    wait_until(lambda: len(confirmations.outcomes) == 3)
    assert confirmations.labels == [0, 1, 2]
    assert {type(fault) for _, fault in confirmations.outcomes} == {LogUnavailable}
    with pytest.raises(LogUnavailable, match="closed"):
        log.append(numbered("t", 3, 4))
    log.close()
    assert raised == ["no clock"]


def test_the_write_ahead_log_stays_bounded_while_others_read(logs: EmbeddedLogs, tmp_path: Path) -> None:
    log, readers = logs.open(), [ReceivedRecords() for _ in range(3)]
    log.make("t", TopicSettings(retention_bytes=20_000_000))
    for received in readers:
        logs.open().follow({"t": 0}, lambda records: time.sleep(0.001), received.on_gap)
    largest = 0
    for _ in range(100):
        append(logs, log, [Entry("t", "k", bytes(1_000))] * 1_000 * 2)
        largest = max(largest, (tmp_path / "log" / "log.db-wal").stat().st_size)
    assert largest < 1.5 * WAL_PAGES_MAX * PAGE_BYTES
    wait_until(lambda: log.ends("t")[1] - log.ends("t")[0] < 20_000)
    assert (tmp_path / "log" / "log.db").stat().st_size < 100_000_000


@pytest.mark.parametrize("settings", [TopicSettings(is_compacted=True), TopicSettings(retention_bytes=5_000)])
def test_removed_records_are_subtracted_from_the_size(logs: EmbeddedLogs, tmp_path: Path, settings: TopicSettings) -> None:
    log = logs.open()
    log.make("t", settings)
    for turn in range(4):
        append(logs, log, [Entry("t", f"Ω\0{number % 30}", bytes(number + turn)) for number in range(100)])
        logs.pass_time(7_200)
    wait_until(lambda: sum(1 for _ in log.read("t", log.ends("t")[0], 1_000)) < 100)
    log.close()
    with closing(sqlite3.connect(tmp_path / "log" / "log.db")) as connection:
        (counted,) = connection.execute("SELECT bytes FROM topics").fetchone()
        sizes = connection.execute("SELECT length(CAST(key AS BLOB)) + length(value) FROM records").fetchall()
    assert counted == sum(size for (size,) in sizes)


def test_compaction_with_few_keys_per_pass_continues_where_it_stopped(
    logs: EmbeddedLogs, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("milepost.eventlog.embedded.retention.KEYS_MAX", 40)
    monkeypatch.setattr("milepost.eventlog.embedded.retention.SLICE_RECORDS", 10)
    log, left = logs.open(), [200]
    log.make("t", TopicSettings(is_compacted=True))
    append(logs, log, [Entry("t", f"k{number % 100}", b"%d" % number) for number in range(200)])
    while left[-1] > 100:
        assert len(left) < 100
        logs.pass_time(120)
        poke(logs, log, "t")
        time.sleep(1.5 * EVERY_S)
        left.append(len(keys(log, "t")))
    assert len(set(left)) > 2, "compaction took a single pass"
    assert keys(log, "t") == [(f"k{number - 100}", b"%d" % number) for number in range(100, 200)]


def test_idle_followers_use_no_cpu(logs: EmbeddedLogs) -> None:
    log, received = logs.open(), ReceivedRecords()
    for _ in range(10):
        log.follow({f"t{number}": TopicEnd.END for number in range(10)}, received, received.on_gap)
    log.join("g", ["t0"], received, received.on_gap)
    time.sleep(0.5)
    began = time.process_time()
    time.sleep(2)
    assert time.process_time() - began < 0.1


def test_a_writer_stopped_inside_a_transaction_is_reported(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "append", "a", str(10**9)) as process:
        process.resume()
        process.wait_for(lambda output: len(output) > 5)
        while True:  # until it is stopped inside a transaction
            process.popen.send_signal(signal.SIGSTOP)
            with closing(open_database(tmp_path, Durability.PROCESS_CRASH).connect()) as connection:
                connection.execute("PRAGMA busy_timeout = 0")
                with suppress(sqlite3.OperationalError):
                    connection.execute("BEGIN IMMEDIATE")
                if not connection.in_transaction:
                    break
            process.popen.send_signal(signal.SIGCONT)
            time.sleep(0.001)
        assert "another process has locked it for too long: look for a stopped process" in fault_of(log, numbered("t", 0, 1))
        process.popen.send_signal(signal.SIGCONT)
    confirmations = AppendOutcomes()
    log.append(numbered("t", 1, 2), confirmations.done(""))
    wait_until(lambda: confirmations.outcomes == [("", None)])
    assert [record.value for record in log.read("t", 0, 10)] == bodies(1, 2)
    log.close()
