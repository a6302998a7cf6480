"""An edge that is killed and comes back: its endpoints are there again, with all they asked for, and miss no two reports."""

import asyncio
import time
from contextlib import AsyncExitStack

from live.client.running import run, wait_state
from live.udp.edges import MakeUdpEdge, wait_until
from milepost.client import State

CLIENTS = 50
INTERVAL_S = 2.0
SENT_MEANWHILE = 40


def test_after_a_kill_all_clients_are_back_within_two_intervals_and_nothing_reliable_is_lost(
    make_edge: MakeUdpEdge, name: str
) -> None:
    edge = make_edge(udp=f"reporting_interval_s = {INTERVAL_S}")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [await enter(edge.client(f"{name}-{number}")) for number in range(CLIENTS)]
            inboxes = [await enter(client.subscribe(f"{name}/all")) for client in clients]
            keeper = await enter(edge.mqtt_client(f"{name}-keeper"))  # its session is kept on disk
            kept, changes = await enter(keeper.subscribe(f"{name}/kept")), keeper.changes()
            await asyncio.to_thread(edge.kill)
            bodies = {b"%d" % number for number in range(SENT_MEANWHILE)}
            sending = [
                asyncio.create_task(clients[at % 5].publish(f"{name}/kept", body, qos=1)) for at, body in enumerate(bodies)
            ]
            await asyncio.sleep(0)
            await asyncio.to_thread(edge.start)
            back_at = time.monotonic()
            await wait_until(lambda: all(client.counts.connections == 2 for client in clients))
            assert time.monotonic() - back_at < 2 * INTERVAL_S
            await asyncio.gather(*sending)
            await wait_state(changes, State.CONNECTED)
            assert {(await kept.receive()).body for _ in bodies} == bodies
            await asyncio.to_thread(edge.wait, lambda now: now["milepost_subscriptions"] == CLIENTS + 1)
            await clients[0].publish(f"{name}/all", b"again", qos=1)
            assert {(await inbox.receive()).body for inbox in inboxes} == {b"again"}
            assert len(kept) == 0
            assert {client.counts.connections for client in clients} == {2}

    run(work())
