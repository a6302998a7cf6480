"""Wrapping: connections as the streams that their listener promises: plain, through TLS, in WebSocket frames."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING

from milepost.doors.streams import PlainStream, Stream, WebSocketStream
from milepost.service.faults import UsageFault
from milepost.service.settings import Listener

if TYPE_CHECKING:
    import ssl


def read_certificates(listener: Listener) -> "ssl.SSLContext | None":
    """What a listener needs for TLS, if it has TLS."""
    if not listener.transport.is_encrypted:
        return None
    from milepost.doors.tls import context_of  # noqa: PLC0415  # heavy, and most listeners are plain

    client_ca = Path(listener.client_ca) if listener.client_ca else None
    try:
        return context_of(Path(listener.certificate), Path(listener.key), client_ca)
    except OSError as error:  # ssl.SSLError is one
        files = " and ".join(name for name in (listener.certificate, listener.key, listener.client_ca) if name)
        raise UsageFault(f"{files} will not do for {listener.address}: {error.strerror or error}") from None


class Wrapper:
    """Makes streams for one listener."""

    def __init__(self, listener: Listener, packet_bytes_max: int) -> None:
        self._listener = listener
        self._packet_bytes_max = packet_bytes_max
        self._context = read_certificates(listener)

    def use(self, context: "ssl.SSLContext | None") -> None:
        """Show these certificates to whoever comes; who is connected already stays as he is."""
        self._context = context

    def wrap(self, connection: socket.socket) -> Stream:
        """The stream of a new connection."""
        stream: Stream = PlainStream(connection)
        if self._context is not None:
            from milepost.doors.tls import TlsStream  # noqa: PLC0415

            wrapped = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            stream = TlsStream(wrapped, is_named=self._listener.certificate_is_user)
        if self._listener.transport.is_websocket:
            from milepost.doors.websocket import WebSocketEnd  # noqa: PLC0415

            stream = WebSocketStream(stream, WebSocketEnd(message_bytes_max=self._packet_bytes_max))
        return stream
