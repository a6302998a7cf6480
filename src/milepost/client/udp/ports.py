"""Sockets of asyncio for datagrams: what comes in is handed on, what goes wrong is told."""

import asyncio
import socket
from collections.abc import Callable
from typing import Final

BUFFER_BYTES: Final = 4_000_000
"""So much the system is asked to hold for us while we do something else; it gives what it allows."""

Said = tuple[bytes, str]
"""A datagram, and the host it came from."""


class Port(asyncio.DatagramProtocol):
    """One socket."""

    def __init__(self, on_said: Callable[[Said], None], on_fault: Callable[[OSError], None] | None = None) -> None:
        self._on_said = on_said
        self._on_fault = on_fault

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        """A datagram came."""
        self._on_said((data, addr[0]))

    def error_received(self, exc: Exception) -> None:
        """The system could not send, or says that nobody listens there."""
        if self._on_fault is not None and isinstance(exc, OSError):
            self._on_fault(exc)


async def connect_port(
    address: tuple[str, int], on_said: Callable[[Said], None], on_fault: Callable[[OSError], None]
) -> asyncio.DatagramTransport:
    """A socket that talks to one address only; its name is looked up now."""
    loop = asyncio.get_running_loop()
    transport, _ = await loop.create_datagram_endpoint(lambda: Port(on_said, on_fault), remote_addr=address)
    transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    return transport
