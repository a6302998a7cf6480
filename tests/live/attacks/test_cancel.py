"""An alert is cancelled and replaced by its origin only: at its edge, at another edge, by records of the log, and on the map."""

import asyncio
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import quote

import orjson
import pytest

from live.attacks.impostors import attack, next_with, now_ns, received_before
from live.dashboard.maps import map_of
from live.federation.deployment import Deployment, ask, deployment_in, wait_until
from live.udp.edges import UdpEdge
from milepost.eventlog.log import Entry
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.pipeline_records import PIPELINES
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, handler_topic
from milepost.wire.records import to_record
from unit.incidents.events import HOME

COVERAGE = "circle 40.7608,-111.891 5000"
ALERTS = '[[rules.alert]]\ntopic = "Emergency"\n'
INCIDENT = "I-1"


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployment_in(tmp_path) as made:
        made.add_site("north")
        yield made
        assert made.faults() == []


def record(sender: str, source: str, number: int, body: bytes, *, cancels: bool) -> bytes:
    """Return the record of an alert or of its cancellation, in the name of any source."""
    address = ToNotified((INCIDENT,)) if cancels else ToArea(Circle(HOME, 2_000.0), INCIDENT)
    now, until = Instant(now_ns()), Instant(now_ns() + 60_000_000_000)
    message = Message(
        MessageId(number), EndpointId("x" * len(source)), "Alert/Ice", now, address=address, valid_until=until, body=body
    )
    value = to_record(ForwardedMessage(EdgeRef("north", "n9"), now, message, qos=1))
    return value.replace(b'"north/n9"', b'"north/%b"' % sender.encode()).replace(b"x" * len(source), source.encode())


def append(deployment: Deployment, *values: bytes) -> None:
    """Append records for the edges and the map of the site."""
    for value in values:
        entries = [Entry(CROSS_HUB, "", value), Entry(handler_topic(PIPELINES), "", value)]
        deployment.log("north").append(entries)


async def cancel_as_others(deployment: Deployment, here: UdpEdge, there: UdpEdge) -> None:
    async with here.client("driver", place=HOME) as driver, driver.messages() as messages:
        append(deployment, record("@incidents", "@service/incidents", 1, b"ice", cancels=False))
        assert (await next_with(messages, b"ice")).source == "@service/incidents"
        for edge in (here, there):
            for name in ("mallory", "incidents", "n1", "n2"):
                await attack(edge.tcp, name, "Alert/Ice", b"forged", ToNotified((INCIDENT,)))
        append(
            deployment,
            record("n2", "@service/incidents", 2, b"forged", cancels=True),
            record("n2", "@service/incidents", 3, b"forged", cancels=False),
            record("@parking", "@service/incidents", 4, b"forged", cancels=True),
            record("n2", "@edge/n1", 5, b"forged", cancels=True),
        )
        async with here.client("desk", place=HOME) as desk:
            found = await received_before(driver, messages, desk, b"marker 1")
            assert b"forged" not in [one.body for one in found]
            async with here.client("late", place=HOME) as late, late.messages() as entering:
                assert b"ice" in [one.body for one in await received_before(late, entering, desk, b"marker 2")]
        append(deployment, record("@incidents", "@service/incidents", 6, b"over", cancels=True))
        assert (await next_with(messages, b"over", b"forged")).body == b"over"


def test_no_other_endpoint_edge_or_service_cancels_an_alert_of_the_incident_engine(deployment: Deployment) -> None:
    here = deployment.add_edge("north", "n1", coverage=COVERAGE)
    there = deployment.add_edge("north", "n2", coverage=COVERAGE)
    asyncio.run(cancel_as_others(deployment, here, there))
    events = here.metrics()
    assert events['milepost_site_events_total{event="unreadable"}'] == 4, "the forged records"
    assert "record of the site refused" in here.log()


async def cancel_alert_of_edge(deployment: Deployment, edge: UdpEdge, other: UdpEdge) -> None:
    driver, witness = edge.client("driver", place=HOME), edge.client("witness", place=HOME)
    async with driver, witness, driver.messages() as messages:
        await witness.publish("Emergency", b"genuine", qos=1)
        alert = await next_with(messages, b"genuine")
        for port in (edge.tcp, other.tcp):
            for name in ("n1", "n2", "witness-2"):
                await attack(port, name, "chat", b"forged", ToNotified((str(alert.id),)))
        found = await received_before(driver, messages, witness, b"marker 1")
        assert b"forged" not in [one.body for one in found]
        async with edge.client("late", place=HOME) as late, late.messages() as entering:
            assert b"genuine" in [one.body for one in await received_before(late, entering, witness, b"marker 2")]


def test_no_client_cancels_the_alert_of_an_edge(deployment: Deployment) -> None:
    edge = deployment.add_edge("north", "n1", coverage=COVERAGE, more=ALERTS)
    other = deployment.add_edge("north", "n2", coverage=COVERAGE)
    asyncio.run(cancel_alert_of_edge(deployment, edge, other))


def test_a_cancellation_by_another_source_leaves_the_alert_on_the_map(deployment: Deployment) -> None:
    def state(port: int, source: str, number: int) -> str:
        found = ask(port, f"/alerts/{quote(f'{source}:{number}', safe='')}")
        return str(orjson.loads(found)["alert"]["state"]) if found else ""

    deployment.add_edge("north", "n1", coverage=COVERAGE)
    with map_of(deployment) as shown:
        append(deployment, record("@incidents", "@service/incidents", 1, b"ice", cancels=False))
        wait_until(lambda: state(shown.port, "@service/incidents", 1) == "active", "the map shows the alert")
        append(
            deployment,
            record("n2", "mallory", 2, b"", cancels=True),
            record("n2", "@edge/n2", 3, b"", cancels=True),
            record("n2", "@edge/n1", 4, b"", cancels=True),
            record("n2", "@service/incidents", 5, b"", cancels=True),
            record("n2", "mallory", 6, b"last", cancels=False),
        )
        wait_until(lambda: state(shown.port, "mallory", 6) == "active", "the map has read all records")
        assert state(shown.port, "@service/incidents", 1) == "active"
        append(deployment, record("@incidents", "@service/incidents", 7, b"", cancels=True))
        wait_until(lambda: state(shown.port, "@service/incidents", 1) == "cleared", "the origin clears its alert")
