"""Replay (M28): replayed datagrams of clients are never accepted."""

import asyncio
import socket

from live.client.deadline import run
from live.udp.edges import MakeUdpEdge, Metrics, UdpEdge
from live.udp.relays import Relay
from milepost.client import Client

NOTHING_REPORTED = "reporting_interval_s = 3600"  # honest reports would change the metrics
STEPS = 64


def accepted(metrics: Metrics) -> dict[str, float]:
    """Return the metrics that would grow if a replay were accepted."""
    names = ("messages_accepted", "messages_delivered", "reports", "sessions_opened", "sessions_resumed", "alerts")
    return {name: metrics[f"milepost_{name}_total"] for name in names} | {
        name: metrics[f"milepost_{name}"] for name in ("udp_sessions", "subscriptions")
    }


async def exchange(name: str, publisher: Client, subscriber: Client) -> None:
    """Exchange datagrams of every type that a client sends."""
    async with subscriber.subscribe(name, query="ice", area="around 1000") as inbox:
        for number in range(20):
            await publisher.publish(name, b"%d" % number, tags=["ice"], qos=number % 2)
            await publisher.report(48.1, 11.6 + number * 1e-6, heading_deg=10.0, speed_mps=1.0)
        assert len([await inbox.receive() for _ in range(20)]) == 20


def send_all(edge: UdpEdge, datagrams: list[bytes], host: str) -> None:
    """Send datagrams from one address, no faster than the edge reads them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((host, 0))
        for begin in range(0, len(datagrams), STEPS):
            part = datagrams[begin : begin + STEPS]
            expected = edge.metrics()["milepost_udp_received_total"] + len(part)
            for data in part:
                other.sendto(data, ("127.0.0.1", edge.udp))
            edge.wait(lambda now, expected=expected: now["milepost_udp_received_total"] >= expected)  # type: ignore[misc]


def test_a_replayed_capture_is_accepted_zero_times(make_edge: MakeUdpEdge, name: str) -> None:
    # M28
    edge = make_edge(udp=NOTHING_REPORTED)

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            open_one = edge.client(f"{name}-open", port=relay.port)
            async with open_one, open_one.subscribe(f"{name}/still") as still:
                for number in range(3):
                    async with edge.client(f"{name}-{number}", port=relay.port) as publisher:
                        await exchange(name, publisher, open_one)
                await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_sessions"] == 1)
                await open_one.report(48.1, 11.6)
                await open_one.publish(name, qos=1)
                capture = [data for _, data in relay.from_clients]
                assert len(capture) > 150
                before = await asyncio.to_thread(edge.metrics)
                relay.replay()
                received = before["milepost_udp_received_total"] + len(capture)
                await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_received_total"] >= received)
                for host in ("127.0.0.1", "127.0.7.7"):
                    await asyncio.to_thread(send_all, edge, capture, host)
                after = await asyncio.to_thread(edge.metrics)
                assert accepted(after) == accepted(before)
                assert refused_in(after) - refused_in(before) >= 3 * len([one for one in capture if one[0] == 4])
                await open_one.publish(f"{name}/still", b"here", qos=1)  # its address did not change either
                assert (await still.receive()).body == b"here"
                assert open_one.counters.connections == 1
            await asyncio.to_thread(edge.kill)
            await asyncio.to_thread(edge.start)
            fresh = await asyncio.to_thread(edge.metrics)
            for host in ("127.0.0.1", "127.0.7.7"):
                await asyncio.to_thread(send_all, edge, [data for _, data in relay.from_clients], host)
            assert accepted(await asyncio.to_thread(edge.metrics)) == accepted(fresh)

    run(work())


def refused_in(metrics: Metrics) -> float:
    """Return the number of refusals, for any reason."""
    return sum(count for name, count in metrics.items() if name.startswith("milepost_refused_total"))
