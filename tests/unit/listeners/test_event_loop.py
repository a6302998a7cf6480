"""Turns: what is due is called when it is due, what was asked for soon in the next turn, and every turn is settled."""

from collections.abc import Iterator

import pytest

from milepost.listeners import event_loop as turns_module
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
    monkeypatch.setattr(turns_module, "monotonic", clock)
    return clock


@pytest.fixture
def turns(clock: Clock) -> Iterator[EventLoop]:
    turns = EventLoop()
    yield turns
    turns.close()


def test_a_timer_is_called_each_time_it_is_due_and_not_for_every_time_it_was_missed(turns: EventLoop, clock: Clock) -> None:
    called: list[float] = []
    turns.every(1.0, lambda now: called.append(clock.now_s))
    for at in (100.5, 101.0, 101.5, 105.0, 105.9, 106.0):
        clock.now_s = at
        turns.turn(0)
    assert called == [101.0, 105.0, 106.0]


def test_timers_are_called_in_the_order_in_which_they_are_due(turns: EventLoop, clock: Clock) -> None:
    called: list[str] = []
    turns.every(2.0, lambda now: called.append("late"))
    turns.every(1.0, lambda now: called.append("early"))
    turns.every(1.0, lambda now: called.append("after"))
    clock.now_s = 102.0
    turns.turn(0)
    assert called == ["early", "after", "late"]


def test_what_is_asked_for_soon_is_called_once_in_the_next_turn(turns: EventLoop, clock: Clock) -> None:
    called: list[Instant] = []
    turns.call_soon(called.append)
    turns.call_soon(lambda now: turns.call_soon(called.append))
    turns.turn(0)
    assert len(called) == 1
    turns.turn(0)
    turns.turn(0)
    assert len(called) == 2


def test_every_turn_is_settled_and_another_is_wanted_if_anybody_wants_one(turns: EventLoop, clock: Clock) -> None:
    wants = [False, False]
    turns.settle_with(lambda now: wants[0])
    turns.settle_with(lambda now: wants[1])
    assert not turns.turn(0)
    wants[0] = True
    assert turns.turn(0)


def test_the_loop_ends_after_the_turn_in_which_it_was_told_to(turns: EventLoop, clock: Clock) -> None:
    settled: list[Instant] = []

    def settle(now: Instant) -> bool:
        settled.append(now)
        return True

    turns.settle_with(settle)
    turns.call_soon(lambda now: turns.stop())
    turns.run()
    assert len(settled) == 1
