"""Byte streams to a server: TCP, TLS, WebSocket."""

import asyncio
import contextlib
import ssl
from collections.abc import Iterable
from dataclasses import dataclass, replace
from time import time_ns
from typing import Final, Protocol, SupportsIndex
from urllib.parse import unquote, urlsplit

from milepost.model.instants import Instant

READ_BYTES: Final = 65_536
CLOSE_TIMEOUT_S: Final = 2.0
"""Maximum time to send the last bytes before closing."""

PORTS: Final = {"mqtt": 1883, "mqtts": 8883, "ws": 80, "wss": 443}
UDP_SCHEMES: Final = ("udp", "udp+srv", "udp+find")
SUBPROTOCOL: Final = "mqtt"


class ClientStream(Protocol):
    """One connection. Every failure is an `OSError`."""

    async def read(self) -> tuple[bytes, Instant]:
        """Return the next bytes, empty at the end, and when the last of them were received."""

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the buffer has room for more."""

    async def close(self) -> None:
        """Flush for a moment, then close."""


@dataclass(frozen=True, slots=True)
class MqttTarget:
    """A decoded URL."""

    scheme: str
    host: str
    port: int
    path: str = ""
    user: str | None = None
    password: str | None = None

    @property
    def is_encrypted(self) -> bool:
        """Whether the scheme requires TLS."""
        return self.scheme in ("mqtts", "wss")

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.scheme}://{host}:{self.port}{self.path}"


def target_of(url: str) -> MqttTarget:
    """Decode a URL; raise `ValueError` with the reason if it is invalid."""
    parts = urlsplit(url)
    if parts.scheme not in PORTS:
        raise ValueError(f"the URL {url!r} does not begin with {', '.join(f'{name}://' for name in (*PORTS, *UDP_SCHEMES))}")
    try:
        port = parts.port
    except ValueError:
        raise ValueError(f"the URL {url!r} has a port that is not in 1..65535") from None
    if not parts.hostname or port == 0 or parts.query or parts.fragment:
        raise ValueError(f"the URL {url!r} is not {parts.scheme}://HOST[:PORT]" + ("[/PATH]" if "ws" in parts.scheme else ""))
    is_websocket = parts.scheme in ("ws", "wss")
    if parts.path not in ("", "/") and not is_websocket:
        raise ValueError(f"the URL {url!r} has a path, which only WebSocket supports; did you mean ws://?")
    user, password = (None if part is None else unquote(part) for part in (parts.username, parts.password))
    path = (parts.path or "/mqtt") if is_websocket else ""
    return MqttTarget(parts.scheme, parts.hostname, port or PORTS[parts.scheme], path, user, password)


def resolve_reference(target: MqttTarget, reference: str) -> MqttTarget | None:
    """Return the server that a reference such as `host:1883` names, with the same scheme; None if it cannot be decoded."""
    try:
        found = target_of(f"{target.scheme}://{reference}")
    except ValueError:
        return None
    is_plain = not {"/", "@"} & set(reference)
    return replace(target, host=found.host, port=found.port) if is_plain else None


async def open_stream(target: MqttTarget, tls: ssl.SSLContext | None, message_bytes_max: int) -> ClientStream:
    """Open a connection."""
    context = (tls or ssl.create_default_context()) if target.is_encrypted else None
    if target.scheme in ("ws", "wss"):
        from milepost.client.mqtt.websocket import open_websocket  # noqa: PLC0415  # 11 MB that most clients do not need

        return await open_websocket(str(target), context, message_bytes_max)
    loop = asyncio.get_running_loop()
    reader = TimedReader(limit=READ_BYTES, loop=loop)
    protocol = asyncio.StreamReaderProtocol(reader, loop=loop)
    transport, _ = await loop.create_connection(lambda: protocol, target.host, target.port, ssl=context)
    return TcpStream(reader, asyncio.StreamWriter(transport, protocol, reader, loop))


class TimedReader(asyncio.StreamReader):
    """A stream reader with the time of receipt: the bytes are processed after the sockets of all other clients were read."""

    received_at = Instant(0)

    def feed_data(self, data: Iterable[SupportsIndex]) -> None:
        """Take bytes from the socket."""
        self.received_at = Instant(time_ns())
        super().feed_data(data)


class TcpStream:
    """A TCP connection, with or without TLS."""

    def __init__(self, reader: TimedReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def read(self) -> tuple[bytes, Instant]:
        """Return the next bytes, empty at the end, and when the last of them were received."""
        data = await self._reader.read(READ_BYTES)
        return data, self._reader.received_at

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the buffer has room for more."""
        self._writer.write(data)
        await self._writer.drain()

    async def close(self) -> None:
        """Flush for a moment, then close."""
        self._writer.close()
        try:
            async with asyncio.timeout(CLOSE_TIMEOUT_S):
                await self._writer.wait_closed()
        except (TimeoutError, OSError):
            with contextlib.suppress(OSError):
                self._writer.transport.abort()
