"""One address in front of changing edges, as behind a radio network: clients notice only that they were disconnected."""

import contextlib
import socket
import threading
from collections.abc import Iterator

from live.federation.roaming_clients import EdgeAddress

READ_BYTES = 1 << 16


class EdgeSwitch:
    """Forwards connections at `tcp` to the current edge."""

    def __init__(self, edge: EdgeAddress) -> None:
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._target = edge.tcp
        self._open: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()
        self._start(self._accept)

    @property
    def tcp(self) -> int:
        found: int = self._listener.getsockname()[1]
        return found

    def switch_to_edge(self, edge: EdgeAddress) -> None:
        """Close all connections; clients that reconnect are at another edge."""
        with self._lock:
            self._target = edge.tcp
        self._cut()

    def close(self) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._cut()
        for one in self._threads:
            one.join()
        self._listener.close()

    def _cut(self) -> None:
        with self._lock:
            cut, self._open = self._open, []
        for one in cut:
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                here, _ = self._listener.accept()
                with self._lock:
                    try:
                        there = socket.create_connection(("127.0.0.1", self._target), timeout=5)
                    except OSError:
                        here.close()
                        continue
                    there.settimeout(None)
                    self._open += [here, there]
                self._start(self._pass, here, there)
                self._start(self._pass, there, here)

    def _start(self, *call: object) -> None:
        thread = threading.Thread(target=call[0], args=call[1:])  # type: ignore[arg-type]
        self._threads.append(thread)
        thread.start()

    def _pass(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(READ_BYTES):
                target.sendall(data)
        for one in (source, target):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)
        source.close()


@contextlib.contextmanager
def switch_to(edge: EdgeAddress) -> Iterator[EdgeSwitch]:
    """A switch that is closed in the end."""
    switch = EdgeSwitch(edge)
    try:
        yield switch
    finally:
        switch.close()
