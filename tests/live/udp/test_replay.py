"""Replay (M28): every datagram that clients ever sent, sent again, is accepted zero times."""

import asyncio
import socket

from live.client.running import run
from live.udp.edges import Figures, MakeUdpEdge, UdpEdge
from live.udp.relays import Relay
from milepost.client import Edge

NOTHING_REPORTED = "reporting_interval_s = 3600"  # so that honest reports do not blur the count
STEPS = 64


def accepted(figures: Figures) -> dict[str, float]:
    """All that would be more if something old were taken for new."""
    names = ("messages_accepted", "messages_delivered", "reports", "sessions_opened", "sessions_resumed", "alerts")
    return {name: figures[f"milepost_{name}_total"] for name in names} | {
        name: figures[f"milepost_{name}"] for name in ("udp_sessions", "subscriptions")
    }


async def talk(name: str, speaker: Edge, hearer: Edge) -> None:
    """Something of every kind that a client says."""
    async with hearer.subscribe(name, query="ice", area="around 1000") as inbox:
        for number in range(20):
            await speaker.publish(name, b"%d" % number, tags=["ice"], qos=number % 2)
            await speaker.report(48.1, 11.6 + number * 1e-6, heading_deg=10.0, speed_mps=1.0)
        assert len([await inbox.receive() for _ in range(20)]) == 20


def send_all(edge: UdpEdge, datagrams: list[bytes], host: str) -> None:
    """Send datagrams from one address, no faster than the edge takes them."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as other:
        other.bind((host, 0))
        for begin in range(0, len(datagrams), STEPS):
            part = datagrams[begin : begin + STEPS]
            wanted = edge.figures()["milepost_udp_received_total"] + len(part)
            for data in part:
                other.sendto(data, ("127.0.0.1", edge.udp))
            edge.wait(lambda now, wanted=wanted: now["milepost_udp_received_total"] >= wanted)  # type: ignore[misc]


def test_a_whole_capture_sent_again_is_accepted_zero_times(make_edge: MakeUdpEdge, name: str) -> None:
    # M28
    edge = make_edge(udp=NOTHING_REPORTED)

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            open_one = edge.client(f"{name}-open", port=relay.port)
            async with open_one, open_one.subscribe(f"{name}/still") as still:
                for number in range(3):
                    async with edge.client(f"{name}-{number}", port=relay.port) as speaker:
                        await talk(name, speaker, open_one)
                await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_sessions"] == 1)
                await open_one.report(48.1, 11.6)
                await open_one.publish(name, qos=1)
                capture = [data for _, data in relay.said]
                assert len(capture) > 150
                before = await asyncio.to_thread(edge.figures)
                relay.say_again()
                received = before["milepost_udp_received_total"] + len(capture)
                await asyncio.to_thread(edge.wait, lambda now: now["milepost_udp_received_total"] >= received)
                for host in ("127.0.0.1", "127.0.7.7"):
                    await asyncio.to_thread(send_all, edge, capture, host)
                after = await asyncio.to_thread(edge.figures)
                assert accepted(after) == accepted(before)
                assert refused_in(after) - refused_in(before) >= 3 * len([one for one in capture if one[0] == 4])
                await open_one.publish(f"{name}/still", b"here", qos=1)  # nor was it led to another address
                assert (await still.receive()).body == b"here"
                assert open_one.counts.connections == 1
            await asyncio.to_thread(edge.kill)
            await asyncio.to_thread(edge.start)
            fresh = await asyncio.to_thread(edge.figures)
            for host in ("127.0.0.1", "127.0.7.7"):
                await asyncio.to_thread(send_all, edge, [data for _, data in relay.said], host)
            assert accepted(await asyncio.to_thread(edge.figures)) == accepted(fresh)

    run(work())


def refused_in(figures: Figures) -> float:
    """How much was refused, whatever the reason."""
    return sum(count for name, count in figures.items() if name.startswith("milepost_refused_total"))
