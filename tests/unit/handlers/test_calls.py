import threading

import pytest

from milepost.handlers.calls import CallRunner, CallTimeout
from milepost.handlers.ledger import Cancelled

LONG_S = 60.0


def caller(timeout_s: float = LONG_S) -> tuple[CallRunner, threading.Event]:
    cancelled = threading.Event()
    return CallRunner(timeout_s, cancelled), cancelled


def test_a_call_returns_or_raises_what_the_function_does() -> None:
    calls, _ = caller()
    assert calls.call(lambda: 3) == 3
    with pytest.raises(ZeroDivisionError):
        calls.call(lambda: 1 // 0)
    with pytest.raises(SystemExit):
        calls.call(lambda: (_ for _ in ()).throw(SystemExit()))
    assert calls.call(lambda: 4) == 4
    calls.close()


def test_calls_share_a_thread() -> None:
    calls, _ = caller()
    assert calls.call(threading.get_ident) == calls.call(threading.get_ident) != threading.get_ident()
    calls.close()


def test_a_hanging_call_is_abandoned_and_the_next_one_runs() -> None:
    calls, _ = caller(0.01)
    gate = threading.Event()
    ended = threading.Event()

    def wait() -> None:
        gate.wait()
        ended.set()

    with pytest.raises(CallTimeout, match=r"timeout_s = 0\.01"):
        calls.call(wait)
    assert calls.hung == 1
    thread = calls.call(threading.current_thread)
    assert isinstance(thread, threading.Thread)
    gate.set()
    assert ended.wait(LONG_S)
    calls.close()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_an_abandoned_thread_ends_when_its_call_returns() -> None:
    calls, _ = caller(0.01)
    gate = threading.Event()
    threads: list[threading.Thread] = []

    def wait() -> None:
        threads.append(threading.current_thread())
        gate.wait()

    with pytest.raises(CallTimeout):
        calls.call(wait)
    gate.set()
    threads[0].join(LONG_S)
    assert not threads[0].is_alive()
    assert calls.hung == 0


def test_cancellation_ends_the_wait_for_a_call() -> None:
    calls, cancelled = caller()
    gate = threading.Event()

    def wait() -> None:
        cancelled.set()
        gate.wait()

    with pytest.raises(Cancelled):
        calls.call(wait)
    gate.set()
