"""Keepalive: connections that are silent for too long are found, whatever was received meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_in_memory import START, Client, EdgeInMemory
from milepost.listeners.mqtt.connection import MqttConnection, MqttConnectionState
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.mqtt.listener import LINGER_S, Keepalive
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Ping, Version


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["receive", "expect", "check"]),
            st.integers(0, 3),
            st.floats(0, 4),
            st.sampled_from([0, 0.5, 1, 3, 7.5]),
        ),
        max_size=60,
    ),
    st.sampled_from([0.0, 0.3, 5.9, 1e6]),
)
def test_the_timer_wheel_finds_the_same_timeouts_as_a_full_scan_within_a_second(
    steps: list[tuple[str, int, float, float]], now_s: float
) -> None:
    edge = EdgeInMemory()
    connections = [MqttConnection(edge.listener, edge.open_connection().stream, "", now_s) for _ in range(4)]
    keepalive, expected = Keepalive(), dict[int, float]()
    for what, which, later_s, timeout_s in steps:
        now_s += later_s
        connection = connections[which]
        if what == "receive":
            connection.received_at = now_s
        elif what == "expect":
            connection.received_at = now_s
            keepalive.set_timeout(connection, timeout_s)
            expected.pop(which, None)
            if timeout_s:
                expected[which] = timeout_s
        else:
            found = {connections.index(one) for one in keepalive.overdue(now_s)}
            silent = {one: now_s - connections[one].received_at - timeout for one, timeout in expected.items()}
            assert found <= {one for one, over_s in silent.items() if over_s >= -1e-6}
            assert {one for one, over_s in silent.items() if over_s >= 1} <= found
            for one in found:
                del expected[one]


class Clocked:
    """An edge whose MQTT listener has the test's clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: MqttSettings) -> None:
        self.edge = EdgeInMemory(settings=settings)
        monkeypatch.setattr(self.edge.listener, "_clock", lambda: (self.edge.now - START) / SECOND_NS)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds * 4):
            self.edge.pass_time(0.25)


def test_a_client_silent_for_one_and_a_half_keep_alives_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings())
    silent, lively = (clocked.edge.connect(name, keep_alive_s=10) for name in "ab")
    clocked.wait(12)
    lively.request(Ping())
    clocked.wait(2)
    assert silent.is_open
    clocked.wait(3)
    assert silent.ended_with() is Code.KEEP_ALIVE_TIMEOUT
    assert clocked.edge.broker.counts.refused == {Reason.KEEP_ALIVE_TIMEOUT: 1}
    assert lively.is_open
    clocked.wait(round(LINGER_S) + 1)
    assert silent.stream.is_closed


def test_a_client_without_keep_alive_may_be_silent_unless_the_edge_sets_a_maximum(monkeypatch: pytest.MonkeyPatch) -> None:
    for maximum_s, is_open in ((0, True), (4, False)):
        clocked = Clocked(monkeypatch, MqttSettings(keep_alive_s_max=maximum_s))
        client = clocked.edge.connect("a")
        clocked.wait(60)
        assert client.is_open == is_open
        assert client.connack is not None
        assert client.connack.properties.server_keep_alive_s == (maximum_s or None)
        if maximum_s:
            old = clocked.edge.connect("b", Version.V3)
            clocked.wait(60)
            assert old.is_open, "MQTT 3.1.1 has no Server Keep Alive"


def test_a_connection_without_connect_in_time_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings(handshake_s_max=3))
    client = clocked.edge.open_connection()
    client.send_bytes(b"\x10")
    clocked.wait(2)
    assert client.is_open
    clocked.wait(3)
    assert client.connection.state is MqttConnectionState.CLOSED
    assert client.stream.is_closed
    assert client.connection not in clocked.edge.listener.connections


def test_a_closing_connection_is_dropped_after_the_linger_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings())
    client: Client = clocked.edge.connect("a")
    client.stream.capacity = 0
    client.send_bytes(b"\xff")
    clocked.edge.run_ticks()
    assert client.connection.state is MqttConnectionState.CLOSING
    clocked.wait(round(LINGER_S) + 2)
    assert client.stream.is_closed
