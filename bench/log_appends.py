"""The embedded log compared with a bare sqlite3 loop: appends per second, throughput of followers without and with a key of the
site, and latency to a reader.

`python -m bench.log_appends` prints the results. Keys of 10 characters, values of 200 bytes, lists of 100 entries; the bare loop
writes the same rows with `executemany`, one transaction per list, at the same durability.
"""

import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path

from bench.harness import QUICK
from milepost.eventlog.authenticated import AuthenticatedLog
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.database import SETTINGS, SYNCHRONOUS
from milepost.eventlog.embedded.writer import WAL_PAGES
from milepost.eventlog.log import Entry, Log, LogLost, LogUnavailable, Record, TopicEnd
from milepost.model.durability import Durability

RECORDS = 60_000 if QUICK else 300_000
ROUNDS = 1 if QUICK else 3
LIST = 100
TOPIC = "bench"
VALUE = bytes(200)
LATENCIES = 1_000 if QUICK else 6_000
APPEND_INTERVAL_S = 1 / 2_000
KEYS = {"without a key": b"", "with a key": bytes(range(32))}


def measure() -> dict[str, object]:
    """Measure all; rates are per second, latencies in microseconds."""
    lists = [[Entry(TOPIC, f"{number:010}", VALUE) for number in range(at, at + LIST)] for at in range(0, RECORDS, LIST)]
    rates, bare = dict[str, float](), dict[str, float]()
    for _ in range(ROUNDS):  # the best round, alternating, because other processes share the machine
        for level in Durability:
            rates[level.value] = max(rates.get(level.value, 0.0), _appends(level, lists))
            bare[level.value] = max(bare.get(level.value, 0.0), _bare(level, lists))
    return {
        "appends": rates,
        "bare sqlite3": bare,
        "ratio": {level: rates[level] / bare[level] for level in rates},
        "appends with a follower": {name: _with_follower(lists, key) for name, key in KEYS.items()},
        "follow": {name: _follow(lists, key) for name, key in KEYS.items()},
        "latency, one process": _percentiles(_latencies()),
        "latency, two processes": _percentiles(_latencies_across()),
    }


def main() -> None:
    """Print the results, or run as the reader process."""
    if sys.argv[1:2] == ["follow"]:
        _follow_as_child(Path(sys.argv[2]))
        return
    for name, value in measure().items():
        values = value if isinstance(value, dict) else {"": value}
        print(f"{name:26}", "  ".join(f"{label} {value:,.5g}".strip() for label, value in values.items()))


def _appends(level: Durability, lists: list[list[Entry]]) -> float:
    with tempfile.TemporaryDirectory() as folder, closing(EmbeddedLog(Path(folder), level)) as log:
        began = time.perf_counter()
        _append_all(log, lists)
        return RECORDS / (time.perf_counter() - began)


def _append_all(log: Log, lists: list[list[Entry]]) -> None:
    """Append and wait until all is durable."""
    is_done = threading.Event()
    for entries in lists[:-1]:
        _append(log, entries)
    _append(log, lists[-1], lambda _: is_done.set())
    is_done.wait()


def _append(log: Log, entries: list[Entry], done: Callable[[Exception | None], None] | None = None) -> None:
    while True:
        try:
            log.append(entries, done)
            return
        except LogUnavailable:  # the queue is full
            time.sleep(0.001)


def _bare(level: Durability, lists: list[list[Entry]]) -> float:
    with tempfile.TemporaryDirectory() as folder, closing(sqlite3.connect(Path(folder) / "bare.db", isolation_level=None)) as db:
        for setting in (
            "journal_mode = WAL",
            *SETTINGS,
            f"wal_autocheckpoint = {WAL_PAGES}",
            f"synchronous = {SYNCHRONOUS[level]}",
        ):
            db.execute(f"PRAGMA {setting}").fetchall()
        db.execute("CREATE TABLE records (number INTEGER PRIMARY KEY, appended_at INTEGER, key TEXT, value BLOB)")
        began = time.perf_counter()
        for entries in lists:
            now = time.time_ns()
            db.execute("BEGIN IMMEDIATE")
            db.executemany("INSERT INTO records VALUES (NULL, ?, ?, ?)", [(now, entry.key, entry.value) for entry in entries])
            db.execute("COMMIT")
        return RECORDS / (time.perf_counter() - began)


