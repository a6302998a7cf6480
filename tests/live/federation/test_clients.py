"""Other people's clients, our commands, agents and UDP endpoints roam as they are: none of them knows of it (D8)."""

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial

import pytest

from live.client.running import run
from live.federation.crowds import Crowd
from live.federation.switches import Switch, switch_to
from live.federation.town import Town, wait_until
from live.mqtt import commands
from live.mqtt.brokers import free_port
from live.mqtt.commands import Listening
from live.mqtt.pahos import Paho
from live.mqtt.raw import Closed, Raw
from live.udp.edges import wait_until as wait_until_so
from live.udp.relays import Relay
from milepost.client import Edge, Inbox
from parts import ROOT

ROUND = ("n2", "s1", "n1")
MILEPOST = [sys.executable, "-m", "milepost"]
COUNT = 20
LASTED_S = 5.5


def say(town: Town, edge: str, topic: str, *bodies: str) -> None:
    """Publish, each acknowledged; with quality 2, so that nobody may hear it twice."""
    with Raw(town.edges[edge].tcp) as publisher:
        publisher.join()
        for body in bodies:
            answer = publisher.publish(topic, body.encode(), qos=2)
            assert answer is not None
            assert answer.reason < 0x80


@pytest.mark.parametrize("level", [4, 5])
def test_paho_finds_its_session_at_every_edge_and_what_waits_in_it(town: Town, name: str, level: int) -> None:
    # D8
    client_id = f"{name}-paho"
    first = Paho(client_id, level, clean=False, session_s=3600)
    assert first.connect(town.edges["n1"].tcp)[0] is False
    first.subscribe(f"{name}/#", 2)
    wait_heard(town, first, name)
    first.leave()
    for edge in ROUND:
        bodies = [f"{edge} {number}" for number in range(COUNT)]
        say(town, "s1", f"{name}/x", *bodies)
        there = Paho(client_id, level, clean=False, session_s=3600)
        assert there.connect(town.edges[edge].tcp)[0] is True
        assert [body.decode() for body in there.payloads(COUNT)] == bodies
        there.leave()
        assert there.inbox.empty()


def wait_heard(town: Town, client: Paho, name: str) -> None:
    """Until the other site knows what it wants."""

    def is_heard() -> bool:
        say(town, "s1", f"{name}/first", "probe")
        return not client.inbox.empty()

    wait_until(is_heard, "it hears the other site")
    time.sleep(0.1)
    while not client.inbox.empty():
        client.inbox.get()


