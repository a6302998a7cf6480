"""The HTTP endpoint of a process: /health, /ready and /metrics, with the same answers and limits for every process.

Invariants:
- /health is 200 while the event loop runs, regardless of the checks: a restart would not repair what they report;
- /ready is 503 from the start until every check passes, and again once the process stops; the answer names each failed check;
- the endpoint stays open until the event loop ends, so that a load balancer learns that the process stops.
"""

from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack
from http import HTTPStatus
from time import monotonic
from typing import Final

from milepost.config.addresses import host_and_port
from milepost.config.errors import cannot_listen
from milepost.listeners.acceptor import TcpAcceptor, listen_at
from milepost.listeners.event_loop import EventLoop
from milepost.listeners.http_server import HttpServer
from milepost.runtime.metrics import CONTENT_TYPE, Family, exposition, gauge

Check = Callable[[], str | None]
"""Returns the reason why the process cannot serve, or None."""
Metrics = Callable[[], Iterable[Family]]

_TEXT: Final = "text/plain; charset=utf-8"
_TICK_S: Final = 1.0


class Monitoring:
    """The named health checks and the metrics of one process, and the endpoint that shows them."""

    def __init__(self) -> None:
        self._checks: dict[str, Check] = {}
        self._metrics: list[Metrics] = []
        self._started_at = monotonic()
        self._closing = ExitStack()
        self.is_stopping = False

    @property
    def up_s(self) -> float:
        """Seconds since the start."""
        return monotonic() - self._started_at

    def add_check(self, name: str, check: Check) -> None:
        """Make readiness depend on a check; its name leads its line in the answer."""
        assert name not in self._checks, name
        self._checks[name] = check

    def add_metrics(self, metrics: Metrics) -> None:
        """Add metric families; *metrics* is called for every request."""
        self._metrics.append(metrics)

    def listen(self, loop: EventLoop, address: str) -> str | None:
        """Serve at an address; return it with the bound port, None if it is empty. Raise a `StartFault` if it cannot be bound."""
        if not address:
            return None
        server = HttpServer(loop, self.answer)
        try:
            listener = TcpAcceptor(loop, listen_at(*host_and_port(address)), server.accept)
        except OSError as error:
            raise cannot_listen(address, error) from None
        loop.call_every(_TICK_S, server.on_timer)
        self._closing.callback(server.close)
        self._closing.callback(listener.close)
        return listener.address

    def close(self) -> None:
        """Close the endpoint; call it after the event loop has ended and before it is closed."""
        self._closing.close()

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """Return status, content type and content for a request."""
        del method
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._families())
            case "/health":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/ready":
                problems = list(self._problems())
                if problems:
                    return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {'; '.join(problems)}\n".encode()
                return HTTPStatus.OK, _TEXT, b"ready\n"
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /health and /ready\n"

    def _problems(self) -> Iterator[str]:
        if self.is_stopping:
            yield "stopping"
        for name, check in self._checks.items():
            problem = check()
            if problem is not None:
                yield f"{name}: {problem}"

    def _families(self) -> Iterator[Family]:
        yield gauge("milepost_uptime_seconds", "Seconds since the start.", self.up_s)
        for metrics in self._metrics:
            yield from metrics()
