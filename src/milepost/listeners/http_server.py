"""The small HTTP server for health checks and metrics."""

import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

from milepost.listeners.event_loop import READABLE, WRITABLE, EventLoop
from milepost.listeners.streams import PlainStream
from milepost.model.instants import Instant

if TYPE_CHECKING:
    from milepost.listeners.http import HttpHandler, HttpProtocol

CONNECTIONS_MAX: Final = 64
"""Maximum open connections; a further one replaces the oldest."""

IDLE_TIMEOUT_S: Final = 30.0


class _HttpConnection:
    """One HTTP connection."""

    def __init__(self, server: "HttpServer", stream: PlainStream, protocol: "HttpProtocol") -> None:
        self._server = server
        self.stream = stream
        self._protocol = protocol
        self._unsent = b""
        self.received_at = monotonic()

    def on_event(self, mask: int, now: Instant) -> None:
        """Read requests and send responses."""
        del now
        if mask & ~WRITABLE:
            data = self.stream.read()
            if data is None:
                return
            if not data:
                self._server.drop(self)
                return
            self.received_at = monotonic()
            self._unsent += self._protocol.on_bytes(data)
        try:
            self._unsent = self._unsent[self.stream.write(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._server.drop(self)
            return
        self._server.watch(self, READABLE | WRITABLE if self._unsent else READABLE)
        if not self._unsent and self._protocol.is_over:
            self._server.drop(self)


class HttpServer:
    """The open HTTP connections."""

    def __init__(self, loop: EventLoop, handler: "HttpHandler") -> None:
        self._loop = loop
        self._handler = handler
        self._connections: dict[_HttpConnection, None] = {}

    def accept(self, accepted: socket.socket, address: str) -> None:
        """Add an accepted connection; drop the oldest if there are too many."""
        del address
        if len(self._connections) >= CONNECTIONS_MAX:
            self.drop(next(iter(self._connections)))
        from milepost.listeners.http import HttpProtocol  # noqa: PLC0415  # most edges never serve HTTP

        connection = _HttpConnection(self, PlainStream(accepted), HttpProtocol(self._handler))
        self._connections[connection] = None
        self._loop.watch(connection.stream.fd, connection)

    def watch(self, connection: _HttpConnection, mask: int) -> None:
        """Change the events a connection is watched for."""
        self._loop.watch_for(connection.stream.fd, mask)

    def drop(self, connection: _HttpConnection) -> None:
        """Close a connection."""
        del self._connections[connection]
        self._loop.unwatch(connection.stream.fd)
        connection.stream.close()

    def close(self) -> None:
        """Close every connection."""
        for connection in list(self._connections):
            self.drop(connection)

    def on_timer(self, now: Instant) -> None:
        """Drop the connections that have been silent for `IDLE_TIMEOUT_S`."""
        del now
        for connection in [one for one in self._connections if one.received_at + IDLE_TIMEOUT_S < monotonic()]:
            self.drop(connection)
