"""An edge that is killed and restarted: its endpoints reconnect and subscribe again within two reporting intervals."""

import asyncio
import time
from contextlib import AsyncExitStack

from live.client.deadline import run, wait_state
from live.udp.edges import MakeUdpEdge, wait_until
from milepost.client import ClientState

CLIENTS = 50
INTERVAL_S = 2.0
SENT_MEANWHILE = 40


def test_after_a_kill_all_clients_reconnect_within_two_intervals_and_no_reliable_message_is_lost(
    make_edge: MakeUdpEdge, name: str
) -> None:
    edge = make_edge(udp=f"reporting_interval_s = {INTERVAL_S}")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            enter = stack.enter_async_context
            clients = [await enter(edge.client(f"{name}-{number}")) for number in range(CLIENTS)]
            inboxes = [await enter(client.subscribe(f"{name}/all")) for client in clients]
            durable = await enter(edge.mqtt_client(f"{name}-keeper"))  # its session is durable
            queued, changes = await enter(durable.subscribe(f"{name}/kept")), durable.changes()
            await asyncio.to_thread(edge.kill)
            bodies = {b"%d" % number for number in range(SENT_MEANWHILE)}
            sending = [
                asyncio.create_task(clients[at % 5].publish(f"{name}/kept", body, qos=1)) for at, body in enumerate(bodies)
            ]
            await asyncio.sleep(0)
            await asyncio.to_thread(edge.start)
            back_at = time.monotonic()
            await wait_until(lambda: all(client.counters.connections == 2 for client in clients))
            assert time.monotonic() - back_at < 2 * INTERVAL_S
            await asyncio.gather(*sending)
            await wait_state(changes, ClientState.CONNECTED)
            assert {(await queued.receive()).body for _ in bodies} == bodies
            await asyncio.to_thread(edge.wait, lambda now: now["milepost_subscriptions"] == 2 * CLIENTS + 1)
            await clients[0].publish(f"{name}/all", b"again", qos=1)
            assert {(await inbox.receive()).body for inbox in inboxes} == {b"again"}
            assert len(queued) == 0
            assert {client.counters.connections for client in clients} == {2}

    run(work())
