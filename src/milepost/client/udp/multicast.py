"""Cells (M34): receiving geocasts that the edge multicasts once for all endpoints in a group.

Invariants:
- multicast datagrams are not encrypted and may come from anyone: where sessions are encrypted, only signed messages are accepted;
- an endpoint joins the groups of its square and of the eight around it, so that it receives those of the next one before it
  gets there;
- receiving nothing is not an error: the edge sends the message by unicast to each endpoint that does not acknowledge it.
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from typing import Final

from milepost.model.addresses import ToArea
from milepost.model.messages import Message
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason
from milepost.model.session_datagrams import PublishDatagram
from milepost.wire.datagrams import decode

DATAGRAM_BYTES: Final = 65_536
BATCH: Final = 64
"""Maximum datagrams read per wake-up."""

_ANY_ADDRESS: Final = "0.0.0.0"


def multicast_message(data: bytes, *, is_sealed: bool) -> Message:
    """Return the message of a multicast datagram; raise `Malformed` if an edge would not multicast it."""
    value = decode(data)
    if not isinstance(value, PublishDatagram) or value.session is not None or not isinstance(value.message.address, ToArea):
        raise Malformed(Reason.MALFORMED, "a datagram that an edge does not multicast")
    if is_sealed and not value.message.signature:
        raise Malformed(Reason.SIGNATURE_INVALID, "a multicast message without a signature")
    return value.message


def groups_near(cells: MulticastGrid, place: Place) -> frozenset[str]:
    """Return the groups of the square that contains a place, and of the squares around it."""
    side = cells.side_deg
    latitudes = {min(90.0, max(-90.0, place.latitude + step)) for step in (-side, 0.0, side)}
    longitudes = {(place.longitude + step + 180.0) % 360.0 - 180.0 for step in (-side, 0.0, side)}
    return frozenset(cells.group_at(Place(latitude, longitude)) for latitude in latitudes for longitude in longitudes)


class MulticastReceiver:
    """A socket in the multicast groups around a place; no socket while there are no groups."""

    def __init__(self, on_datagram: Callable[[bytes], None]) -> None:
        self._on_datagram = on_datagram
        self._socket: socket.socket | None = None
        self._binding: tuple[int, str] | None = None
        """The port, and the local address of the network."""
        self._groups: frozenset[str] = frozenset()

    def listen(self, cells: MulticastGrid | None, place: Place, interface: str) -> None:
        """Join the groups around a place, on the network of this local address; without cells, leave all."""
        if cells is None:
            self.close()
            return
        binding = cells.port, _ANY_ADDRESS if ":" in interface else interface
        if binding != self._binding:
            self.close()
            self._binding = binding
            self._open(cells.port)
        groups = groups_near(cells, place)
        for group in self._groups - groups:
            self._change(socket.IP_DROP_MEMBERSHIP, group)
        for group in groups - self._groups:
            self._change(socket.IP_ADD_MEMBERSHIP, group)
        self._groups = groups

    def close(self) -> None:
        """Leave all groups and close the socket."""
        if self._socket is not None:
            asyncio.get_running_loop().remove_reader(self._socket)
            self._socket.close()
        self._socket = self._binding = None
        self._groups = frozenset()

    def _open(self, port: int) -> None:
        opened = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        try:
            opened.setblocking(False)
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # several endpoints may run on one machine
            opened.bind((_ANY_ADDRESS, port))
        except OSError:
            opened.close()
            return
        self._socket = opened
        asyncio.get_running_loop().add_reader(opened, self._read, opened)

    def _change(self, option: int, group: str) -> None:
        if self._socket is not None and self._binding is not None:
            member = socket.inet_aton(group) + socket.inet_aton(self._binding[1])
            with contextlib.suppress(OSError):  # the network has no multicast, or is down
                self._socket.setsockopt(socket.IPPROTO_IP, option, member)

    def _read(self, opened: socket.socket) -> None:
        with contextlib.suppress(OSError):  # no more datagrams
            for _ in range(BATCH):
                self._on_datagram(opened.recv(DATAGRAM_BYTES))
