"""A relay for the datagrams of one client, like a network that routes it to one edge, then to another."""

import asyncio
from collections.abc import Callable

Address = tuple[str, int]
Hear = Callable[[bytes, Address], None]


class Relay:
    """Forwards datagrams between one client and the current edge."""

    def __init__(self, edge_port: int) -> None:
        self._edge_port = edge_port
        self._client: Address | None = None
        self.passed = 0

    async def __aenter__(self) -> "Relay":
        await self.open()
        return self

    async def __aexit__(self, *_: object) -> None:
        self.close()

    async def open(self) -> None:
        """Listen for the client."""
        loop = asyncio.get_running_loop()
        self._front, _ = await loop.create_datagram_endpoint(lambda: _Ear(self._from_client), local_addr=("127.0.0.1", 0))
        await self._open_back()

    async def turn(self, edge_port: int) -> None:
        """Switch to another edge, from another address; datagrams of the former edge are lost."""
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

    def on_way(self, data: bytes) -> bytes:
        """Return the datagram to forward; here unchanged."""
        return data

    async def _open_back(self) -> None:
        loop, there = asyncio.get_running_loop(), ("127.0.0.1", self._edge_port)
        self._back, _ = await loop.create_datagram_endpoint(lambda: _Ear(self._from_edge), remote_addr=there)

    def _from_client(self, data: bytes, address: Address) -> None:
        self._client = address
        self.passed += 1
        if not self._back.is_closing():
            self._back.sendto(self.on_way(data))

    def _from_edge(self, data: bytes, address: Address) -> None:
        del address
        self.passed += 1
        if self._client is not None:
            self._front.sendto(self.on_way(data), self._client)


class _Ear(asyncio.DatagramProtocol):
    def __init__(self, hear: Hear) -> None:
        self._hear = hear

    def datagram_received(self, data: bytes, addr: Address) -> None:
        self._hear(data, addr)
