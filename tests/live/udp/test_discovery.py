"""Discovery of an edge (M20) among several, on a network of the test: by multicast, by DNS, and with forged answers.

car 10.78.0.1 ── 10.78.0.2 road: the edges north and south, and a forger
"""

import asyncio
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import pytest
from dns import flags, message, rrset

from live.client.deadline import run
from live.mqtt.brokers import free_port
from live.udp.edges import MakeUdpEdge, UdpEdge
from live.udp.local_authority import LocalAuthority
from live.udp.networks import MakeNetwork, join
from milepost.client import EdgeUnreachable, connect
from milepost.listeners.udp.socket import join_at
from milepost.model import Place
from milepost.runtime.trust_files import read_certificate_file, read_key
from milepost.trust.signing import Signer
from milepost.wire.sealed import discovery_request_from_bytes, unsigned_discovery_reply

CAR, ROAD, GROUP = "10.78.0.1", "10.78.0.2", "239.192.76.80"
NORTH, SOUTH, NOWHERE = Place(48.2, 11.6), Place(48.0, 11.6), Place(10.0, 10.0)
URL: Final = f"udp+find://?group={GROUP}&interface={CAR}"
DISCOVERY: Final = f'[udp.discovery]\ngroup = "{GROUP}"\ninterface = "{ROAD}"'


@contextmanager
def answering(bound: socket.socket, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """Answer every datagram that a socket receives."""
    bound.settimeout(0.05)
    is_over = threading.Event()

    def serve() -> None:
        while not is_over.is_set():
            with suppress(TimeoutError):
                data, address = bound.recvfrom(2_048)
                bound.sendto(answer(data), address)

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join()
        bound.close()


def forger(folder: Path, port: int) -> Callable[[bytes], bytes]:
    """Return a function that answers with a HERE signed by an edge of another certificate authority."""
    folder.mkdir()
    authority = LocalAuthority.open(folder)
    authority.issue_edge("edge-1")
    certificate, keys = read_certificate_file(authority.issued / "edge-1.cert"), read_key(authority.issued / "edge-1.key")

    def answer(data: bytes) -> bytes:
        here = unsigned_discovery_reply(discovery_request_from_bytes(data).nonce, port, certificate.data)
        return here + Signer(keys.signing, certificate).sign_discovery_reply(here)

    return answer


def test_only_the_edge_that_covers_the_position_answers_and_a_forged_answer_is_ignored(
    make_edge: MakeUdpEdge, make_network: MakeNetwork, authority: LocalAuthority, name: str, tmp_path: Path
) -> None:
    # M20
    car, road = make_network(), make_network()
    join(car, f"{CAR}/24", road, f"{ROAD}/24")
    for network in (car, road):
        network.ip("route", "add", "default", "via", ROAD if network is car else CAR)
    edges: dict[Place, UdpEdge] = {}
    with road.inside():
        for place, edge_name in ((NORTH, "north"), (SOUTH, "south")):
            coverage = f"circle {place.latitude},{place.longitude} 5000"
            edges[place] = make_edge(name=edge_name, coverage=coverage, host=ROAD, more=DISCOVERY)
        false = join_at(GROUP, 4244, ROAD)

    async def connects(place: Place, expected: UdpEdge) -> None:
        trust = authority.credentials(f"{name}-car")
        async with connect(URL, place=place, credentials=trust, connect_within_s=20) as client:
            await client.publish(name, qos=1)
            with road.inside():
                assert expected.metrics()["milepost_udp_sessions"] == 1

    async def finds_none() -> None:
        with pytest.raises(EdgeUnreachable, match="no edge certified by the certificate authority answered"):
            await connect(URL, place=NOWHERE, credentials=authority.credentials(f"{name}-car"), connect_within_s=0).open()

    with answering(false, forger(tmp_path / "forger", 9)), car.inside():
        for place, edge in edges.items():
            run(connects(place, edge))
        run(finds_none())


def dns_server(records: list[str]) -> Callable[[bytes], bytes]:
    """Return a DNS server with these SRV records of example.org."""

    def answer(data: bytes) -> bytes:
        query = message.from_wire(data)
        response = message.make_response(query)
        response.flags |= flags.RA
        assert query.question[0].name.to_text() == "_milepost._udp.example.org."
        response.answer.append(rrset.from_text(query.question[0].name, 60, "IN", "SRV", *records))
        return response.to_wire()

    return answer


def test_an_unreachable_edge_among_dns_srv_records_is_skipped(edge: UdpEdge, name: str) -> None:
    # M20
    assert edge.authority is not None
    trust = edge.authority.credentials(name)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    at: tuple[str, int] = server.getsockname()
    records = [f"1 0 {free_port()} 127.0.0.1.", f"2 0 {edge.udp} 127.0.0.1."]

    async def work() -> None:
        before = (await asyncio.to_thread(edge.metrics))["milepost_udp_sessions"]
        place = Place(48.1, 11.6)
        async with connect("udp+srv://example.org", place=place, credentials=trust, resolver=at, connect_within_s=30) as client:
            await client.publish(name, qos=1)
            assert (await asyncio.to_thread(edge.metrics))["milepost_udp_sessions"] == before + 1

    with answering(server, dns_server(records)):
        run(work())
