"""The client side of MQTT over WebSocket."""

import asyncio
import ssl
from time import time_ns

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from milepost.client.mqtt.streams import CLOSE_TIMEOUT_S, SUBPROTOCOL
from milepost.model.instants import Instant


async def open_websocket(url: str, tls: ssl.SSLContext | None, message_bytes_max: int) -> "WebSocketClientStream":
    """Connect; the server must accept the subprotocol mqtt. [MQTT-6.0.0-3]"""
    try:
        connection = await connect(
            url,
            ssl=tls,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            proxy=None,
            ping_interval=None,  # MQTT has its own keepalive
            close_timeout=CLOSE_TIMEOUT_S,
            max_size=message_bytes_max,
        )
    except WebSocketException as fault:
        raise ConnectionError(f"the WebSocket connection to {url} failed: {fault}") from None
    if connection.subprotocol != SUBPROTOCOL:
        await connection.close()
        raise ConnectionError(f"the server at {url} does not support the WebSocket subprotocol {SUBPROTOCOL}")
    return WebSocketClientStream(connection)


class WebSocketClientStream:
    """A WebSocket as a byte stream; frame boundaries carry no meaning. [MQTT-6.0.0-2]"""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def read(self) -> tuple[bytes, Instant]:
        """Return the next bytes, empty at the end, and the time: the library does not say when it read them."""
        try:
            while not (data := await self._connection.recv()):
                pass
        except ConnectionClosed:
            data = b""
        if isinstance(data, str):  # [MQTT-6.0.0-1]
            raise ConnectionError("the server sent a WebSocket text frame; MQTT uses binary frames")
        return data, Instant(time_ns())

    async def send(self, data: bytes) -> None:
        """Send bytes; return when the buffer has room for more."""
        try:
            await self._connection.send(data)
        except ConnectionClosed as fault:
            raise ConnectionResetError(str(fault)) from None

    async def close(self) -> None:
        """Flush for a moment, then close."""
        async with asyncio.timeout(2 * CLOSE_TIMEOUT_S):
            await self._connection.close()
