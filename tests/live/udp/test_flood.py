"""A flood of handshakes from thousands of addresses: it leaves no state, and honest endpoints still connect, by cookie."""

import asyncio
import os
import socket
import threading
from typing import Final

from live.client.deadline import run
from live.udp.edges import MakeUdpEdge, UdpEdge
from live.udp.relays import Relay
from live.udp.scripted_endpoints import edge_key_of
from milepost.trust.cookies import Macs
from milepost.wire.sealed import INIT_BYTES_MIN, MACS_BYTES, SealedType

SOURCES: Final = 30_000
GROWTH_BYTES_MAX: Final = 16_000_000  # most of it is used by the first full batches


def flood(edge: UdpEdge, recorded: list[bytes], is_enough: threading.Event) -> int:
    """Send INITs, each from another address, with garbage or replayed content; return their number."""
    macs, sent = Macs(edge_key_of(edge)), 0
    while sent < SOURCES or not is_enough.is_set():
        with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
            one.bind((f"127.{1 + sent // 62_500 % 250}.{1 + sent // 250 % 250}.{1 + sent % 250}", 0))
            body = bytes([SealedType.INIT]) + os.urandom(INIT_BYTES_MIN + 150 - MACS_BYTES)
            one.sendto(recorded[sent % len(recorded)] if sent % 2 else body + macs.stamp(body), ("127.0.0.1", edge.udp))
        sent += 1
    return sent


def test_a_flood_of_handshakes_leaves_no_state_and_blocks_no_honest_endpoint(make_edge: MakeUdpEdge, name: str) -> None:
    edge = make_edge(udp="handshakes_per_s = 200")
    is_enough = threading.Event()

    async def work() -> None:
        async with Relay(edge.udp) as relay:
            for number in range(5):
                await edge.client(f"{name}-{number}", port=relay.port).open()
            recorded = [data for _, data in relay.from_clients if data[0] == SealedType.INIT]
            assert len(recorded) == 5
            relay.from_edge.clear()
            before, resident = await asyncio.to_thread(edge.metrics), edge.resident_bytes()
            flooding = asyncio.create_task(asyncio.to_thread(flood, edge, recorded, is_enough))
            try:
                await asyncio.to_thread(
                    edge.wait, lambda now: now.get('milepost_refused_total{reason="COOKIE_NEEDED"}', 0) > 1_000
                )
                async with edge.client(f"{name}-honest", port=relay.port, connect_within_s=40) as honest:
                    await honest.publish(name, qos=1)
                    assert SealedType.COOKIE in {data[0] for data in relay.from_edge}
            finally:
                is_enough.set()
            sent = await flooding
            after = await asyncio.to_thread(edge.metrics)
            assert sent >= SOURCES
            assert after["milepost_udp_pending"] == 0
            assert after["milepost_udp_sessions"] <= before["milepost_udp_sessions"] + 1
            assert after["milepost_sessions_opened_total"] == before["milepost_sessions_opened_total"] + 1
            assert edge.refused("COOKIE_NEEDED") > SOURCES / 2
            assert edge.refused("MALFORMED") == 0, "the flood has the wrong form"
            assert edge.resident_bytes() - resident < GROWTH_BYTES_MAX

    run(work())
