"""When to ping, when to give up, when to try again."""

from milepost.client.mqtt.carrier import RECONNECT
from milepost.client.mqtt.redirects import ANSWER_S, KeepAlive, KeepAliveStep
from milepost.model.retry import Retry


def test_a_ping_goes_out_in_silence_and_its_answer_is_awaited() -> None:
    alive = KeepAlive(40.0, 0.0)
    assert alive.due_s(0.0) == 30.0
    assert alive.step(29.0) is KeepAliveStep.WAIT
    assert alive.step(30.0) is KeepAliveStep.PING
    assert alive.step(30.0) is KeepAliveStep.WAIT
    assert alive.step(30.0 + ANSWER_S) is KeepAliveStep.GIVE_UP


def test_an_answer_ends_the_wait() -> None:
    alive = KeepAlive(40.0, 0.0)
    alive.step(30.0)
    alive.sent(30.0)
    alive.heard(31.0)
    assert alive.due_s(31.0) == 29.0


def test_one_that_only_sends_still_asks_whether_it_is_heard() -> None:
    alive = KeepAlive(40.0, 0.0)
    for second in range(30):
        alive.sent(float(second))
    assert alive.step(30.0) is KeepAliveStep.PING


def test_without_keep_alive_there_is_no_ping() -> None:
    alive = KeepAlive(0.0, 0.0)
    assert alive.due_s(10_000.0) > 0
    assert alive.step(10_000.0) is KeepAliveStep.WAIT


def test_waits_grow_to_a_limit_and_are_drawn() -> None:
    longest = Retry(RECONNECT)
    waits = [longest.next_wait_s() for _ in range(10)]
    assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == RECONNECT.limit_s
    assert Retry(RECONNECT).next_wait_s(jitter=1.0) == 0.1
    longest.reset()
    assert longest.next_wait_s() == 0.2
