"""Third-party clients, our commands, agents and UDP endpoints roam without any special support (D8)."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from live.client.deadline import run
from live.federation.client_pool import ClientPool
from live.federation.deployment import Deployment, wait_until
from live.federation.edge_switch import EdgeSwitch, switch_to
from live.mqtt import commands
from live.mqtt.brokers import free_port
from live.mqtt.commands import RunningCommand
from live.mqtt.paho_client import Paho
from live.mqtt.raw_client import Closed, RawClient
from live.udp.edges import wait_until as wait_until_so
from live.udp.relays import Relay
from milepost.client import Client, Inbox
from parts import ROOT

ROUND = ("n2", "s1", "n1")
MILEPOST = [sys.executable, "-m", "milepost"]
COUNT = 20
LASTED_S = 5.5


def publish_all(deployment: Deployment, edge: str, topic: str, *bodies: str) -> None:
    """Publish messages with QoS 2 and wait for the acknowledgements, so that no duplicate is allowed."""
    with RawClient(deployment.edges[edge].tcp) as publisher:
        publisher.join()
        for body in bodies:
            answer = publisher.publish(topic, body.encode(), qos=2)
            assert answer is not None
            assert answer.reason < 0x80


@pytest.mark.parametrize("level", [4, 5])
def test_paho_finds_its_session_and_queued_messages_at_every_edge(deployment: Deployment, name: str, level: int) -> None:
    # D8
    client_id = f"{name}-paho"
    first = Paho(client_id, level, clean=False, session_s=3600)
    assert first.connect(deployment.edges["n1"].tcp)[0] is False
    first.subscribe(f"{name}/#", 2)
    wait_until_subscribed(deployment, first, name)
    first.leave()
    for edge in ROUND:
        bodies = [f"{edge} {number}" for number in range(COUNT)]
        publish_all(deployment, "s1", f"{name}/x", *bodies)
        there = Paho(client_id, level, clean=False, session_s=3600)
        assert there.connect(deployment.edges[edge].tcp)[0] is True
        assert [body.decode() for body in there.payloads(COUNT)] == bodies
        there.leave()
        assert there.inbox.empty()


def wait_until_subscribed(deployment: Deployment, client: Paho, name: str) -> None:
    """Wait until the other site knows its subscription."""

    def has_arrived() -> bool:
        publish_all(deployment, "s1", f"{name}/first", "probe")
        return not client.inbox.empty()

    wait_until(has_arrived, "it receives from the other site")
    time.sleep(0.1)
    while not client.inbox.empty():
        client.inbox.get()


@contextmanager
def process(*arguments: str) -> Iterator[RunningCommand]:
    """Run one of our commands, with its output."""
    with subprocess.Popen([*MILEPOST, *arguments], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as popen:
        try:
            yield RunningCommand(popen)
        finally:
            popen.kill()


def check_all_arrive_during_moves(deployment: Deployment, switch: EdgeSwitch, command: RunningCommand, name: str) -> None:
    """Publish at another site all the time; each message is printed once, in order, wherever the program is connected."""
    printed: list[str] = []

    def received() -> list[str]:
        command.read(0.02)
        return [line.split()[-1] for line in command.lines if line.startswith("MSG ")]

    def is_probed() -> bool:
        publish_all(deployment, "s1", f"{name}/x", "probe")
        return bool(received())

    wait_until(is_probed, "it receives from the other site")
    published: list[str] = []
    for edge in ROUND:
        switch.switch_to_edge(deployment.edges[edge])
        for _ in range(3):
            bodies = [f"{len(published) + number}" for number in range(COUNT)]
            publish_all(deployment, "s1", f"{name}/x", *bodies)
            published += bodies
        wait_until(lambda: len([one for one in received() if one != "probe"]) >= len(published), f"all is printed at {edge}")  # noqa: B023
        printed = [one for one in received() if one != "probe"]
        assert printed == published


def test_mosquitto_sub_prints_everything_once_while_the_edge_behind_its_address_changes(
    deployment: Deployment, name: str
) -> None:
    with switch_to(deployment.edges["n1"]) as switch:
        lasting = ["-c", "-x", "3600", "-i", f"{name}-m", "-q", "2", "-t", f"{name}/#"]
        with commands.sub(switch.tcp, 5, *lasting, form="%p") as command:
            check_all_arrive_during_moves(deployment, switch, command, name)


def test_milepost_sub_prints_everything_once_while_the_edge_behind_its_address_changes(deployment: Deployment, name: str) -> None:
    with switch_to(deployment.edges["n1"]) as switch:
        arguments = ["sub", "--url", f"mqtt://127.0.0.1:{switch.tcp}", "--id", f"{name}-sub", "-t", f"{name}/#", "--qos", "2"]
        with process(*arguments, "--format", "MSG {body}") as command:
            check_all_arrive_during_moves(deployment, switch, command, name)


def test_programs_behind_an_agent_receive_everything_once_while_their_vehicle_moves(deployment: Deployment, name: str) -> None:
    port = free_port()
    with switch_to(deployment.edges["n1"]) as switch:
        arguments = ["--url", f"mqtt://127.0.0.1:{switch.tcp}", "--id", f"{name}-truck"]
        with process("agent", "run", "--listen", f"127.0.0.1:{port}", *arguments):
            wait_until(partial(is_answering, port), "the agent listens")
            with commands.sub(port, 5, "-q", "2", "-t", f"{name}/#", form="%p") as command:
                check_all_arrive_during_moves(deployment, switch, command, name)


def is_answering(port: int) -> bool:
    with suppress(OSError, Closed), RawClient(port, level=4) as first:
        first.try_join()
        return True
    return False


@pytest.mark.parametrize("new", ["n2", "s1"])
def test_a_udp_endpoint_that_moves_to_another_edge_misses_no_reliable_message(
    deployment: Deployment, pool: ClientPool, name: str, new: str
) -> None:
    """UDP clients are admitted at once: missed messages may come after new ones.

    An edge ends a session after three silent intervals. A client that was redirected opens another session sooner than that,
    if the last one had lasted.
    """
    publishers = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for publisher in publishers:
        pool.publisher(publisher, deployment.edges[publisher.rpartition("-")[2]], topic=f"{name}/{publisher}", rate=20)
    subscriber = f"{name}-subscriber"
    pool.ledger.allow_any_order(subscriber)

    async def listen(inbox: Inbox, client: Client) -> None:
        async for message in inbox:
            pool.note(subscriber, message.body, connection=client.counters.connections)

    async def work() -> None:
        async with Relay(deployment.edges["n1"].udp) as relay:
            client = deployment.edges["n1"].client(subscriber, port=relay.port)
            async with client, client.subscribe(f"{name}/#") as inbox:
                listening = asyncio.create_task(listen(inbox, client))
                await asyncio.to_thread(pool.wait_subscribed, subscriber, *publishers)
                await asyncio.sleep(LASTED_S)
                relay.edge_port = deployment.edges[new].udp
                relay.rebind()
                await wait_until_so(lambda: client.counters.connections == 2)
                for publisher in publishers:
                    await asyncio.to_thread(pool.wait_seen, subscriber, publisher, 5)
                await asyncio.to_thread(pool.finish, within_s=15.0)
                listening.cancel()

    run(work())
    pool.check()


def test_publications_of_a_moving_udp_endpoint_are_delivered_once(deployment: Deployment, pool: ClientPool, name: str) -> None:
    """Its client repeats unacknowledged messages at another edge: they count as the same messages."""
    publisher = f"{name}-udp"
    with pool.lock:
        pool.ledger.open(publisher, 2)
    subscribers = [pool.subscriber(f"{name}-at-{edge}", deployment.edges[edge], f"{name}/#").name for edge in ("n1", "n2", "s1")]

    async def work() -> None:
        async with (
            Relay(deployment.edges["n1"].udp) as relay,
            deployment.edges["n1"].client(publisher, port=relay.port) as client,
        ):

            async def send() -> None:
                with pool.lock:
                    number = pool.ledger.send(publisher)
                await client.publish(f"{name}/x", f"{publisher} {number}", qos=1)
                with pool.lock:
                    pool.ledger.acknowledge(publisher, number)

            for subscriber in subscribers:
                while not pool.has_received(subscriber, publisher):
                    await send()
                    await asyncio.sleep(0.02)
                with pool.lock:
                    pool.ledger.subscribe(subscriber, publisher)
            for edge in ROUND:
                sending = [asyncio.create_task(send()) for _ in range(COUNT)]
                await asyncio.sleep(0)
                relay.edge_port = deployment.edges[edge].udp
                relay.rebind()
                await asyncio.gather(*sending)
            await asyncio.to_thread(pool.finish, within_s=15.0)

    for subscriber in subscribers:
        pool.ledger.allow_any_order(subscriber)
    run(work())
    pool.check()
