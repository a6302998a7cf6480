"""A stranger warns drivers: forged, altered, replayed and unsigned alerts against clients that trust a certificate authority."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from live.attacks.hostile_edge import hostile_edge
from live.client.deadline import run
from live.federation.deployment import Deployment, deployment_in, settings_table, wait_until
from live.mqtt.brokers import OPEN_RULE
from live.mqtt.packets import Kind
from live.mqtt.raw_client import RawClient
from live.udp.edges import HERE, UdpEdge, edge_in
from live.udp.local_authority import LocalAuthority
from milepost.client import Client, Inbox, ReceivedMessage, connect
from milepost.eventlog.log import Entry
from milepost.incidents.engine import CELLS
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import endpoint_id
from milepost.model.incidents import EventKind
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.runtime.trust_files import read_certificate_file, read_key
from milepost.trust.signing import Signer
from milepost.wire.datagrams import envelope_of
from milepost.wire.incidents import cell_key, cell_to_json
from milepost.wire.mqtt import Code, Properties, Publish, Version, encode
from milepost.wire.user_properties import SIGNED, signed_property
from parts import ROOT
from unit.incidents.events import HOME, Event, cells_of

KIND: Final = EventKind("Collision", "Collision", "weight >= 3 and reports >= 5", "Alert/Collision", interval_s=1.0, slots=3)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> LocalAuthority:
    return LocalAuthority.open(tmp_path_factory.mktemp("attacked-authority"))


@pytest.fixture(scope="module")
def edge(tmp_path_factory: pytest.TempPathFactory, authority: LocalAuthority) -> Iterator[UdpEdge]:
    """An edge whose rules let everybody publish alerts."""
    one = edge_in(tmp_path_factory.mktemp("attacked-edge"), authority, more=OPEN_RULE)
    one.start()
    yield one
    one.end()
    assert one.faults() == []


async def alerts_until(inbox: Inbox, topic: str) -> list[ReceivedMessage]:
    """Return the messages that arrive before one on *topic*."""
    found: list[ReceivedMessage] = []
    while (message := await inbox.receive()).topic != topic:
        found.append(message)
    return found


async def forge(edge: UdpEdge, victim: Client, name: str) -> list[ReceivedMessage]:
    """Have a stranger publish an alert, then a message on *name*; return what the victim received before the latter."""
    async with (
        victim,
        victim.messages() as inbox,
        victim.subscribe("Alert/#"),
        victim.subscribe(name),
        edge.mqtt_client(f"{name}-stranger") as stranger,
    ):
        await stranger.publish("Alert/Closure", b"leave the road", qos=1)
        await stranger.publish(name, qos=1)
        return await alerts_until(inbox, name)


def test_a_strangers_alert_does_not_reach_a_driver_over_udp(edge: UdpEdge) -> None:
    victim = edge.client("forged-udp-driver")
    assert run(forge(edge, victim, "forged-udp")) == []
    assert victim.counters.forged == 1


def test_a_strangers_alert_does_not_reach_a_driver_over_mqtt(edge: UdpEdge, authority: LocalAuthority) -> None:
    victim = connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="forged-mqtt-driver", ca=authority.ca_file)
    assert run(forge(edge, victim, "forged-mqtt")) == []
    assert victim.counters.forged == 1
    indifferent = connect(
        f"mqtt://127.0.0.1:{edge.tcp}", client_id="forged-mqtt-driver-2", ca=authority.ca_file, signed_topics=()
    )
    (alert,) = run(forge(edge, indifferent, "forged-mqtt-2"))
    assert (alert.body, alert.is_signed) == (b"leave the road", False)


def test_the_signed_alerts_of_edges_and_operators_reach_drivers_over_both_protocols(
    edge: UdpEdge, authority: LocalAuthority
) -> None:
    # M28
    async def work() -> None:
        over_mqtt = connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id="genuine-mqtt", ca=authority.ca_file)
        over_udp = edge.client("genuine-udp")
        operator = connect(f"mqtt://127.0.0.1:{edge.tcp}", credentials=authority.operator("control-room"))
        remote = connect(f"udp://127.0.0.1:{edge.udp}", credentials=authority.operator("control-room-2"), place=HERE)
        async with (
            over_mqtt,
            over_udp,
            operator,
            remote,
            over_mqtt.messages() as first,
            over_udp.messages() as second,
            over_mqtt.subscribe("Alert/#"),
            over_udp.subscribe("Alert/#"),
        ):
            await over_mqtt.report(HERE.latitude, HERE.longitude)
            for signer in (operator, remote):
                await signer.publish("Alert/Closure", b"closed", place=HERE, valid_for_s=60, qos=1, sign=True)
                received = [await inbox.receive() for inbox in (first, second)]
                assert [(one.body, one.source, one.place) for one in received] == [(b"closed", signer.name, HERE)] * 2
                assert {one.signer for one in received} == {("operator", signer.name)}
            await over_mqtt.publish("Emergency", b"rocks", place=HERE, qos=1)
            for inbox in (first, second):
                alert = await inbox.receive()
                assert (alert.topic, alert.signer) == ("Alert", ("edge", edge.name))
                assert dict(alert.properties)["raised_by"] == "genuine-mqtt"
            assert over_mqtt.counters.forged == over_udp.counters.forged == 0

    run(work())


def signer_of(authority: LocalAuthority, name: str) -> Signer:
    keys = read_key(authority.issued / f"{name}.key")
    return Signer(keys.signing, read_certificate_file(authority.issued / f"{name}.cert"))


def message_of(source: str, number: int, *, valid_s: int = 60, reliable: bool = False) -> Message:
    now = time.time_ns()
    return Message(
        MessageId(number),
        endpoint_id(source),
        "Alert/Closure",
        Instant(now - SECOND_NS),
        address=ToArea(Circle(HERE, 500.0)),
        valid_until=Instant(now + valid_s * SECOND_NS),
        reliable=reliable,
        body=b"closed",
    )


def packet_of(message: Message) -> Publish:
    return Publish(message.topic, message.body, properties=Properties(user=signed_property(envelope_of(message))))


def test_a_hostile_edge_can_alter_and_replay_no_alert(authority: LocalAuthority) -> None:
    authority.issue_signer("hostile-room", role="operator")
    authority.issue_signer("hostile-truck", role="vehicle")
    genuine = signer_of(authority, "hostile-room").sign(message_of("hostile-room", 1))
    over = replace(message_of("hostile-room", 2), seen_at=Instant(1), valid_until=Instant(SECOND_NS))
    endless = message_of("hostile-room", 3, valid_s=90_000)
    attacks = [
        replace(genuine, body=b"all clear"),
        replace(genuine, topic="Alert/Ice"),
        replace(genuine, address=ToArea(Circle(HERE, 50_000.0))),
        replace(genuine, valid_until=Instant(genuine.valid_until + 3_600 * SECOND_NS)),
        replace(genuine, id=MessageId(9)),
        replace(genuine, source=endpoint_id("truck-1")),
        signer_of(authority, "hostile-room").sign(over),
        signer_of(authority, "hostile-room").sign(endless),
        signer_of(authority, "hostile-truck").sign(message_of("hostile-truck", 4)),
    ]
    unsigned = [
        Publish("Alert/Closure", b"unsigned"),
        Publish("Alert/Closure", b"x", properties=Properties(user=((SIGNED, "!"),))),
    ]
    last = Publish("last", b"")
    packets = [*map(packet_of, attacks), *unsigned, packet_of(genuine), packet_of(genuine), last]

    async def work() -> None:
        async with hostile_edge(packets) as url:
            victim = connect(url, client_id="driver", ca=authority.ca_file)
            async with victim, victim.messages() as inbox, victim.subscribe("#"):
                (alert,) = await alerts_until(inbox, "last")
                assert (alert.body, alert.signer, alert.message) == (b"closed", ("operator", "hostile-room"), genuine)
                assert victim.counters.forged == len(attacks) + len(unsigned)

    run(work())


def test_an_edge_refuses_forged_signatures_of_its_clients(edge: UdpEdge, authority: LocalAuthority) -> None:
    authority.issue_signer("honest-room", role="operator")
    authority.issue_signer("signing-truck", role="vehicle")
    genuine = signer_of(authority, "honest-room").sign(message_of("honest-room", 1, reliable=True))
    foreign = signer_of(authority, "signing-truck").sign(message_of("signing-truck", 1, reliable=True))
    attempts = [
        ("honest-room", replace(genuine, body=b"all clear"), "SIGNATURE_INVALID"),
        ("somebody", genuine, "SOURCE_FORGED"),
        ("signing-truck", foreign, "CERTIFICATE_ROLE"),
        ("honest-room", genuine, ""),
    ]
    for name, message, reason in attempts:
        before = edge.refused(reason)
        with RawClient(edge.tcp) as client:
            client.join(name)
            client.send(encode(replace(packet_of(message), qos=1, packet_id=1), Version.V5))
            is_refused = (client.take(Kind.PUBACK).reason or 0) >= Code.UNSPECIFIED_ERROR
        assert is_refused is bool(reason)
        assert edge.refused(reason) == before + is_refused


@contextmanager
def incident_engine(deployment: Deployment, authority: LocalAuthority, *, is_signed: bool) -> Iterator[None]:
    """Run the incident engine of north, with or without its certificate."""
    files = f'certificate = "{authority.issued}/incidents.cert"\nkey = "{authority.issued}/incidents.key"\n' if is_signed else ""
    kind = 'name = "Collision"\ntopic = "Collision"\nalert = "Alert/Collision"\npredicate = "weight >= 3 and reports >= 5"\n'
    tables = [f"[site]\n{settings_table(deployment.sites['north'])}", f'[trust]\nca = "{authority.ca_file}"']
    tables += [f"[incidents]\nallowed_lateness_s = 0.2\n{files}", f"[[incidents.kinds]]\n{kind}interval_s = 1.0\nslots = 3\n"]
    path, log = deployment.folder / f"engine-{is_signed}.toml", deployment.folder / f"engine-{is_signed}.log"
    path.write_text("\n".join(tables))
    with log.open("ab") as out:
        command = [sys.executable, "-m", "milepost", "incidents", "run", "--config", str(path)]
        process = subprocess.Popen(command, cwd=ROOT, stdout=out, stderr=out)
    try:
        wait_until(lambda: "incidents active" in log.read_text(), "the incident engine is active")
        yield
    finally:
        process.kill()
        process.wait()


async def report_until(deployment: Deployment, is_done: "asyncio.Future[Any]") -> None:
    """Append the cells of a collision until an alert has arrived."""
    while not is_done.done():
        found = [Event(f"car-{number}", HOME, Instant(time.time_ns())) for number in range(5)]
        deployment.log("north").append([Entry(CELLS, cell_key(cell), cell_to_json(cell)) for cell in cells_of(KIND, found)])
        await asyncio.wait({is_done}, timeout=0.5)


@pytest.mark.parametrize("is_signed", [False, True])
def test_alerts_of_the_incident_engine_reach_drivers_only_with_its_signature(
    tmp_path: Path, authority: LocalAuthority, is_signed: bool
) -> None:
    authority.issue_signer("incidents", role="service")
    authority.issue_edge("n1")

    async def work(deployment: Deployment, edge: UdpEdge) -> None:
        driver = connect(f"mqtt://127.0.0.1:{edge.tcp}", client_id=f"driver-{is_signed}", ca=authority.ca_file)
        async with driver, driver.messages() as inbox:
            await driver.report(HOME.latitude, HOME.longitude)
            if is_signed:
                arrival = asyncio.ensure_future(inbox.receive())
                await report_until(deployment, arrival)
                alert = arrival.result()
                assert (alert.topic, alert.source) == ("Alert/Collision", "@service/incidents")
                assert alert.signer == ("service", "incidents")
            else:
                suppressed = asyncio.get_running_loop().create_future()
                driver.suppression_observer = lambda one: None if suppressed.done() else suppressed.set_result(one)
                await report_until(deployment, suppressed)
                assert suppressed.result().topic == "Alert/Collision"
                assert len(inbox) == 0

    with deployment_in(tmp_path) as deployment:
        deployment.add_site("north")
        more = authority.trust_table("n1")
        edge = deployment.add_edge("north", "n1", coverage="circle 40.7608,-111.891 5000", more=more)
        with incident_engine(deployment, authority, is_signed=is_signed):
            run(work(deployment, edge))
