"""The small HTTP server for health checks and metrics."""

import socket
from time import monotonic
from typing import TYPE_CHECKING, Final

from milepost.listeners.event_loop import READABLE, WRITABLE, EventLoop
from milepost.listeners.streams import PlainStream
from milepost.model.instants import Instant

if TYPE_CHECKING:
    from milepost.listeners.http import Answer, HttpEnd

ASKERS_MAX: Final = 64
"""Maximum open connections; a further one replaces the oldest."""

PATIENCE_S: Final = 30.0


class _Asker:
    """One HTTP connection."""

    def __init__(self, entrance: "HttpEntrance", stream: PlainStream, end: "HttpEnd") -> None:
        self._entrance = entrance
        self.stream = stream
        self._end = end
        self._unsent = b""
        self.heard_at = monotonic()

    def on_event(self, mask: int, now: Instant) -> None:
        """Read requests and send responses."""
        del now
        if mask & ~WRITABLE:
            data = self.stream.read()
            if data is None:
                return
            if not data:
                self._entrance.drop(self)
                return
            self.heard_at = monotonic()
            self._unsent += self._end.on_bytes(data)
        try:
            self._unsent = self._unsent[self.stream.write(self._unsent) :]
        except (BlockingIOError, InterruptedError):
            pass
        except OSError:
            self._entrance.drop(self)
            return
        self._entrance.watch(self, READABLE | WRITABLE if self._unsent else READABLE)
        if not self._unsent and self._end.is_over:
            self._entrance.drop(self)


class HttpEntrance:
    """The open HTTP connections."""

    def __init__(self, turns: EventLoop, answer: "Answer") -> None:
        self._turns = turns
        self._answer = answer
        self._askers: dict[_Asker, None] = {}

    def take(self, connection: socket.socket, address: str) -> None:
        """Add an accepted connection; drop the oldest if there are too many."""
        del address
        if len(self._askers) >= ASKERS_MAX:
            self.drop(next(iter(self._askers)))
        from milepost.listeners.http import HttpEnd  # noqa: PLC0415  # most edges never serve HTTP

        asker = _Asker(self, PlainStream(connection), HttpEnd(self._answer))
        self._askers[asker] = None
        self._turns.watch(asker.stream.fd, asker)

    def watch(self, asker: _Asker, mask: int) -> None:
        """Change the events a connection is watched for."""
        self._turns.watch_for(asker.stream.fd, mask)

    def drop(self, asker: _Asker) -> None:
        """Close a connection."""
        del self._askers[asker]
        self._turns.unwatch(asker.stream.fd)
        asker.stream.close()

    def close(self) -> None:
        """Close every connection."""
        for asker in list(self._askers):
            self.drop(asker)

    def tick(self, now: Instant) -> None:
        """Drop the connections that have been silent for `PATIENCE_S`."""
        del now
        for asker in [one for one in self._askers if one.heard_at + PATIENCE_S < monotonic()]:
            self.drop(asker)
