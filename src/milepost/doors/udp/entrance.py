"""The entrance: the UDP door's socket, read and written in batches, and the one at which endpoints look for an edge."""

import socket
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exception
from typing import Final

from milepost.doors.log import Log
from milepost.doors.turns import READABLE, WRITABLE, Turns
from milepost.doors.udp.batches import Inbound, Outbound
from milepost.doors.udp.door import UdpDoor
from milepost.doors.udp.sending import Octets
from milepost.edge.counts import Counts
from milepost.model.instants import SECOND_NS, Instant

BATCH: Final = 1_024
"""So many datagrams are read at a time, if so many are there, and one such batch in a turn: it takes some 3 ms, and what it
decides must not wait for all that a crowd sends."""

BUFFER_BYTES: Final = 32_000_000
"""So much the system is asked to hold for us each way while a turn lasts; it gives what it allows."""

ASKS_A_TURN: Final = 64

_TRACE_CHARACTERS: Final = 480
_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
"""The same options without the system's limit, for who may (SO_RCVBUFFORCE, SO_SNDBUFFORCE)."""


def bind_at(host: str, port: int, *, multicast_interface: str = "") -> socket.socket:
    """A socket for datagrams; raises OSError if it cannot be had."""
    bound = socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM)
    try:
        for option, forced in _FORCED.items():
            bound.setsockopt(socket.SOL_SOCKET, option, BUFFER_BYTES)
            with suppress(PermissionError):
                bound.setsockopt(socket.SOL_SOCKET, forced, BUFFER_BYTES)
        if multicast_interface:
            bound.setsockopt(socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(multicast_interface))
        bound.bind((host, port))
    except OSError:
        bound.close()
        raise
    bound.setblocking(False)
    return bound


def join_at(group: str, port: int, interface: str) -> socket.socket:
    """A socket that hears what is sent to a multicast group; raises OSError if it cannot be had."""
    joined = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    try:
        joined.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        joined.bind((group, port))
        member = socket.inet_aton(group) + socket.inet_aton(interface or "0.0.0.0")
        joined.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP, member)
    except OSError:
        joined.close()
        raise
    joined.setblocking(False)
    return joined


class UdpEntrance:
    """Brings batches of datagrams to the door, and takes away what it has to send."""

    def __init__(self, turns: Turns, bound: socket.socket, log: Log, counts: Counts, gather_ns: int) -> None:
        self._turns = turns
        self._gather_s = gather_ns / SECOND_NS
        self._socket = bound
        self._inbound = Inbound(bound, batch=BATCH)
        self._outbound = Outbound(bound)
        self._log = log
        self._counts = counts
        self._door: UdpDoor | None = None
        self._mask = READABLE
        host, port, *_ = bound.getsockname()
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def serve(self, door: UdpDoor) -> None:
        """Begin."""
        self._door = door
        self._turns.watch(self._socket.fileno(), self)
        self._turns.settle_with(self._look_again)

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Each head, followed by the same tail."""
        return self._outbound.send_shared(heads, tail, addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Each datagram to its address."""
        return self._outbound.send_many(datagrams, addresses)

    @property
    def failed(self) -> int:
        """Datagrams that the system refused to send."""
        return self._outbound.failed

    def on_event(self, mask: int, now: Instant) -> None:
        """There is something to read, or room to write. A fault of ours costs the batch it shows in, and is told."""
        assert self._door is not None, "watched only once there is a door"
        if not mask & ~WRITABLE:
            return  # the end of the turn sends
        count = self._inbound.receive()
        if not count:
            return
        try:
            self._door.on_batch(self._inbound.all_data(), self._inbound.addresses[:count], now)
        except Exception as fault:  # noqa: BLE001  # what one endpoint can cause must not stop the others
            self._counts.faults += 1
            trace = "".join(format_exception(fault))[-_TRACE_CHARACTERS:]
            self._log.warning("fault", door="udp", error=repr(fault), traceback=trace)

    def _look_again(self, now: Instant) -> bool:
        """After each turn: wait for room only while something waits for it, and not long while reports wait for others."""
        del now
        assert self._door is not None, "called only once there is a door"
        if self._door.is_gathering:
            self._turns.be_back_within(self._gather_s)
        mask = READABLE | WRITABLE if self._door.sender.has_unsent else READABLE
        if mask != self._mask:
            self._mask = mask
            self._turns.watch_for(self._socket.fileno(), mask)
        return False

    def close(self) -> None:
        """Take and send nothing any more."""
        self._turns.unwatch(self._socket.fileno())
        self._socket.close()


class FindingEntrance:
    """Answers, from a multicast group, who looks for an edge."""

    def __init__(self, turns: Turns, joined: socket.socket, answer: Callable[[bytes, Instant], bytes]) -> None:
        self._turns = turns
        self._socket = joined
        self._answer = answer
        turns.watch(joined.fileno(), self)

    def on_event(self, mask: int, now: Instant) -> None:
        """Somebody asks."""
        del mask
        for _ in range(ASKS_A_TURN):
            try:
                data, address = self._socket.recvfrom(2_048)
            except OSError:
                return
            answer = self._answer(data, now)
            if answer:
                with suppress(OSError):
                    self._socket.sendto(answer, address)

    def close(self) -> None:
        """Answer nobody any more."""
        self._turns.unwatch(self._socket.fileno())
        self._socket.close()
