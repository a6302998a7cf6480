"""Handlers that are killed, stopped and doubled: every request has one effect and one answer (D10).

The handler counts the commits of each vehicle: one that was dealt with twice would leave a gap in the numbers that the vehicle
gets, one that was lost would be missing, and a second answer would be seen.
"""

import json
import random
import signal
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from live.federation.town import wait_until
from live.handlers.fake_edge import EXAMPLES, FakeEdge, Process
from milepost.eventlog.log import Entry
from milepost.handlers.administration import write
from milepost.model.sites import publish_to
from milepost.wire.records import to_record

FILE = EXAMPLES / "difference.py"
TOPIC = "service/vehicle-info"
VEHICLES = [f"truck-{number}" for number in range(12)]
KILLS = 6


@contextmanager
def traffic(edge: FakeEdge) -> Iterator[Callable[[], int]]:
    """Vehicles that go on asking; the function ends them and tells how many requests there were of each."""
    over = threading.Event()
    asked = [0]

    def ask() -> None:
        while not over.is_set():
            asked[0] += 1
            body = json.dumps({"fuel": asked[0] % 7 / 10}).encode()
            said = [edge.said(TOPIC, body, source=vehicle) for vehicle in VEHICLES]
            write(edge.log, [Entry(publish_to("difference"), one.message.source, to_record(one)) for one in said])
            time.sleep(0.01)

    asking = threading.Thread(target=ask)
    asking.start()

    def end() -> int:
        over.set()
        asking.join()
        return asked[0]

    try:
        yield end
    finally:
        end()


def check_once(edge: FakeEdge, asked: int) -> None:
    """Every vehicle has an answer to each of its requests, in their order, and the commits are counted without a gap."""
    wait_until(lambda: edge.answered() >= asked * len(VEHICLES), "all answers")
    wait_until(lambda: len(edge.answers()) >= asked * len(VEHICLES), "all answers")
    commits: dict[str, list[int]] = defaultdict(list)
    for answer, key in edge.answers_by_key():
        assert answer.message.topic == f"{TOPIC}/accept"
        commits[key].append(json.loads(answer.message.body)["commit"])
    assert commits == {vehicle: list(range(1, asked + 1)) for vehicle in VEHICLES}


def test_a_handler_killed_at_random_moments_answers_each_request_once(edge: FakeEdge) -> None:
    rng = random.Random(7)
    with traffic(edge) as end:
        for _ in range(KILLS):
            process = edge.start(FILE)
            process.wait_said("partition served")
            time.sleep(rng.random() * 0.3)
            process.kill()
        asked = end()
        with edge.running(FILE):
            check_once(edge, asked)


def test_two_processes_share_the_work_and_one_takes_over_all_of_it(edge: FakeEdge) -> None:
    first, second = edge.start(FILE), edge.start(FILE)
    try:
        with traffic(edge) as end:
            for process in (first, second):
                wait_until(lambda process=process: serves(process) == 2, "two partitions each")  # type: ignore[misc]
            wait_until(lambda: edge.answered() > 500, "some answers")
            first.kill()
            wait_until(lambda: serves(second) == 4, "all partitions")
            check_once(edge, end())
        assert second.stop() == 0
    finally:
        first.kill()
        second.kill()


def test_a_process_that_was_stopped_for_a_while_does_no_harm_when_it_goes_on(edge: FakeEdge) -> None:
    first = edge.start(FILE)
    first.wait_said("partition served")
    second = edge.start(FILE)
    try:
        with traffic(edge) as end:
            wait_until(lambda: serves(second) == 2, "two partitions")
            for _ in range(2):
                with stopped(first, edge):
                    wait_until(lambda: serves(second) == 4, "all partitions")
                wait_until(lambda: serves(second) == 2, "two partitions again")
            check_once(edge, end())
        assert (first.stop(), second.stop()) == (0, 0)
    finally:
        first.kill()
        second.kill()


@contextmanager
def stopped(process: Process, edge: FakeEdge) -> Iterator[None]:
    """Stops a process, but not in the middle of a write: nobody else could write for as long (docs/decisions/0017)."""
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
    """How many partitions a process has at the moment, by what it logs."""
    said = process.said()
    return said.count("partition served") - said.count("partition left")
