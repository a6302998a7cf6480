"""Links: the door's end of one UDP session, and what is known of all of them as columns by session number.

    token ──▶ UdpLink ──▶ session (number) ──▶ seats: address, keys, counters, when it was heard and told

When keys are changed the session gets a new link under a new token; the former one points to its heir until it is forgotten.
"""

from collections.abc import Callable
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.doors.udp.addresses import ADDRESS_BYTES
from milepost.edge.sessions import NOWHERE, Link, Session
from milepost.matching.columns import column
from milepost.model.sessions import MessageName
from milepost.trust.windows import Window
from milepost.vetting.access import Who
from milepost.vetting.rates import Bucket

DIALECT_UDP: Final = 1

NAMES_MAX: Final = 256
"""So many names of reliable messages are remembered for each endpoint, so that a repeated one counts once."""

REPORT_TAIL_BYTES: Final = 44
"""Latitude, longitude, seen_at, heading and speed, with a byte before each but the first."""

Open = Callable[[bytes, bytes, None], bytes]
"""Gives what was sealed under a nonce, or raises."""


class UdpLink(Link):
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

    def __init__(self, session: Session, token: int, who: Who, *, hears_cells: bool) -> None:
        self.out = NOWHERE.out  # nothing is handed to it: what it gets is sent at once
        self.session = session
        self.number = session.number
        self.token = token
        self.key = token.to_bytes(8, "little")
        """The token as it stands in a datagram."""
        self.who = who
        self.head = report_head(self.key, session.name)
        self.report_size = len(self.head) + REPORT_TAIL_BYTES if self.head else -1
        """How long its reports with heading and speed are; -1: of no one length."""
        self.hears_cells = hears_cells
        self.window = Window()
        self.open: Open | None = None
        """Opens what its endpoint sealed: its key, ready for use."""
        self.heir: UdpLink | None = None
        """The link that the session has now."""
        self.names: dict[MessageName, None] | None = None
        """Reliable messages that came lately."""
        self.bucket: Bucket | None = None

    def remember(self, name: MessageName) -> None:
        """A reliable message came, and was let in."""
        if self.names is None:
            self.names = {}
        elif len(self.names) >= NAMES_MAX:
            del self.names[next(iter(self.names))]
        self.names[name] = None

    def inherit(self, former: "UdpLink") -> None:
        """Go on where the former link of the session was."""
        self.names, self.bucket = former.names, former.bucket
        former.heir = self


def report_head(key: bytes, name: str) -> bytes:
    """How every report of a session with heading and speed begins; empty if it would be too long to have one beginning."""
    who = name.encode()
    size = 2 + len(who) + 1 + REPORT_TAIL_BYTES
    return b"\x08\x01\x11" + key + b"\x2a" + bytes((size, 0x0A, len(who))) + who + b"\x11" if size < 128 else b""


class Seats:
    """Columns by session number."""

    def __init__(self, limit: int) -> None:
        self.is_taken = column(limit, np.bool_)
        self.addresses = column(limit, np.uint8, ADDRESS_BYTES)
        self.tokens = column(limit, np.uint64)
        self.send_keys = column(limit, np.uint8, 32)
        self.receive_keys = column(limit, np.uint8, 32)
        self.counters = column(limit, np.uint64)
        """The counter of the next datagram to the endpoint."""
        self.serials = column(limit, np.uint64)
        """Of the endpoint's certificate."""
        self.heard_at = column(limit, np.int64)
        self.told_at = column(limit, np.int64)
        self.refused_at = column(limit, np.int64)
        """When it was last told that a report was refused."""
        self.worn_at = column(limit, np.int64)
        """When its keys must no longer be used."""
        self._top = 0

    def take(self, number: int) -> None:
        """A session begins."""
        self.is_taken[number] = True
        self._top = max(self._top, number + 1)

    def leave(self, number: int) -> None:
        """A session is over."""
        self.is_taken[number] = False
        self.send_keys[number] = self.receive_keys[number] = 0

    def where(self, holds: "Callable[[Part], NDArray[np.bool_]]") -> list[int]:
        """The numbers of the sessions for which something holds."""
        part = slice(0, self._top)
        found: list[int] = (self.is_taken[part] & holds(part)).nonzero()[0].tolist()
        return found


Part = slice
"""The beginning of a column, as far as it is in use."""