@contextmanager
def process(*words: str) -> Iterator[Listening]:
    """One of our commands, and what it prints."""
    with subprocess.Popen([*MILEPOST, *words], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as popen:
        try:
            yield Listening(popen)
        finally:
            popen.kill()


def check_all_come_while_it_moves(town: Town, switch: Switch, ears: Listening, name: str) -> None:
    """Messages are said at another site all the time; each is printed once, in order, wherever the program is."""
    printed: list[str] = []

    def heard() -> list[str]:
        ears.read(0.02)
        return [line.split()[-1] for line in ears.lines if line.startswith("MSG ")]

    def is_probed() -> bool:
        say(town, "s1", f"{name}/x", "probe")
        return bool(heard())

    wait_until(is_probed, "it hears the other site")
    said: list[str] = []
    for edge in ROUND:
        switch.turn(town.edges[edge])
        for _ in range(3):
            bodies = [f"{len(said) + number}" for number in range(COUNT)]
            say(town, "s1", f"{name}/x", *bodies)
            said += bodies
        wait_until(lambda: len([one for one in heard() if one != "probe"]) >= len(said), f"all is printed at {edge}")  # noqa: B023
        printed = [one for one in heard() if one != "probe"]
        assert printed == said


def test_mosquitto_sub_prints_everything_once_while_the_edge_behind_its_address_changes(town: Town, name: str) -> None:
    with switch_to(town.edges["n1"]) as switch:
        lasting = ["-c", "-x", "3600", "-i", f"{name}-m", "-q", "2", "-t", f"{name}/#"]
        with commands.sub(switch.tcp, 5, *lasting, form="%p") as ears:
            check_all_come_while_it_moves(town, switch, ears, name)


def test_milepost_sub_prints_everything_once_while_the_edge_behind_its_address_changes(town: Town, name: str) -> None:
    with switch_to(town.edges["n1"]) as switch:
        words = ["sub", "--url", f"mqtt://127.0.0.1:{switch.tcp}", "--id", f"{name}-sub", "-t", f"{name}/#", "--qos", "2"]
        with process(*words, "--format", "MSG {body}") as ears:
            check_all_come_while_it_moves(town, switch, ears, name)


def test_programs_behind_an_agent_hear_everything_once_while_their_vehicle_moves(town: Town, name: str) -> None:
    port = free_port()
    with switch_to(town.edges["n1"]) as switch:
        words = ["--url", f"mqtt://127.0.0.1:{switch.tcp}", "--id", f"{name}-truck"]
        with process("agent", "run", "--listen", f"127.0.0.1:{port}", *words):
            wait_until(partial(is_answering, port), "the agent listens")
            with commands.sub(port, 5, "-q", "2", "-t", f"{name}/#", form="%p") as ears:
                check_all_come_while_it_moves(town, switch, ears, name)


def is_answering(port: int) -> bool:
    with suppress(OSError, Closed), Raw(port, level=4) as first:
        first.ask()
        return True
    return False


@pytest.mark.parametrize("new", ["n2", "s1"])
def test_a_udp_endpoint_that_opens_a_session_at_another_edge_misses_nothing_reliable(
    town: Town, crowd: Crowd, name: str, new: str
) -> None:
    """UDP clients are let in at once: what they missed may come after what is new.

    An edge takes who is silent for three intervals for gone. A client that was sent away opens another session sooner than
    that, if the last one had lasted.
    """
    senders = tuple(f"{name}-{edge}" for edge in ("n1", "n2", "s1"))
    for sender in senders:
        crowd.sender(sender, town.edges[sender.rpartition("-")[2]], topic=f"{name}/{sender}", rate=20)
    taker = f"{name}-taker"
    crowd.ledger.expect_any_order(taker)

    async def listen(inbox: Inbox, client: Edge) -> None:
        async for message in inbox:
            crowd.note(taker, message.body, connection=client.counts.connections)

    async def work() -> None:
        async with Relay(town.edges["n1"].udp) as relay:
            client = town.edges["n1"].client(taker, port=relay.port)
            async with client, client.subscribe(f"{name}/#") as inbox:
                listening = asyncio.create_task(listen(inbox, client))
                await asyncio.to_thread(crowd.tune_in, taker, *senders)
                await asyncio.sleep(LASTED_S)
                relay.edge_port = town.edges[new].udp
                relay.rebind()
                await wait_until_so(lambda: client.counts.connections == 2)
                for sender in senders:
                    await asyncio.to_thread(crowd.wait_seen, taker, sender, 5)
                await asyncio.to_thread(crowd.finish, within_s=15.0)
                listening.cancel()

    run(work())
    crowd.check()


def test_what_a_moving_udp_endpoint_says_is_heard_once(town: Town, crowd: Crowd, name: str) -> None:
    """Its client sends again what was not answered, to another edge: it is the same message."""
    sender = f"{name}-udp"
    with crowd.lock:
        crowd.ledger.open(sender, 2)
    takers = [crowd.taker(f"{name}-at-{edge}", town.edges[edge], f"{name}/#").name for edge in ("n1", "n2", "s1")]

    async def work() -> None:
        async with Relay(town.edges["n1"].udp) as relay, town.edges["n1"].client(sender, port=relay.port) as client:

            async def send() -> None:
                with crowd.lock:
                    number = crowd.ledger.send(sender)
                await client.publish(f"{name}/x", f"{sender} {number}", qos=1)
                with crowd.lock:
                    crowd.ledger.acknowledge(sender, number)

            for taker in takers:
                while not crowd.hears(taker, sender):
                    await send()
                    await asyncio.sleep(0.02)
                with crowd.lock:
                    crowd.ledger.ask(taker, sender)
            for edge in ROUND:
                sending = [asyncio.create_task(send()) for _ in range(COUNT)]
                await asyncio.sleep(0)
                relay.edge_port = town.edges[edge].udp
                relay.rebind()
                await asyncio.gather(*sending)
            await asyncio.to_thread(crowd.finish, within_s=15.0)

    for taker in takers:
        crowd.ledger.expect_any_order(taker)
    run(work())
    crowd.check()
