"""The agent of a vehicle (M19): programs exchange messages through it without an edge, and the edge receives each once.

mosquitto_pub, mosquitto_sub ──MQTT──▶ agent ──UDP──▶ edge ◀── other endpoints
"""

import asyncio
import json
from pathlib import Path

from live.client.deadline import run
from live.mqtt import commands
from live.udp.agents import agent_of
from live.udp.edges import HERE, MakeUdpEdge, UdpEdge
from milepost.model import Circle, EndpointId, Place, ToArea, ToEndpoint

MQTT = 5


def test_programs_exchange_messages_while_the_edge_is_unreachable_and_the_edge_receives_each_once_later(
    make_edge: MakeUdpEdge, name: str, tmp_path: Path
) -> None:
    # M19
    edge = make_edge(is_started=False)
    with (
        agent_of(edge, f"{name}-truck", tmp_path) as agent,
        commands.sub(agent.port, MQTT, "-t", f"{name}/#", "-q", "1") as subscriber,
    ):
        commands.pub(agent.port, MQTT, "-t", f"{name}/1", "-m", "without", "-q", "1")
        assert subscriber.wait_messages(1) == [f"{name}/1 1 0 without"]
        edge.start()

        async def work() -> None:
            async with edge.mqtt_client(f"{name}-far") as far, far.subscribe(f"{name}/#") as inbox:
                await asyncio.to_thread(edge.wait, lambda now: now["milepost_subscriptions"] == 3)  # one for revocations
                await asyncio.to_thread(commands.pub, agent.port, MQTT, "-t", f"{name}/2", "-m", "with", "-q", "1")
                first, second = await inbox.receive(), await inbox.receive()
                assert {first.body, second.body} == {b"without", b"with"}
                assert {first.source, second.source} == {f"{name}-truck"}
                await far.publish(f"{name}/3", b"from far", qos=1)
                assert (await asyncio.to_thread(subscriber.wait_messages, 3))[1:] == [
                    f"{name}/2 1 0 with",
                    f"{name}/3 1 0 from far",
                ]
                assert (await inbox.receive()).body == b"from far"
                assert len(inbox) == 0

        run(work())
        assert edge.metrics()["milepost_messages_accepted_total"] >= 3


def test_messages_to_the_vehicle_and_alerts_at_its_position_reach_every_program(edge: UdpEdge, name: str, tmp_path: Path) -> None:
    place = json.dumps({"place": {"latitude": HERE.latitude + 0.0004, "longitude": HERE.longitude}})
    with (
        agent_of(edge, f"{name}-truck", tmp_path) as agent,
        commands.sub(agent.port, MQTT, "-t", "nothing", "-q", "1") as subscriber,
    ):
        before = edge.metrics()["milepost_reports_total"]
        for _ in range(3):
            commands.pub(agent.port, MQTT, "-t", "$milepost/report", "-m", place)
        edge.wait(lambda now: now["milepost_reports_total"] >= before + 3)

        async def work() -> None:
            async with edge.client(f"{name}-far", place=Place(50.0, 10.0)) as far:
                await far.publish(f"{name}/you", b"you", to=ToEndpoint(EndpointId(agent.name)), qos=1)
                await far.publish(f"{name}/area", b"all there", to=ToArea(Circle(Place(48.1004, 11.6), 20)), qos=1)
                await far.publish("Emergency", b"rocks", place=HERE, qos=1)
                got = await asyncio.to_thread(subscriber.wait_messages, 3)
                assert {line.split()[0] for line in got} == {f"{name}/you", f"{name}/area", "Alert"}  # the alert may overtake

        run(work())


def test_a_stopped_agent_leaves_no_session_or_subscription(edge: UdpEdge, name: str, tmp_path: Path) -> None:
    before = edge.wait(lambda now: not now["milepost_udp_sessions"])  # those of other tests have ended
    with agent_of(edge, f"{name}-truck", tmp_path) as agent, commands.sub(agent.port, MQTT, "-t", f"{name}/#", "-q", "1"):
        edge.wait(lambda now: now["milepost_subscriptions"] == before["milepost_subscriptions"] + 2)  # one for revocations
        assert agent.stop() == 0
        edge.wait(
            lambda now: (
                (now["milepost_udp_sessions"], now["milepost_subscriptions"])
                == (before["milepost_udp_sessions"], before["milepost_subscriptions"])
            )
        )
        assert agent.log().splitlines()[-1].endswith("agent stopped")


def test_an_agent_that_never_reached_its_edge_stops_cleanly(make_edge: MakeUdpEdge, name: str, tmp_path: Path) -> None:
    with agent_of(make_edge(is_started=False), f"{name}-truck", tmp_path) as agent:
        assert agent.stop() == 0
        assert agent.log().splitlines()[-1].endswith("agent stopped")
