"""TCP acceptors: listening sockets, and the connection limits applied on accept."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from milepost.listeners.event_loop import READABLE, EventLoop
from milepost.listeners.mqtt.connection import MqttConnection
from milepost.listeners.mqtt.listener import MqttListener
from milepost.listeners.streams import PlainStream, Stream
from milepost.model.instants import Instant

ACCEPTS_A_TURN: Final = 256
"""Maximum connections accepted per tick, so that open connections do not wait during a connection storm."""

BACKLOG: Final = 4096

PAUSE_S: Final = 1.0
"""Maximum pause in accepting connections when the system has no descriptors or memory left."""

NOT_SENT_BYTES_MAX: Final = 131_072
"""Maximum unsent bytes in the kernel (TCP_NOTSENT_LOWAT): urgent messages must not queue behind megabytes of others."""

_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Take = Callable[[socket.socket, str], None]
"""Takes an accepted socket and the peer's address."""

Wrap = Callable[[socket.socket], Stream]
"""Wraps an accepted socket in a stream: plain, TLS or WebSocket."""


def listen_at(host: str, port: int) -> socket.socket:
    """Return a listening socket; raise OSError if the address cannot be bound."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    listener = socket.socket(family, socket.SOCK_STREAM)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((host, port))
        listener.listen(BACKLOG)
    except OSError:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


class Listener:
    """Accepts connections at one address and passes them on to *take*."""

    def __init__(self, turns: EventLoop, listener: socket.socket, take: Take) -> None:
        self._turns = turns
        self._listener = listener
        self._take = take
        host, port, *_ = listener.getsockname()
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_open = True
        turns.watch(listener.fileno(), self)
        turns.every(PAUSE_S, self._look_again)

    def on_event(self, mask: int, now: Instant) -> None:
        """Accept waiting connections."""
        del mask, now
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_ROOM:  # they stay in the backlog until the pause is over
                    self._turns.watch_for(self._listener.fileno(), 0)
                    return
                continue
            connection.setblocking(False)
            self._take(connection, address[0])

    def _look_again(self, now: Instant) -> None:
        del now
        if self._is_open:
            self._turns.watch_for(self._listener.fileno(), READABLE)

    def close(self) -> None:
        """Stop accepting and close the socket."""
        self._is_open = False
        self._turns.unwatch(self._listener.fileno())
        self._listener.close()


class MqttAcceptor:
    """Passes accepted connections to the MQTT listener, within its connection limits, and registers them with the event loop."""

    def __init__(self, turns: EventLoop, door: MqttListener) -> None:
        self._turns = turns
        self._door = door
        self._by_address: dict[str, int] = {}
        door.watch = self._watch
        door.forget = self._forget

    def take(self, connection: socket.socket, address: str, wrap: Wrap = PlainStream) -> None:
        """Add an accepted connection, or close it if a connection limit is reached."""
        limits = self._door.context.settings.limits
        here = self._by_address.get(address, 0)
        is_crowd = 0 < limits.connections_per_address_max <= here
        if is_crowd or len(self._door.links) >= limits.connections_max:
            self._door.refuse_connection()
            connection.close()
            return
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        with suppress(OSError):
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, NOT_SENT_BYTES_MAX)
        try:
            stream = wrap(connection)
        except OSError:
            connection.close()
            return
        self._by_address[address] = here + 1
        link = self._door.enter(stream, address)
        self._turns.watch(stream.fd, link)

    def _watch(self, link: MqttConnection) -> None:
        self._turns.watch_for(link.stream.fd, link.mask)

    def _forget(self, link: MqttConnection) -> None:
        self._turns.unwatch(link.stream.fd)
        left = self._by_address[link.address] - 1
        if left:
            self._by_address[link.address] = left
        else:
            del self._by_address[link.address]
