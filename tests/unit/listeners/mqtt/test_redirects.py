"""Clients that are sent on to another edge: what they are told, and what becomes of their will."""

import pytest

from edge_in_memory import Client, EdgeInMemory
from milepost.broker.effects import Redirect
from milepost.broker.session import NOWHERE
from milepost.listeners.mqtt.context import ON_ITS_WAY_NS
from milepost.model.instants import SECOND_NS
from milepost.wire.mqtt import Code, Connect, Disconnect, Properties, Version, Will

WAY_S = ON_ITS_WAY_NS / SECOND_NS


def send_on(edge: EdgeInMemory, client: Client, address: str) -> None:
    edge.broker.deliveries.actions.append(Redirect(client.link, address))
    edge.settle()


def test_the_last_packet_names_the_other_server_and_says_why() -> None:
    edge = EdgeInMemory()
    client = edge.connect("car", expiry_s=60)
    before = len(client.stream.taken)
    send_on(edge, client, "mqtt://10.0.0.7:1884")
    reason = b"179 OUTSIDE_COVERAGE: mqtt://10.0.0.7:1884 covers the place. Connect to the edge that covers the place."
    said = b"\x1f" + len(reason).to_bytes(2, "big") + reason
    server = b"\x1c\x00\x0d10.0.0.7:1884"
    head = bytes([0xE0, 2 + len(server + said), 0x9C, len(server + said)])
    assert bytes(client.stream.taken[before:]) == head + server + said
    assert client.stream.is_finished
    assert edge.session("car").link is NOWHERE
    assert not edge.broker.counts.refused, "nothing was refused"


@pytest.mark.parametrize(
    ("address", "server"),
    [("mqtts://edge.example.org:8883/", "edge.example.org:8883"), ("ws://[::1]:80/mqtt", "[::1]:80"), ("mqtt://h", "h")],
)
def test_a_reference_has_neither_scheme_nor_path(address: str, server: str) -> None:
    edge = EdgeInMemory()
    client = edge.connect("car")
    send_on(edge, client, address)
    (last,) = client.take()
    assert isinstance(last, Disconnect)
    assert last.properties.server_reference == server


@pytest.mark.parametrize(("packet_max", "server"), [(40, "10.0.0.7:1884"), (10, None)])
def test_who_takes_small_packets_only_is_told_where_rather_than_why(packet_max: int, server: str | None) -> None:
    edge = EdgeInMemory()
    client = edge.connect("car", properties=Properties(maximum_packet_size=packet_max))
    send_on(edge, client, "mqtt://10.0.0.7:1884")
    (last,) = client.take()
    assert last == Disconnect(Code.USE_ANOTHER_SERVER, Properties(server_reference=server))


def test_only_clients_of_mqtt_5_can_be_told() -> None:
    edge = EdgeInMemory()
    assert [edge.connect(f"car-{version}", version).link.scheme for version in (Version.V3, Version.V5)] == ["", "mqtt"]


def test_who_has_gone_meanwhile_is_told_nothing_and_who_came_instead_stays() -> None:
    edge = EdgeInMemory()
    first = edge.connect("car", expiry_s=60)
    first.lose()
    second = edge.connect("car", clean=False, expiry_s=60)
    send_on(edge, first, "mqtt://10.0.0.7:1884")
    assert second.is_open


def test_who_takes_a_client_over_in_the_same_turn_keeps_its_will_as_it_is() -> None:
    edge = EdgeInMemory()
    first = edge.connect("car", expiry_s=60)
    second = edge.enter()
    second.send(Connect("car", Version.V5, False, will=Will("gone", b"car"), properties=Properties(session_expiry_s=60)))
    send_on(edge, first, "mqtt://10.0.0.7:1884")
    will = edge.session("car").will
    assert second.is_open
    assert will is not None
    assert will.delay_ns == 0


@pytest.mark.parametrize("delay_s", [0, 60])
def test_a_will_waits_until_its_client_had_time_to_arrive(delay_s: int) -> None:
    edge = EdgeInMemory()
    heir = edge.connect("heir")
    heir.subscribe("gone")
    will = Will("gone", b"car", properties=Properties(will_delay_s=delay_s))
    send_on(edge, edge.connect("car", expiry_s=600, will=will), "mqtt://10.0.0.7:1884")
    edge.pass_time(max(WAY_S, delay_s) - 1)
    assert heir.bodies() == []
    edge.pass_time(2)
    assert heir.bodies() == [b"car"]


def test_the_will_of_who_comes_back_in_time_is_not_published() -> None:
    edge = EdgeInMemory()
    heir = edge.connect("heir")
    heir.subscribe("gone")
    send_on(edge, edge.connect("car", expiry_s=600, will=Will("gone", b"car")), "mqtt://10.0.0.7:1884")
    edge.connect("car", clean=False, expiry_s=600)
    edge.pass_time(2 * WAY_S)
    assert heir.bodies() == []
