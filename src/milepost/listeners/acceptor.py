"""TCP acceptors: listening sockets, and the connection limits applied on accept."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from milepost.listeners.event_loop import READABLE, EventLoop
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.listener import MqttListener
from milepost.listeners.streams import PlainStream, ServerStream
from milepost.model.instants import Instant

ACCEPTS_PER_TICK_MAX: Final = 256
"""Maximum connections accepted per tick, so that open connections do not wait during a connection storm."""

BACKLOG: Final = 4096

PAUSE_S: Final = 1.0
"""Maximum pause in accepting connections when the system has no descriptors or memory left."""

NOT_SENT_BYTES_MAX: Final = 131_072
"""Maximum unsent bytes in the kernel (TCP_NOTSENT_LOWAT): urgent messages must not queue behind megabytes of others."""

_OUT_OF_RESOURCES: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

OnAccept = Callable[[socket.socket, str], None]
"""Takes an accepted socket and the peer's address."""

WrapSocket = Callable[[socket.socket], ServerStream]
"""Wraps an accepted socket in a stream: plain, TLS or WebSocket."""


def listen_at(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    try:
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listening.bind((host, port))
        listening.listen(BACKLOG)
    except OSError:
        listening.close()
        raise
    listening.setblocking(False)
    return listening


class TcpAcceptor:
    """Accepts connections at one address and passes them to *on_accept*."""

    def __init__(self, loop: EventLoop, listening: socket.socket, on_accept: OnAccept) -> None:
        self._loop = loop
        self._listening = listening
        self._on_accept = on_accept
        host, port, *_ = listening.getsockname()
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_open = True
        loop.watch(listening.fileno(), self)
        loop.call_every(PAUSE_S, self._resume_accepting)

    def on_event(self, mask: int, now: Instant) -> None:
        """Accept waiting connections."""
        del mask, now
        for _ in range(ACCEPTS_PER_TICK_MAX):
            try:
                accepted, address = self._listening.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _OUT_OF_RESOURCES:  # connections wait in the backlog during the pause
                    self._loop.watch_for(self._listening.fileno(), 0)
                    return
                continue
            accepted.setblocking(False)
            self._on_accept(accepted, address[0])

    def _resume_accepting(self, now: Instant) -> None:
        del now
        if self._is_open:
            self._loop.watch_for(self._listening.fileno(), READABLE)

    def close(self) -> None:
        """Stop accepting and close the socket."""
        self._is_open = False
        self._loop.unwatch(self._listening.fileno())
        self._listening.close()


class MqttAcceptor:
    """Passes accepted connections to the MQTT listener, within its connection limits, and registers them with the event loop."""

    def __init__(self, loop: EventLoop, listener: MqttListener) -> None:
        self._loop = loop
        self._listener = listener
        self._by_address: dict[str, int] = {}
        listener.watch = self._watch
        listener.forget = self._forget

    def accept(self, accepted: socket.socket, address: str, wrap: WrapSocket = PlainStream) -> None:
        """Add an accepted connection, or close it if a connection limit is reached."""
        limits = self._listener.context.settings.limits
        open_count = self._by_address.get(address, 0)
        is_address_full = 0 < limits.connections_per_address_max <= open_count
        if is_address_full or len(self._listener.connections) >= limits.connections_max:
            self._listener.refuse_connection()
            accepted.close()
            return
        accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            accepted.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES_MAX)
        try:
            stream = wrap(accepted)
        except OSError:
            accepted.close()
            return
        self._by_address[address] = open_count + 1
        connection = self._listener.add_connection(stream, address)
        self._loop.watch(stream.fd, connection)

    def _watch(self, connection: MqttConnection) -> None:
        self._loop.watch_for(connection.stream.fd, connection.mask)

    def _forget(self, connection: MqttConnection) -> None:
        self._loop.unwatch(connection.stream.fd)
        open_count = self._by_address[connection.address] - 1
        if open_count:
            self._by_address[connection.address] = open_count
        else:
            del self._by_address[connection.address]
