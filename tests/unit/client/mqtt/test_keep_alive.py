"""Keepalive, and the back-off of reconnections."""

from milepost.client.mqtt.redirects import PINGRESP_S, KeepAlive, KeepAliveStep
from milepost.client.mqtt.transport import RECONNECT
from milepost.model.retry import Retry


def test_an_idle_connection_is_pinged_and_the_answer_has_a_deadline() -> None:
    keep_alive = KeepAlive(40.0, 0.0)
    assert keep_alive.due_s(0.0) == 30.0
    assert keep_alive.step(29.0) is KeepAliveStep.WAIT
    assert keep_alive.step(30.0) is KeepAliveStep.PING
    assert keep_alive.step(30.0) is KeepAliveStep.WAIT
    assert keep_alive.step(30.0 + PINGRESP_S) is KeepAliveStep.GIVE_UP


def test_any_received_packet_ends_the_wait_for_pingresp() -> None:
    keep_alive = KeepAlive(40.0, 0.0)
    keep_alive.step(30.0)
    keep_alive.on_sent(30.0)
    keep_alive.on_received(31.0)
    assert keep_alive.due_s(31.0) == 29.0


def test_a_client_that_only_sends_still_pings() -> None:
    keep_alive = KeepAlive(40.0, 0.0)
    for second in range(30):
        keep_alive.on_sent(float(second))
    assert keep_alive.step(30.0) is KeepAliveStep.PING


def test_a_keepalive_of_zero_sends_no_ping() -> None:
    keep_alive = KeepAlive(0.0, 0.0)
    assert keep_alive.due_s(10_000.0) > 0
    assert keep_alive.step(10_000.0) is KeepAliveStep.WAIT


def test_reconnection_waits_grow_to_a_limit_with_jitter() -> None:
    longest = Retry(RECONNECT)
    waits = [longest.next_wait_s() for _ in range(10)]
    assert waits[:4] == [0.2, 0.4, 0.8, 1.6]
    assert waits[-1] == RECONNECT.limit_s
    assert Retry(RECONNECT).next_wait_s(jitter=1.0) == 0.1
    longest.reset()
    assert longest.next_wait_s() == 0.2
