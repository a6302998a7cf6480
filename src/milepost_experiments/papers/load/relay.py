"""A relay for the datagrams of one client, like a network that routes it to one edge, then to another."""

import asyncio
from collections.abc import Callable

Address = tuple[str, int]
OnDatagram = Callable[[bytes, Address], None]


class Relay:
    """Forwards datagrams between one client and the current edge."""

    def __init__(self, edge_port: int) -> None:
        self._edge_port = edge_port
        self._client: Address | None = None
        self.forwarded = 0

    async def __aenter__(self) -> "Relay":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def open(self) -> None:
        """Listen for the client."""
        loop = asyncio.get_running_loop()
        address = ("127.0.0.1", 0)
        self._front, _ = await loop.create_datagram_endpoint(lambda: _DatagramReceiver(self._from_client), local_addr=address)
        await self._open_back()

    async def switch_to(self, edge_port: int) -> None:
        """Switch to another edge, from another address; datagrams of the previous edge are lost."""
        self._back.close()
        self._edge_port = edge_port
        await self._open_back()

    def close(self) -> None:
        """Stop forwarding."""
        self._front.close()
        self._back.close()

    @property
    def port(self) -> int:
        """The port for the client."""
        found: int = self._front.get_extra_info("sockname")[1]
        return found

    def transform(self, data: bytes) -> bytes:
        """Return the datagram to forward; here unchanged."""
        return data

    async def _open_back(self) -> None:
        loop, there = asyncio.get_running_loop(), ("127.0.0.1", self._edge_port)
        self._back, _ = await loop.create_datagram_endpoint(lambda: _DatagramReceiver(self._from_edge), remote_addr=there)

    def _from_client(self, data: bytes, address: Address) -> None:
        self._client = address
        self.forwarded += 1
        if not self._back.is_closing():
            self._back.sendto(self.transform(data))

    def _from_edge(self, data: bytes, address: Address) -> None:
        del address
        self.forwarded += 1
        if self._client is not None:
            self._front.sendto(self.transform(data), self._client)


class _DatagramReceiver(asyncio.DatagramProtocol):
    def __init__(self, on_datagram: OnDatagram) -> None:
        self._on_datagram = on_datagram

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._on_datagram(data, addr)
