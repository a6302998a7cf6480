"""Processes of the central hub between two sites: messages arrive once, whichever process is killed (M30, D15)."""

import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from live.federation.deployment import Deployment, HubProcess, ask, deployment_in, wait_until
from live.mqtt.brokers import Setup
from milepost.eventlog.log import Entry
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import parse_query
from milepost.model.site_records import CROSS_HUB, SUBSCRIPTION_INFO, EdgeRef, ForwardedMessage, Interest, interest_key
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record, to_record

NORTH, SOUTH = EdgeRef("north", "n1"), EdgeRef("south", "s1")
TAKEOVER_S: Final = 8.0
"""The lease of a dead process, and room for a busy machine; the goal is 5 s."""


class Sites:
    """Two sites without edges; the test appends the records of edges."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.numbers: list[int] = []
        for name in ("north", "south"):
            deployment.add_site(name)
        key = interest_key(SOUTH, "car", "x")
        wanted = Interest(SOUTH, Subscription(EndpointId("car"), parse_query("topic:x/#")))
        deployment.log("south").append([Entry(SUBSCRIPTION_INFO, key, to_record(wanted))])

    def publish(self, count: int) -> None:
        """Append messages of an edge of north."""
        entries = []
        for _ in range(count):
            now = time.time_ns()
            self.numbers.append(max(now, self.numbers[-1] + 1 if self.numbers else 0))
            message = Message(MessageId(1), EndpointId("bus"), "x/1", Instant(now))
            entries.append(Entry(CROSS_HUB, "", to_record(ForwardedMessage(NORTH, self.numbers[-1], message))))
        self.deployment.log("north").append(entries)

    def received_numbers(self) -> list[int]:
        """Return the numbers of the messages at south, with duplicates."""
        log = self.deployment.log("south")
        first, end = log.ends(CROSS_HUB)
        values = [from_record(record.value or b"") for record in log.read(CROSS_HUB, first, end - first)]
        return [one.number for one in values if isinstance(one, ForwardedMessage)]

    def wait_all(self, within_s: float = TAKEOVER_S) -> None:
        wait_until(lambda: len(set(self.received_numbers())) == len(self.numbers), "all messages are at south", within_s=within_s)

    def hub(self, name: str) -> HubProcess:
        """Return a process of the hub, not started."""
        folder = self.deployment.folder / name
        return HubProcess(Setup(folder), sites=tuple(self.deployment.sites.values()))


@pytest.fixture
def sites(tmp_path: Path) -> Iterator[Sites]:
    with deployment_in(tmp_path) as deployment:
        yield Sites(deployment)


@pytest.fixture
def first(sites: Sites) -> Iterator[HubProcess]:
    process = sites.hub("first")
    process.start()
    yield process
    process.end()


def owned(process: HubProcess) -> set[str]:
    page = ask(process.http, "/metrics")
    return {site for site in ("north", "south") if f'milepost_hub_owned{{site="{site}"}} 1' in page}


def test_messages_reach_sites_with_subscriptions_in_order_and_once(sites: Sites, first: HubProcess) -> None:
    sites.publish(1_000)
    sites.wait_all()
    assert sites.received_numbers() == sites.numbers
    assert first.metric("milepost_hub_forwarded_total") == 1_000
    wait_until(lambda: ask(first.http, "/ready") == "ready\n", "ready")


def test_a_hub_that_is_killed_and_restarted_loses_and_duplicates_nothing(sites: Sites, first: HubProcess) -> None:
    for _ in range(3):
        sites.publish(2_000)
        wait_until(lambda: len(sites.received_numbers()) > len(sites.numbers) - 1_900, "copying has begun")
        first.kill()
        sites.publish(100)
        first.start()
    sites.wait_all()
    assert sites.received_numbers() == sites.numbers


def test_another_hub_process_takes_over_from_a_killed_one(sites: Sites, first: HubProcess) -> None:
    # M30, D15
    second = sites.hub("second")
    second.launch()
    try:
        wait_until(lambda: ask(second.http, "/ready") == "ready\n", "the second is ready")
        wait_until(lambda: owned(first) | owned(second) == {"north", "south"}, "both sites are owned")
        busy, other = (first, second) if "north" in owned(first) else (second, first)
        sites.publish(1_000)
        sites.wait_all()
        busy.kill()
        sites.publish(1_000)
        sites.wait_all()
        assert sites.received_numbers() == sites.numbers
        wait_until(lambda: owned(other) == {"north", "south"}, "it owns both sites")
    finally:
        second.end()


def test_a_stopped_hub_finishes_its_appends_and_releases_its_sites(sites: Sites, first: HubProcess) -> None:
    sites.publish(1_000)
    assert first.process is not None
    first.process.send_signal(signal.SIGTERM)
    assert first.process.wait(10) == 0
    assert "hub stopped" in first.log()
    first.start()
    sites.wait_all()
    assert sites.received_numbers() == sites.numbers
