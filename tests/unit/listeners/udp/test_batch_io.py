"""Batch I/O: datagrams arrive unchanged with their source address, and the fault of one does not stop the others."""

import errno
import os
import select
import socket
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Literal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from milepost.listeners.udp.batch_io import ADDRESS_BYTES, HEAD_BYTES, BatchReceiver, BatchSender, host_and_port_of, sockaddr_of

HOSTS = {socket.AF_INET: "127.0.0.1", socket.AF_INET6: "::1"}
ARRIVE_S_MAX = 5.0
LENGTHS = [0, 1, HEAD_BYTES - 1, HEAD_BYTES, HEAD_BYTES + 1, 9_000, 65_507]


def bound(family: socket.AddressFamily = socket.AF_INET) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_DGRAM)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
    sock.bind((HOSTS[family], 0))
    return sock


@pytest.fixture
def sockets() -> Iterator[ExitStack]:
    with ExitStack() as stack:
        yield stack


@pytest.fixture(params=list(HOSTS))
def pair(request: pytest.FixtureRequest, sockets: ExitStack) -> tuple[socket.socket, socket.socket]:
    """Two sockets of one family."""
    return sockets.enter_context(bound(request.param)), sockets.enter_context(bound(request.param))


def addresses_of(*peers: socket.socket) -> NDArray[np.uint8]:
    raw = b"".join(sockaddr_of(*peer.getsockname()[:2]) for peer in peers)
    return np.frombuffer(raw, np.uint8).reshape(-1, ADDRESS_BYTES)


def all_received(inbound: BatchReceiver, sock: socket.socket, count: int) -> list[bytes]:
    """Receive *count* datagrams, in as many batches as needed."""
    found: list[bytes] = []
    while len(found) < count:
        assert select.select([sock], [], [], ARRIVE_S_MAX)[0], f"{len(found)} of {count} arrived"
        inbound.receive()
        found += inbound.all_data()
    assert inbound.receive() == 0
    return found


