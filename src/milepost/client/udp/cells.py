"""Cells (M34): hearing messages to an area where the edge multicasts them, once for all who listen there.

What must hold:
- what is heard here came unsealed, from whomever: where sessions are sealed, only what is signed counts;
- an endpoint listens to the square it is in and the eight around it, so that it hears of the next one before it gets there;
- to hear nothing here is no fault: the edge sends a message alone to whoever does not answer it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from milepost.model.addresses import ToArea
from milepost.model.cells import Cells
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.sessions import Publish
from milepost.wire.datagrams import decode

DATAGRAM_BYTES: Final = 65_536
BATCH: Final = 64
"""So many datagrams are taken before others have their turn."""

_NOWHERE: Final = "0.0.0.0"


def overheard(data: bytes, *, is_sealed: bool) -> Message:
    """The message in a datagram that came to a group; `Malformed` if it is none that an edge would multicast."""
    value = decode(data)
    if not isinstance(value, Publish) or value.session is not None or not isinstance(value.message.address, ToArea):
        raise Malformed(Reason.MALFORMED, "nothing that is multicast")
    if is_sealed and not value.message.signature:
        raise Malformed(Reason.SIGNATURE_INVALID, "multicast, and not signed")
    return value.message


def groups_near(cells: Cells, place: Place) -> frozenset[str]:
    """The groups of the square that a place is in, and of those around it."""
    side = cells.side_deg
    latitudes = {min(90.0, max(-90.0, place.latitude + step)) for step in (-side, 0.0, side)}
    longitudes = {(place.longitude + step + 180.0) % 360.0 - 180.0 for step in (-side, 0.0, side)}
    return frozenset(cells.group_at(Place(latitude, longitude)) for latitude in latitudes for longitude in longitudes)


class Ears:
    """A socket in the groups around a place; none while there is nothing to listen to."""

    def __init__(self, on_heard: Callable[[bytes], None]) -> None:
        self._on_heard = on_heard
        self._socket: socket.socket | None = None
        self._way: tuple[int, str] | None = None
        """The port, and the network in which it listens."""
        self._groups: frozenset[str] = frozenset()

    def listen(self, cells: Cells | None, place: Place, interface: str) -> None:
        """Be in the groups around a place, in the network of this address of ours; without cells, in none."""
        if cells is None:
            self.close()
            return
        way = cells.port, _NOWHERE if ":" in interface else interface
        if way != self._way:
            self.close()
            self._way = way
            self._open(cells.port)
        wanted = groups_near(cells, place)
        for group in self._groups - wanted:
            self._change(socket.IP_DROP_MEMBERSHIP, group)
        for group in wanted - self._groups:
            self._change(socket.IP_ADD_MEMBERSHIP, group)
        self._groups = wanted

    def close(self) -> None:
        """Listen no longer."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = self._way = None
        self._groups = frozenset()

    def _open(self, port: int) -> None:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several endpoints may live on one machine
            opened.bind((_NOWHERE, port))
        except OSError:
            opened.close()
            return
        self._socket = opened
        asyncio.get_running_loop().add_reader(opened, self._read, opened)

    def _change(self, option: int, group: str) -> None:
        if self._socket is not None and self._way is not None:
            member = socket.inet_aton(group) + socket.inet_aton(self._way[1])
            with contextlib.suppress(OSError):  # the network has no multicast, or is gone
                self._socket.setsockopt(socket.IPPROTO_IP, option, member)

    def _read(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError):  # there is no more
            for _ in range(BATCH):
                self._on_heard(opened.recv(DATAGRAM_BYTES))
