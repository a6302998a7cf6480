"""Clients cannot pass for an edge or a service, whatever their name, and whenever that edge or service joined."""

import asyncio
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest

from live.attacks.impostors import attack, field_of, next_with, now_ns, received_before
from live.federation.deployment import Deployment, deployment_in
from live.federation.test_incidents import SETTINGS, engine, report_collision
from live.mqtt.raw_client import RawClient
from live.udp.edges import UdpEdge
from milepost.client import connect
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reports import Report
from milepost.model.session_datagrams import AcknowledgeDatagram, Datagram, Init
from milepost.wire.datagrams import decode, encode
from unit.incidents.events import HOME

AREA = ToArea(Circle(HOME, 2_000.0))
COVERAGE = "circle 40.7608,-111.891 5000"
ALERTS = '[[rules.alert]]\ntopic = "Emergency"\n'
BAD_CLIENT_ID = 0x85
LOOK_ALIKES = [
    "@edge/edge-7",
    "@service/incidents",
    " @edge/edge-7",
    "\uff20edge/edge-7",  # fullwidth @
    "\ufe6bservice/incidents",  # small @
    "\u200b@edge/edge-7",  # zero-width space
    "\u202e@edge/edge-7",  # right-to-left override
    "\u3164@edge/edge-7",  # Hangul filler
]


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    with deployment_in(tmp_path) as made:
        made.add_site("north")
        yield made
        assert made.faults() == []


async def cancel_as_incidents(deployment: Deployment, edge: UdpEdge) -> None:
    async with edge.client("driver", place=HOME) as driver, driver.messages() as messages:
        alert = asyncio.ensure_future(messages.receive())
        while not alert.done():
            report_collision(deployment)
            await asyncio.wait({alert}, timeout=0.5)
        incident = field_of(await alert, "incident")
        assert incident
        await attack(edge.tcp, "incidents", "chat", b"all clear", ToNotified((incident,)))
        async with edge.client("desk", place=HOME) as desk:
            found = await received_before(driver, messages, desk, b"marker 1")
            assert b"all clear" not in [one.body for one in found]
            async with edge.client("late", place=HOME) as late, late.messages() as entering:
                warned = await received_before(late, entering, desk, b"marker 2")
                assert "Alert/Collision" in [one.topic for one in warned], "the alert is still active"


def test_a_client_with_the_name_of_the_incident_engine_cannot_cancel_a_live_alert(
    deployment: Deployment, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "live.federation.test_incidents.SETTINGS", SETTINGS.replace("clear_after_s = 2.0", "clear_after_s = 300.0")
    )
    edge = deployment.add_edge("north", "n1", coverage=COVERAGE)
    with engine(deployment, "engine"):
        asyncio.run(cancel_as_incidents(deployment, edge))


async def alert_as_edge(deployment: Deployment, edge: UdpEdge) -> None:
    async with connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="edge-7"):  # before the edge of that name exists
        later = deployment.add_edge("north", "edge-7", coverage=COVERAGE, more=ALERTS)
    driver, witness = later.client("driver", place=HOME), later.client("witness", place=HOME)
    async with driver, witness, driver.messages() as messages:
        await witness.publish("Emergency", b"genuine", qos=1)
        genuine = await next_with(messages, b"genuine")
        assert genuine.id is not None
        for port in (edge.tcp, later.tcp):
            await attack(port, "edge-7", "Alert", b"forged", AREA)
            await attack(port, "edge-7", "chat", b"forged", ToNotified((str(genuine.id),)))
        found = await received_before(driver, messages, witness, b"marker")
    assert [one.topic for one in found if one.body == b"forged" and one.source == genuine.source] == []
    assert "chat" not in [one.topic for one in found], "it was sent to those notified of the alert"


def test_a_client_with_the_name_of_an_edge_neither_alerts_nor_cancels_as_that_edge(deployment: Deployment) -> None:
    edge = deployment.add_edge("north", "n1", coverage=COVERAGE)
    asyncio.run(alert_as_edge(deployment, edge))


def test_no_client_id_over_mqtt_looks_like_an_edge_or_a_service(deployment: Deployment) -> None:
    edge = deployment.add_edge("north", "edge-7", coverage=COVERAGE)
    for name in LOOK_ALIKES:
        with RawClient(edge.tcp) as impostor:
            assert impostor.try_join(name).reason == BAD_CLIENT_ID, name


def test_no_endpoint_over_udp_looks_like_an_edge_or_a_service(deployment: Deployment) -> None:
    edge = deployment.add_edge("north", "edge-7", coverage=COVERAGE)
    for name in [*LOOK_ALIKES, "edge-7"]:
        written, placeholder = name.encode(), b"x" * len(name.encode())
        report = Report(EndpointId(placeholder.decode()), HOME, Instant(now_ns()))
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as out:
            out.settimeout(1.0 if name in LOOK_ALIKES else 20.0)
            out.sendto(encode(Init(report)).replace(placeholder, written), ("127.0.0.1", edge.udp))
            try:
                answer: Datagram | None = decode(out.recv(2_000))
            except TimeoutError:
                answer = None
        assert isinstance(answer, AcknowledgeDatagram) is (name not in LOOK_ALIKES), name
