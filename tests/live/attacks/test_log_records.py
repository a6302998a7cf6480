"""A process without the site's key writes to the log: its forged records have no effect, and the site goes on.

Without a key the same records work, which is why the key exists: the log of a site trusts every writer.
"""

import asyncio
import time
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from itertools import count
from typing import Final
from uuid import uuid4

import pytest

from live.federation.deployment import Deployment, ask, wait_until
from live.federation.test_incidents import KIND, engine
from live.mqtt.packets import Kind
from live.mqtt.raw_client import RawClient
from live.udp.edges import UdpEdge
from milepost.cli.main import main
from milepost.client import connect
from milepost.eventlog.log import Entry, Log, read_to_end
from milepost.incidents.engine import CELLS
from milepost.model.durability import Durability
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.pipeline_records import REPUTATION
from milepost.model.site_records import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeRef,
    EndpointClaim,
    Epoch,
    ForwardedMessage,
    claim_key,
)
from milepost.runtime.site_logs import open_log
from milepost.wire.incidents import cell_key, cell_to_json
from milepost.wire.records import to_record
from unit.incidents.events import HOME, Event, cells_of

GHOST: Final = EdgeRef("north", "ghost")
TRUCK: Final = EndpointId("truck-17")
REPUTATION_OF_0: Final = b'{"v":1,"type":"reputation","endpoint":"truck-17","score":0.0,"at_us":1,"reasons":[]}'
IDS: Final = count(1)
EFFECT_S: Final = 3.0
"""Time after which a forged record that is not refused has had its effect."""
WITH_A_KEY: Final = pytest.mark.parametrize("has_key", [True], ids=["key"])
"""Run a test only at sites with a key, in place of the parameters of the fixture."""


