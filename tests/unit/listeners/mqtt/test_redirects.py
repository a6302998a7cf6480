"""Clients redirected to another edge: the DISCONNECT they receive, and their will."""

import pytest

from edge_in_memory import Client, EdgeInMemory
from milepost.broker.effects import Redirect
from milepost.broker.session import NO_CONNECTION
from milepost.listeners.mqtt.context import REDIRECT_GRACE_NS
from milepost.model.instants import SECOND_NS
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Connect, Disconnect, Properties, Version, Will

GRACE_S = REDIRECT_GRACE_NS / SECOND_NS


def length_of_two_bytes(size: int) -> bytes:
    assert 127 < size < 16_384
    return bytes((size & 0x7F | 0x80, size >> 7))


def redirect(edge: EdgeInMemory, client: Client, address: str) -> None:
    edge.broker.deliveries.actions.append(Redirect(client.connection, address))
    edge.run_ticks()


def test_a_redirect_carries_the_server_reference_and_a_reason() -> None:
    edge = EdgeInMemory()
    client = edge.connect("car", expiry_s=60)
    before = len(client.stream.written)
    redirect(edge, client, "mqtt://10.0.0.7:1884")
    reason = b"179 OUTSIDE_COVERAGE: mqtt://10.0.0.7:1884 covers this position. " + Reason.OUTSIDE_COVERAGE.advice.encode()
    properties = b"\x1c\x00\x0d10.0.0.7:1884" + b"\x1f" + len(reason).to_bytes(2, "big") + reason
    head = b"\xe0" + length_of_two_bytes(3 + len(properties)) + b"\x9c" + length_of_two_bytes(len(properties))
    assert bytes(client.stream.written[before:]) == head + properties
    assert client.stream.is_finished
    assert edge.session("car").connection is NO_CONNECTION
    assert not edge.broker.counts.refused, "nothing was refused"


@pytest.mark.parametrize(
    ("address", "server"),
    [("mqtts://edge.example.org:8883/", "edge.example.org:8883"), ("ws://[::1]:80/mqtt", "[::1]:80"), ("mqtt://h", "h")],
)
def test_a_reference_has_neither_scheme_nor_path(address: str, server: str) -> None:
    edge = EdgeInMemory()
    client = edge.connect("car")
    redirect(edge, client, address)
    (last,) = client.take()
    assert isinstance(last, Disconnect)
    assert last.properties.server_reference == server


@pytest.mark.parametrize(("packet_max", "server"), [(40, "10.0.0.7:1884"), (10, None)])
def test_a_small_maximum_packet_size_keeps_the_server_reference_and_drops_the_reason(packet_max: int, server: str | None) -> None:
    edge = EdgeInMemory()
    client = edge.connect("car", properties=Properties(maximum_packet_size=packet_max))
    redirect(edge, client, "mqtt://10.0.0.7:1884")
    (last,) = client.take()
    assert last == Disconnect(Code.USE_ANOTHER_SERVER, Properties(server_reference=server))


def test_only_mqtt_5_clients_can_be_redirected() -> None:
    edge = EdgeInMemory()
    assert [edge.connect(f"car-{version}", version).connection.scheme for version in (Version.V3, Version.V5)] == ["", "mqtt"]


def test_a_redirect_of_a_closed_connection_does_not_affect_its_successor() -> None:
    edge = EdgeInMemory()
    first = edge.connect("car", expiry_s=60)
    first.drop_connection()
    second = edge.connect("car", clean=False, expiry_s=60)
    redirect(edge, first, "mqtt://10.0.0.7:1884")
    assert second.is_open


def test_a_takeover_in_the_tick_of_a_redirect_keeps_its_own_will() -> None:
    edge = EdgeInMemory()
    first = edge.connect("car", expiry_s=60)
    second = edge.open_connection()
    second.send(Connect("car", Version.V5, False, will=Will("gone", b"car"), properties=Properties(session_expiry_s=60)))
    redirect(edge, first, "mqtt://10.0.0.7:1884")
    will = edge.session("car").will
    assert second.is_open
    assert will is not None
    assert will.delay_ns == 0


@pytest.mark.parametrize("delay_s", [0, 60])
def test_a_redirected_client_s_will_is_delayed_until_it_had_time_to_connect(delay_s: int) -> None:
    edge = EdgeInMemory()
    subscriber = edge.connect("subscriber")
    subscriber.subscribe("gone")
    will = Will("gone", b"car", properties=Properties(will_delay_s=delay_s))
    redirect(edge, edge.connect("car", expiry_s=600, will=will), "mqtt://10.0.0.7:1884")
    edge.pass_time(max(GRACE_S, delay_s) - 1)
    assert subscriber.bodies() == []
    edge.pass_time(2)
    assert subscriber.bodies() == [b"car"]


def test_the_will_of_a_client_that_reconnects_in_time_is_not_published() -> None:
    edge = EdgeInMemory()
    subscriber = edge.connect("subscriber")
    subscriber.subscribe("gone")
    redirect(edge, edge.connect("car", expiry_s=600, will=Will("gone", b"car")), "mqtt://10.0.0.7:1884")
    edge.connect("car", clean=False, expiry_s=600)
    edge.pass_time(2 * GRACE_S)
    assert subscriber.bodies() == []
