"""MQTT in a WebSocket, from the client's side."""

import asyncio
import ssl

from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, WebSocketException
from websockets.typing import Subprotocol

from milepost.client.mqtt.streams import GOODBYE_S, SUBPROTOCOL


async def open_websocket(url: str, tls: ssl.SSLContext | None, message_bytes_max: int) -> "WebSocketStream":
    """Connect; the server must speak MQTT in it. [MQTT-6.0.0-3]"""
    try:
        connection = await connect(
            url,
            ssl=tls,
            subprotocols=[Subprotocol(SUBPROTOCOL)],
            compression=None,
            proxy=None,
            ping_interval=None,  # MQTT has its own
            close_timeout=GOODBYE_S,
            max_size=message_bytes_max,
        )
    except WebSocketException as fault:
        raise ConnectionError(f"no WebSocket at {url}: {fault}") from None
    if connection.subprotocol != SUBPROTOCOL:
        await connection.close()
        raise ConnectionError(f"the WebSocket at {url} does not speak MQTT")
    return WebSocketStream(connection)


class WebSocketStream:
    """A WebSocket; where its frames begin and end means nothing. [MQTT-6.0.0-2]"""

    def __init__(self, connection: ClientConnection) -> None:
        self._connection = connection

    async def read(self) -> bytes:
        """The next bytes; none at the end."""
        try:
            while not (data := await self._connection.recv()):
                pass
        except ConnectionClosed:
            return b""
        if isinstance(data, str):  # [MQTT-6.0.0-1]
            raise ConnectionError("a text frame, where MQTT is in binary ones")
        return data

    async def send(self, data: bytes) -> None:
        """Hand bytes over; comes back when there is room for more."""
        try:
            await self._connection.send(data)
        except ConnectionClosed as fault:
            raise ConnectionResetError(str(fault)) from None

    async def close(self) -> None:
        """Let what was handed over leave, for a moment, and close."""
        async with asyncio.timeout(2 * GOODBYE_S):
            await self._connection.close()
