"""Batch I/O: many datagrams per system call, in and out, with the Python work done once per batch.

Invariants:
- memory passed to the kernel by address stays alive until the call returns;
- neither a bad peer nor an ICMP error about one stops a batch: only local errors are raised;
- a `BatchReceiver` or `BatchSender` is used by one thread at a time.

recvmmsg and sendmmsg take an array of headers (mmsghdr), each of which points to an address and to buffers (Linux, 64 bits):

    header, 64 bytes:  name 8 | its length 4 | iovecs 8 | count 8 | control 8 | its length 8 | flags 4 | length 4
    iovec, 16 bytes:   address 8 | length 8                            (4-byte fields have 4 bytes of padding after them)

The address received with a datagram is the address to use for its reply.
"""

import ctypes
import errno
import mmap
import os
import socket
import struct
import sys
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column

# Addresses in the kernel's format: a raw sockaddr of either family, padded with zeros to one length.
#
# IPv4:  family 2 | port 2 | address 4 | zeros 20
# IPv6:  family 2 | port 2 | flow 4 | address 16 | scope 4      (the family in native byte order, the port big-endian)

ADDRESS_BYTES: Final = 28
"""Size of a sockaddr_in6; a sockaddr_in is 16 bytes, and the kernel accepts it with zeros after it."""

_IPV4: Final = struct.Struct("=H2s4s20x")  # family, port, address
_IPV6: Final = struct.Struct("=H2sI16sI")  # family, port, flow, address, scope
assert _IPV4.size == _IPV6.size == ADDRESS_BYTES


def sockaddr_of(host: str, port: int) -> bytes:
    """Return the raw sockaddr of a numeric host, such as 192.0.2.7, 2001:db8::7 or fe80::7%2."""
    found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    family, _, _, _, (name, *rest) = found[0]
    port_bytes = port.to_bytes(2)
    if family == socket.AF_INET:
        return _IPV4.pack(family, port_bytes, socket.inet_pton(family, str(name)))
    _, flow, scope = rest
    return _IPV6.pack(family, port_bytes, flow, socket.inet_pton(family, str(name).partition("%")[0]), scope)


def host_and_port_of(raw: bytes) -> tuple[str, int]:
    """Return the numeric host and the port of a raw sockaddr."""
    family = int.from_bytes(raw[:2], sys.byteorder)
    if family == socket.AF_INET:
        _, port, host = _IPV4.unpack(raw)
        return socket.inet_ntop(family, host), int.from_bytes(port)
    assert family == socket.AF_INET6
    _, port, _, host, scope = _IPV6.unpack(raw)
    return socket.inet_ntop(family, host) + (f"%{scope}" if scope else ""), int.from_bytes(port)


HEAD_BYTES: Final = 2048
"""Maximum bytes of each datagram in `BatchReceiver.rows`; the rest is stored apart."""

DATAGRAM_BYTES_MAX: Final = 65_535
BATCH_MAX: Final = 1024
"""Maximum datagrams per system call, set by the kernel."""

SKIPPED_ERRORS_MAX: Final = 16
"""Maximum errors that belong to no datagram skipped in one `receive`."""

_SLICED_SINGLY_MAX: Final = 4
"""Maximum datagrams sliced one by one: below it, array operations cost more."""

_TAIL_BYTES: Final = DATAGRAM_BYTES_MAX - HEAD_BYTES
_HEADER: Final = np.dtype(
    [
        ("name", "u8"),
        ("name_length", "u8"),  # includes its padding (little-endian only); so do `flags` and `length`
        ("iovecs", "u8"),
        ("iovec_count", "u8"),
        ("control", "u8"),
        ("control_length", "u8"),
        ("flags", "u8"),
        ("length", "u8"),
    ]
)
_IOVEC: Final = np.dtype([("at", "u8"), ("length", "u8")])
assert sys.platform == "linux"
assert sys.byteorder == "little"
assert (ctypes.sizeof(ctypes.c_void_p), _HEADER.itemsize, _IOVEC.itemsize) == (8, 64, 16)

