"""One endpoint at a hundred times its rate: it is refused, and others are not affected."""

import asyncio
import threading
import time
from typing import Final

from live.client.deadline import run
from live.udp.edges import HERE, MakeUdpEdge
from live.udp.scripted_endpoints import Cannon, ScriptedEndpoint
from milepost.client import Client, Inbox

RATE: Final = 50
GREED: Final = 100
SECONDS: Final = 3.0
SLICE_S: Final = 0.01
LATE_S_MAX: Final = 0.25
UDP: Final = f"messages_per_s = {RATE}\nmessages_burst = {RATE}"


def send_evenly(cannon: Cannon, datagrams: list[bytes], is_over: threading.Event) -> None:
    """Send all datagrams at an even rate."""
    slices = int(SECONDS / SLICE_S)
    size = len(datagrams) // slices
    begun_at = time.monotonic()
    for number in range(slices):
        cannon.fire(datagrams[number * size : (number + 1) * size])
        time.sleep(max(0.0, begun_at + (number + 1) * SLICE_S - time.monotonic()))
    is_over.set()


async def publish_steadily(publisher: Client, topic: str, is_over: threading.Event) -> int:
    """Publish the sending time and report, well within the rate; return the number of messages."""
    count = 0
    while not is_over.is_set():
        await publisher.publish(topic, str(time.monotonic()), qos=count % 2)
        await publisher.report(HERE.latitude, HERE.longitude)
        count += 1
        await asyncio.sleep(1.5 / RATE)
    return count


async def delays(inbox: Inbox) -> list[float]:
    """Return the delay of each message, until cancelled."""
    found: list[float] = []
    try:
        while True:
            received = await inbox.receive()
            found.append(time.monotonic() - float(received.body))
    except asyncio.CancelledError:
        return found


def test_a_client_at_a_hundred_times_its_rate_does_not_delay_others(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(udp=UDP)
    is_over = threading.Event()
    with ScriptedEndpoint(edge, f"{name}-greedy") as flooder:
        flooder.start()
        flooder.send()
        edge.wait(lambda now: now["milepost_udp_sessions"] == 1)
        for _ in range(int(RATE * GREED * SECONDS)):
            flooder.publish(f"{name}/greed", b"me" * 20)
            flooder.report()
        datagrams, cannon = flooder.take(), Cannon(edge)

        async def work() -> None:
            one, other = edge.client(f"{name}-a"), edge.client(f"{name}-b")
            async with one, other, one.subscribe(f"{name}/b") as ones, other.subscribe(f"{name}/a") as others:
                before = await asyncio.to_thread(edge.metrics)
                listening = [asyncio.create_task(delays(inbox)) for inbox in (ones, others)]
                flooding = asyncio.create_task(asyncio.to_thread(send_evenly, cannon, datagrams, is_over))
                sent = await asyncio.gather(
                    publish_steadily(other, f"{name}/b", is_over), publish_steadily(one, f"{name}/a", is_over)
                )
                await flooding
                await asyncio.sleep(0.3)
                for task in listening:
                    task.cancel()
                late = [sorted(await task) for task in listening]
                after = await asyncio.to_thread(edge.metrics)
            assert [len(found) for found in late] == list(sent), "a message was lost"
            for found in late:
                assert found[len(found) * 99 // 100] < LATE_S_MAX
            taken = after["milepost_messages_accepted_total"] - before["milepost_messages_accepted_total"] - sum(sent)
            assert taken <= RATE * (SECONDS + 3), "the flooder was accepted beyond its rate"
            refused = after['milepost_refused_total{reason="RATE_TOO_HIGH"}']
            assert refused > RATE * GREED * SECONDS * 0.8

        try:
            run(work())
        finally:
            cannon.close()
