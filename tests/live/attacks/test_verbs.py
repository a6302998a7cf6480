"""A stranger cannot warn drivers: rules judge the verb of a message, not only its topic. The settings are stock ones."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from live.attacks.strangers import refusal, running_edge, wait_until_trusted
from live.client.deadline import run
from live.udp.edges import HERE, UdpEdge
from milepost.client import connect
from milepost.model import Circle, EndpointId, Place, Priority, ToArea, ToEndpoint, ToEveryone
from milepost.model.places import moved

NEARBY = moved(HERE, 0.0, 50.0)
SMALL = ToArea(Circle(HERE, 500.0))
OPERATOR = '[[access.rules]]\nallow = true\naction = "send"\ntopics = "Alert/#"\nrole = "operator"\npriority = "emergency"\n'


@pytest.fixture
def edge(tmp_path: Path) -> Iterator[UdpEdge]:
    """Return an edge with stock settings."""
    with running_edge(tmp_path) as one:
        yield one


def test_an_anonymous_client_addresses_no_area_and_not_everyone(edge: UdpEdge) -> None:
    async def attack() -> None:
        async with (
            edge.client("victim", place=NEARBY) as victim,
            edge.mqtt_client("stranger") as stranger,
            victim.messages() as got,
        ):
            await stranger.report(HERE.latitude, HERE.longitude)
            for to, reason in ((SMALL, "IDENTITY_NOT_PROVEN"), (ToEveryone(), "NOT_ALLOWED")):
                assert await refusal(stranger.publish("chat", b"leave the road", to=to, valid_for_s=60, qos=1)) == reason
            area = {"type": "Point", "coordinates": [HERE.longitude, HERE.latitude], "radius_m": 500}
            request = json.dumps({"topic": "chat", "address": {"to": "area", "area": area}})
            assert await refusal(stranger.publish("$milepost/publish", request, qos=1)) == "IDENTITY_NOT_PROVEN"
            await stranger.publish("chat", b"hello", to=ToEndpoint(EndpointId("victim")), qos=1)
            assert (await got.receive()).body == b"hello", "nothing came before it"

    run(attack())


BEYOND_THE_LIMITS: tuple[tuple[str, dict[str, Any], str], ...] = (
    ("far away", {"to": ToArea(Circle(Place(40.7, -74.0), 500.0))}, "PLACE_NOT_SEEN"),
    ("too large", {"to": ToArea(Circle(HERE, 50_000.0))}, "PLACE_NOT_SEEN"),
    ("the whole Earth", {"to": ToArea(Circle(HERE, 20_000_000.0))}, "PLACE_NOT_SEEN"),
    ("emergency", {"to": SMALL, "priority": Priority.EMERGENCY}, "PRIORITY_TOO_HIGH"),
    ("safety", {"to": SMALL, "priority": Priority.SAFETY}, "PRIORITY_TOO_HIGH"),
    ("two hours", {"to": SMALL, "valid_for_s": 7_200}, "VALIDITY_TOO_LONG"),
    ("for ever", {"to": SMALL, "valid_for_s": None}, "VALIDITY_TOO_LONG"),
    ("everyone", {"to": ToEveryone()}, "NOT_ALLOWED"),
    ("urgent chat", {"priority": Priority.EMERGENCY}, "PRIORITY_TOO_HIGH"),
)
"""Messages that a vehicle may not send without a rule, and their refusals."""


def test_a_known_vehicle_warns_only_near_it_not_urgently_and_not_for_long(edge: UdpEdge) -> None:
    async def attack() -> None:
        async with edge.client("victim", place=NEARBY) as victim, edge.client("rogue") as rogue:
            await wait_until_trusted(rogue)
            found = {}
            async with victim.messages() as got:
                for what, message, _ in BEYOND_THE_LIMITS:
                    options = {"valid_for_s": 60, "qos": 1, **message}
                    found[what] = await refusal(rogue.publish("chat", b"leave the road", **options))
                assert found == {what: reason for what, _, reason in BEYOND_THE_LIMITS}
                await rogue.publish("chat", b"ice", to=SMALL, priority=Priority.TRAFFIC, valid_for_s=60, qos=1)
                received = await got.receive()
                while received.topic == "trusted":
                    received = await got.receive()
                assert received.body == b"ice", "nothing came before it"

    run(attack())


def test_nobody_publishes_on_alert_topics(edge: UdpEdge) -> None:
    async def attack() -> None:
        async with (
            edge.mqtt_client("victim") as victim,
            edge.mqtt_client("edge-7") as stranger,
            edge.client("rogue") as rogue,
            victim.subscribe("Alert/#", qos=1) as alerts,
            victim.subscribe("end", qos=1) as end,
        ):
            for attacker in (stranger, rogue):
                for topic in ("Alert", "Alert/Collision", "Alert/Collision/1"):
                    assert await refusal(attacker.publish(topic, b"leave the road", qos=1)) == "NOT_ALLOWED"
            await stranger.publish("end", qos=1)
            await end.receive()
            assert not alerts

    run(attack())


def test_an_anonymous_client_reports_no_emergency_and_a_proven_one_raises_an_alert(edge: UdpEdge) -> None:
    # M22
    # M22
    async def attack() -> None:
        async with (
            edge.client("victim", place=NEARBY) as victim,
            edge.mqtt_client("stranger") as stranger,
            victim.messages() as got,
        ):
            assert await refusal(stranger.publish("Emergency", b"false", place=HERE, qos=1)) == "IDENTITY_NOT_PROVEN"
            assert await refusal(stranger.publish("Emergency", b"false", qos=1)) == "IDENTITY_NOT_PROVEN"
            async with edge.client("witness") as witness:
                await witness.publish("Emergency", b"rocks", place=HERE, priority=Priority.EMERGENCY, qos=1)
            alert = await got.receive()
            assert (alert.topic, alert.body, alert.priority) == ("Alert", b"rocks", Priority.EMERGENCY)

    run(attack())


def test_a_rule_opens_alert_topics_to_its_role_alone(tmp_path: Path) -> None:
    async def attack(edge: UdpEdge) -> None:
        assert edge.authority is not None
        operator = connect(f"udp://127.0.0.1:{edge.udp}", credentials=edge.authority.operator("chief"), place=NEARBY)
        async with edge.client("victim", place=NEARBY) as victim, victim.messages() as got:
            async with operator as chief, edge.client("rogue") as rogue:
                urgent: dict[str, Any] = {"to": SMALL, "priority": Priority.EMERGENCY, "valid_for_s": 60, "qos": 1}
                assert await refusal(rogue.publish("Alert/Flood", b"false", **urgent)) == "NOT_ALLOWED"
                await chief.publish("Alert/Flood", b"true", sign=True, **urgent)
            assert (await got.receive()).body == b"true"

    with running_edge(tmp_path, OPERATOR) as edge:
        run(attack(edge))
