"""One endpoint at a hundred times its rate: it is refused, and nobody else notices."""

import asyncio
import threading
import time
from typing import Final

from live.client.running import run
from live.udp.edges import HERE, MakeUdpEdge
from live.udp.talkers import Cannon, Talker
from milepost.client import Edge, Inbox

RATE: Final = 50
GREED: Final = 100
SECONDS: Final = 3.0
SLICE_S: Final = 0.01
LATE_S_MAX: Final = 0.25
UDP: Final = f"messages_per_s = {RATE}\nmessages_burst = {RATE}"


def shout(cannon: Cannon, datagrams: list[bytes], is_over: threading.Event) -> None:
    """Send all of it at an even pace."""
    slices = int(SECONDS / SLICE_S)
    size = len(datagrams) // slices
    begun_at = time.monotonic()
    for number in range(slices):
        cannon.fire(datagrams[number * size : (number + 1) * size])
        time.sleep(max(0.0, begun_at + (number + 1) * SLICE_S - time.monotonic()))
    is_over.set()


async def speak(speaker: Edge, topic: str, is_over: threading.Event) -> int:
    """Say when it is said, well within the rate; and where one is."""
    count = 0
    while not is_over.is_set():
        await speaker.publish(topic, str(time.monotonic()), qos=count % 2)
        await speaker.report(HERE.latitude, HERE.longitude)
        count += 1
        await asyncio.sleep(1.5 / RATE)
    return count


async def delays(inbox: Inbox) -> list[float]:
    """How late each message came, as long as this is not cancelled."""
    found: list[float] = []
    try:
        while True:
            received = await inbox.receive()
            found.append(time.monotonic() - float(received.body))
    except asyncio.CancelledError:
        return found


def test_who_sends_a_hundred_times_too_much_harms_nobody_else(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(udp=UDP)
    is_over = threading.Event()
    with Talker(edge, f"{name}-greedy") as greedy:
        greedy.start()
        greedy.send()
        edge.wait(lambda now: now["milepost_udp_sessions"] == 1)
        for _ in range(int(RATE * GREED * SECONDS)):
            greedy.publish(f"{name}/greed", b"me" * 20)
            greedy.report()
        datagrams, cannon = greedy.take(), Cannon(edge)

        async def work() -> None:
            one, other = edge.client(f"{name}-a"), edge.client(f"{name}-b")
            async with one, other, one.subscribe(f"{name}/b") as ones, other.subscribe(f"{name}/a") as others:
                before = await asyncio.to_thread(edge.figures)
                listening = [asyncio.create_task(delays(inbox)) for inbox in (ones, others)]
                shouting = asyncio.create_task(asyncio.to_thread(shout, cannon, datagrams, is_over))
                said = await asyncio.gather(speak(other, f"{name}/b", is_over), speak(one, f"{name}/a", is_over))
                await shouting
                await asyncio.sleep(0.3)
                for task in listening:
                    task.cancel()
                late = [sorted(await task) for task in listening]
                after = await asyncio.to_thread(edge.figures)
            assert [len(found) for found in late] == list(said), "something was lost"
            for found in late:
                assert found[len(found) * 99 // 100] < LATE_S_MAX
            taken = after["milepost_messages_accepted_total"] - before["milepost_messages_accepted_total"] - sum(said)
            assert taken <= RATE * (SECONDS + 3), "the greedy one was let in beyond its rate"
            refused = after['milepost_refused_total{reason="RATE_TOO_HIGH"}']
            assert refused > RATE * GREED * SECONDS * 0.8

        try:
            run(work())
        finally:
            cannon.close()
