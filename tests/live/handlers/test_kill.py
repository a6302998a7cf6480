"""Handlers that are killed, paused and run twice: every request has one effect and one answer (D10).

The handler counts the commits of each vehicle. A request served twice would leave a gap in the vehicle's numbers, a lost one
would be missing, and a second answer would be visible.
"""

import json
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from live.federation.deployment import wait_until
from live.handlers.fake_edge import EXAMPLES, FakeEdge, Process
from milepost.eventlog.log import Entry
from milepost.handlers.administration import write
from milepost.model.site_records import handler_topic
from milepost.wire.records import to_record

FILE = EXAMPLES / "difference.py"
TOPIC = "service/vehicle-info"
VEHICLES = [f"truck-{number}" for number in range(12)]
KILLS = 6


@contextmanager
def traffic(edge: FakeEdge) -> Iterator[Callable[[], int]]:
    """Vehicles that keep sending requests; the yielded function stops them and returns the number of requests of each."""
    stopped = threading.Event()
    sent = [0]

    def send_requests() -> None:
        while not stopped.is_set():
            sent[0] += 1
            body = json.dumps({"fuel": sent[0] % 7 / 10}).encode()
            requests = [edge.forwarded(TOPIC, body, source=vehicle) for vehicle in VEHICLES]
            write(edge.log, [Entry(handler_topic("difference"), one.message.source, to_record(one)) for one in requests])
            time.sleep(0.01)

    sender = threading.Thread(target=send_requests)
    sender.start()

    def end() -> int:
        stopped.set()
        sender.join()
        return sent[0]

    try:
        yield end
    finally:
        end()


def check_once(edge: FakeEdge, sent: int) -> None:
    """Assert that every vehicle has one answer to each of its requests, in order, and that commits are counted without a gap."""
    wait_until(lambda: edge.answer_count() >= sent * len(VEHICLES), "all answers")
    wait_until(lambda: len(edge.answers()) >= sent * len(VEHICLES), "all answers")
    commits: dict[str, list[int]] = defaultdict(list)
    for answer, key in edge.answers_by_key():
        assert answer.message.topic == f"{TOPIC}/accept"
        commits[key].append(json.loads(answer.message.body)["commit"])
    assert commits == {vehicle: list(range(1, sent + 1)) for vehicle in VEHICLES}


def test_a_handler_killed_at_random_moments_answers_each_request_once(edge: FakeEdge) -> None:
    rng = random.Random(7)
    with traffic(edge) as end:
        for _ in range(KILLS):
            process = edge.start(FILE)
            process.wait_logged("partition served")
            time.sleep(rng.random() * 0.3)
            process.kill()
        sent = end()
        with edge.running(FILE):
            check_once(edge, sent)


def test_two_processes_share_the_work_and_one_takes_over_all_of_it(edge: FakeEdge) -> None:
    first, second = edge.start(FILE), edge.start(FILE)
    try:
        with traffic(edge) as end:
            for process in (first, second):
                wait_until(lambda process=process: serves(process) == 2, "two partitions each")  # type: ignore[misc]
            wait_until(lambda: edge.answer_count() > 500, "some answers")
            first.kill()
            wait_until(lambda: serves(second) == 4, "all partitions")
            check_once(edge, end())
        assert second.stop() == 0
    finally:
        first.kill()
        second.kill()


def test_a_process_that_resumes_after_a_pause_does_no_harm(edge: FakeEdge) -> None:
    first = edge.start(FILE)
    first.wait_logged("partition served")
    second = edge.start(FILE)
    try:
        with traffic(edge) as end:
            wait_until(lambda: serves(second) == 2, "two partitions")
            for _ in range(2):
                with paused(first, edge):
                    wait_until(lambda: serves(second) == 4, "all partitions")
                wait_until(lambda: serves(second) == 2, "two partitions again")
            check_once(edge, end())
        assert (first.stop(), second.stop()) == (0, 0)
    finally:
        first.kill()
        second.kill()


@contextmanager
def paused(process: Process, edge: FakeEdge) -> Iterator[None]:
    """Pause a process, but not during a write: its lock would block all other writers (docs/decisions/0017)."""
    try:
        process.signal(signal.SIGSTOP)
        while edge.is_locked():
            process.signal(signal.SIGCONT)
            time.sleep(0.05)
            process.signal(signal.SIGSTOP)
        yield
    finally:
        process.signal(signal.SIGCONT)


def serves(process: Process) -> int:
    """Return the number of partitions that a process serves, by its log output."""
    logged = process.logged()
    return logged.count("partition served") - logged.count("partition released")
