"""The server side of one UDP session, and columns with the state of all sessions, by session number.

    token ──▶ UdpConnection ──▶ session (number) ──▶ SessionColumns: address, keys, counters, times of last input and output

On a key change the session gets a new connection under a new token; the former one refers to it as `heir` until it is dropped.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.broker.session import NOWHERE, Link, Session
from milepost.listeners.udp.batch_io import ADDRESS_BYTES
from milepost.matching.columns import column
from milepost.model.sessions import MessageName
from milepost.trust.replay_window import Window
from milepost.vetting.access import ClientIdentity
from milepost.vetting.rates import Bucket

ENCODING_UDP: Final = 1

NAMES_MAX: Final = 256
"""Maximum names of reliable messages remembered per endpoint, to detect duplicates."""

REPORT_TAIL_BYTES: Final = 44
"""Latitude, longitude, seen_at, heading and speed, with a tag byte before each but the first."""

Open = Callable[[bytes, bytes, None], bytes]
"""Decrypts data with a nonce, or raises."""


class UdpConnection(Link):
    """One session, under one token."""

    __slots__ = (
        "bucket",
        "head",
        "hears_cells",
        "heir",
        "key",
        "names",
        "number",
        "open",
        "report_size",
        "session",
        "token",
        "who",
        "window",
    )

    def __init__(self, session: Session, token: int, who: ClientIdentity, *, hears_cells: bool) -> None:
        self.out = NOWHERE.out  # unused: datagrams go to the `Sender` directly
        self.session = session
        self.number = session.number
        self.token = token
        self.key = token.to_bytes(8, "little")
        """The token as encoded in a datagram."""
        self.who = who
        self.head = report_head(self.key, session.name)
        self.report_size = len(self.head) + REPORT_TAIL_BYTES if self.head else -1
        """Size of its reports with heading and speed; -1: not constant."""
        self.hears_cells = hears_cells
        self.window = Window()
        self.open: Open | None = None
        """The cached cipher that decrypts the endpoint's datagrams."""
        self.heir: UdpConnection | None = None
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

    def inherit(self, former: "UdpConnection") -> None:
        """Take over the state of the session's former connection."""
        self.names, self.bucket = former.names, former.bucket
        former.heir = self


def report_head(key: bytes, name: str) -> bytes:
    """Return the constant prefix of a session's reports with heading and speed; empty if they are too long to have one."""
    who = name.encode()
    size = 2 + len(who) + 1 + REPORT_TAIL_BYTES
    return b"\x08\x01\x11" + key + b"\x2a" + bytes((size, 0x0A, len(who))) + who + b"\x11" if size < 128 else b""


class SessionColumns:
    """The state of all UDP sessions, as columns by session number."""

    def __init__(self, limit: int) -> None:
        self.is_taken = column(limit, np.bool_)
        self.addresses = column(limit, np.uint8, ADDRESS_BYTES)
        self.tokens = column(limit, np.uint64)
        self.send_keys = column(limit, np.uint8, 32)
        self.receive_keys = column(limit, np.uint8, 32)
        self.counters = column(limit, np.uint64)
        """The counter of the next datagram to the endpoint."""
        self.serials = column(limit, np.uint64)
        """Serial number of the endpoint's certificate."""
        self.heard_at = column(limit, np.int64)
        self.told_at = column(limit, np.int64)
        self.refused_at = column(limit, np.int64)
        """Time of the last refusal of a report sent to the endpoint."""
        self.worn_at = column(limit, np.int64)
        """Time at which the keys expire."""
        self._top = 0

    def take(self, number: int) -> None:
        """Mark the row of a session as in use."""
        self.is_taken[number] = True
        self._top = max(self._top, number + 1)

    def leave(self, number: int) -> None:
        """Free the row of a session and erase its keys."""
        self.is_taken[number] = False
        self.send_keys[number] = self.receive_keys[number] = 0

    def where(self, holds: "Callable[[Part], NDArray[np.bool_]]") -> list[int]:
        """Return the numbers of the open sessions for which the condition *holds*."""
        part = slice(0, self._top)
        found: list[int] = (self.is_taken[part] & holds(part)).nonzero()[0].tolist()
        return found


Part = slice
"""The rows of a column that are in use."""
