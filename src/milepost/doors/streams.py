"""Streams: bytes from and to one connection, plain, through TLS, or in WebSocket frames; never waiting.

`read` gives what has arrived, None if nothing has, b"" when the other side is done. `write` gives how many bytes were taken, or
raises BlockingIOError if none, and OSError if the connection is broken, which `read` will tell too. Faults of the network end a
stream; they are not told apart.
"""

import socket
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from milepost.doors.websocket import WebSocketEnd

READ_BYTES: Final = 65_536
"""So much is read from one connection in one turn."""


Write = Callable[[bytes | memoryview], int]


class Stream(Protocol):
    """One connection."""

    @property
    def scheme(self) -> str:
        """What a URL that leads to such a connection begins with."""

    @property
    def fd(self) -> int:
        """Its file descriptor."""

    def read(self) -> bytes | None:
        """What has arrived."""

    @property
    def write(self) -> Write:
        """Sends; gives how much of it was taken."""

    @property
    def has_unsent(self) -> bool:
        """Whether it holds back something that it has taken: then `flush` is to be called when it can be written."""

    def flush(self) -> None:
        """Send what it holds back."""

    def finish(self) -> None:
        """Say that nothing more is coming; what the other side still sends can be read."""

    def close(self) -> None:
        """End it."""

    def maybe_common_name(self) -> str | None:
        """The name in the certificate that the client showed."""


class SocketStream:
    """What streams that hold nothing back have in common."""

    __slots__ = ("_socket", "fd")

    has_unsent = False

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection
        self.fd = connection.fileno()

    def flush(self) -> None:
        """Nothing is held back."""

    def finish(self) -> None:
        """Say that nothing more is coming."""
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_WR)

    def close(self) -> None:
        """End it."""
        with suppress(OSError):
            self._socket.close()


class PlainStream(SocketStream):
    """A TCP connection as it is. Reading and writing are the socket's own: nothing stands between."""

    __slots__ = ("_recv", "write")

    scheme = "mqtt"

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self._recv = connection.recv
        self.write = connection.send

    def read(self) -> bytes | None:
        """What has arrived."""
        try:
            return self._recv(READ_BYTES)
        except (BlockingIOError, InterruptedError):
            return None
        except OSError:
            return b""

    def maybe_common_name(self) -> str | None:
        """There are no certificates."""
        return None


class WebSocketStream:
    """A connection whose bytes come and go in WebSocket frames."""

    __slots__ = ("_end", "_inner", "_unsent", "fd")

    def __init__(self, inner: Stream, end: "WebSocketEnd") -> None:
        self._inner = inner
        self._end = end
        self._unsent = b""
        self.fd = inner.fd

    @property
    def scheme(self) -> str:
        """What a URL that leads to such a connection begins with."""
        return "ws" if self._inner.scheme == "mqtt" else "wss"

    def read(self) -> bytes | None:
        """What has arrived in frames; pings and the opening are answered on the way."""
        data = self._inner.read()
        if not data:
            return data
        payload, reply, is_over = self._end.on_bytes(data)
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
        """Send in one frame; nothing is taken while an earlier frame is not through."""
        if self._unsent:
            self.flush()
            if self._unsent:
                return 0
        self._unsent = self._end.wrap(bytes(data))
        self.flush()
        return len(data)

    @property
    def has_unsent(self) -> bool:
        """Whether part of a frame is still here."""
        return bool(self._unsent)

    def flush(self) -> None:
        """Send the rest of a frame."""
        with suppress(BlockingIOError, InterruptedError):
            self._unsent = self._unsent[self._inner.write(self._unsent) :]

    def finish(self) -> None:
        """Say that nothing more is coming."""
        self._inner.finish()

    def close(self) -> None:
        """End it."""
        self._inner.close()

    def maybe_common_name(self) -> str | None:
        """The name in the certificate that the client showed."""
        return self._inner.maybe_common_name()
