"""Decryption of a batch of datagrams: canonical reports as columns, everything else one by one.

    datagrams ─▶ token: known? ─▶ counter: new? ─▶ decrypt ─▶ canonical report? ─▶ columns
                  └▶ unknown           └▶ counted      └▶ counted        └▶ the rest, as plain datagrams

Invariants:
- nothing of a datagram takes effect before it is authenticated: neither its counter nor its source address;
- a report read as columns equals the result of `wire.datagrams.decode`, or is refused for the same reason.
"""

from collections import OrderedDict
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.broker.broker_counters import BrokerCounters
from milepost.listeners.udp.connection import REPORT_TAIL_BYTES, Decrypt, SessionColumns, UdpConnection
from milepost.model.reasons import Reason
from milepost.vetting import ReportColumns
from milepost.wire.sealed import DATA_HEAD_BYTES, NONCE_ZEROS, SealedType

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
_DATA: Final = int(SealedType.DATA)
_PLAIN_HEAD: Final = b"\x08\x01\x11"
"""Prefix of a canonical datagram with a session."""


class OtherDatagram(NamedTuple):
    """A datagram to decode individually."""

    row: int
    connection: UdpConnection
    plain: bytes
    token: int
    """The token that the decoded datagram must carry."""


class ReceivedBatch(NamedTuple):
    """The content of a batch, by row of the batch."""

    report_rows: list[int]
    report_connections: list[UdpConnection]
    report_tails: list[bytes]
    others: list[OtherDatagram]
    unknown: list[int]


class DatagramReader(Protocol):
    """Reads batches of datagrams."""

    def read(self, datagrams: list[bytes]) -> ReceivedBatch:
        """Return the content of a batch."""

    def can_decrypt(self, key: bytes, data: bytes) -> bool:
        """Return whether a datagram was encrypted with *key*."""

    def pin(self, connection: UdpConnection) -> None:
        """Keep the current key of a connection when the session's key changes."""

    def forget(self, connection: UdpConnection) -> None:
        """Release the cipher of a connection that has ended."""


class SealedReader:
    """Decrypts datagrams."""

    def __init__(
        self, connections: dict[bytes, UdpConnection], columns: SessionColumns, counts: BrokerCounters, cached_ciphers_max: int
    ) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # OpenSSL, only needed with encryption
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._decryption_errors = InvalidTag, ValueError  # the latter: too short to have a counter
        self._cipher = AESGCM
        self._connections = connections
        self._columns = columns
        self._counts = counts
        self._cached_max = cached_ciphers_max
        self._cached: OrderedDict[UdpConnection, None] = (
            OrderedDict()
        )  # finding a dict's first entry slows down with each removal

    def read(self, datagrams: list[bytes]) -> ReceivedBatch:
        """Return the content of a batch. The hottest loop of the listener: one iteration per datagram."""
        get, refused, number_of = self._connections.get, self._counts.refused, int.from_bytes
        found = ReceivedBatch([], [], [], [], [])
        rows, connections, tails, others, unknown = found
        for row, data in enumerate(datagrams):
            connection = get(data[1:9])
            if connection is None or data[0] != _DATA:
                unknown.append(row)
                continue
            counter_bytes, window = data[9:17], connection.window
            counter = number_of(counter_bytes, "big")
            is_next = counter == window.greatest + 1
            if not is_next and not window.is_new(counter):
                refused[Reason.REPLAYED] += 1
                continue
            try:
                plain = (connection.decrypt or self._decrypt_of(connection))(NONCE_ZEROS + counter_bytes, data[17:], None)
            except self._decryption_errors:
                refused[Reason.DECRYPTION_FAILED] += 1
                continue
            if is_next:
                window.greatest = counter
            else:
                window.take(counter)
            if len(plain) == connection.report_size and plain.startswith(connection.head):
                rows.append(row)
                connections.append(connection.successor or connection)
                tails.append(plain[-REPORT_TAIL_BYTES:])
            else:
                others.append(OtherDatagram(row, connection.successor or connection, plain, connection.token))
        return found

    def _decrypt_of(self, connection: UdpConnection) -> Decrypt:
        """Return the cipher of a connection and cache it, evicting the oldest if the cache is full."""
        if len(self._cached) >= self._cached_max:
            oldest, _ = self._cached.popitem(last=False)
            oldest.decrypt = None
        self._cached[connection] = None
        connection.decrypt = self._cipher(self._columns.receive_keys[connection.number].tobytes()).decrypt
        return connection.decrypt

    def can_decrypt(self, key: bytes, data: bytes) -> bool:
        """Return whether a datagram was encrypted with *key*."""
        try:
            self._cipher(key).decrypt(NONCE_ZEROS + data[9:DATA_HEAD_BYTES], data[DATA_HEAD_BYTES:], None)
        except self._decryption_errors:
            return False
        return True

    def pin(self, connection: UdpConnection) -> None:
        """Keep the current key of a connection when the session's key changes."""
        if connection.decrypt is None:
            self._decrypt_of(connection)
        self._cached.pop(connection, None)

    def forget(self, connection: UdpConnection) -> None:
        """Release the cipher of a connection that has ended."""
        self._cached.pop(connection, None)
        connection.decrypt = None


class PlainReader:
    """Reads unencrypted datagrams: for experiments."""

    def __init__(self, connections: dict[bytes, UdpConnection]) -> None:
        self._connections = connections

    def read(self, datagrams: list[bytes]) -> ReceivedBatch:
        """Return the content of a batch."""
        get = self._connections.get
        found = ReceivedBatch([], [], [], [], [])
        rows, connections, tails, others, unknown = found
        for row, data in enumerate(datagrams):
            connection = get(data[3:11]) if data.startswith(_PLAIN_HEAD) else None
            if connection is None:
                unknown.append(row)
                continue
            if len(data) == connection.report_size and data.startswith(connection.head):
                rows.append(row)
                connections.append(connection.successor or connection)
                tails.append(data[-REPORT_TAIL_BYTES:])
            else:
                others.append(OtherDatagram(row, connection.successor or connection, data, connection.token))
        return found

    def can_decrypt(self, key: bytes, data: bytes) -> bool:
        """Return True: without encryption, the token alone identifies the session."""
        del key, data
        return True

    def pin(self, connection: UdpConnection) -> None:
        """Do nothing: there are no keys."""

    def forget(self, connection: UdpConnection) -> None:
        """Do nothing: nothing is cached."""


def columns_of(numbers: list[int], tails: list[bytes]) -> tuple[ReportColumns, NDArray[np.bool_]]:
    """Return reports as columns, and which of them are not in canonical form after all."""
    read = np.frombuffer(b"".join(tails), _TAIL)
    noncanonical = (read["tag_3"] != 0x19) | (read["tag_4"] != 0x21) | (read["tag_5"] != 0x29) | (read["tag_6"] != 0x31)
    headings, speeds = read["heading"].copy(), read["speed"].copy()
    headings[np.isnan(headings)] = -1.0  # NaN on the wire is invalid; NaN in the column means unknown
    speeds[np.isnan(speeds)] = -1.0
    batch = ReportColumns(
        np.array(numbers, np.int32),
        read["latitude"].copy(),
        read["longitude"].copy(),
        read["seen_at"].copy(),
        headings,
        speeds,
    )
    return batch, noncanonical
