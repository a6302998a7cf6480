"""A client over UDP and an edge: both directions, MQTT, alerts, refusals, closing, no encryption (M4, M5, M7, M17, M18, M22)."""

import asyncio
from pathlib import Path
from threading import Thread
from time import sleep, time_ns

import pytest

from live.client.deadline import run, wait_state
from live.udp.edges import HERE, MakeUdpEdge, UdpEdge
from live.udp.local_authority import LocalAuthority
from live.udp.scripted_endpoints import edge_key_of
from milepost.client import Client, ClientState, EdgeUnreachable, RefusedByEdge, connect
from milepost.client.mqtt.session import MqttSession
from milepost.client.udp.session import UdpSession
from milepost.model import Around, Circle, EndpointId, Place, Priority, ToArea, ToEndpoint

FAR = Place(49.5, 11.6)

QUIET = Place(48.4, 11.6)
"""A position without emergencies: alerts stay active for a while, and endpoints that connect there receive them."""


def test_reports_and_messages_go_both_ways_between_udp_and_udp_and_mqtt(edge: UdpEdge, name: str) -> None:
    # M7, M17, M18
    before = edge.metrics()

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


def test_a_moving_endpoint_receives_messages_around_it(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        car, other = edge.client(f"{name}-a"), edge.mqtt_client(f"{name}-m")
        async with car, other, car.subscribe(name, area=Around(500)) as inbox:
            await car.report(HERE.latitude + 0.0008, HERE.longitude)  # within the tolerated position error
            await car.publish("elsewhere", qos=1)  # all earlier datagrams have arrived, too
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


def test_an_emergency_raises_an_alert_signed_under_the_certificate_authority(edge: UdpEdge, name: str) -> None:
    # M22
    async def work() -> None:
        witness, near, far = edge.client(f"{name}-w"), edge.client(f"{name}-n"), edge.client(f"{name}-f", place=FAR)
        async with witness, near, far, near.messages() as nears, far.messages() as fars:
            await witness.publish("Emergency", b"rocks", place=HERE, qos=1)
            alert = await nears.receive()
            assert (alert.topic, alert.is_signed, alert.priority) == ("Alert", True, Priority.EMERGENCY)
            assert near.counters.forged == 0
            await witness.publish(name, b"you", to=ToEndpoint(EndpointId(far.name)), qos=1)
            assert (await fars.receive()).body == b"you"  # and no alert before it

    run(work())


def test_a_refusal_reaches_the_application_with_its_number_and_advice(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        async with edge.client(name) as client:
            with pytest.raises(RefusedByEdge) as fault:
                await client.publish("secret/1", b"x", qos=1)
            assert (fault.value.number, fault.value.name) == (220, "NOT_ALLOWED")
            assert fault.value.advice.startswith("Use a topic that the access rules allow")
            with pytest.raises(RefusedByEdge, match="220 NOT_ALLOWED"):
                await client.subscribe("secret/#").__aenter__()
            assert (await complaint(client)).name == "MOVE_TELEPORT"  # 155 km in an instant
            await client.publish("open/1", qos=1)

    run(work())


async def complaint(client: Client) -> RefusedByEdge:
    """Return the edge's refusal of a report, which is raised by a later one."""
    while True:
        try:
            await client.report(FAR.latitude, FAR.longitude)
        except RefusedByEdge as fault:
            return fault
        await asyncio.sleep(0.05)


def test_a_certificate_of_another_authority_is_refused_and_finds_no_edge(edge: UdpEdge, name: str, tmp_path: Path) -> None:
    strangers = LocalAuthority.open(tmp_path).credentials(name)
    url = f"udp://127.0.0.1:{edge.udp}"

    async def work() -> None:
        with pytest.raises(RefusedByEdge, match="CERTIFICATE_INVALID") as fault:
            await connect(url, place=HERE, credentials=strangers, edge_key=edge_key_of(edge)).open()
        assert fault.value.advice
        with pytest.raises(EdgeUnreachable, match="no edge certified by the certificate authority answered"):
            await connect(url, place=HERE, credentials=strangers, connect_within_s=0).open()

    run(work())


def test_a_closed_session_is_removed_at_once(edge: UdpEdge, name: str) -> None:
    # M10
    async def work() -> None:
        async with edge.client(name):
            during = edge.metrics()["milepost_udp_sessions"]
        await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_sessions"] == during - 1)

    run(work())


def test_a_second_connection_of_an_endpoint_replaces_the_first(edge: UdpEdge, name: str) -> None:
    async def work() -> None:
        first, second = (edge.client(name, place=QUIET) for _ in range(2))
        async with first, first.messages() as inbox, second:
            with pytest.raises(RefusedByEdge, match="SESSION_TAKEN_OVER"):
                await inbox.receive()
            await second.publish(name, qos=1)

    run(work())


def test_a_stopping_edge_closes_sessions_and_clients_wait_for_it(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge()

    async def work() -> None:
        async with edge.client(name) as client:
            changes = client.changes()
            assert await asyncio.to_thread(edge.stop) == 0
            assert (await wait_state(changes, ClientState.RECONNECTING)).reason == "the edge closed the session: stopping"
            await asyncio.to_thread(edge.start)
            await wait_state(changes, ClientState.CONNECTED)
            await client.publish(name, qos=1)

    run(work())


def test_unencrypted_mode_works_and_logs_a_warning_on_every_start(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(is_sealed=False)
    edge.kill()
    edge.start()

    async def work() -> None:
        async with edge.client(f"{name}-a") as client, edge.client(f"{name}-b") as other, other.subscribe(name) as inbox:
            await client.publish(name, b"plain", qos=1)
            received = await inbox.receive()
            assert (received.body, received.source, received.is_signed) == (b"plain", f"{name}-a", False)

    run(work())
    assert edge.log().count("udp is not encrypted: anyone can read and forge datagrams; for experiments only") == 2


@pytest.mark.parametrize(("session", "method"), [(UdpSession, "on_datagram"), (MqttSession, "on_bytes")])
def test_all_clients_of_a_process_read_before_the_first_of_them_processes(
    edge: UdpEdge, name: str, session: type, method: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Otherwise the time of receipt would include the processing of other clients' messages.
    calls: list[tuple[int, int]] = []
    process = getattr(session, method)

    def recorded(self: object, data: bytes, received_at: int) -> object:
        calls.append((received_at, time_ns()))
        return process(self, data, received_at)

    async def take(client: Client) -> None:
        async with client, client.subscribe(name, qos=1) as inbox:
            ready.release()
            await inbox.receive()

    async def publish() -> None:
        async with edge.mqtt_client(f"{name}-tower") as tower:
            await tower.publish(name, b"x", qos=1)

    async def work() -> None:
        make = edge.client if session is UdpSession else edge.mqtt_client
        takers = [asyncio.create_task(take(make(f"{name}-{number}"))) for number in range(10)]
        for _ in takers:
            await ready.acquire()
        sending = Thread(target=run, args=(publish(),))
        sending.start()
        sending.join()  # blocks the event loop, so that no client reads yet
        edge.wait(lambda now: now["milepost_messages_delivered_total"] >= before + len(takers))
        sleep(0.5)  # noqa: ASYNC251  # block on purpose, until all of them wait in the sockets
        monkeypatch.setattr(session, method, recorded)
        await asyncio.gather(*takers)

    ready = asyncio.Semaphore(0)
    before = edge.metrics()["milepost_messages_delivered_total"]
    run(work())
    received_at, processed_at = zip(*calls[:10], strict=True)
    assert max(received_at) <= min(processed_at)
