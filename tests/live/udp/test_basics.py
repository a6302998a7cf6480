"""A client over UDP and an edge: both ways, with MQTT too, alerts, refusals, goodbyes; plain mode (M4, M5, M7, M17, M18, M22)."""

import asyncio
from pathlib import Path

import pytest

from live.client.running import run, wait_state
from live.udp.edges import HERE, MakeUdpEdge, UdpEdge
from live.udp.offices import Office
from live.udp.talkers import edge_key_of
from milepost.client import Edge, EdgeUnreachable, RefusedByEdge, State, connect
from milepost.model import Around, Circle, EndpointId, Place, Priority, ToArea, ToEndpoint

FAR = Place(49.5, 11.6)

QUIET = Place(48.4, 11.6)
"""Where no emergency is reported: alerts stand for a while, and who comes is told."""


def test_reports_and_messages_go_both_ways_between_udp_and_udp_and_mqtt(edge: UdpEdge, name: str) -> None:
    # M7, M17, M18
    before = edge.figures()

    async def work() -> None:
        udp, other, mqtt = edge.client(f"{name}-a"), edge.client(f"{name}-b"), edge.mqtt_client(f"{name}-m")
        async with udp, other, mqtt:
            everybody = (udp, other, mqtt)
            inboxes = [one.subscribe(f"{name}/#", query="ice") for one in everybody]
            async with inboxes[0], inboxes[1], inboxes[2]:
                for sender in everybody:
                    await sender.publish(f"{name}/1", sender.name, tags=["ice"], place=HERE, qos=1)
                    await sender.publish(f"{name}/1", b"not asked for", tags=["snow"], qos=1)
                for inbox in inboxes:
                    found = [await inbox.receive() for _ in everybody]
                    assert [one.body.decode() for one in found] == [one.name for one in everybody]
                    assert {(one.topic, one.place, one.tags) for one in found} == {(f"{name}/1", HERE, frozenset({"ice"}))}
                    assert len(inbox) == 0
            await udp.report(HERE.latitude, HERE.longitude, heading_deg=90.0, speed_mps=3.0)

    run(work())
    edge.wait(lambda now: now["milepost_reports_total"] >= before["milepost_reports_total"] + 3)


def test_who_moves_hears_what_is_around_it(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        car, other = edge.client(f"{name}-a"), edge.mqtt_client(f"{name}-m")
        async with car, other, car.subscribe(name, area=Around(500)) as inbox:
            await car.report(HERE.latitude + 0.0008, HERE.longitude)  # as far as the error of a place may be
            await car.publish("elsewhere", qos=1)  # what was said before has arrived, too
            await other.publish(name, b"far", place=Place(HERE.latitude - 0.005, HERE.longitude), qos=1)
            await other.publish(name, b"near", place=Place(HERE.latitude + 0.005, HERE.longitude), qos=1)
            assert (await inbox.receive()).body == b"near"

    run(work())


def test_a_message_to_an_endpoint_or_an_area_needs_no_subscription(edge: UdpEdge, name: str) -> None:
    # M4, M5
    async def work() -> None:
        near, far = edge.client(f"{name}-near", place=QUIET), edge.client(f"{name}-far", place=FAR)
        sender = edge.mqtt_client(f"{name}-m")
        async with near, far, sender, near.messages() as nears, far.messages() as fars:
            await sender.publish(name, b"area", to=ToArea(Circle(QUIET, 1_000)), qos=1)
            await sender.publish(name, b"you", to=ToEndpoint(EndpointId(far.name)), qos=1)
            assert (await nears.receive()).body == b"area"
            assert (await fars.receive()).body == b"you"

    run(work())


def test_an_emergency_raises_an_alert_that_the_authority_vouches_for(edge: UdpEdge, name: str) -> None:
    # M22
    async def work() -> None:
        witness, near, far = edge.client(f"{name}-w"), edge.client(f"{name}-n"), edge.client(f"{name}-f", place=FAR)
        async with witness, near, far, near.messages() as nears, far.messages() as fars:
            await witness.publish("Emergency", b"rocks", place=HERE, qos=1)
            alert = await nears.receive()
            assert (alert.topic, alert.is_signed, alert.priority) == ("Alert", True, Priority.EMERGENCY)
            assert near.counts.forged == 0
            await witness.publish(name, b"you", to=ToEndpoint(EndpointId(far.name)), qos=1)
            assert (await fars.receive()).body == b"you"  # and no alert before it

    run(work())


def test_a_refusal_reaches_the_application_with_its_number_and_advice(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        async with edge.client(name) as client:
            with pytest.raises(RefusedByEdge) as fault:
                await client.publish("secret/1", b"x", qos=1)
            assert (fault.value.number, fault.value.name) == (220, "NOT_ALLOWED")
            assert fault.value.advice.startswith("Use a topic that the access rules open")
            with pytest.raises(RefusedByEdge, match="220 NOT_ALLOWED"):
                await client.subscribe("secret/#").__aenter__()
            assert (await complaint(client)).name == "MOVE_TELEPORT"  # 155 km in an instant
            await client.publish("open/1", qos=1)

    run(work())


async def complaint(client: Edge) -> RefusedByEdge:
    """What the edge says against a report, which is told with a later one."""
    while True:
        try:
            await client.report(FAR.latitude, FAR.longitude)
        except RefusedByEdge as fault:
            return fault
        await asyncio.sleep(0.05)


def test_who_has_a_certificate_of_another_authority_is_refused_and_finds_no_edge(
    edge: UdpEdge, name: str, tmp_path: Path
) -> None:
    strangers = Office.open(tmp_path).trust(name)
    url = f"udp://127.0.0.1:{edge.udp}"

    async def work() -> None:
        with pytest.raises(RefusedByEdge, match="CERTIFICATE_INVALID") as fault:
            await connect(url, place=HERE, trust=strangers, edge_key=edge_key_of(edge)).open()
        assert fault.value.advice
        with pytest.raises(EdgeUnreachable, match="no edge that the authority vouches for answers"):
            await connect(url, place=HERE, trust=strangers, connect_within_s=0).open()

    run(work())


def test_a_closed_session_is_forgotten_at_once(edge: UdpEdge, name: str) -> None:
    # M10
    async def work() -> None:
        async with edge.client(name):
            during = edge.figures()["milepost_udp_sessions"]
        await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_sessions"] == during - 1)

    run(work())


def test_whoever_connects_again_takes_the_place_of_the_former(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        first, second = (edge.client(name, place=QUIET) for _ in range(2))
        async with first, first.messages() as inbox, second:
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await inbox.receive()
            await second.publish(name, qos=1)

    run(work())


def test_an_edge_that_stops_says_so_and_is_waited_for(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge()

    async def work() -> None:
        async with edge.client(name) as client:
            changes = client.changes()
            assert await asyncio.to_thread(edge.stop) == 0
            assert (await wait_state(changes, State.AWAY)).why == "the edge closed the session: stopping"
            await asyncio.to_thread(edge.start)
            await wait_state(changes, State.CONNECTED)
            await client.publish(name, qos=1)

    run(work())


def test_plain_mode_works_and_says_on_every_start_that_it_seals_nothing(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(is_sealed=False)
    edge.kill()
    edge.start()

    async def work() -> None:
        async with edge.client(f"{name}-a") as client, edge.client(f"{name}-b") as other, other.subscribe(name) as inbox:
            await client.publish(name, b"plain", qos=1)
            received = await inbox.receive()
            assert (received.body, received.source, received.is_signed) == (b"plain", f"{name}-a", False)

    run(work())
    assert edge.log().count("udp seals nothing: for experiments only, anybody can read and forge") == 2
