"""Streams of accepted connections, by the transport of their listener: plain, TLS, WebSocket."""

import socket
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from milepost.config.errors import UsageFault
from milepost.config.settings import ListenerSettings, Transport
from milepost.listeners.streams import PlainStream, ServerStream, WebSocketServerStream

if TYPE_CHECKING:
    import ssl


def read_certificates(listener: ListenerSettings) -> "ssl.SSLContext | None":
    """Return the TLS context of a listener, or None if it is not encrypted."""
    if not listener.transport.is_encrypted:
        return None
    from milepost.listeners.tls import context_of  # noqa: PLC0415  # slow to import, and most listeners are plain

    client_ca = Path(listener.client_ca) if listener.client_ca else None
    try:
        return context_of(Path(listener.certificate), Path(listener.key), client_ca)
    except OSError as error:  # ssl.SSLError is one
        files = " and ".join(name for name in (listener.certificate, listener.key, listener.client_ca) if name)
        raise UsageFault(f"{files} cannot be used for the listener at {listener.address}: {error.strerror or error}") from None


Contexts: TypeAlias = "dict[tuple[str, Transport], ssl.SSLContext | None]"
"""TLS contexts of the listeners, by address and transport."""


def read_contexts(listeners: Iterable[ListenerSettings]) -> Contexts:
    """Read the certificates of all listeners."""
    return {_key_of(listener): read_certificates(listener) for listener in listeners}


def _key_of(listener: ListenerSettings) -> tuple[str, Transport]:
    return listener.address, listener.transport


class Wrapper:
    """Creates the streams of one listener."""

    def __init__(self, listener: ListenerSettings, packet_bytes_max: int) -> None:
        self._listener = listener
        self._packet_bytes_max = packet_bytes_max
        self._context = read_certificates(listener)

    def reload(self, contexts: "Contexts") -> None:
        """Use the certificates of the listener at this address for new connections; existing ones stay as they are.

        An added or removed listener, or another transport, needs a restart: a socket bound for TLS never serves plain text.
        """
        context = contexts.get(_key_of(self._listener))
        if context is not None and self._context is not None:
            self._context = context

    def wrap(self, connection: socket.socket) -> ServerStream:
        """Return the stream of a new connection."""
        stream: ServerStream = PlainStream(connection)
        if self._context is not None:
            from milepost.listeners.tls import TlsStream  # noqa: PLC0415

            wrapped = self._context.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
            stream = TlsStream(wrapped, user_field=self._listener.user_field)
        if self._listener.transport.is_websocket:
            from milepost.listeners.websocket import WebSocketProtocol  # noqa: PLC0415

            stream = WebSocketServerStream(stream, WebSocketProtocol(message_bytes_max=self._packet_bytes_max))
        return stream
