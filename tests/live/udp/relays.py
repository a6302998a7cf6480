"""A relay for datagrams between clients and an edge, which keeps a copy of everything and can misbehave as networks do.

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
    """`late_s`: each datagram is held for a random time up to this; `twice`: of so many one is sent twice."""

    edge_port: int
    late_s: float = 0.0
    twice: float = 0.0
    seed: int = 1
    said: list[tuple[Address, bytes]] = field(default_factory=list)
    """What clients sent, and from where."""
    told: list[bytes] = field(default_factory=list)
    """What the edge sent."""
    rebound: int = 0

    async def __aenter__(self) -> "Relay":
        self._random = Random(self.seed)
        self._loop = asyncio.get_running_loop()
        self._ways: dict[Address, socket.socket] = {}
        self._front = _open("127.0.0.1")
        self._loop.add_reader(self._front, self._from_clients)
        return self

    async def __aexit__(self, kind: type[BaseException] | None, fault: BaseException | None, trace: TracebackType | None) -> None:
        for one in (self._front, *self._ways.values()):
            self._close(one)

    @property
    def port(self) -> int:
        """Where clients connect."""
        found: int = self._front.getsockname()[1]
        return found

    def rebind(self) -> None:
        """From now on the edge sees every client at another address; what is sent to the former ones is lost."""
        self.rebound += 1
        for client, way in self._ways.items():
            self._close(way)
            self._ways[client] = self._way(client)

    def say_again(self) -> int:
        """Send to the edge all that clients sent, each from where it came; gives how much that is."""
        said = self.said.copy()
        for client, data in said:
            self._ways[client].send(data)
        return len(said)

    def _way(self, client: Address) -> socket.socket:
        way = _open(f"127.0.{self.rebound % 200}.1")
        way.connect(("127.0.0.1", self.edge_port))
        self._loop.add_reader(way, self._from_edge, way, client)
        return way

    def _close(self, one: socket.socket) -> None:
        self._loop.remove_reader(one)
        one.close()

    def _from_clients(self) -> None:
        with contextlib.suppress(BlockingIOError):
            while True:
                data, client = self._front.recvfrom(65_536)
                if client not in self._ways:
                    self._ways[client] = self._way(client)
                self.said.append((client, data))
                self._pass_on(lambda client=client, data=data: self._ways[client].send(data))  # type: ignore[misc]

    def _from_edge(self, way: socket.socket, client: Address) -> None:
        with contextlib.suppress(BlockingIOError, ConnectionRefusedError):
            while True:
                data = way.recv(65_536)
                self.told.append(data)
                self._pass_on(lambda data=data: self._front.sendto(data, client))  # type: ignore[misc]

    def _pass_on(self, send: Callable[[], int]) -> None:
        for _ in range(2 if self._random.random() < self.twice else 1):
            if self.late_s:
                self._loop.call_later(self._random.uniform(0.0, self.late_s), self._try, send)
            else:
                self._try(send)

    def _try(self, send: Callable[[], int]) -> None:
        with contextlib.suppress(OSError):  # nobody listens there any more: lost, as on any network
            send()


def _open(host: str) -> socket.socket:
    one = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    one.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, BUFFER_BYTES)
    one.setblocking(False)
    one.bind((host, 0))
    return one
