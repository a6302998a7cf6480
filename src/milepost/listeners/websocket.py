"""The server side of a WebSocket that carries MQTT: bytes of the socket ↔ the stream of MQTT packets; no I/O.

Invariants:
- the client must ask for the subprotocol "mqtt", or the handshake is refused [MQTT-6.0.0-3], [MQTT-6.0.0-4];
- MQTT travels in binary frames; any other data frame ends the connection [MQTT-6.0.0-1];
- frame boundaries have no meaning: a packet may span several frames, and a frame may hold several packets [MQTT-6.0.0-2];
- a request that is not a WebSocket handshake receives an HTTP error response, and the connection closes;
- no frame is decoded before the handshake is answered.

Imported only if a WebSocket listener is configured: the library behind it takes 11 MB of memory.
"""

import logging
import re
import struct
from typing import Final

from websockets.frames import CloseCode, Frame, Opcode
from websockets.http11 import Request
from websockets.protocol import State
from websockets.server import ServerProtocol
from websockets.typing import Subprotocol

SUBPROTOCOL: Final = Subprotocol("mqtt")
REQUEST_BYTES_MAX: Final = 8_192

_BINARY_AND_WHOLE: Final = 0x82
_SIZE_IN_2_BYTES: Final = 126
_SIZE_IN_8_BYTES: Final = 127

_END_OF_REQUEST: Final = re.compile(rb"\r?\n\r?\n")
_BAD_REQUEST_TEXT: Final = b"This port accepts MQTT over WebSocket.\n"
_BAD_REQUEST: Final = (
    b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\nContent-Type: text/plain\r\nContent-Length: %d\r\n\r\n%b"
    % (len(_BAD_REQUEST_TEXT), _BAD_REQUEST_TEXT)
)

_DISABLED_LOGGER: Final = logging.Logger("websocket")  # only the outer layer logs
_DISABLED_LOGGER.disabled = True


class WebSocketProtocol:
    """The protocol state of one connection."""

    __slots__ = ("_is_over", "_protocol", "_request")

    def __init__(self, *, message_bytes_max: int) -> None:
        self._protocol = ServerProtocol(subprotocols=[SUBPROTOCOL], max_size=message_bytes_max, logger=_DISABLED_LOGGER)
        self._request: bytearray | None = bytearray()
        """The handshake request received so far; None once it is answered."""
        self._is_over = False

    @property
    def is_open(self) -> bool:
        """Whether chunks may be sent: the handshake succeeded, and neither side has closed."""
        return self._protocol.state is State.OPEN

    def on_bytes(self, data: bytes) -> tuple[bytes, bytes, bool]:
        """Return the MQTT bytes in *data*, the bytes to send back, and whether to close the connection after these."""
        if self._is_over:
            return b"", b"", True
        payload, reply = (self._on_frames if self._request is None else self._on_request)(data)
        return payload, reply, self._is_over

    def wrap(self, chunk: bytes) -> bytes:
        """Return a chunk of the MQTT stream as a frame."""
        return frame_header(len(chunk)) + chunk

    def close(self, code: int = CloseCode.NORMAL_CLOSURE) -> bytes:
        """Return the close frame; empty if the WebSocket is not open."""
        if not self.is_open:
            return b""
        self._protocol.send_close(code)
        return self._reply()

    def _on_request(self, data: bytes) -> tuple[bytes, bytes]:
        """Answer the handshake request once it is complete, and decode the bytes after it as frames."""
        request = self._request
        assert request is not None
        searched = max(0, len(request) - 3)
        request += data
        end = _END_OF_REQUEST.search(request, searched)
        size = end.end() if end else len(request)
        if size > REQUEST_BYTES_MAX or not request[:1].isalpha():
            self._is_over = bool(request)
            return b"", _BAD_REQUEST if request else b""
        if end is None:
            return b"", b""
        self._request = None
        answer = self._answer(bytes(request[:size]))
        payload, reply = (b"", b"") if self._is_over else self._on_frames(bytes(request[size:]))
        return payload, answer + reply

    def _answer(self, request: bytes) -> bytes:
        protocol = self._protocol
        protocol.receive_data(request)
        for event in protocol.events_received():
            assert isinstance(event, Request)
            protocol.send_response(protocol.accept(event))
        self._is_over = not self.is_open
        return self._reply() or _BAD_REQUEST  # the library closes without a response if it is not HTTP

    def _on_frames(self, data: bytes) -> tuple[bytes, bytes]:
        """Return the payload of the binary frames, in order; drop all after a text frame or our own close."""
        protocol = self._protocol
        was_open = self.is_open
        found: list[bytes] = []
        if data:
            protocol.receive_data(data)
        for frame in protocol.events_received():
            assert isinstance(frame, Frame)
            if frame.opcode is Opcode.TEXT:  # [MQTT-6.0.0-1]
                protocol.fail(CloseCode.UNSUPPORTED_DATA, "MQTT requires binary frames")
                break
            if was_open and frame.opcode in (Opcode.BINARY, Opcode.CONT):
                found.append(bytes(frame.data))
        self._is_over = protocol.eof_sent
        return b"".join(found), self._reply()

    def _reply(self) -> bytes:
        return b"".join(self._protocol.data_to_send())


def frame_header(size: int) -> bytes:
    """Return the header (2 to 10 bytes) of an unmasked binary frame with FIN set, as servers send it (RFC 6455, 5.2).

    ::

        +--------+--------+----------------------+-------
        | 1000   | 0 size | size in 0, 2 or 8    | chunk
        |   0010 |  or 126| bytes, if the 7 bits |
        |        |  or 127| say 126 or 127       |
        +--------+--------+----------------------+-------
    """
    if size < _SIZE_IN_2_BYTES:
        return bytes((_BINARY_AND_WHOLE, size))
    if size < 1 << 16:
        return struct.pack("!BBH", _BINARY_AND_WHOLE, _SIZE_IN_2_BYTES, size)
    return struct.pack("!BBQ", _BINARY_AND_WHOLE, _SIZE_IN_8_BYTES, size)
