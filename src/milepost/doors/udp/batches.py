"""Batches: many datagrams in one system call, in and out; what Python does is done once a batch.

What must hold:
- whatever a call hands to the kernel by its address is alive until the call returns;
- neither a bad peer nor news of one that has gone (ICMP) ever stops a batch: only faults of our own are raised;
- one thread at a time uses an `Inbound` or an `Outbound`.

recvmmsg and sendmmsg take an array of headers, each of which points to an address and to pieces of memory (Linux, 64 bits):

    header, 64 bytes:  name 8 | its length 4 | pieces 8 | how many 8 | control 8 | its length 8 | flags 4 | length 4
    piece, 16 bytes:   where 8 | length 8                              (what is 4 bytes has 4 of padding after it)

Addresses are as in `addresses.py`: what came with a datagram is what an answer takes.
"""

import ctypes
import errno
import mmap
import os
import socket
import sys
from io import BytesIO
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from milepost.doors.udp.addresses import ADDRESS_BYTES
from milepost.matching.columns import column

HEAD_BYTES: Final = 2048
"""So much of each datagram lies in `Inbound.rows`."""

DATAGRAM_BYTES_MAX: Final = 65_535
BATCH_MAX: Final = 1024
"""More the kernel does not take in one call."""

NEWS_MAX: Final = 16
"""So many errors that belong to no datagram are passed over in one call."""

_FEW: Final = 4
"""So few datagrams are cut out one by one: arrays cost more to begin with."""

_TAIL_BYTES: Final = DATAGRAM_BYTES_MAX - HEAD_BYTES
_HEADER: Final = np.dtype(
    [
        ("name", "u8"),
        ("name_length", "u8"),  # with its padding, since the machine is little-endian; so have `flags` and `length`
        ("pieces", "u8"),
        ("piece_count", "u8"),
        ("control", "u8"),
        ("control_length", "u8"),
        ("flags", "u8"),
        ("length", "u8"),
    ]
)
_PIECE: Final = np.dtype([("at", "u8"), ("length", "u8")])
assert sys.platform == "linux"
assert sys.byteorder == "little"
assert (ctypes.sizeof(ctypes.c_void_p), _HEADER.itemsize, _PIECE.itemsize) == (8, 64, 16)

_FULL: Final = frozenset((errno.EAGAIN, errno.ENOBUFS, errno.ENOMEM))
_OURS: Final = frozenset((errno.EBADF, errno.ENOTSOCK, errno.EFAULT, errno.ENOSYS))

_libc: Final = ctypes.CDLL(None, use_errno=True)
_recvmmsg: Final = _libc.recvmmsg
_recvmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int, ctypes.c_void_p)
_sendmmsg: Final = _libc.sendmmsg
_sendmmsg.argtypes = (ctypes.c_int, ctypes.c_void_p, ctypes.c_uint, ctypes.c_int)


