"""Processes that share a log and are killed or stopped: confirmed records are stored once and in order, others continue."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from conformance.logs import ReceivedRecords
from live.eventlog.embedded_process import TOPIC, TOPICS, body, number_in
from live.eventlog.embedded_processes import running, wait_until
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.group import LEASE_S
from milepost.eventlog.embedded.writer import YIELD_S, WriterFairness
from milepost.eventlog.log import Entry, TopicEnd
from milepost.model.durability import Durability

KILLS = 30
SEED = 20_261
ENDLESS = str(10**9)


def last_confirmed(output: list[str]) -> int:
    return max((int(line.removeprefix("confirmed ")) for line in output if line.startswith("confirmed ")), default=-1)


def killed_while_appending(folder: Path, level: Durability, after: int) -> list[str]:
    """Return the output of a process that is killed after some appends."""
    with running(folder, "append", "a", ENDLESS, level=level) as process:
        process.resume()
        process.wait_for(lambda output: len(output) > after)
        process.kill()
    assert not any(line.startswith("failed") for line in process.output)
    return process.output


def check_whole(folder: Path) -> None:
    assert (folder / "log.db").stat().st_size > 16_000_000, "the write-ahead log was never checkpointed"
    with closing(sqlite3.connect(folder / "log.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("level", [Durability.PROCESS_CRASH, Durability.POWER_LOSS])
def test_appends_confirmed_before_a_kill_are_stored_once_and_in_order(tmp_path: Path, level: Durability) -> None:
    random, total = Random(SEED), 0
    for _ in range(KILLS // 2):
        output = killed_while_appending(tmp_path, level, random.randrange(1, 60))
        with closing(EmbeddedLog(tmp_path, level)) as log:
            found = [number_in(record) for record in log.read(TOPIC, total, 10**9)]
        assert found == list(range(total, total + len(found)))
        total += len(found)
        assert total > last_confirmed(output) > 0
    check_whole(tmp_path)


def test_a_follower_in_another_process_survives_killed_writers_and_gets_all_records(tmp_path: Path) -> None:
    random, received = Random(SEED + 1), ReceivedRecords()
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    log.follow({TOPIC: TopicEnd.BEGINNING}, received, received.on_gap)
    for _ in range(KILLS // 2):
        output = killed_while_appending(tmp_path, Durability.PROCESS_CRASH, random.randrange(1, 60))
        assert log.ends(TOPIC)[1] > last_confirmed(output) > 0
    total = log.ends(TOPIC)[1]
    wait_until(lambda: received.count >= total)
    assert [number_in(record) for record in received.records] == list(range(total))
    assert received.gaps == []
    log.close()
    check_whole(tmp_path)


def test_two_concurrent_writing_processes_lose_and_reorder_nothing(tmp_path: Path) -> None:
    log, received = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH), ReceivedRecords()
    log.follow({TOPIC: TopicEnd.BEGINNING}, received, received.on_gap)
    with running(tmp_path, "append", "a", "20000") as one, running(tmp_path, "append", "b", "20000") as other:
        for process in (one, other):
            process.resume()
        for process in (one, other):
            process.wait_for(lambda output: output[-1:] == ["done"])
    counts = {name: last_confirmed(process.output) + 1 for name, process in (("a", one), ("b", other))}
    wait_until(lambda: received.count >= sum(counts.values()))
    for name, count in counts.items():
        assert [number_in(record) for record in received.records if record.key == name] == list(range(count))
    log.close()


def test_a_writer_yields_to_a_waiting_process(tmp_path: Path) -> None:
    one, other = WriterFairness(tmp_path), WriterFairness(tmp_path)

    def waited_s() -> float:
        began = monotonic()
        other.yield_to_others()
        return monotonic() - began

    assert waited_s() < YIELD_S
    one.signal_waiting()
    assert waited_s() >= YIELD_S
    one.clear_waiting()
    assert waited_s() < YIELD_S
    one.signal_waiting()
    one.close()
    assert waited_s() < YIELD_S
    other.close()


def test_a_record_reaches_another_process_at_once(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "follow", "") as process:
        process.wait_for(lambda output: output == ["ready"])
        latencies_s = []
        for number in range(50):
            began = monotonic()
            log.append([Entry(TOPIC, "", body(number))])
            while process.output[-1] != f"received {number}":
                assert monotonic() < began + 5
                sleep(0.0005)  # let the thread that reads the output run
            latencies_s.append(monotonic() - began)
    log.close()
    assert sorted(latencies_s)[5] < 0.02, "as slow as polling"


def test_readers_work_without_the_commit_signal(tmp_path: Path) -> None:
    log, received = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH), ReceivedRecords()
    log.follow({TOPIC: TopicEnd.BEGINNING}, received, received.on_gap)
    (tmp_path / "commit-signal").unlink()
    with running(tmp_path, "append", "a", "100") as process:
        process.resume()
        process.wait_for(lambda output: output[-1:] == ["done"])
    wait_until(lambda: received.count >= 100)
    log.close()


def state_of(pid: int) -> str:
    """T: stopped, Z: dead and not waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_topics_of_a_dead_member_are_reassigned_when_its_lease_expires(tmp_path: Path, how: signal.Signals) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "join", "g") as dying, running(tmp_path, "join", "g") as staying:
        for process in (dying, staying):
            process.wait_for(lambda output: has(output) is not None and len(has(output) or ()) == 2)
        for number in range(20):
            log.append([Entry(topic, "", body(number)) for topic in TOPICS])
        wait_until(lambda: sum(log.committed("g").values()) == 80)
        dying.popen.send_signal(how)
        began = monotonic()
        log.append([Entry(topic, "", body(20)) for topic in TOPICS])
        staying.wait_for(lambda output: len(has(output) or ()) == 4)
        assert 0.5 * LEASE_S < monotonic() - began < LEASE_S + 3
        wait_until(lambda: sum(log.committed("g").values()) == 84)
        expected = [(topic, number) for topic in TOPICS for number in range(21)]
        assert sorted(received_by(dying.output) + received_by(staying.output)) == sorted(expected)
        dying.popen.send_signal(signal.SIGCONT)
        if how is signal.SIGSTOP:
            wait_until(lambda: len(has(dying.output) or ()) == len(has(staying.output) or ()) == 2)
            log.append([Entry(topic, "", body(21)) for topic in TOPICS])
            wait_until(lambda: sum(log.committed("g").values()) == 88)
            assert len(received_by(dying.output) + received_by(staying.output)) == 88
    log.close()


def has(output: list[str]) -> list[str] | None:
    confirmations = [line.split()[1:] for line in output if line.startswith("has")]
    return confirmations[-1] if confirmations else None


def received_by(output: list[str]) -> list[tuple[str, int]]:
    return [(line.split()[1], int(line.split()[2])) for line in output if line.startswith("received")]
