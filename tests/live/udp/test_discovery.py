"""Finding an edge (M20) among several, on a network of the test's own: by multicast, by DNS, and whom not to believe.

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

from live.client.running import run
from live.mqtt.brokers import free_port
from live.udp.edges import MakeUdpEdge, UdpEdge
from live.udp.networks import MakeNetwork, join
from live.udp.offices import Office
from milepost.client import EdgeUnreachable, connect
from milepost.listeners.udp.socket import join_at
from milepost.model import Place
from milepost.runtime.trust_files import read_certificate_file, read_key
from milepost.trust.signing import Signer
from milepost.wire.sealed import ask_from_bytes, here_unsigned

CAR, ROAD, GROUP = "10.78.0.1", "10.78.0.2", "239.192.76.80"
NORTH, SOUTH, NOWHERE = Place(48.2, 11.6), Place(48.0, 11.6), Place(10.0, 10.0)
URL: Final = f"udp+find://?group={GROUP}&interface={CAR}"
FINDING: Final = f'[udp.finding]\ngroup = "{GROUP}"\ninterface = "{ROAD}"'


@contextmanager
def answering(bound: socket.socket, answer: Callable[[bytes], bytes]) -> Iterator[None]:
    """Answer every datagram that comes to a socket."""
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
    """Answers with a HERE that an edge of another authority signed."""
    folder.mkdir()
    office = Office.open(folder)
    office.admit_edge("edge-1")
    certificate, keys = read_certificate_file(office.issued / "edge-1.cert"), read_key(office.issued / "edge-1.key")

    def answer(data: bytes) -> bytes:
        here = here_unsigned(ask_from_bytes(data).nonce, port, certificate.data)
        return here + Signer(keys.signing, certificate).sign_here(here)

    return answer


def test_only_the_edge_that_covers_the_place_answers_and_a_forged_answer_is_passed_over(
    make_edge: MakeUdpEdge, make_network: MakeNetwork, office: Office, name: str, tmp_path: Path
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
            edges[place] = make_edge(name=edge_name, coverage=coverage, host=ROAD, more=FINDING)
        false = join_at(GROUP, 4244, ROAD)

    async def connects(place: Place, expected: UdpEdge) -> None:
        trust = office.trust(f"{name}-car")
        async with connect(URL, place=place, trust=trust, connect_within_s=20) as client:
            await client.publish(name, qos=1)
            with road.inside():
                assert expected.figures()["milepost_udp_sessions"] == 1

    async def finds_none() -> None:
        with pytest.raises(EdgeUnreachable, match="no edge that the authority vouches for answers"):
            await connect(URL, place=NOWHERE, trust=office.trust(f"{name}-car"), connect_within_s=0).open()

    with answering(false, forger(tmp_path / "forger", 9)), car.inside():
        for place, edge in edges.items():
            run(connects(place, edge))
        run(finds_none())


def dns_server(records: list[str]) -> Callable[[bytes], bytes]:
    """A DNS server that knows these SRV records of example.org."""

    def answer(data: bytes) -> bytes:
        asked = message.from_wire(data)
        said = message.make_response(asked)
        said.flags |= flags.RA
        assert asked.question[0].name.to_text() == "_milepost._udp.example.org."
        said.answer.append(rrset.from_text(asked.question[0].name, 60, "IN", "SRV", *records))
        return said.to_wire()

    return answer


def test_of_the_edges_that_dns_names_one_that_is_not_there_is_passed_over(edge: UdpEdge, name: str) -> None:
    # M20
    assert edge.office is not None
    trust = edge.office.trust(name)
    server = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    server.bind(("127.0.0.1", 0))
    at: tuple[str, int] = server.getsockname()
    records = [f"1 0 {free_port()} 127.0.0.1.", f"2 0 {edge.udp} 127.0.0.1."]

    async def work() -> None:
        before = (await asyncio.to_thread(edge.figures))["milepost_udp_sessions"]
        place = Place(48.1, 11.6)
        async with connect("udp+srv://example.org", place=place, trust=trust, resolver=at, connect_within_s=30) as client:
            await client.publish(name, qos=1)
            assert (await asyncio.to_thread(edge.figures))["milepost_udp_sessions"] == before + 1

    with answering(server, dns_server(records)):
        run(work())
