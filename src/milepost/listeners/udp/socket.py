"""The sockets of the UDP listener: its own, read and written in batches, and the multicast socket for discovery."""

import socket
from collections.abc import Callable
from contextlib import suppress
from traceback import format_exception
from typing import Final

from milepost.broker.broker_counters import BrokerCounters
from milepost.listeners.diagnostic_log import DiagnosticLog
from milepost.listeners.event_loop import READABLE, WRITABLE, EventLoop
from milepost.listeners.udp.batch_io import BatchReceiver, BatchSender
from milepost.listeners.udp.listener import UdpListener
from milepost.listeners.udp.sender import Octets
from milepost.model.instants import SECOND_NS, Instant

BATCH: Final = 1_024
"""Maximum datagrams per batch, with one batch per tick: a batch takes some 3 ms, and its deliveries must not wait for all
the traffic of a burst."""

BUFFER_BYTES: Final = 32_000_000
"""Requested size of the kernel's receive and send buffers; the kernel may grant less."""

ASKS_PER_TICK_MAX: Final = 64

_TRACE_CHARACTERS: Final = 480
_FORCED: Final = {socket.SO_RCVBUF: 33, socket.SO_SNDBUF: 32}
"""The same options without the system's limit, for privileged processes (SO_RCVBUFFORCE, SO_SNDBUFFORCE)."""


def bind_at(host: str, port: int, *, multicast_interface: str = "") -> socket.socket:
    """Return a bound datagram socket; raise OSError if the address cannot be bound."""
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
    """Return a socket that is a member of a multicast group; raise OSError if it cannot join."""
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


class UdpSocket:
    """Reads batches of datagrams for the listener, and writes its output."""

    def __init__(
        self, loop: EventLoop, bound: socket.socket, log: DiagnosticLog, counts: BrokerCounters, batch_wait_ns: int
    ) -> None:
        self._loop = loop
        self._gather_s = batch_wait_ns / SECOND_NS
        self._socket = bound
        self._inbound = BatchReceiver(bound, batch=BATCH)
        self._outbound = BatchSender(bound)
        self._log = log
        self._counts = counts
        self._listener: UdpListener | None = None
        self._mask = READABLE
        host, port, *_ = bound.getsockname()
        self.port = port
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"

    def serve(self, listener: UdpListener) -> None:
        """Start reading for a listener."""
        self._listener = listener
        self._loop.watch(self._socket.fileno(), self)
        self._loop.at_end_of_tick(self._update_events)

    def send_shared(self, heads: Octets, tail: bytes, addresses: Octets) -> int:
        """Send each head followed by the same tail; return how many are done."""
        return self._outbound.send_shared(heads, tail, addresses)

    def send_many(self, datagrams: list[bytes], addresses: Octets) -> int:
        """Send each datagram to its address; return how many are done."""
        return self._outbound.send_many(datagrams, addresses)

    @property
    def failed(self) -> int:
        """Datagrams that the system refused to send."""
        return self._outbound.failed

    def on_event(self, mask: int, now: Instant) -> None:
        """Read a batch and pass it to the listener. An internal error is logged and costs this batch only."""
        assert self._listener is not None, "`serve` sets the listener before the socket is watched"
        if not mask & ~WRITABLE:
            return  # the end of the tick sends
        count = self._inbound.receive()
        if not count:
            return
        try:
            self._listener.on_batch(self._inbound.all_data(), self._inbound.addresses[:count], now)
        except Exception as fault:  # noqa: BLE001  # one endpoint must not stop the others
            self._counts.faults += 1
            trace = "".join(format_exception(fault))[-_TRACE_CHARACTERS:]
            self._log.warning("fault", listener="udp", error=repr(fault), traceback=trace)

    def _update_events(self, now: Instant) -> bool:
        """After each tick: watch for writability while bytes are unsent, and shorten the wait while reports are gathered."""
        del now
        assert self._listener is not None, "`serve` sets the listener before the first tick"
        if self._listener.is_gathering:
            self._loop.wake_within(self._gather_s)
        mask = READABLE | WRITABLE if self._listener.sender.has_unsent else READABLE
        if mask != self._mask:
            self._mask = mask
            self._loop.watch_for(self._socket.fileno(), mask)
        return False

    def close(self) -> None:
        """Stop reading and close the socket."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()


class DiscoverySocket:
    """Answers the ASKs that endpoints send to the multicast group."""

    def __init__(self, loop: EventLoop, joined: socket.socket, answer: Callable[[bytes, Instant], bytes]) -> None:
        self._loop = loop
        self._socket = joined
        self._answer = answer
        loop.watch(joined.fileno(), self)

    def on_event(self, mask: int, now: Instant) -> None:
        """Answer the ASKs that have arrived."""
        del mask
        for _ in range(ASKS_PER_TICK_MAX):
            try:
                data, address = self._socket.recvfrom(2_048)
            except OSError:
                return
            answer = self._answer(data, now)
            if answer:
                with suppress(OSError):
                    self._socket.sendto(answer, address)

    def close(self) -> None:
        """Stop answering and close the socket."""
        self._loop.unwatch(self._socket.fileno())
        self._socket.close()