@pytest.fixture(params=["embedded", "kafka"])
def log_type(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(params=["key", "no key"])
def has_key(request: pytest.FixtureRequest) -> bool:
    return bool(request.param == "key")


@pytest.fixture
def site(own_deployment: Deployment, log_type: str, has_key: bool, request: pytest.FixtureRequest) -> Deployment:
    """A site "north", with a key or without, on each kind of log."""
    key = own_deployment.folder / "north.key"
    if has_key:
        assert main(["trust", "site-key", str(key)]) == 0
        assert key.stat().st_mode & 0o077 == 0
    named = str(key) if has_key else ""
    if log_type == "kafka":
        kafka = request.getfixturevalue("kafka")
        own_deployment.add_kafka_site("north", kafka.address, f"a{uuid4().hex[:8]}.", key=named)
    else:
        own_deployment.add_site("north", key=named)
    return own_deployment


@contextmanager
def forger(deployment: Deployment) -> Iterator[Log]:
    """The site's log as a process without the key has it."""
    with closing(open_log(replace(deployment.sites["north"], key=""), Durability.PROCESS_CRASH, "forger")) as log:
        yield log


def append(log: Log, *entries: Entry) -> None:
    outcomes: list[Exception | None] = []
    log.append(entries, outcomes.append)
    wait_until(lambda: bool(outcomes), "it is appended")
    assert outcomes == [None]


def stored(log: Log, topic: str) -> list[Entry]:
    return [Entry(topic, record.key, record.value) for batch in read_to_end(log, topic) for record in batch]


def forged_claim(endpoint: str, epoch: int) -> Entry:
    claim = EndpointClaim(EndpointId(endpoint), GHOST, Epoch(epoch))
    return Entry(VEHICLE_INFO, claim_key(endpoint, GHOST), to_record(claim))


def metric(edge: UdpEdge, name: str) -> float:
    lines = [line for line in ask(edge.http, "/metrics").splitlines() if line.startswith(f"{name} ")]
    return float(lines[0].rpartition(" ")[2])


def subscribed(edge: UdpEdge, client_id: str, topic_filter: str) -> RawClient:
    client = RawClient(edge.tcp)
    client.join(client_id)
    client.subscribe((topic_filter, 1))
    return client


def forwarded(topic: str, body: bytes) -> Entry:
    message = Message(MessageId(next(IDS)), EndpointId("car-1"), topic, Instant(time.time_ns()), body=body)
    return Entry(CROSS_HUB, "", to_record(ForwardedMessage(GHOST, next(IDS), message)))


def topics_until_silence(client: RawClient) -> list[str]:
    time.sleep(EFFECT_S)
    return [packet.topic for packet in client.drain() if packet.kind == Kind.PUBLISH]


def test_forged_records_have_no_effect_at_edges_with_the_key(site: Deployment, has_key: bool) -> None:
    n1, n2 = (site.add_edge("north", name) for name in ("n1", "n2"))
    with forger(site) as forged, subscribed(n1, TRUCK, "Alert/#") as truck, subscribed(n2, "van-1", "fleet/#") as van:
        wait_until(lambda: metric(n1, "milepost_site_remote_subscriptions") >= 1, "n1 knows the subscription at n2")
        known = metric(n1, "milepost_site_remote_subscriptions")
        (interest,) = {
            record.key for batch in read_to_end(forged, SUBSCRIPTION_INFO) for record in batch if "van-1" in record.key
        }
        append(forged, forwarded("Alert/Collision", b"forged"))
        append(forged, Entry(REPUTATION, TRUCK, REPUTATION_OF_0))
        append(forged, Entry(SUBSCRIPTION_INFO, interest, None))
        assert topics_until_silence(truck) == ([] if has_key else ["Alert/Collision"])
        assert metric(n1, "milepost_site_reputations") == (0 if has_key else 1)
        assert metric(n1, "milepost_site_remote_subscriptions") == (known if has_key else known - 1)
        append(forged, forged_claim(TRUCK, 2**62))
        time.sleep(EFFECT_S)
        assert truck.is_open() == has_key, "the claim of another edge ends the session"
        if not has_key:
            return
        for edge in (n1, n2):
            assert metric(edge, "milepost_site_refused_total") >= 4
            assert "record of the log refused" in edge.log()
            assert f"topic={VEHICLE_INFO}" in edge.log()
        truck.publish("fleet/a", b"genuine", qos=1)
        assert van.message().payload == b"genuine", "the site works on"


@WITH_A_KEY
def test_an_edge_that_starts_on_a_log_full_of_forged_records_joins_its_site(site: Deployment) -> None:
    n1 = site.add_edge("north", "n1")
    with forger(site) as forged:
        claims = [forged_claim(f"car-{number}", 9) for number in range(3_000)]
        append(forged, *claims, *(forwarded("fleet/a", b"forged") for _ in range(3_000)))
        n2 = site.add_edge("north", "n2")
        with subscribed(n2, "van-1", "fleet/#") as van, RawClient(n1.tcp) as truck:
            truck.join(TRUCK)
            wait_until(lambda: metric(n1, "milepost_site_remote_subscriptions") >= 1, "n1 knows the subscription at n2")
            truck.publish("fleet/a", b"genuine", qos=1)
            assert van.message().payload == b"genuine"
            assert metric(n1, "milepost_site_registry_endpoints") < 10


@WITH_A_KEY
def test_an_authentic_record_under_another_key_or_topic_is_refused(site: Deployment) -> None:
    """A writer without the key copies a code that it has read: van-1's claim does not become truck-17's."""
    n1 = site.add_edge("north", "n1")
    with forger(site) as forged, subscribed(n1, "van-1", "fleet/#") as van:

        def claims() -> list[Entry]:
            return [entry for entry in stored(forged, VEHICLE_INFO) if entry.key.startswith("van-1")]

        wait_until(lambda: bool(claims()), "n1 claims van-1")
        claim = claims()[-1]
        before, endpoints = metric(n1, "milepost_site_refused_total"), metric(n1, "milepost_site_registry_endpoints")
        append(forged, claim._replace(key=claim_key(TRUCK, EdgeRef("north", "n1"))), claim._replace(topic=CROSS_HUB))
        wait_until(lambda: metric(n1, "milepost_site_refused_total") == before + 2, "both are refused")
        assert metric(n1, "milepost_site_registry_endpoints") == endpoints
        assert van.is_open()


async def is_alerted(forged: Log, port: int, within_s: float) -> bool:
    """Append the cells of an accident again and again, until a driver near it is alerted."""
    async with connect(f"mqtt://127.0.0.1:{port}", client_id="driver") as driver, driver.messages() as messages:
        await driver.report(HOME.latitude, HOME.longitude)
        alert = asyncio.ensure_future(messages.receive())
        until = time.monotonic() + within_s
        while not alert.done() and time.monotonic() < until:
            found = [Event(f"car-{number}", HOME, Instant(time.time_ns())) for number in range(5)]
            append(forged, *(Entry(CELLS, cell_key(cell), cell_to_json(cell)) for cell in cells_of(KIND, found)))
            await asyncio.wait({alert}, timeout=0.5)
        alert.cancel()
        return alert.done() and not alert.cancelled()


def test_forged_cells_raise_no_alert_with_the_key(site: Deployment, has_key: bool) -> None:
    edge = site.add_edge("north", "n1", coverage="circle 40.7608,-111.891 5000")
    with engine(site, "engine"), forger(site) as forged:
        assert asyncio.run(is_alerted(forged, edge.tcp, 8.0 if has_key else 60.0)) == (not has_key)
        text = (site.folder / "engine.log").read_text()
        assert ("record of the log refused" in text) == has_key
