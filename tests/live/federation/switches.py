"""One address behind which another edge may be at any moment, as behind a radio: programs notice only that they were cut off."""

import contextlib
import socket
import threading
from collections.abc import Iterator

from live.federation.travellers import Door

READ_BYTES = 1 << 16


class Switch:
    """Passes connections at `tcp` on to the edge that is behind it now."""

    def __init__(self, edge: Door) -> None:
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

    def turn(self, edge: Door) -> None:
        """Cut all connections; who comes back is at another edge."""
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
def switch_to(edge: Door) -> Iterator[Switch]:
    """A switch that is closed in the end."""
    switch = Switch(edge)
    try:
        yield switch
    finally:
        switch.close()