class Inbound:
    """What has arrived at a socket, a batch at a time; the batch lasts until the next `receive`."""

    __slots__ = (
        "_count",
        "_headers",
        "_headers_at",
        "_heads",
        "_lengths",
        "_name_lengths",
        "_pieces",
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
        self._heads = mmap.mmap(-1, batch * HEAD_BYTES)  # the one kind of memory whose slices are bytes at once
        self._starts = np.arange(0, batch * HEAD_BYTES, HEAD_BYTES)
        self._tails: NDArray[np.uint8] = column(batch, np.uint8, _TAIL_BYTES)
        self.rows: NDArray[np.uint8] = np.frombuffer(self._heads, np.uint8).reshape(batch, HEAD_BYTES)
        """The beginning of each datagram; what lies after its length is left from others."""
        self.addresses: NDArray[np.uint8] = np.zeros((batch, ADDRESS_BYTES), np.uint8)
        """Where each datagram came from."""
        self._headers, self._pieces = _headers_with_pieces(batch)
        self._headers["name"] = _row_places(self.addresses)
        self._headers["piece_count"] = 2
        self._pieces["at"] = np.stack((_row_places(self.rows), _row_places(self._tails)), axis=1)
        self._pieces["length"] = HEAD_BYTES, _TAIL_BYTES
        self._headers_at = _place(self._headers)
        self._name_lengths: NDArray[np.uint64] = self._headers["name_length"]
        self._lengths: NDArray[np.uint64] = self._headers["length"]
        self._name_lengths[:] = ADDRESS_BYTES
        self.lengths: NDArray[np.int32] = np.empty(0, np.int32)
        """How long each datagram of the batch is."""

    def receive(self) -> int:
        """How many datagrams the new batch has: as many as were waiting and it has room for, perhaps none."""
        self._name_lengths[: self._count] = ADDRESS_BYTES  # the kernel has written how much it used
        self._count = self._fill()
        self.lengths = self._lengths[: self._count].astype(np.int32)
        return self._count

    def _fill(self) -> int:
        fd, room = self._socket.fileno(), len(self.rows)
        for _ in range(NEWS_MAX):
            count: int = _recvmmsg(fd, self._headers_at, room, socket.MSG_DONTWAIT, None)
            if count >= 0:
                return count
            if _is_full(ctypes.get_errno()):
                return 0
        return 0

    def data(self, at: int) -> bytes:
        """One datagram of the batch."""
        start, length = at * HEAD_BYTES, int(self.lengths[at])
        if length <= HEAD_BYTES:
            return self._heads[start : start + length]
        return self._heads[start : start + HEAD_BYTES] + self._tails[at, : length - HEAD_BYTES].tobytes()

    def address_bytes(self, at: int) -> bytes:
        """Where one datagram of the batch came from."""
        return bytes(self.addresses[at])

    def all_data(self) -> list[bytes]:
        """Every datagram of the batch."""
        if self._count <= _FEW:
            return [self.data(at) for at in range(self._count)]
        starts, heads = self._starts[: self._count], self._heads
        ends = starts + self.lengths
        found = [heads[start:end] for start, end in zip(starts.tolist(), ends.tolist(), strict=True)]
        for at in np.flatnonzero(self.lengths > HEAD_BYTES).tolist():
            found[at] = self.data(at)
        return found


class Outbound:
    """Sends many datagrams at once; `failed` counts those that the kernel refused for their own sake."""

    __slots__ = ("_batch", "_headers", "_headers_at", "_joined", "_pieces", "_socket", "failed")

    def __init__(self, sock: socket.socket, *, batch: int = 512) -> None:
        assert 0 < batch <= BATCH_MAX
        self._socket = sock
        self._batch = batch
        self._headers, self._pieces = _headers_with_pieces(batch)
        self._headers["name_length"] = ADDRESS_BYTES
        self._headers_at = _place(self._headers)
        self._joined = BytesIO()  # grows to the longest batch
        self.failed = 0

    def send_shared(self, heads: NDArray[np.uint8], tail: bytes, addresses: NDArray[np.uint8]) -> int:
        """Send each head, followed by the tail that all share; gives how many are done with, sent or failed.

        If they are fewer than there are heads, the socket has no room: the rest is to be sent when it has.
        """
        heads, shared = np.ascontiguousarray(heads, np.uint8), np.frombuffer(tail, np.uint8)
        head_places, tail_place = _row_places(heads), _place(shared)
        done = 0
        while done < len(heads):
            pieces = self._pieces[: len(heads) - done]
            pieces["at"][:, 0] = head_places[done : done + len(pieces)]
            pieces["at"][:, 1] = tail_place
            pieces["length"] = heads.shape[1], len(tail)
            sent = self._send(addresses[done : done + len(pieces)], len(pieces), piece_count=2)
            done += sent
            if sent < len(pieces):
                break
        return done

    def send_many(self, datagrams: list[bytes], addresses: NDArray[np.uint8]) -> int:
        """Send each datagram to its address; gives how many are done with, as `send_shared` does."""
        done = 0
        while done < len(datagrams):
            part = datagrams[done : done + self._batch]
            lengths = np.fromiter(map(len, part), np.uint64, len(part))
            self._joined.seek(0)
            self._joined.writelines(part)
            with self._joined.getbuffer() as joined:
                pieces = self._pieces[: len(part), 0]
                pieces["at"] = np.cumsum(lengths) - lengths + np.uint64(_place(np.frombuffer(joined, np.uint8)))
                pieces["length"] = lengths
                sent = self._send(addresses[done : done + len(part)], len(part), piece_count=1)
            done += sent
            if sent < len(part):
                break
        return done

    def _send(self, addresses: NDArray[np.uint8], count: int, *, piece_count: int) -> int:
        """Send what the first so many headers and their pieces say."""
        addresses = np.ascontiguousarray(addresses, np.uint8)
        assert addresses.shape == (count, ADDRESS_BYTES)
        self._headers["name"][:count] = _row_places(addresses)
        self._headers["piece_count"][:count] = piece_count
        fd, done, was_refused = self._socket.fileno(), 0, False
        while done < count:
            sent: int = _sendmmsg(
                fd, self._headers_at + done * _HEADER.itemsize, count - done, socket.MSG_DONTWAIT | socket.MSG_NOSIGNAL
            )
            if sent > 0:
                done, was_refused = done + sent, False
            elif _is_full(ctypes.get_errno()):
                break
            elif was_refused:
                self.failed += 1
                done, was_refused = done + 1, False
            else:
                was_refused = True  # the error may be news of an earlier datagram: once more
        return done


def _headers_with_pieces(batch: int) -> tuple[NDArray[Any], NDArray[Any]]:
    """Headers, each of which points to its own two pieces."""
    headers, pieces = np.zeros(batch, _HEADER), np.zeros((batch, 2), _PIECE)
    headers["pieces"] = _row_places(pieces)
    return headers, pieces


def _place(array: NDArray[Any]) -> int:
    """Where in memory an array begins."""
    place: int = array.__array_interface__["data"][0]
    return place


def _row_places(array: NDArray[Any]) -> NDArray[np.uint64]:
    """Where in memory each row begins."""
    return np.arange(len(array), dtype=np.uint64) * np.uint64(array.strides[0]) + np.uint64(_place(array))


def _is_full(code: int) -> bool:
    """Whether the error means that there is nothing to do now; False for all that concern one peer; ours are raised."""
    if code in _OURS:
        raise OSError(code, os.strerror(code))
    return code in _FULL
