"""The server side of a read-only HTTP/1.1 connection: bytes in, bytes out; no I/O.

Invariants:
- GET and HEAD are answered, all other methods are refused; a request has no body;
- the size of a request head and the requests answered per read are limited: small requests can cause large responses;
- input that is not HTTP receives one error response, and the connection closes.

The HTTP server imports this module on its first connection: most edges never serve HTTP.
"""

from collections.abc import Callable
from http import HTTPStatus
from typing import Final

import h11

HttpHandler = Callable[[str, str], tuple[int, str, bytes]]
"""Takes method and path (without a query); returns status, content type and content."""

HEAD_BYTES_MAX: Final = 8_192
RESPONSES_PER_READ_MAX: Final = 4
"""Maximum requests answered per read; the connection is closed after the last one."""

_PLAIN: Final = "text/plain; charset=utf-8"


class HttpProtocol:
    """The protocol state of one connection."""

    __slots__ = ("_connection", "_handler", "_is_head", "is_over")

    def __init__(self, handler: HttpHandler) -> None:
        self._handler = handler
        self._connection = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES_MAX)
        self._is_head = False
        self.is_over = False
        """Whether to close the connection once all output is sent."""

    def on_bytes(self, data: bytes) -> bytes:
        """Return the bytes to send back; empty *data* means that the client has finished sending."""
        if self.is_over:
            return b""
        reply = bytearray()
        try:
            self._connection.receive_data(data)
            for number in range(1, RESPONSES_PER_READ_MAX + 1):
                event = self._connection.next_event()
                if not isinstance(event, h11.Request):
                    self.is_over = isinstance(event, h11.ConnectionClosed)
                    break
                reply += self._respond(event, is_last=number == RESPONSES_PER_READ_MAX)
                if self.is_over:
                    break
        except h11.RemoteProtocolError as fault:
            reply += self._refusal(fault)
        return bytes(reply)

    def _respond(self, request: h11.Request, *, is_last: bool) -> bytes:
        """Return the response to a request, and prepare for the next request or the end."""
        method, target = request.method.decode("ascii"), request.target.decode("ascii")
        self._is_head = method == "HEAD"
        if request.http_version not in (b"1.0", b"1.1"):
            return self._last_response(HTTPStatus.HTTP_VERSION_NOT_SUPPORTED)
        if method not in ("GET", "HEAD"):
            return self._last_response(HTTPStatus.METHOD_NOT_ALLOWED, [("Allow", "GET, HEAD")])
        if not isinstance(self._connection.next_event(), h11.EndOfMessage):
            return self._last_response(HTTPStatus.REQUEST_ENTITY_TOO_LARGE)
        if not target.startswith("/"):
            return self._last_response(HTTPStatus.BAD_REQUEST)
        status, kind, content = self._handler(method, target.partition("?")[0])
        reply = self._response(status, kind, content, [("Connection", "close")] if is_last else [])
        if self._connection.our_state is h11.DONE and self._connection.their_state is h11.DONE:
            self._connection.start_next_cycle()
            self._is_head = False
        else:
            self.is_over = True
        return reply

    def _refusal(self, fault: h11.RemoteProtocolError) -> bytes:
        """Return the response to input that is not HTTP, if a response can still be sent."""
        self.is_over = True
        if self._connection.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            return b""
        return self._last_response(HTTPStatus(fault.error_status_hint))

    def _last_response(self, status: HTTPStatus, headers: list[tuple[str, str]] | None = None) -> bytes:
        self.is_over = True
        return self._response(
            status, _PLAIN, f"{status.value} {status.phrase}\n".encode(), [*(headers or []), ("Connection", "close")]
        )

    def _response(self, status: int, kind: str, content: bytes, headers: list[tuple[str, str]]) -> bytes:
        send = self._connection.send
        usual = [("Content-Type", kind), ("Content-Length", str(len(content))), ("Cache-Control", "no-store")]
        head = send(h11.Response(status_code=status, reason=HTTPStatus(status).phrase, headers=[*usual, *headers]))
        body = b"" if self._is_head else send(h11.Data(data=content))
        return (head or b"") + (body or b"") + (send(h11.EndOfMessage()) or b"")
