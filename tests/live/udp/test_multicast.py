"""Alerts by multicast (M34): one datagram on the wire for all who listen; who cannot hear it gets it alone.

cars 10.78.0.1 ── 10.78.0.2 edge 10.79.0.2 ── 10.79.0.1 far: no multicast goes there
"""

import asyncio
import re
import socket
from contextlib import AsyncExitStack
from dataclasses import replace
from pathlib import Path
from typing import Final

from live.client.running import run
from live.udp.edges import HERE, MakeUdpEdge, UdpEdge, wait_until
from live.udp.networks import MakeNetwork, Network, join
from live.udp.offices import Office
from live.udp.talkers import now
from milepost.client import Edge
from milepost.model import Circle, EndpointId, Message, Place, ToArea
from milepost.model.messages import MessageId
from milepost.model.multicast_cells import Cells
from milepost.model.sessions import Publish
from milepost.runtime.trust_files import read_certificate_file, read_key
from milepost.trust.signing import Signer
from milepost.wire.datagrams import encode

EDGE_ADDRESS: Final = "10.78.0.2"
LISTENERS: Final = 5
CELLS: Final = Cells("239.192.0.0", 256, 4243, 1.0)
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
    """How many multicast datagrams came to the cars' network."""
    found = re.search(r"udp dport 4243 counter packets (\d+)", cars.nft("list table ip watch"))
    assert found is not None
    return int(found[1])


def forged(folder: Path) -> list[bytes]:
    """What anybody can multicast: not signed, and signed by an edge of another authority."""
    folder.mkdir()
    office = Office.open(folder)
    office.admit_edge("edge-1")
    certificate, keys = read_certificate_file(office.issued / "edge-1.cert"), read_key(office.issued / "edge-1.key")
    message = Message(MessageId(now()), EndpointId("edge-1"), "Alert", now(), address=ToArea(Circle(HERE, 500.0)))
    return [encode(Publish(one)) for one in (message, Signer(keys.signing, certificate).sign(replace(message, body=b"!")))]


def memberships() -> list[str]:
    """The groups of the cells that somebody in this thread's network is in."""
    return re.findall(r"\b[0-9A-F]{2}..C0EF\b", Path("/proc/thread-self/net/igmp").read_text())  # 239.192, backwards


async def opened(stack: AsyncExitStack, network: Network, edge: UdpEdge, name: str, place: Place, *, hears: bool) -> Edge:
    """A client whose sockets are in a network; each opens what it needs while it connects and reports."""
    with network.inside():
        client = edge.client(name, host=EDGE_ADDRESS, place=place, hears_cells=hears)
        await stack.enter_async_context(client)
        await client.publish("elsewhere", qos=1)  # by now it listens
    return client


def test_an_alert_goes_over_the_wire_once_and_everyone_inside_shows_it_once(
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
            listeners = [await opened(stack, cars, edge, f"{name}-{at}", HERE, hears=True) for at in range(LISTENERS)]
            beside = await opened(stack, cars, edge, f"{name}-beside", NEXT_CELL, hears=True)
            deaf = await opened(stack, far, edge, f"{name}-deaf", HERE, hears=True)
            plain = await opened(stack, far, edge, f"{name}-plain", HERE, hears=False)
            inboxes = [await stack.enter_async_context(one.messages()) for one in (*listeners, deaf, plain)]
            with road.inside(), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as liar:
                liar.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(EDGE_ADDRESS))
                for data in false:
                    liar.sendto(data, (CELLS.group_at(HERE), CELLS.port))
            await wait_until(lambda: all(one.counts.forged == 1 for one in (*listeners, beside)))
            cars.nft(f"add rule ip watch arriving udp sport {edge.udp} drop")  # what is not multicast does not get there
            await plain.publish("Emergency", b"rocks", place=HERE, qos=1)
            for inbox in inboxes:
                alert = await inbox.receive()
                assert (alert.topic, alert.is_signed) == ("Alert", True)
            await wait_until(lambda: beside.counts.outside == 1)
            assert multicasts(cars) == len(false) + 1
            with road.inside():
                assert edge.figures()["milepost_alerts_total"] == 1
            cars.nft("flush chain ip watch arriving")
            await asyncio.sleep(1.0)  # time for a second copy, had somebody not answered
            assert [one.counts.received for one in (*listeners, beside, deaf, plain)] == [1] * LISTENERS + [0, 1, 1]

    run(work())


def test_who_does_not_ask_for_it_is_in_no_group(make_edge: MakeUdpEdge, make_network: MakeNetwork, name: str) -> None:
    cars, road, _ = three_networks(make_network)
    edge = make_edge(host=EDGE_ADDRESS, more=MORE, is_started=False)
    with road.inside():
        edge.start()

    async def groups(*, hears: bool) -> int:
        async with AsyncExitStack() as stack:
            await opened(stack, cars, edge, f"{name}-{hears}", HERE, hears=hears)
            with cars.inside():
                return len(memberships())

    assert run(groups(hears=False)) == 0
    assert run(groups(hears=True)) == 9
    assert run(groups(hears=False)) == 0