def text(length: int, salt: int = 0) -> bytes:
    """Return bytes that differ by position and by *salt*, with zeros at the end."""
    return bytes((7 * at + salt + at // 256) % 256 for at in range(length))[: max(0, length - 3)] + bytes(min(3, length))


def test_every_datagram_is_read_whole_whatever_its_length(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    sent = [text(length, at) for at, length in enumerate(LENGTHS)]
    for datagram in sent:
        sender.sendto(datagram, receiver.getsockname())
    inbound = BatchReceiver(receiver)
    assert inbound.receive() == len(sent)
    assert inbound.lengths.tolist() == LENGTHS
    assert inbound.lengths.dtype == np.int32
    assert inbound.all_data() == sent
    assert [inbound.data(at) for at in range(len(sent))] == sent
    for row, datagram in zip(inbound.rows, sent, strict=False):
        assert bytes(row[: len(datagram)]) == datagram[:HEAD_BYTES]


def test_every_datagram_has_the_address_that_it_came_from(sockets: ExitStack) -> None:
    for family in HOSTS:
        receiver, *senders = (sockets.enter_context(bound(family)) for _ in range(4))
        inbound = BatchReceiver(receiver)
        for sender in senders:
            sender.sendto(b"here", receiver.getsockname())
        assert inbound.receive() == len(senders)
        assert (inbound.addresses[: len(senders)] == addresses_of(*senders)).all()
        found = [host_and_port_of(inbound.address_bytes(at)) for at in range(len(senders))]
        assert found == [sender.getsockname()[:2] for sender in senders]


def test_a_batch_is_limited_to_its_capacity_and_the_rest_follows_in_the_next(pair: tuple[socket.socket, socket.socket]) -> None:
    sender, receiver = pair
    sent = [text(20, at) for at in range(7)]
    for datagram in sent:
        sender.sendto(datagram, receiver.getsockname())
    inbound = BatchReceiver(receiver, batch=3)
    found = []
    for count in (3, 3, 1, 0):
        assert inbound.receive() == len(inbound.lengths) == count
        found += inbound.all_data()
    assert found == sent


def test_the_source_address_is_complete_in_every_batch(pair: tuple[socket.socket, socket.socket]) -> None:
    """The kernel overwrites the address length that it was given."""
    sender, receiver = pair
    inbound = BatchReceiver(receiver, batch=1)
    for _ in range(3):
        inbound.addresses[:] = 0
        sender.sendto(b"here", receiver.getsockname())
        assert inbound.receive() == 1
        assert inbound.address_bytes(0) == bytes(addresses_of(sender))


def test_an_icmp_error_of_a_closed_peer_stops_no_batch(pair: tuple[socket.socket, socket.socket]) -> None:
    sock, peer = pair
    gone = peer.getsockname()
    sock.connect(gone)
    peer.close()
    sock.send(b"anybody?")
    assert sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR) == errno.ECONNREFUSED
    sock.send(b"anybody?")
    with socket.socket(sock.family, socket.SOCK_DGRAM) as returned:
        returned.bind(gone)
        returned.sendto(b"back", sock.getsockname())
        inbound = BatchReceiver(sock)
        assert inbound.receive() == 1
        assert inbound.all_data() == [b"back"]


def test_an_icmp_error_of_a_closed_peer_costs_no_later_datagram(pair: tuple[socket.socket, socket.socket]) -> None:
    sock, peer = pair
    gone = peer.getsockname()
    sock.connect(gone)
    peer.close()
    sock.send(b"anybody?")
    with bound(sock.family) as other:
        outbound = BatchSender(sock)
        assert outbound.send_many([b"one", b"two"], addresses_of(other, other)) == 2
        assert outbound.failed == 0
        assert all_received(BatchReceiver(other), other, 2) == [b"one", b"two"]


def test_a_closed_socket_raises_an_error() -> None:
    sock = bound()
    inbound, outbound, addresses = BatchReceiver(sock), BatchSender(sock), addresses_of(sock)
    sock.close()
    with pytest.raises(OSError, match="Bad file"):
        inbound.receive()
    with pytest.raises(OSError, match="Bad file"):
        outbound.send_many([b"x"], addresses)


@pytest.mark.parametrize("tail", [b"", b"t", bytes(range(200))], ids=len)
@pytest.mark.parametrize("head_bytes", [0, 1, 33])
def test_each_receiver_gets_its_own_head_and_the_shared_tail(
    pair: tuple[socket.socket, socket.socket], head_bytes: int, tail: bytes
) -> None:
    sender, receiver = pair
    heads = np.arange(20 * head_bytes, dtype=np.uint8).reshape(20, head_bytes)
    outbound = BatchSender(sender, batch=8)
    assert outbound.send_shared(heads, tail, addresses_of(*[receiver] * 20)) == 20
    assert all_received(BatchReceiver(receiver), receiver, 20) == [bytes(head) + tail for head in heads]


@pytest.mark.parametrize("order", ["C", "F"])
def test_heads_and_addresses_may_be_slices_of_any_memory_order(sockets: ExitStack, order: Literal["C", "F"]) -> None:
    sender, one, other, nobody = (sockets.enter_context(bound()) for _ in range(4))
    heads = np.array(np.arange(80, dtype=np.uint8).reshape(4, 20), order=order)[::2, 3:9]
    addresses = np.array(addresses_of(one, nobody, other, nobody), order=order)[::2]
    assert BatchSender(sender).send_shared(heads, b"tail", addresses) == 2
    assert all_received(BatchReceiver(one), one, 1) == [bytes(range(3, 9)) + b"tail"]
    assert all_received(BatchReceiver(other), other, 1) == [bytes(range(43, 49)) + b"tail"]
    assert BatchReceiver(nobody).receive() == 0


def test_each_datagram_is_sent_to_its_own_address(sockets: ExitStack) -> None:
    for family in HOSTS:
        sender, *receivers = (sockets.enter_context(bound(family)) for _ in range(4))
        taken = [receivers[at % 3] for at in range(30)]
        assert BatchSender(sender, batch=7).send_many([text(at, at) for at in range(30)], addresses_of(*taken)) == 30
        for at, receiver in enumerate(receivers):
            assert all_received(BatchReceiver(receiver), receiver, 10) == [text(number, number) for number in range(at, 30, 3)]


@given(datagrams=st.lists(st.binary(max_size=3_000), max_size=40), batch=st.integers(1, 45))
def test_datagrams_arrive_unchanged_and_in_order(datagrams: list[bytes], batch: int) -> None:
    with bound() as sender, bound() as receiver:
        addresses = addresses_of(*[receiver] * len(datagrams))
        assert BatchSender(sender, batch=batch).send_many(datagrams, addresses) == len(datagrams)
        assert all_received(BatchReceiver(receiver, batch=batch), receiver, len(datagrams)) == datagrams


@pytest.mark.parametrize("bad_at", [0, 1, 4, 5, 9])
@pytest.mark.parametrize("bad", ["port 0", "another family", "no address", "too long"])
def test_a_datagram_that_cannot_be_sent_is_counted_and_the_others_arrive(sockets: ExitStack, bad: str, bad_at: int) -> None:
    sender, receiver = (sockets.enter_context(bound()) for _ in range(2))
    datagrams, addresses = [text(10, at) for at in range(10)], addresses_of(*[receiver] * 10).copy()
    if bad == "too long":
        datagrams[bad_at] = bytes(65_508)
    else:
        raw = {"port 0": sockaddr_of("127.0.0.1", 0), "another family": sockaddr_of("::1", 9), "no address": bytes(ADDRESS_BYTES)}
        addresses[bad_at] = np.frombuffer(raw[bad], np.uint8)
    outbound = BatchSender(sender, batch=5)
    assert outbound.send_many(datagrams, addresses) == 10
    assert outbound.failed == 1
    del datagrams[bad_at]
    assert all_received(BatchReceiver(receiver), receiver, 9) == datagrams


def test_many_invalid_addresses_in_a_row_do_not_stop_the_batch(sockets: ExitStack) -> None:
    sender, receiver = (sockets.enter_context(bound()) for _ in range(2))
    addresses = np.zeros((50, ADDRESS_BYTES), np.uint8)
    addresses[[0, 25, 49]] = addresses_of(receiver)
    outbound = BatchSender(sender, batch=16)
    heads = np.arange(50, dtype=np.uint8).reshape(50, 1)
    assert outbound.send_shared(heads, b"!", addresses) == 50
    assert outbound.failed == 47
    assert all_received(BatchReceiver(receiver), receiver, 3) == [b"\x00!", b"\x19!", b"\x31!"]


@pytest.mark.parametrize("batch", [3, 512])
def test_a_full_socket_leaves_the_rest_to_the_caller(batch: int) -> None:
    """UDP over loopback is never full; a local datagram socket whose receiver is slow is."""
    name = b"\0" + f"milepost-{os.getpid()}-{batch}".encode().ljust(ADDRESS_BYTES - 3, b"_")
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as receiver, socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sender:
        receiver.bind(name)
        raw = int(socket.AF_UNIX).to_bytes(2, "little") + name
        addresses = np.frombuffer(raw * 2_000, np.uint8).reshape(-1, ADDRESS_BYTES)
        datagrams = [text(8, at) for at in range(2_000)]
        outbound = BatchSender(sender, batch=batch)
        taken = outbound.send_many(datagrams, addresses)
        assert 0 < taken < 2_000
        assert outbound.send_many(datagrams[taken:], addresses[taken:]) == 0
        assert outbound.send_shared(np.zeros((5, 3), np.uint8), b"", addresses[:5]) == 0
        assert outbound.failed == 0
        assert [receiver.recv(100) for _ in range(taken)] == datagrams[:taken]


@pytest.mark.parametrize("shape", [(1, ADDRESS_BYTES), (2, ADDRESS_BYTES - 12), (2 * ADDRESS_BYTES,)])
def test_addresses_of_another_shape_raise_an_error(sockets: ExitStack, shape: tuple[int, ...]) -> None:
    outbound = BatchSender(sockets.enter_context(bound()))
    with pytest.raises(AssertionError):
        outbound.send_many([b"one", b"two"], np.zeros(shape, np.uint8))
    with pytest.raises(AssertionError):
        outbound.send_shared(np.zeros((2, 5), np.uint8), b"", np.zeros(shape, np.uint8))


@given(host=st.ip_addresses(), port=st.integers(0, 65_535))
def test_addresses_survive_a_round_trip(host: object, port: int) -> None:
    raw = sockaddr_of(str(host), port)
    assert len(raw) == ADDRESS_BYTES
    found, found_port = host_and_port_of(raw)
    family = socket.AF_INET6 if ":" in str(host) else socket.AF_INET
    assert socket.inet_pton(family, found) == socket.inet_pton(family, str(host))
    assert found_port == port


def test_an_ipv6_address_keeps_its_scope() -> None:
    assert host_and_port_of(sockaddr_of("fe80::7%3", 4_000)) == ("fe80::7%3", 4_000)


@pytest.mark.parametrize("host", ["localhost", "", "example.org"])
def test_a_name_is_no_numeric_host(host: str) -> None:
    with pytest.raises(socket.gaierror):
        sockaddr_of(host, 1)
