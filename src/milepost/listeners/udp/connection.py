"""The server side of one UDP session, and columns with the state of all sessions, by session number.

    token ──▶ UdpConnection ──▶ session (number) ──▶ SessionColumns: address, keys, counters, times of last input and output

On a key change the session gets a new connection under a new token; the previous one refers to it as its `successor`.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.broker.session import NO_CONNECTION, Connection, Session
from milepost.listeners.udp.batch_io import ADDRESS_BYTES
from milepost.matching.columns import column
from milepost.model.session_datagrams import MessageName
from milepost.trust.replay_window import ReplayWindow
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import Bucket

ENCODING_UDP: Final = 1

NAMES_MAX: Final = 256
"""Maximum names of reliable messages remembered per endpoint, to detect duplicates."""

REPORT_TAIL_BYTES: Final = 44
"""Latitude, longitude, seen_at, heading and speed, with a tag byte before each but the first."""

Decrypt = Callable[[bytes, bytes, None], bytes]
"""Decrypts data with a nonce, or raises."""


class UdpConnection(Connection):
    """One session, under one token."""

    __slots__ = (
        "bucket",
        "decrypt",
        "head",
        "identity",
        "key",
        "names",
        "number",
        "receives_multicast",
        "report_size",
        "session",
        "successor",
        "token",
        "window",
    )

    def __init__(self, session: Session, token: int, identity: ClientIdentity, *, receives_multicast: bool) -> None:
        self.out = NO_CONNECTION.out  # unused: datagrams go to the `UdpSender` directly
        self.session = session
        self.number = session.number
        self.token = token
        self.key = token.to_bytes(8, "little")
        """The token as encoded in a datagram."""
        self.identity = identity
        self.head = report_head(self.key, session.name)
        self.report_size = len(self.head) + REPORT_TAIL_BYTES if self.head else -1
        """Size of its reports with heading and speed; -1: not constant."""
        self.receives_multicast = receives_multicast
        """Whether the endpoint has joined the multicast group of its cell."""
        self.window = ReplayWindow()
        self.decrypt: Decrypt | None = None
        """The cached decryption function for the endpoint's datagrams."""
        self.successor: UdpConnection | None = None
        """The current connection of the session, after a key change."""
        self.names: dict[MessageName, None] | None = None
        """Reliable messages received recently."""
        self.bucket: Bucket | None = None

    def remember(self, name: MessageName) -> None:
        """Record a reliable message that was accepted."""
        if self.names is None:
            self.names = {}
        elif len(self.names) >= NAMES_MAX:
            del self.names[next(iter(self.names))]
        self.names[name] = None

    def take_over(self, previous: "UdpConnection") -> None:
        """Take over the state of the session's previous connection."""
        self.names, self.bucket = previous.names, previous.bucket
        previous.successor = self


def report_head(key: bytes, name: str) -> bytes:
    """Return the constant prefix of a session's reports with heading and speed; empty if they are too long to have one."""
    name_bytes = name.encode()
    size = 2 + len(name_bytes) + 1 + REPORT_TAIL_BYTES
    return b"\x08\x01\x11" + key + b"\x2a" + bytes((size, 0x0A, len(name_bytes))) + name_bytes + b"\x11" if size < 128 else b""


class SessionColumns:
    """The state of all UDP sessions, as columns by session number."""

    def __init__(self, limit: int) -> None:
        self.is_used = column(limit, np.bool_)
        self.addresses = column(limit, np.uint8, ADDRESS_BYTES)
        self.tokens = column(limit, np.uint64)
        self.send_keys = column(limit, np.uint8, 32)
        self.receive_keys = column(limit, np.uint8, 32)
        self.counters = column(limit, np.uint64)
        """The counter of the next datagram to the endpoint."""
        self.serials = column(limit, np.uint64)
        """Serial number of the endpoint's certificate."""
        self.received_at = column(limit, np.int64)
        self.sent_at = column(limit, np.int64)
        self.refused_at = column(limit, np.int64)
        """Time of the last refusal of a report sent to the endpoint."""
        self.keys_expire_at = column(limit, np.int64)
        """Time at which the keys expire."""
        self._top = 0

    def allocate(self, number: int) -> None:
        """Mark the row of a session as in use."""
        self.is_used[number] = True
        self._top = max(self._top, number + 1)

    def free(self, number: int) -> None:
        """Free the row of a session and erase its keys."""
        self.is_used[number] = False
        self.send_keys[number] = self.receive_keys[number] = 0

    def numbers_where(self, condition: "Callable[[Part], NDArray[np.bool_]]") -> list[int]:
        """Return the numbers of the open sessions for which the *condition* holds."""
        part = slice(0, self._top)
        found: list[int] = (self.is_used[part] & condition(part)).nonzero()[0].tolist()
        return found


Part = slice
"""The rows of a column that may be in use."""
