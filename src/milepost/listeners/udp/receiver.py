"""Decryption of a batch of datagrams: canonical reports as columns, everything else one by one.

    datagrams ─▶ token: known? ─▶ counter: new? ─▶ decrypt ─▶ canonical report? ─▶ columns
                  └▶ strangers         └▶ counted      └▶ counted        └▶ the rest, as plain datagrams

Invariants:
- nothing of a datagram takes effect before it is authenticated: neither its counter nor its source address;
- a report read as columns equals the result of `wire.datagrams.decode`, or is refused for the same reason.
"""

from collections import OrderedDict
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.broker.counts import Counts
from milepost.listeners.udp.connection import REPORT_TAIL_BYTES, Open, SessionColumns, UdpConnection
from milepost.model.reasons import Reason
from milepost.vetting import Batch
from milepost.wire.sealed import DATA_HEAD_BYTES, NONCE_ZEROS, Kind

_TAIL: Final = np.dtype(
    [
        ("latitude", "<f8"),
        ("tag_3", "u1"),
        ("longitude", "<f8"),
        ("tag_4", "u1"),
        ("seen_at", "<i8"),
        ("tag_5", "u1"),
        ("heading", "<f8"),
        ("tag_6", "u1"),
        ("speed", "<f8"),
    ]
)
_DATA: Final = int(Kind.DATA)
_PLAIN_HEAD: Final = b"\x08\x01\x11"
"""Prefix of a canonical datagram with a session."""


class Other(NamedTuple):
    """A datagram to decode individually."""

    row: int
    link: UdpConnection
    plain: bytes
    token: int
    """The token that the decoded datagram must carry."""


class Arrived(NamedTuple):
    """The content of a batch, by row of the batch."""

    report_rows: list[int]
    report_links: list[UdpConnection]
    report_tails: list[bytes]
    others: list[Other]
    strangers: list[int]


class Reader(Protocol):
    """Reads batches of datagrams."""

    def read(self, datagrams: list[bytes]) -> Arrived:
        """Return the content of a batch."""

    def opens(self, key: bytes, data: bytes) -> bool:
        """Return whether a datagram was encrypted with *key*."""

    def pin(self, link: UdpConnection) -> None:
        """Keep the current key of a connection when the session's key changes."""

    def forget(self, link: UdpConnection) -> None:
        """Release the cipher of a connection that has ended."""


class SealedReader:
    """Decrypts datagrams."""

    def __init__(self, links: dict[bytes, UdpConnection], columns: SessionColumns, counts: Counts, openers_max: int) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # OpenSSL, only needed with encryption
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._broken = InvalidTag, ValueError  # the latter: too short to have a counter
        self._cipher = AESGCM
        self._links = links
        self._columns = columns
        self._counts = counts
        self._openers_max = openers_max
        self._ready: OrderedDict[UdpConnection, None] = OrderedDict()  # finding a dict's first entry slows down with each removal

    def read(self, datagrams: list[bytes]) -> Arrived:
        """Return the content of a batch. The hottest loop of the listener: one iteration per datagram."""
        get, refused, number_of = self._links.get, self._counts.refused, int.from_bytes
        found = Arrived([], [], [], [], [])
        rows, links, tails, others, strangers = found
        for row, data in enumerate(datagrams):
            link = get(data[1:9])
            if link is None or data[0] != _DATA:
                strangers.append(row)
                continue
            counter_bytes, window = data[9:17], link.window
            counter = number_of(counter_bytes, "big")
            is_next = counter == window.greatest + 1
            if not is_next and not window.is_new(counter):
                refused[Reason.REPLAYED] += 1
                continue
            try:
                plain = (link.open or self._opener(link))(NONCE_ZEROS + counter_bytes, data[17:], None)
            except self._broken:
                refused[Reason.SEAL_BROKEN] += 1
                continue
            if is_next:
                window.greatest = counter
            else:
                window.take(counter)
            if len(plain) == link.report_size and plain.startswith(link.head):
                rows.append(row)
                links.append(link.heir or link)
                tails.append(plain[-REPORT_TAIL_BYTES:])
            else:
                others.append(Other(row, link.heir or link, plain, link.token))
        return found

    def _opener(self, link: UdpConnection) -> Open:
        """Return the cipher of a connection and cache it, evicting the oldest if the cache is full."""
        if len(self._ready) >= self._openers_max:
            oldest, _ = self._ready.popitem(last=False)
            oldest.open = None
        self._ready[link] = None
        link.open = self._cipher(self._columns.receive_keys[link.number].tobytes()).decrypt
        return link.open

    def opens(self, key: bytes, data: bytes) -> bool:
        """Return whether a datagram was encrypted with *key*."""
        try:
            self._cipher(key).decrypt(NONCE_ZEROS + data[9:DATA_HEAD_BYTES], data[DATA_HEAD_BYTES:], None)
        except self._broken:
            return False
        return True

    def pin(self, link: UdpConnection) -> None:
        """Keep the current key of a connection when the session's key changes."""
        if link.open is None:
            self._opener(link)
        self._ready.pop(link, None)

    def forget(self, link: UdpConnection) -> None:
        """Release the cipher of a connection that has ended."""
        self._ready.pop(link, None)
        link.open = None


class PlainReader:
    """Reads unencrypted datagrams: for experiments."""

    def __init__(self, links: dict[bytes, UdpConnection]) -> None:
        self._links = links

    def read(self, datagrams: list[bytes]) -> Arrived:
        """Return the content of a batch."""
        get = self._links.get
        found = Arrived([], [], [], [], [])
        rows, links, tails, others, strangers = found
        for row, data in enumerate(datagrams):
            link = get(data[3:11]) if data.startswith(_PLAIN_HEAD) else None
            if link is None:
                strangers.append(row)
                continue
            if len(data) == link.report_size and data.startswith(link.head):
                rows.append(row)
                links.append(link.heir or link)
                tails.append(data[-REPORT_TAIL_BYTES:])
            else:
                others.append(Other(row, link.heir or link, data, link.token))
        return found

    def opens(self, key: bytes, data: bytes) -> bool:
        """Return True: without encryption, the token alone identifies the session."""
        del key, data
        return True

    def pin(self, link: UdpConnection) -> None:
        """Do nothing: there are no keys."""

    def forget(self, link: UdpConnection) -> None:
        """Do nothing: nothing is cached."""


def columns_of(numbers: list[int], tails: list[bytes]) -> tuple[Batch, NDArray[np.bool_]]:
    """Return reports as columns, and which of them are not in canonical form after all."""
    read = np.frombuffer(b"".join(tails), _TAIL)
    are_odd = (read["tag_3"] != 0x19) | (read["tag_4"] != 0x21) | (read["tag_5"] != 0x29) | (read["tag_6"] != 0x31)
    headings, speeds = read["heading"].copy(), read["speed"].copy()
    headings[np.isnan(headings)] = -1.0  # NaN on the wire is invalid; NaN in the column means unknown
    speeds[np.isnan(speeds)] = -1.0
    batch = Batch(
        np.array(numbers, np.int32),
        read["latitude"].copy(),
        read["longitude"].copy(),
        read["seen_at"].copy(),
        headings,
        speeds,
    )
    return batch, are_odd
