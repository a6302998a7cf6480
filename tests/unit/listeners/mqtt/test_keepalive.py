"""Silences: who was quiet for too long is found when that is so, whatever was heard meanwhile."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from edge_in_memory import START, Client, EdgeInMemory
from milepost.listeners.mqtt.connection import MqttConnection, State
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.mqtt.listener import LINGER_S, Keepalive
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Ping, Version


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["hear", "expect", "look"]), st.integers(0, 3), st.floats(0, 4), st.sampled_from([0, 0.5, 1, 3, 7.5])
        ),
        max_size=60,
    ),
    st.sampled_from([0.0, 0.3, 5.9, 1e6]),
)
def test_the_wheel_finds_whom_a_look_at_everybody_would_find_within_a_second(
    steps: list[tuple[str, int, float, float]], now_s: float
) -> None:
    edge = EdgeInMemory()
    links = [MqttConnection(edge.door, edge.enter().stream, "", now_s) for _ in range(4)]
    silences, expected = Keepalive(), dict[int, float]()
    for what, which, later_s, patience_s in steps:
        now_s += later_s
        link = links[which]
        if what == "hear":
            link.heard_at = now_s
        elif what == "expect":
            link.heard_at = now_s
            silences.expect(link, patience_s)
            expected.pop(which, None)
            if patience_s:
                expected[which] = patience_s
        else:
            found = {links.index(one) for one in silences.overdue(now_s)}
            silent = {one: now_s - links[one].heard_at - patience for one, patience in expected.items()}
            assert found <= {one for one, over_s in silent.items() if over_s >= -1e-6}
            assert {one for one, over_s in silent.items() if over_s >= 1} <= found
            for one in found:
                del expected[one]


class Clocked:
    """An edge whose door's clock is the test's."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, settings: MqttSettings) -> None:
        self.edge = EdgeInMemory(settings=settings)
        monkeypatch.setattr(self.edge.door, "_clock", lambda: (self.edge.now - START) / SECOND_NS)

    def wait(self, seconds: int) -> None:
        for _ in range(seconds * 4):
            self.edge.pass_time(0.25)


def test_a_client_that_is_silent_for_half_as_long_again_as_it_said_is_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings())
    silent, lively = (clocked.edge.connect(name, keep_alive_s=10) for name in "ab")
    clocked.wait(12)
    lively.ask(Ping())
    clocked.wait(2)
    assert silent.is_open
    clocked.wait(3)
    assert silent.ended_with() is Code.KEEP_ALIVE_TIMEOUT
    assert clocked.edge.broker.counts.refused == {Reason.KEEP_ALIVE_TIMEOUT: 1}
    assert lively.is_open
    clocked.wait(round(LINGER_S) + 1)
    assert silent.stream.is_closed


def test_a_client_without_keep_alive_may_be_silent_unless_the_edge_says_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    for most_s, is_open in ((0, True), (4, False)):
        clocked = Clocked(monkeypatch, MqttSettings(keep_alive_s_max=most_s))
        client = clocked.edge.connect("a")
        clocked.wait(60)
        assert client.is_open == is_open
        assert client.connack is not None
        assert client.connack.properties.server_keep_alive_s == (most_s or None)
        if most_s:
            old = clocked.edge.connect("b", Version.V3)
            clocked.wait(60)
            assert old.is_open, "MQTT 3.1.1 has no word for it"


def test_who_does_not_say_who_it_is_in_time_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings(handshake_s_max=3))
    nobody = clocked.edge.enter()
    nobody.send_bytes(b"\x10")
    clocked.wait(2)
    assert nobody.is_open
    clocked.wait(3)
    assert nobody.link.state is State.CLOSED
    assert nobody.stream.is_closed
    assert nobody.link not in clocked.edge.door.links


def test_a_connection_that_is_to_end_is_cut_when_it_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    clocked = Clocked(monkeypatch, MqttSettings())
    client: Client = clocked.edge.connect("a")
    client.stream.room = 0
    client.send_bytes(b"\xff")
    clocked.edge.settle()
    assert client.link.state is State.CLOSING
    clocked.wait(round(LINGER_S) + 2)
    assert client.stream.is_closed
