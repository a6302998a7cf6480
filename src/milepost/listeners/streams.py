"""Streams: non-blocking byte streams of one connection, over plain TCP, TLS or WebSocket.

`read` returns the bytes that have arrived, None if there are none, b"" at the end of the stream. `write` returns the number of
bytes accepted; it raises BlockingIOError if none were, and OSError if the connection is broken, which `read` then reports as the
end of the stream. All network errors end a stream; they are not distinguished.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import TYPE_CHECKING, Final, Protocol

from milepost.model.reasons import Refused

if TYPE_CHECKING:
    from milepost.listeners.websocket import WebSocketProtocol

READ_BYTES: Final = 65_536
"""Bytes read from one connection per tick."""


class CertificateField(Enum):
    """The field of a client's certificate that names its user."""

    COMMON_NAME = "common_name"
    """The common name of the subject."""
    URI = "uri"
    """The subject alternative name of type URI, such as a SPIFFE id."""
    DNS = "dns"
    """The subject alternative name of type DNS."""
    EMAIL = "email"
    """The subject alternative name of type e-mail (RFC 822)."""


Write = Callable[[bytes | memoryview], int]


class ServerStream(Protocol):
    """The byte stream of one connection."""

    @property
    def scheme(self) -> str:
        """The URL scheme of such a connection."""

    @property
    def fd(self) -> int:
        """The file descriptor."""

    def read(self) -> bytes | None:
        """Return the bytes that have arrived."""

    @property
    def write(self) -> Write:
        """Send bytes; return how many were accepted."""

    @property
    def has_unsent(self) -> bool:
        """Whether accepted bytes are still buffered: the caller then calls `flush` when the socket is writable."""

    def flush(self) -> None:
        """Send buffered bytes."""

    def finish(self) -> None:
        """Shut down the sending direction; the peer's bytes can still be read."""

    def close(self) -> None:
        """Close the connection."""

    def maybe_certificate_user(self) -> str | Refused | None:
        """Return the user that the client's certificate names; None: the certificate is not the user name."""


class SocketStream:
    """Base of the streams that buffer nothing."""

    __slots__ = ("_socket", "fd")

    has_unsent = False

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.fd = connection.fileno()

    def flush(self) -> None:
        """Do nothing: no bytes are buffered."""

    def finish(self) -> None:
        """Shut down the sending direction."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """Close the socket."""
        with suppress(OSError):
            self._socket.close()


class PlainStream(SocketStream):
    """A plain TCP connection. Reads and writes call the socket's own methods directly."""

    __slots__ = ("_recv", "write")

    scheme = "mqtt"

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._recv = connection.recv
        self.write = connection.send

    def read(self) -> bytes | None:
        """Return the bytes that have arrived."""
        try:
            return self._recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def maybe_certificate_user(self) -> str | Refused | None:
        """Return None: there is no certificate."""
        return None


class WebSocketServerStream:
    """A connection whose bytes travel in WebSocket frames."""

    __slots__ = ("_inner", "_protocol", "_unsent", "fd")

    def __init__(self, inner: ServerStream, protocol: "WebSocketProtocol") -> None:
        self._inner = inner
        self._protocol = protocol
        self._unsent = b""
        self.fd = inner.fd

    @property
    def scheme(self) -> str:
        """The URL scheme of such a connection."""
        return "ws" if self._inner.scheme == "mqtt" else "wss"

    def read(self) -> bytes | None:
        """Return the payload of the frames that have arrived; answer pings and the opening handshake."""
        data = self._inner.read()
        if not data:
            return data
        payload, reply, is_over = self._protocol.on_bytes(data)
        if reply:
            self._unsent += reply
            try:
                self.flush()
            except OSError:
                return b""
        if is_over:
            return payload
        return payload or None

    def write(self, data: bytes | memoryview) -> int:
        """Send bytes in one frame; accept none while an earlier frame is incomplete."""
        if self._unsent:
            self.flush()
            if self._unsent:
                return 0
        self._unsent = self._protocol.wrap(bytes(data))
        self.flush()
        return len(data)

    @property
    def has_unsent(self) -> bool:
        """Whether part of a frame is still buffered."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send the rest of a frame."""
        with suppress(BlockingIOError, InterruptedError):
            self._unsent = self._unsent[self._inner.write(self._unsent) :]

    def finish(self) -> None:
        """Shut down the sending direction."""
        self._inner.finish()

    def close(self) -> None:
        """Close the connection."""
        self._inner.close()

    def maybe_certificate_user(self) -> str | Refused | None:
        """Return the user that the client's certificate names."""
        return self._inner.maybe_certificate_user()
