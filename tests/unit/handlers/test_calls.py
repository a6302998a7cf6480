import threading

import pytest

from milepost.handlers.calls import Caller, TookTooLong
from milepost.handlers.ledger import Cancelled

LONG_S = 60.0


def caller(timeout_s: float = LONG_S) -> tuple[Caller, threading.Event]:
    over = threading.Event()
    return Caller(timeout_s, over), over


def test_a_call_gives_or_raises_what_the_function_does() -> None:
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


def test_a_call_that_does_not_end_is_left_behind_and_the_next_is_made() -> None:
    calls, _ = caller(0.01)
    gate = threading.Event()
    ended = threading.Event()

    def wait() -> None:
        gate.wait()
        ended.set()

    with pytest.raises(TookTooLong, match=r"0\.01 s"):
        calls.call(wait)
    assert calls.hung == 1
    thread = calls.call(threading.current_thread)
    assert isinstance(thread, threading.Thread)
    gate.set()
    assert ended.wait(LONG_S)
    calls.close()
    thread.join(LONG_S)
    assert not thread.is_alive()


def test_a_thread_that_was_left_behind_ends_when_its_call_does() -> None:
    calls, _ = caller(0.01)
    gate = threading.Event()
    threads: list[threading.Thread] = []

    def wait() -> None:
        threads.append(threading.current_thread())
        gate.wait()

    with pytest.raises(TookTooLong):
        calls.call(wait)
    gate.set()
    threads[0].join(LONG_S)
    assert not threads[0].is_alive()
    assert calls.hung == 0


def test_a_call_is_not_waited_for_when_it_is_called_off() -> None:
    calls, over = caller()
    gate = threading.Event()

    def wait() -> None:
        over.set()
        gate.wait()

    with pytest.raises(Cancelled):
        calls.call(wait)
    gate.set()
