"""Listening: sockets at which somebody may connect, and the connections that came in there."""

import errno
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from milepost.doors.mqtt.door import MqttDoor
from milepost.doors.mqtt.link import MqttLink
from milepost.doors.streams import PlainStream, Stream
from milepost.doors.turns import READABLE, Turns
from milepost.model.instants import Instant
from milepost.model.reasons import Reason

ACCEPTS_A_TURN: Final = 256
"""So many connections are taken in one turn: those that are there must not wait for a crowd at the door."""

BACKLOG: Final = 4096

PAUSE_S: Final = 1.0
"""So long nobody is taken when the system has no more descriptors or memory to give."""

NOT_SENT_BYTES_MAX: Final = 131_072
"""So much may wait in the system for the network: what is urgent must not stand behind megabytes that are not."""

_NO_ROOM: Final = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)

Take = Callable[[socket.socket, str], None]
"""Takes a connection that came from an address."""

Wrap = Callable[[socket.socket], Stream]
"""Makes a stream of a connection: plain, through TLS, in WebSocket frames."""


def listen_at(host: str, port: int) -> socket.socket:
    """A socket that listens; raises OSError if it cannot."""
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
    """Takes connections at one address and brings them to whoever serves them."""

    def __init__(self, turns: Turns, listener: socket.socket, take: Take) -> None:
        self._turns = turns
        self._listener = listener
        self._take = take
        host, port, *_ = listener.getsockname()
        self.address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
        self._is_open = True
        turns.watch(listener.fileno(), self)
        turns.every(PAUSE_S, self._look_again)

    def on_event(self, mask: int, now: Instant) -> None:
        """Somebody is at the door."""
        del mask, now
        for _ in range(ACCEPTS_A_TURN):
            try:
                connection, address = self._listener.accept()
            except (BlockingIOError, InterruptedError):
                return
            except OSError as error:
                if error.errno in _NO_ROOM:  # they stay in the backlog until there is room again
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
        """Take nobody any more."""
        self._is_open = False
        self._turns.unwatch(self._listener.fileno())
        self._listener.close()


class MqttEntrance:
    """Brings connections to the MQTT door, as far as its limits allow, and has them watched."""

    def __init__(self, turns: Turns, door: MqttDoor) -> None:
        self._turns = turns
        self._door = door
        self._by_address: dict[str, int] = {}
        door.watch = self._watch
        door.forget = self._forget

    def take(self, connection: socket.socket, address: str, wrap: Wrap = PlainStream) -> None:
        """Somebody connected."""
        limits, counts = self._door.desk.settings.limits, self._door.desk.corridor.counts
        here = self._by_address.get(address, 0)
        is_crowd = 0 < limits.connections_per_address_max <= here
        if is_crowd or len(self._door.links) >= limits.connections_max:
            counts.refused[Reason.CONNECTIONS_FULL] += 1
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

    def _watch(self, link: MqttLink) -> None:
        self._turns.watch_for(link.stream.fd, link.mask)

    def _forget(self, link: MqttLink) -> None:
        self._turns.unwatch(link.stream.fd)
        left = self._by_address[link.address] - 1
        if left:
            self._by_address[link.address] = left
        else:
            del self._by_address[link.address]