def _opened(folder: Path, key: bytes) -> Log:
    """Open a log, whose records are authenticated if there is a key."""
    log = EmbeddedLog(folder, Durability.PROCESS_CRASH)
    return AuthenticatedLog(log, key) if key else log


class _Counter:
    """Counts records, until all have arrived."""

    def __init__(self) -> None:
        self._count = 0
        self.is_done = threading.Event()

    def __call__(self, records: Sequence[Record]) -> None:
        self._count += len(records)
        if self._count == RECORDS:
            self.is_done.set()


def _with_follower(lists: list[list[Entry]], key: bytes) -> float:
    """Measure until the follower has all records, too."""
    with tempfile.TemporaryDirectory() as folder, closing(_opened(Path(folder), key)) as log:
        counter = _Counter()
        log.follow({TOPIC: TopicEnd.BEGINNING}, counter, _lost)
        began = time.perf_counter()
        _append_all(log, lists)
        counter.is_done.wait()
        return RECORDS / (time.perf_counter() - began)


def _follow(lists: list[list[Entry]], key: bytes) -> float:
    with tempfile.TemporaryDirectory() as folder, closing(_opened(Path(folder), key)) as log:
        _append_all(log, lists)
        counter = _Counter()
        began = time.perf_counter()
        log.follow({TOPIC: TopicEnd.BEGINNING}, counter, _lost)
        counter.is_done.wait()
        return RECORDS / (time.perf_counter() - began)


class _Stopwatch:
    """Records the latency of each record, whose value contains the time of its append."""

    def __init__(self) -> None:
        self.latencies_us: list[float] = []
        self.is_done = threading.Event()

    def __call__(self, records: Sequence[Record]) -> None:
        now = time.monotonic_ns()
        self.latencies_us += [(now - int.from_bytes(record.value or b"")) / 1_000 for record in records]
        if len(self.latencies_us) >= LATENCIES:
            self.is_done.set()


def _latencies() -> list[float]:
    with tempfile.TemporaryDirectory() as folder, closing(EmbeddedLog(Path(folder), Durability.PROCESS_CRASH)) as log:
        watch = _Stopwatch()
        log.follow({TOPIC: TopicEnd.BEGINNING}, watch, _lost)
        _append_slowly(log)
        watch.is_done.wait()
        return watch.latencies_us


def _latencies_across() -> list[float]:
    with tempfile.TemporaryDirectory() as folder, closing(EmbeddedLog(Path(folder), Durability.PROCESS_CRASH)) as log:
        command = [sys.executable, "-m", "bench.log_appends", "follow", folder]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
            assert other.stdout is not None
            other.stdout.readline()
            _append_slowly(log)
            latencies_us: list[float] = json.loads(other.stdout.readline())
    return latencies_us


def _follow_as_child(folder: Path) -> None:
    watch = _Stopwatch()
    with closing(EmbeddedLog(folder, Durability.PROCESS_CRASH)) as log:
        log.follow({TOPIC: TopicEnd.BEGINNING}, watch, _lost)
        print("ready", flush=True)
        watch.is_done.wait()
        print(json.dumps(watch.latencies_us), flush=True)


def _append_slowly(log: EmbeddedLog) -> None:
    began = time.monotonic()
    for number in range(LATENCIES):
        time.sleep(max(0.0, began + number * APPEND_INTERVAL_S - time.monotonic()))
        log.append([Entry(TOPIC, f"{number:010}", time.monotonic_ns().to_bytes(200))])


def _percentiles(latencies_us: list[float]) -> dict[str, float]:
    ordered = sorted(latencies_us)
    return {"p50": ordered[len(ordered) // 2], "p99": ordered[len(ordered) * 99 // 100]}


def _lost(gap: LogLost) -> None:
    os.write(sys.stderr.fileno(), f"{gap}\n".encode())


if __name__ == "__main__":
    main()
