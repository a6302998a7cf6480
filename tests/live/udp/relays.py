"""A relay for datagrams between clients and an edge, which records everything and can delay, duplicate and rebind.

client ──▶ relay port ──▶ one socket for each client ──▶ edge
"""

import asyncio
import contextlib
import socket
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import TracebackType
from typing import Final

Address = tuple[str, int]
BUFFER_BYTES: Final = 4_000_000


@dataclass
class Relay:
    """`delay_s_max`: maximum random delay of a datagram; `duplicate_share`: share of datagrams sent twice."""

    edge_port: int
    delay_s_max: float = 0.0
    duplicate_share: float = 0.0
    seed: int = 1
    from_clients: list[tuple[Address, bytes]] = field(default_factory=list)
    """Datagrams from clients, with their source."""
    from_edge: list[bytes] = field(default_factory=list)
    """Datagrams from the edge."""
    rebound: int = 0

    async def __aenter__(self) -> "Relay":
        self._random = Random(self.seed)
        self._loop = asyncio.get_running_loop()
        self._sockets: dict[Address, socket.socket] = {}
        self._front = _open("127.0.0.1")
        self._loop.add_reader(self._front, self._from_clients)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        for one in (self._front, *self._sockets.values()):
            self._close(one)

    @property
    def port(self) -> int:
        """The port that clients connect to."""
        found: int = self._front.getsockname()[1]
        return found

    def rebind(self) -> None:
        """Move every client to another address, as seen by the edge; datagrams to the previous ones are lost."""
        self.rebound += 1
        for client, outgoing in self._sockets.items():
            self._close(outgoing)
            self._sockets[client] = self._open_socket(client)

    def replay(self) -> int:
        """Send all recorded datagrams of clients to the edge again, each from its source; return their number."""
        from_clients = self.from_clients.copy()
        for client, data in from_clients:
            self._sockets[client].send(data)
        return len(from_clients)

    def _open_socket(self, client: Address) -> socket.socket:
        outgoing = _open(f"127.0.{self.rebound % 200}.1")
        outgoing.connect(("127.0.0.1", self.edge_port))
        self._loop.add_reader(outgoing, self._from_edge, outgoing, client)
        return outgoing

    def _close(self, one: socket.socket) -> None:
        self._loop.remove_reader(one)
        one.close()

    def _from_clients(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, client = self._front.recvfrom(65_536)
                if client not in self._sockets:
                    self._sockets[client] = self._open_socket(client)
                self.from_clients.append((client, data))
                self._forward(lambda client=client, data=data: self._sockets[client].send(data))  # type: ignore[misc]

    def _from_edge(self, outgoing: socket.socket, client: Address) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                data = outgoing.recv(65_536)
                self.from_edge.append(data)
                self._forward(lambda data=data: self._front.sendto(data, client))  # type: ignore[misc]

    def _forward(self, send: Callable[[], int]) -> None:
        for _ in range(2 if self._random.random() < self.duplicate_share else 1):
            if self.delay_s_max:
                self._loop.call_later(self._random.uniform(0.0, self.delay_s_max), self._try, send)
            else:
                self._try(send)

    def _try(self, send: Callable[[], int]) -> None:
        with contextlib.suppress(OSError):  # the receiver has closed: lost, as on any network
            send()


def _open(host: str) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    one.setblocking(False)
    one.bind((host, 0))
    return one
