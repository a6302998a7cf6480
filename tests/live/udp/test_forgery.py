"""Robustness: forged datagrams are never accepted, and honest endpoints lose nothing.

FUZZ_DATAGRAMS sets the number (by default 100,000, and 1,000,000 in `make test-long`), FUZZ_SEED the seed.
"""

import asyncio
import os
import threading
import time
from itertools import islice
from random import Random
from typing import Final

import pytest

from effort import amount
from live.udp.edges import HERE, MakeUdpEdge, Metrics, UdpEdge
from live.udp.forged_datagrams import forged
from live.udp.relays import Relay
from live.udp.scripted_endpoints import Cannon
from milepost.client import Client, Inbox

DATAGRAMS: Final = amount("FUZZ_DATAGRAMS", fast=100_000, long=1_000_000, soak=5_000_000)
SEED: Final = int(os.environ.get("FUZZ_SEED", "1"))
STEP: Final = 1_000
GROWTH_BYTES_MAX: Final = 12_000_000
LOST_MAX: Final = 0.01
UDP: Final = "reporting_interval_s = 3600\nmessages_per_s = 0"


def bombard(edge: UdpEdge, real: list[bytes], is_over: threading.Event, count: int = DATAGRAMS) -> int:
    """Send forged datagrams as fast as the edge reads them; return its memory growth after the first tenth."""
    random, cannon, grown_from, done = Random(SEED), Cannon(edge), 0, 0
    try:
        making = forged(random, real, count)
        while part := list(islice(making, STEP)):
            expected = edge.metrics()["milepost_udp_received_total"] + len(part)
            cannon.fire(part)
            edge.wait(lambda now, expected=expected: now["milepost_udp_received_total"] >= expected)  # type: ignore[misc]
            done += len(part)
            if done <= count // 10:
                grown_from = edge.resident_bytes()
    finally:
        cannon.close()
        is_over.set()
    return edge.resident_bytes() - grown_from


async def publish_steadily(publisher: Client, topic: str, is_over: threading.Event, *, qos: int) -> int:
    """Publish at a steady low rate; return the number of messages."""
    count = 0
    while not is_over.is_set():
        await publisher.publish(topic, b"%d" % count, qos=qos)
        count += 1
        await asyncio.sleep(0.01)
    return count


def state_of(metrics: Metrics) -> dict[str, float]:
    names = ("reports_total", "sessions_opened_total", "sessions_resumed_total", "alerts_total", "udp_sessions", "subscriptions")
    return {name: metrics[f"milepost_{name}"] for name in names}


async def count_of(inbox: Inbox) -> int:
    """Return the number of received messages, once all have arrived or are lost."""
    await asyncio.sleep(0.3)
    return len(inbox)


def test_forged_datagrams_are_accepted_zero_times_while_honest_endpoints_lose_nothing(
    make_edge: MakeUdpEdge, name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    # M28
    edge = make_edge(udp=UDP)
    is_over = threading.Event()

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            first, second = (edge.client(f"{name}-{one}", port=relay.port, receive_max=60_000) for one in "ab")
            async with (
                first,
                second,
                second.subscribe(f"{name}/0", qos=0, limit=1_000_000) as unreliable,
                second.subscribe(f"{name}/1", limit=1_000_000) as reliable,
            ):
                for number in range(50):
                    await first.publish(f"{name}/2", b"%d" % number, qos=number % 2)
                    await first.report(HERE.latitude, HERE.longitude)
                for one in (first, second):  # then they are silent for an interval
                    await one.report(HERE.latitude, HERE.longitude)
                    await one.publish(f"{name}/2", qos=1)
                real = [data for _, data in relay.from_clients]
                before = await asyncio.to_thread(edge.metrics)
                async with asyncio.TaskGroup() as group:
                    started_at = time.monotonic()
                    bombing = group.create_task(asyncio.to_thread(bombard, edge, real, is_over))
                    publishing = [group.create_task(publish_steadily(first, f"{name}/{qos}", is_over, qos=qos)) for qos in (0, 1)]
                seconds = time.monotonic() - started_at
                sent_unreliably, sent_reliably = (one.result() for one in publishing)
                assert len({(await reliable.receive()).body for _ in range(sent_reliably)}) == sent_reliably
                came = await count_of(unreliable)
                after = await asyncio.to_thread(edge.metrics)
                with capsys.disabled():
                    print(f"\n{DATAGRAMS:,} forged in {seconds:.0f} s; grown by {bombing.result() >> 10} kB;", end=" ")
                    print(f"honest: {sent_reliably} reliable, all there; {came} of {sent_unreliably} unreliable", end="")
                assert came >= sent_unreliably * (1 - LOST_MAX)
                assert state_of(after) == state_of(before)
                assert (
                    after["milepost_messages_accepted_total"] - before["milepost_messages_accepted_total"]
                    <= sent_unreliably + sent_reliably
                )
                assert bombing.result() < GROWTH_BYTES_MAX
                assert (first.counters.connections, second.counters.connections) == (1, 1)

    async def limited() -> None:
        async with asyncio.timeout(60 + DATAGRAMS / 2_000):
            await work()

    asyncio.run(limited())
    assert edge.refused("DECRYPTION_FAILED") > DATAGRAMS / 10


def test_an_unencrypted_edge_survives_any_input(make_edge: MakeUdpEdge, name: str) -> None:
    """Without encryption anyone can forge any endpoint: only that the edge keeps serving is checked."""
    edge = make_edge(is_sealed=False, udp=UDP)

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            client = edge.client(name, port=relay.port)
            async with client, client.subscribe(f"{name}/#", query="ice"):
                for number in range(20):
                    await client.publish(f"{name}/1", b"%d" % number, tags=["ice"], qos=number % 2)
            real = [data for _, data in relay.from_clients]
            await asyncio.to_thread(bombard, edge, real, threading.Event(), DATAGRAMS // 10)
        async with edge.client(f"{name}-after") as after, after.subscribe(name) as inbox:
            await after.publish(name, b"well", qos=1)
            assert (await inbox.receive()).body == b"well"

    asyncio.run(work())
