"""Alerts by multicast (M34): one datagram on the wire for all members of the group; the others receive it by unicast.

cars 10.78.0.1 ── 10.78.0.2 edge 10.79.0.2 ── 10.79.0.1 far: no multicast goes there
"""

import asyncio
import re
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from live.client.deadline import run
from live.udp.edges import HERE, MakeUdpEdge, UdpEdge, wait_until
from live.udp.local_authority import LocalAuthority
from live.udp.networks import MakeNetwork, Network, join
from live.udp.scripted_endpoints import now
from milepost.client import Client
from milepost.model import Circle, EndpointId, Message, Place, ToArea
from milepost.model.messages import MessageId
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.session_datagrams import PublishDatagram
from milepost.runtime.trust_files import read_certificate_file, read_key
from milepost.trust.signing import Signer
from milepost.wire.datagrams import encode

EDGE_ADDRESS: Final = "10.78.0.2"
LISTENERS: Final = 5
CELLS: Final = MulticastGrid("239.192.0.0", 256, 4243, 1.0)
MORE: Final = f"""
[udp.cells]
group = "{CELLS.group}"
side_deg = {CELLS.side_deg}
interface = "{EDGE_ADDRESS}"
[[rules.alert]]
topic = "Emergency"
"""
NEXT_CELL: Final = Place(49.5, 11.6)


def three_networks(make_network: MakeNetwork) -> tuple[Network, Network, Network]:
    cars, road, far = make_network(), make_network(), make_network()
    join(cars, "10.78.0.1/24", road, f"{EDGE_ADDRESS}/24")
    join(far, "10.79.0.1/24", road, "10.79.0.2/24")
    far.ip("route", "add", "default", "via", "10.79.0.2")
    cars.nft("add table ip watch")
    cars.nft("add chain ip watch arriving { type filter hook input priority 0; }")
    cars.nft("add rule ip watch arriving ip daddr 224.0.0.0/4 udp dport 4243 counter accept")
    return cars, road, far


def multicasts(cars: Network) -> int:
    """Return the number of multicast datagrams that reached the cars' network."""
    found = re.search(r"udp dport 4243 counter packets (\d+)", cars.nft("list table ip watch"))
    assert found is not None
    return int(found[1])


def forged(folder: Path) -> list[bytes]:
    """Return forged multicasts: unsigned, and signed by an edge of another certificate authority."""
    folder.mkdir()
    authority = LocalAuthority.open(folder)
    authority.issue_edge("edge-1")
    certificate, keys = read_certificate_file(authority.issued / "edge-1.cert"), read_key(authority.issued / "edge-1.key")
    message = Message(MessageId(now()), EndpointId("edge-1"), "Alert", now(), address=ToArea(Circle(HERE, 500.0)))
    return [
        encode(PublishDatagram(one)) for one in (message, Signer(keys.signing, certificate).sign(replace(message, body=b"!")))
    ]


def memberships() -> list[str]:
    """Return the multicast groups of cells joined in this thread's network."""
    return re.findall(r"\b[0-9A-F]{2}..C0EF\b", Path("/proc/thread-self/net/igmp").read_text())  # 239.192, backwards


async def opened(
    stack: AsyncExitStack, network: Network, edge: UdpEdge, name: str, place: Place, *, joins_multicast: bool
) -> Client:
    """Open a client whose sockets are in *network*: it opens them while it connects and reports."""
    with network.inside():
        client = edge.client(name, host=EDGE_ADDRESS, place=place, joins_multicast=joins_multicast)
        await stack.enter_async_context(client)
        await client.publish("elsewhere", qos=1)  # by now it has joined
    return client


def test_an_alert_is_multicast_once_and_delivered_once_to_each_endpoint_inside(
    make_edge: MakeUdpEdge, make_network: MakeNetwork, name: str, tmp_path: Path
) -> None:
    # M34
    cars, road, far = three_networks(make_network)
    edge = make_edge(host=EDGE_ADDRESS, more=MORE, is_started=False)
    with road.inside():
        edge.start()
    false = forged(tmp_path / "false")

    async def work() -> None:
        async with AsyncExitStack() as stack:
            listeners = [await opened(stack, cars, edge, f"{name}-{at}", HERE, joins_multicast=True) for at in range(LISTENERS)]
            beside = await opened(stack, cars, edge, f"{name}-beside", NEXT_CELL, joins_multicast=True)
            unreachable = await opened(stack, far, edge, f"{name}-deaf", HERE, joins_multicast=True)
            plain = await opened(stack, far, edge, f"{name}-plain", HERE, joins_multicast=False)
            inboxes = [await stack.enter_async_context(one.messages()) for one in (*listeners, unreachable, plain)]
            with road.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as forger:
                forger.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(EDGE_ADDRESS))
                for data in false:
                    forger.sendto(data, (CELLS.group_at(HERE), CELLS.port))
            await wait_until(lambda: all(one.counters.forged == 1 for one in (*listeners, beside)))
            cars.nft(f"add rule ip watch arriving udp sport {edge.udp} drop")  # drop unicast datagrams of the edge
            await plain.publish("Emergency", b"rocks", place=HERE, qos=1)
            for inbox in inboxes:
                alert = await inbox.receive()
                assert (alert.topic, alert.is_signed) == ("Alert", True)
            await wait_until(lambda: beside.counters.outside == 1)
            assert multicasts(cars) == len(false) + 1
            with road.inside():
                assert edge.metrics()["milepost_alerts_total"] == 1
            cars.nft("flush chain ip watch arriving")
            await asyncio.sleep(1.0)  # time for a retransmission, if an acknowledgement was missing
            assert [one.counters.received for one in (*listeners, beside, unreachable, plain)] == [1] * LISTENERS + [0, 1, 1]

    run(work())


def test_a_client_without_multicast_joins_no_group(make_edge: MakeUdpEdge, make_network: MakeNetwork, name: str) -> None:
    cars, road, _ = three_networks(make_network)
    edge = make_edge(host=EDGE_ADDRESS, more=MORE, is_started=False)
    with road.inside():
        edge.start()

    async def groups(*, joins_multicast: bool) -> int:
        async with AsyncExitStack() as stack:
            await opened(stack, cars, edge, f"{name}-{joins_multicast}", HERE, joins_multicast=joins_multicast)
            with cars.inside():
                return len(memberships())

    assert run(groups(joins_multicast=False)) == 0
    assert run(groups(joins_multicast=True)) == 9
    assert run(groups(joins_multicast=False)) == 0
