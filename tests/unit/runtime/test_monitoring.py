"""Health, readiness and metrics of a process."""

import http.client
import threading

import pytest

from milepost.config.errors import StartFault
from milepost.listeners.event_loop import EventLoop
from milepost.runtime.metrics import counter
from milepost.runtime.monitoring import Monitoring


def text_of(monitoring: Monitoring, path: str) -> tuple[int, str]:
    status, _, content = monitoring.answer("GET", path)
    return status, content.decode()


def test_a_process_without_checks_is_ready() -> None:
    assert text_of(Monitoring(), "/ready") == (200, "ready\n")


def test_every_failed_check_is_named() -> None:
    monitoring = Monitoring()
    monitoring.add_check("storage", lambda: "the disk is full")
    monitoring.add_check("log", lambda: None)
    monitoring.add_check("queries", lambda: "starting")
    assert text_of(monitoring, "/ready") == (503, "not ready: storage: the disk is full; queries: starting\n")


def test_a_stopping_process_is_alive_but_not_ready() -> None:
    monitoring = Monitoring()
    monitoring.is_stopping = True
    assert text_of(monitoring, "/ready") == (503, "not ready: stopping\n")
    assert text_of(monitoring, "/health") == (200, "alive\n")


def test_metrics_start_with_the_uptime() -> None:
    monitoring = Monitoring()
    monitoring.add_metrics(lambda: [counter("x_total", "What.", 3)])
    status, page = text_of(monitoring, "/metrics")
    assert status == 200
    assert page.startswith("# HELP milepost_uptime_seconds ")
    assert page.endswith("x_total 3\n")


def test_an_unknown_path_is_answered_with_the_known_ones() -> None:
    assert text_of(Monitoring(), "/") == (404, "there are /metrics, /health and /ready\n")


def test_an_empty_address_disables_the_endpoint() -> None:
    assert Monitoring().listen(EventLoop(), "") is None


def test_the_event_loop_serves_the_endpoint_and_an_address_is_bound_once() -> None:
    loop, monitoring = EventLoop(), Monitoring()
    address = monitoring.listen(loop, "127.0.0.1:0")
    assert address is not None
    with pytest.raises(StartFault, match="is in use by another process"):
        Monitoring().listen(loop, address)
    thread = threading.Thread(target=loop.run)
    thread.start()
    connection = http.client.HTTPConnection(address, timeout=30)
    try:
        connection.request("GET", "/ready")
        assert connection.getresponse().read() == b"ready\n"
    finally:
        connection.close()
        loop.call_soon(lambda _: loop.stop())
        thread.join(30)
        monitoring.close()
        loop.close()
