"""Processes of the centre between two sites: what is wanted arrives, once, whichever is killed (M30, D15)."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.federation.town import CentreProcess, Town, ask, town_in, wait_until
from live.mqtt.brokers import Setup
from milepost.eventlog.log import Entry
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import parse_query
from milepost.model.sites import CROSS_HUB, SUBSCRIPTION_INFO, EdgeRef, ForwardedMessage, Interest, interest_key
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record, to_record

NORTH, SOUTH = EdgeRef("north", "n1"), EdgeRef("south", "s1")
TAKE_OVER_S: Final = 8.0
"""The lease of a dead process, and room for a busy machine; the goal is 5 s."""


class Sites:
    """Two sites without edges; a test says what edges would."""

    def __init__(self, town: Town) -> None:
        self.town = town
        self.numbers: list[int] = []
        for name in ("north", "south"):
            town.add_site(name)
        key = interest_key(SOUTH, "car", "x")
        wanted = Interest(SOUTH, Subscription(EndpointId("car"), parse_query("topic:x/#")))
        town.log("south").append([Entry(SUBSCRIPTION_INFO, key, to_record(wanted))])

    def say(self, count: int) -> None:
        """So many messages at an edge of north."""
        entries = []
        for _ in range(count):
            now = time.time_ns()
            self.numbers.append(max(now, self.numbers[-1] + 1 if self.numbers else 0))
            message = Message(MessageId(1), EndpointId("bus"), "x/1", Instant(now))
            entries.append(Entry(CROSS_HUB, "", to_record(ForwardedMessage(NORTH, self.numbers[-1], message))))
        self.town.log("north").append(entries)

    def heard(self) -> list[int]:
        """The numbers that stand at south, as often as they do."""
        log = self.town.log("south")
        first, end = log.ends(CROSS_HUB)
        values = [from_record(record.value or b"") for record in log.read(CROSS_HUB, first, end - first)]
        return [one.number for one in values if isinstance(one, ForwardedMessage)]

    def wait_all(self, within_s: float = TAKE_OVER_S) -> None:
        wait_until(lambda: len(set(self.heard())) == len(self.numbers), "all is there", within_s=within_s)

    def centre(self, name: str) -> CentreProcess:
        """A process of the centre, not started."""
        folder = self.town.folder / name
        return CentreProcess(Setup(folder), sites=tuple(self.town.sites.values()))


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with town_in(tmp_path) as town:
        yield Sites(town)


@pytest.fixture
def first(sites: Sites) -> Iterator[CentreProcess]:
    process = sites.centre("first")
    process.start()
    yield process
    process.end()


def owned(process: CentreProcess) -> set[str]:
    page = ask(process.http, "/metrics")
    return {site for site in ("north", "south") if f'milepost_centre_owned{{site="{site}"}} 1' in page}


def test_what_an_edge_says_arrives_where_it_is_wanted_in_order_and_once(sites: Sites, first: CentreProcess) -> None:
    sites.say(1_000)
    sites.wait_all()
    assert sites.heard() == sites.numbers
    assert first.figure("milepost_centre_copied_total") == 1_000
    wait_until(lambda: ask(first.http, "/ready") == "ready\n", "ready")


def test_a_centre_that_is_killed_and_started_again_loses_nothing_and_doubles_nothing(sites: Sites, first: CentreProcess) -> None:
    for _ in range(3):
        sites.say(2_000)
        wait_until(lambda: len(sites.heard()) > len(sites.numbers) - 1_900, "it is under way")
        first.kill()
        sites.say(100)
        first.start()
    sites.wait_all()
    assert sites.heard() == sites.numbers


def test_the_other_process_takes_over_from_one_that_is_killed(sites: Sites, first: CentreProcess) -> None:
    # M30, D15
    second = sites.centre("second")
    second.launch()
    try:
        wait_until(lambda: ask(second.http, "/ready") == "ready\n", "the second is ready")
        wait_until(lambda: owned(first) | owned(second) == {"north", "south"}, "both sites are somebody's")
        busy, other = (first, second) if "north" in owned(first) else (second, first)
        sites.say(1_000)
        sites.wait_all()
        busy.kill()
        sites.say(1_000)
        sites.wait_all()
        assert sites.heard() == sites.numbers
        wait_until(lambda: owned(other) == {"north", "south"}, "it has both")
    finally:
        second.end()


def test_a_centre_that_is_stopped_finishes_and_hands_its_sites_on(sites: Sites, first: CentreProcess) -> None:
    sites.say(1_000)
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(10) == 0
    assert "centre stopped" in first.log()
    first.start()
    sites.wait_all()
    assert sites.heard() == sites.numbers
