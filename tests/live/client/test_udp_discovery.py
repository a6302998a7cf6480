"""Discovery of an edge with real sockets, by request and by DNS; and the example program of a vehicle."""

import asyncio
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from time import time_ns

import pytest
from dns import flags, message, rrset

from live.client.deadline import run
from milepost.client import ClientClosed, EdgeUnreachable, connect
from milepost.client.udp.discovery import DiscoverySettings, EdgeAddress, find_edge, udp_target_of
from milepost.model import Instant, Place
from milepost.trust.certificates import EDGE, CertificateAuthority, issue
from milepost.trust.noise import public_of
from milepost.trust.signing import Signer, signing_public_of
from milepost.wire.sealed import discovery_request_from_bytes, unsigned_discovery_reply
from parts import ROOT

HERE = Place(48.1, 11.6)
STOP = b"stop"
KEYS = [bytes([number]) * 32 for number in range(1, 5)]
AUTHORITY_KEY, EDGE_KEY, SIGNING_KEY, STRANGERS_KEY = KEYS
AUTHORITY = CertificateAuthority(signing_public_of(AUTHORITY_KEY))

Answer = Callable[[bytes, int], list[bytes]]


@contextmanager
def answering(answer: Answer) -> Iterator[int]:
    """Answer every datagram at a socket with these datagrams; yield its port."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]

        def serve() -> None:
            while (received := bound.recvfrom(2_048))[0] != STOP:
                for data in answer(received[0], port):
                    bound.sendto(data, received[1])

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield port
        finally:
            bound.sendto(STOP, ("127.0.0.1", port))
            thread.join()


def here(data: bytes, port: int, authority_key: bytes) -> bytes:
    """Return the answer of an edge certified by a certificate authority."""
    now = time_ns()
    certificate = issue(
        authority_key,
        id="edge-1",
        role=EDGE,
        key=public_of(EDGE_KEY),
        not_before=Instant(now - 10**9),
        not_after=Instant(now + 10**12),
        serial=1,
        signing_key=signing_public_of(SIGNING_KEY),
    )
    unsigned = unsigned_discovery_reply(discovery_request_from_bytes(data).nonce, port, certificate.data)
    return unsigned + Signer(SIGNING_KEY, certificate).sign_discovery_reply(unsigned)


def right(data: bytes, port: int) -> list[bytes]:
    """Return the answers of an edge of another authority, then noise, then of the genuine edge."""
    return [here(data, port, STRANGERS_KEY), b"\x07noise", here(data, port, AUTHORITY_KEY)]


def wrong(data: bytes, port: int) -> list[bytes]:
    return [here(data, port, STRANGERS_KEY)]


def naming(*records: str) -> Answer:
    """A DNS server with these SRV records of example.org."""

    def answer(data: bytes, port: int) -> list[bytes]:
        query = message.from_wire(data)
        response = message.make_response(query)
        response.flags |= flags.RA
        if query.question[0].name.to_text() == "_milepost._udp.example.org.":
            response.answer.append(rrset.from_text(query.question[0].name, 60, "IN", "SRV", *records))
        return [response.to_wire()]

    return answer


def settings_for(url: str, *, resolver: tuple[str, int] | None = None, edge_key: bytes = b"") -> DiscoverySettings:
    return DiscoverySettings(udp_target_of(url), HERE, AUTHORITY, edge_key, resolver)


def test_an_unknown_edge_key_is_discovered_and_invalid_answers_are_ignored() -> None:
    with answering(right) as port:
        found = run(find_edge(settings_for(f"udp://127.0.0.1:{port}"), 5))
    assert found == EdgeAddress("127.0.0.1", port, public_of(EDGE_KEY))


def test_an_edge_of_another_certificate_authority_is_not_discovered() -> None:
    with answering(wrong) as port, pytest.raises(EdgeUnreachable, match="certified by the certificate authority"):
        run(find_edge(settings_for(f"udp://127.0.0.1:{port}"), 1))


def test_an_edge_with_a_configured_key_is_not_queried() -> None:
    assert run(find_edge(settings_for("udp://127.0.0.1:9", edge_key=bytes(32)), 1)) == EdgeAddress("127.0.0.1", 9, bytes(32))


def test_edges_from_dns_are_tried_by_priority_until_one_answers() -> None:
    with answering(wrong) as first, answering(right) as second, answering(right) as third:
        records = [f"{priority} 5 {port} 127.0.0.1." for priority, port in ((3, third), (1, first), (2, second))]
        with answering(naming(*records)) as dns:
            found = run(find_edge(settings_for("udp+srv://example.org", resolver=("127.0.0.1", dns)), 20))
    assert found == EdgeAddress("127.0.0.1", second, public_of(EDGE_KEY))


def test_a_domain_without_edges_is_reported() -> None:
    with answering(naming()) as dns, pytest.raises(EdgeUnreachable, match=r"_milepost\._udp\.example\.net"):
        run(find_edge(settings_for("udp+srv://example.net", resolver=("127.0.0.1", dns)), 2))


def test_a_closed_port_fails_at_once_with_a_connect_limit_of_zero() -> None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as bound:
        bound.bind(("127.0.0.1", 0))
        port = bound.getsockname()[1]
    with pytest.raises(EdgeUnreachable, match="refused"):
        run(connect(f"udp://127.0.0.1:{port}", place=HERE, connect_within_s=0).open())


def test_closing_during_discovery_ends_it() -> None:
    async def work() -> None:
        client = connect("udp+find://?port=9&interface=127.0.0.1", place=HERE, connect_within_s=50)
        opening = asyncio.create_task(client.open())
        await asyncio.sleep(0)
        await client.close()
        with pytest.raises(ClientClosed):
            await opening

    run(work())


def test_the_example_drives_a_vehicle() -> None:
    command = [sys.executable, str(ROOT / "examples" / "vehicle.py")]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert (done.returncode, done.stderr) == (0, "")
    assert "truck-7 receives from car-1: slow down, emergency" in done.stdout
