"""Reading: a batch of datagrams, opened; reports of the usual form as columns, everything else one by one.

    datagrams ─▶ token: whose ─▶ counter: new ─▶ seal: whole ─▶ usual report? ─▶ columns
                  └▶ strangers         └▶ counted      └▶ counted        └▶ the rest, as plain datagrams

What must hold:
- nothing of a datagram counts before its seal was opened: neither its counter nor the address it came from;
- a report read as columns is what `wire.datagrams.decode` would read, or is refused for the same reason.
"""

from collections import OrderedDict
from typing import Final, NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from milepost.doors.udp.link import REPORT_TAIL_BYTES, Open, Seats, UdpLink
from milepost.edge.counts import Counts
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
"""How a canonical datagram with a session begins."""


class Other(NamedTuple):
    """A datagram that has to be read for itself."""

    row: int
    link: UdpLink
    plain: bytes
    token: int
    """The one it must have inside."""


class Arrived(NamedTuple):
    """What a batch of datagrams is, by row of the batch."""

    report_rows: list[int]
    report_links: list[UdpLink]
    report_tails: list[bytes]
    others: list[Other]
    strangers: list[int]


class Reader(Protocol):
    """Turns batches into what they hold."""

    def read(self, datagrams: list[bytes]) -> Arrived:
        """What a batch holds."""

    def opens(self, key: bytes, data: bytes) -> bool:
        """Whether a datagram was sealed with a key."""

    def pin(self, link: UdpLink) -> None:
        """Let a link keep the key it has."""

    def forget(self, link: UdpLink) -> None:
        """A link is over."""


class SealedReader:
    """Opens what endpoints sealed."""

    def __init__(self, links: dict[bytes, UdpLink], seats: Seats, counts: Counts, openers_max: int) -> None:
        from cryptography.exceptions import InvalidTag  # noqa: PLC0415  # OpenSSL, which a plain edge does without
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM  # noqa: PLC0415

        self._broken = InvalidTag, ValueError  # the latter: too short to have a counter
        self._cipher = AESGCM
        self._links = links
        self._seats = seats
        self._counts = counts
        self._openers_max = openers_max
        self._ready: OrderedDict[UdpLink, None] = OrderedDict()  # a dict would look for its first entry longer each time

    def read(self, datagrams: list[bytes]) -> Arrived:
        """What a batch holds. The busiest loop of the door: one round for each datagram."""
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

    def _opener(self, link: UdpLink) -> Open:
        """The link's key, made ready; kept for as many links as there is room for."""
        if len(self._ready) >= self._openers_max:
            oldest, _ = self._ready.popitem(last=False)
            oldest.open = None
        self._ready[link] = None
        link.open = self._cipher(self._seats.receive_keys[link.number].tobytes()).decrypt
        return link.open

    def opens(self, key: bytes, data: bytes) -> bool:
        """Whether a datagram was sealed with a key."""
        try:
            self._cipher(key).decrypt(NONCE_ZEROS + data[9:DATA_HEAD_BYTES], data[DATA_HEAD_BYTES:], None)
        except self._broken:
            return False
        return True

    def pin(self, link: UdpLink) -> None:
        """The session will have another key: let this link keep the one it has."""
        if link.open is None:
            self._opener(link)
        self._ready.pop(link, None)

    def forget(self, link: UdpLink) -> None:
        """The link is over."""
        self._ready.pop(link, None)
        link.open = None


class PlainReader:
    """Reads what was not sealed: for experiments."""

    def __init__(self, links: dict[bytes, UdpLink]) -> None:
        self._links = links

    def read(self, datagrams: list[bytes]) -> Arrived:
        """What a batch holds."""
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
        """Whoever shows the token speaks for the session."""
        del key, data
        return True

    def pin(self, link: UdpLink) -> None:
        """There are no keys."""

    def forget(self, link: UdpLink) -> None:
        """Nothing is kept."""


def columns_of(numbers: list[int], tails: list[bytes]) -> tuple[Batch, NDArray[np.bool_]]:
    """Reports as columns, and which of them are not of the usual form after all."""
    read = np.frombuffer(b"".join(tails), _TAIL)
    are_odd = (read["tag_3"] != 0x19) | (read["tag_4"] != 0x21) | (read["tag_5"] != 0x29) | (read["tag_6"] != 0x31)
    headings, speeds = read["heading"].copy(), read["speed"].copy()
    headings[np.isnan(headings)] = -1.0  # said, and no number: not the same as unknown
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
