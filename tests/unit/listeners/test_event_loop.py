"""The event loop: timers run when they are due, `call_soon` in the next tick, and end-of-tick calls in every tick."""

from collections.abc import Iterator

import pytest

from milepost.listeners import event_loop as event_loop_module
from milepost.listeners.event_loop import EventLoop
from milepost.model.instants import Instant


class Clock:
    def __init__(self) -> None:
        self.now_s = 100.0

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(event_loop_module, "monotonic", clock)
    return clock


@pytest.fixture
def loop(clock: Clock) -> Iterator[EventLoop]:
    loop = EventLoop()
    yield loop
    loop.close()


def test_a_timer_that_was_missed_several_times_runs_once(loop: EventLoop, clock: Clock) -> None:
    called: list[float] = []
    loop.call_every(1.0, lambda now: called.append(clock.now_s))
    for at in (100.5, 101.0, 101.5, 105.0, 105.9, 106.0):
        clock.now_s = at
        loop.run_once(0)
    assert called == [101.0, 105.0, 106.0]


def test_timers_run_in_the_order_in_which_they_are_due(loop: EventLoop, clock: Clock) -> None:
    called: list[str] = []
    loop.call_every(2.0, lambda now: called.append("late"))
    loop.call_every(1.0, lambda now: called.append("early"))
    loop.call_every(1.0, lambda now: called.append("after"))
    clock.now_s = 102.0
    loop.run_once(0)
    assert called == ["early", "after", "late"]


def test_call_soon_runs_a_call_once_in_the_next_tick(loop: EventLoop, clock: Clock) -> None:
    called: list[Instant] = []
    loop.call_soon(called.append)
    loop.call_soon(lambda now: loop.call_soon(called.append))
    loop.run_once(0)
    assert len(called) == 1
    loop.run_once(0)
    loop.run_once(0)
    assert len(called) == 2


def test_a_tick_requests_another_if_any_end_of_tick_call_does(loop: EventLoop, clock: Clock) -> None:
    needs = [False, False]
    loop.at_end_of_tick(lambda now: needs[0])
    loop.at_end_of_tick(lambda now: needs[1])
    assert not loop.run_once(0)
    needs[0] = True
    assert loop.run_once(0)


def test_the_loop_ends_after_the_tick_in_which_it_was_stopped(loop: EventLoop, clock: Clock) -> None:
    ended: list[Instant] = []

    def end_tick(now: Instant) -> bool:
        ended.append(now)
        return True

    loop.at_end_of_tick(end_tick)
    loop.call_soon(lambda now: loop.stop())
    loop.run()
    assert len(ended) == 1