_RETRY_LATER_ERRORS: Final = frozenset((errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM))
_LOCAL_ERRORS: Final = frozenset((errno.EBADF, errno.ENOTSOCK, errno.EFAULT, errno.ENOSYS))

_libc: Final = ctypes.CDLL(None, use_errno=True)
_recvmmsg: Final = _libc.recvmmsg
_recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
_sendmmsg: Final = _libc.sendmmsg
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


class BatchReceiver:
    """Receives datagrams in batches; a batch is valid until the next `receive`."""

    __slots__ = (
        "_count",
        "_headers",
        "_headers_at",
        "_heads",
        "_iovecs",
        "_lengths",
        "_name_lengths",
        "_socket",
        "_starts",
        "_tails",
        "addresses",
        "lengths",
        "rows",
    )

    def __init__(self, sock: socket.socket, *, batch: int = 256) -> None:
        assert 0 < batch <= BATCH_MAX
        self._socket = sock
        self._count = 0
        self._heads = mmap.mmap(-1, batch * HEAD_BYTES)  # slices of an mmap are bytes without a second copy
        self._starts = np.arange(0, batch * HEAD_BYTES, HEAD_BYTES)
        self._tails: NDArray[np.uint8] = column(batch, np.uint8, _TAIL_BYTES)
        self.rows: NDArray[np.uint8] = np.frombuffer(self._heads, np.uint8).reshape(batch, HEAD_BYTES)
        """The first bytes of each datagram; bytes beyond its length are stale."""
        self.addresses: NDArray[np.uint8] = np.zeros((batch, ADDRESS_BYTES), np.uint8)
        """The source address of each datagram."""
        self._headers, self._iovecs = _headers_with_iovecs(batch)
        self._headers["name"] = _row_addresses(self.addresses)
        self._headers["iovec_count"] = 2
        self._iovecs["at"] = np.stack((_row_addresses(self.rows), _row_addresses(self._tails)), axis=1)
        self._iovecs["length"] = HEAD_BYTES, _TAIL_BYTES
        self._headers_at = _memory_address(self._headers)
        self._name_lengths: NDArray[np.uint64] = self._headers["name_length"]
        self._lengths: NDArray[np.uint64] = self._headers["length"]
        self._name_lengths[:] = ADDRESS_BYTES
        self.lengths: NDArray[np.int32] = np.empty(0, np.int32)
        """The length of each datagram of the batch."""

    def receive(self) -> int:
        """Receive the waiting datagrams, as many as the batch has room for; return their number."""
        self._name_lengths[: self._count] = ADDRESS_BYTES  # the kernel has overwritten them
        self._count = self._fill()
        self.lengths = self._lengths[: self._count].astype(np.int32)
        return self._count

    def _fill(self) -> int:
        fd, capacity = self._socket.fileno(), len(self.rows)
        for _ in range(SKIPPED_ERRORS_MAX):
            count: int = _recvmmsg(fd, self._headers_at, capacity, socket.MSG_DONTWAIT, None)
            if count >= 0:
                return count
            if _is_full(ctypes.get_errno()):
                return 0
        return 0

    def data(self, at: int) -> bytes:
        """Return one datagram of the batch."""
        start, length = at * HEAD_BYTES, int(self.lengths[at])
        if length <= HEAD_BYTES:
            return self._heads[start : start + length]
        return self._heads[start : start + HEAD_BYTES] + self._tails[at, : length - HEAD_BYTES].tobytes()

    def address_bytes(self, at: int) -> bytes:
        """Return the source address of one datagram of the batch."""
        return bytes(self.addresses[at])

    def all_data(self) -> list[bytes]:
        """Return all datagrams of the batch."""
        if self._count <= _SLICED_SINGLY_MAX:
            return [self.data(at) for at in range(self._count)]
        starts, heads = self._starts[: self._count], self._heads
        ends = starts + self.lengths
        found = [heads[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        for at in np.flatnonzero(self.lengths > HEAD_BYTES).tolist():
            found[at] = self.data(at)
        return found


class BatchSender:
    """Sends datagrams in batches; `failed` counts those that the kernel rejected individually."""

    __slots__ = ("_batch", "_headers", "_headers_at", "_iovecs", "_joined", "_socket", "failed")

    def __init__(self, sock: socket.socket, *, batch: int = 512) -> None:
        assert 0 < batch <= BATCH_MAX
        self._socket = sock
        self._batch = batch
        self._headers, self._iovecs = _headers_with_iovecs(batch)
        self._headers["name_length"] = ADDRESS_BYTES
        self._headers_at = _memory_address(self._headers)
        self._joined = BytesIO()  # grows to the longest batch
        self.failed = 0

    def send_shared(self, heads: NDArray[np.uint8], tail: bytes, addresses: NDArray[np.uint8]) -> int:
        """Send each head followed by the shared tail; return how many are done, sent or failed.

        If fewer than all are done, the socket buffer is full: send the rest when the socket is writable.
        """
        heads, shared = np.ascontiguousarray(heads, np.uint8), np.frombuffer(tail, np.uint8)
        head_addresses, tail_address = _row_addresses(heads), _memory_address(shared)
        done = 0
        while done < len(heads):
            iovecs = self._iovecs[: len(heads) - done]
            iovecs["at"][:, 0] = head_addresses[done : done + len(iovecs)]
            iovecs["at"][:, 1] = tail_address
            iovecs["length"] = heads.shape[1], len(tail)
            sent = self._send(addresses[done : done + len(iovecs)], len(iovecs), iovec_count=2)
            done += sent
            if sent < len(iovecs):
                break
        return done

    def send_many(self, datagrams: list[bytes], addresses: NDArray[np.uint8]) -> int:
        """Send each datagram to its address; return how many are done, as in `send_shared`."""
        done = 0
        while done < len(datagrams):
            part = datagrams[done : done + self._batch]
            lengths = np.fromiter(map(len, part), np.uint64, len(part))
            self._joined.seek(0)
            self._joined.writelines(part)
            with self._joined.getbuffer() as joined:
                iovecs = self._iovecs[: len(part), 0]
                iovecs["at"] = np.cumsum(lengths) - lengths + np.uint64(_memory_address(np.frombuffer(joined, np.uint8)))
                iovecs["length"] = lengths
                sent = self._send(addresses[done : done + len(part)], len(part), iovec_count=1)
            done += sent
            if sent < len(part):
                break
        return done

    def _send(self, addresses: NDArray[np.uint8], count: int, *, iovec_count: int) -> int:
        """Send the datagrams of the first *count* headers; return how many are done."""
        addresses = np.ascontiguousarray(addresses, np.uint8)
        assert addresses.shape == (count, ADDRESS_BYTES)
        self._headers["name"][:count] = _row_addresses(addresses)
        self._headers["iovec_count"][:count] = iovec_count
        fd, done, was_rejected = self._socket.fileno(), 0, False
        while done < count:
            sent: int = _sendmmsg(
                fd, self._headers_at + done * _HEADER.itemsize, count - done, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            )
            if sent > 0:
                done, was_rejected = done + sent, False
            elif _is_full(ctypes.get_errno()):
                break
            elif was_rejected:
                self.failed += 1
                done, was_rejected = done + 1, False
            else:
                was_rejected = True  # the error may concern an earlier datagram: try once more
        return done


def _headers_with_iovecs(batch: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return headers that each point to their own two iovecs."""
    headers, iovecs = np.zeros(batch, _HEADER), np.zeros((batch, 2), _IOVEC)
    headers["iovecs"] = _row_addresses(iovecs)
    return headers, iovecs


def _memory_address(array: NDArray[Any]) -> int:
    """Return the memory address of an array."""
    address: int = array.__array_interface__["data"][0]
    return address


def _row_addresses(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Return the memory address of each row."""
    return np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0]) + np.uint64(_memory_address(array))


def _is_full(code: int) -> bool:
    """Return whether an error means "try later"; False for errors that concern one peer. Local errors are raised."""
    if code in _LOCAL_ERRORS:
        raise OSError(code, os.strerror(code))
    return code in _RETRY_LATER_ERRORS
