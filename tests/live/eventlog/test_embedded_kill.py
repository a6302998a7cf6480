"""Processes that share a log and are killed or stopped while they work: what was told is there, once, in order; others go on."""

import signal
import sqlite3
from contextlib import closing
from pathlib import Path
from random import Random
from time import monotonic, sleep

import pytest

from conformance.logs import Heard
from live.eventlog.embedded_process import TOPIC, TOPICS, body, number_in
from live.eventlog.embedded_processes import running, wait_until
from milepost.eventlog.embedded import EmbeddedLog
from milepost.eventlog.embedded.group import LEASE_S
from milepost.eventlog.embedded.writer import YIELD_S, Turns
from milepost.eventlog.log import Edge, Entry
from milepost.model.durability import Durability

KILLS = 30
SEED = 20_261
ENDLESS = str(10**9)


def last_kept(said: list[str]) -> int:
    return max((int(line.removeprefix("kept ")) for line in said if line.startswith("kept ")), default=-1)


def killed_while_appending(folder: Path, level: Durability, after: int) -> list[str]:
    """What a process had said when it was killed, some lists after it began."""
    with running(folder, "append", "a", ENDLESS, level=level) as process:
        process.go()
        process.wait_for(lambda said: len(said) > after)
        process.kill()
    assert not any(line.startswith("failed") for line in process.said)
    return process.said


def check_whole(folder: Path) -> None:
    assert (folder / "log.db").stat().st_size > 16_000_000, "the write-ahead log was never taken over"
    with closing(sqlite3.connect(folder / "log.db")) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]


@pytest.mark.parametrize("level", [Durability.PROCESS_CRASH, Durability.POWER_LOSS])
def test_whatever_was_told_as_done_before_a_kill_is_there_once_and_in_order(tmp_path: Path, level: Durability) -> None:
    random, total = Random(SEED), 0
    for _ in range(KILLS // 2):
        said = killed_while_appending(tmp_path, level, random.randrange(1, 60))
        with closing(EmbeddedLog(tmp_path, level)) as log:
            found = [number_in(record) for record in log.read(TOPIC, total, 10**9)]
        assert found == list(range(total, total + len(found)))
        total += len(found)
        assert total > last_kept(said) > 0
    check_whole(tmp_path)


def test_a_follower_in_another_process_outlives_those_that_append_and_gets_all_of_it(tmp_path: Path) -> None:
    random, heard = Random(SEED + 1), Heard()
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    log.follow({TOPIC: Edge.BEGINNING}, heard, heard.lost)
    for _ in range(KILLS // 2):
        said = killed_while_appending(tmp_path, Durability.PROCESS_CRASH, random.randrange(1, 60))
        assert log.ends(TOPIC)[1] > last_kept(said) > 0
    total = log.ends(TOPIC)[1]
    wait_until(lambda: heard.count >= total)
    assert [number_in(record) for record in heard.records] == list(range(total))
    assert heard.losses == []
    log.close()
    check_whole(tmp_path)


def test_two_processes_that_append_at_the_same_time_lose_and_mix_up_nothing(tmp_path: Path) -> None:
    log, heard = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH), Heard()
    log.follow({TOPIC: Edge.BEGINNING}, heard, heard.lost)
    with running(tmp_path, "append", "a", "20000") as one, running(tmp_path, "append", "b", "20000") as other:
        for process in (one, other):
            process.go()
        for process in (one, other):
            process.wait_for(lambda said: said[-1:] == ["done"])
    counts = {name: last_kept(process.said) + 1 for name, process in (("a", one), ("b", other))}
    wait_until(lambda: heard.count >= sum(counts.values()))
    for name, count in counts.items():
        assert [number_in(record) for record in heard.records if record.key == name] == list(range(count))
    log.close()


def test_whoever_has_just_written_lets_one_that_waits_go_first(tmp_path: Path) -> None:
    one, other = Turns(tmp_path), Turns(tmp_path)

    def waited_s() -> float:
        began = monotonic()
        other.let_others()
        return monotonic() - began

    assert waited_s() < YIELD_S
    one.ask()
    assert waited_s() >= YIELD_S
    one.have()
    assert waited_s() < YIELD_S
    one.ask()
    one.close()
    assert waited_s() < YIELD_S
    other.close()


def test_a_record_is_taken_in_another_process_at_once(tmp_path: Path) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "follow", "") as process:
        process.wait_for(lambda said: said == ["ready"])
        taken_s = []
        for number in range(50):
            began = monotonic()
            log.append([Entry(TOPIC, "", body(number))])
            while process.said[-1] != f"took {number}":
                assert monotonic() < began + 5
                sleep(0.0005)  # the thread that hears what it says wants its turn too
            taken_s.append(monotonic() - began)
    log.close()
    assert sorted(taken_s)[5] < 0.02, "as slow as one who looks now and then"


def test_the_bell_is_not_needed(tmp_path: Path) -> None:
    log, heard = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH), Heard()
    log.follow({TOPIC: Edge.BEGINNING}, heard, heard.lost)
    (tmp_path / "bell").unlink()
    with running(tmp_path, "append", "a", "100") as process:
        process.go()
        process.wait_for(lambda said: said[-1:] == ["done"])
    wait_until(lambda: heard.count >= 100)
    log.close()


def state_of(pid: int) -> str:
    """T: stopped, Z: dead and not waited for."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGSTOP])
def test_what_a_dead_member_had_goes_to_another_when_its_lease_is_over(tmp_path: Path, how: signal.Signals) -> None:
    log = EmbeddedLog(tmp_path, Durability.PROCESS_CRASH)
    with running(tmp_path, "join", "g") as dying, running(tmp_path, "join", "g") as staying:
        for process in (dying, staying):
            process.wait_for(lambda said: has(said) is not None and len(has(said) or ()) == 2)
        for number in range(20):
            log.append([Entry(topic, "", body(number)) for topic in TOPICS])
        wait_until(lambda: sum(log.committed("g").values()) == 80)
        dying.popen.send_signal(how)
        began = monotonic()
        log.append([Entry(topic, "", body(20)) for topic in TOPICS])
        staying.wait_for(lambda said: len(has(said) or ()) == 4)
        assert 0.5 * LEASE_S < monotonic() - began < LEASE_S + 3
        wait_until(lambda: sum(log.committed("g").values()) == 84)
        meant = [(topic, number) for topic in TOPICS for number in range(21)]
        assert sorted(took(dying.said) + took(staying.said)) == sorted(meant)
        dying.popen.send_signal(signal.SIGCONT)
        if how is signal.SIGSTOP:
            wait_until(lambda: len(has(dying.said) or ()) == len(has(staying.said) or ()) == 2)
            log.append([Entry(topic, "", body(21)) for topic in TOPICS])
            wait_until(lambda: sum(log.committed("g").values()) == 88)
            assert len(took(dying.said) + took(staying.said)) == 88
    log.close()


def has(said: list[str]) -> list[str] | None:
    told = [line.split()[1:] for line in said if line.startswith("has")]
    return told[-1] if told else None


def took(said: list[str]) -> list[tuple[str, int]]:
    return [(line.split()[1], int(line.split()[2])) for line in said if line.startswith("took")]
