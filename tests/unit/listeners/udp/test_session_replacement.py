"""Sessions resumed under new keys, and sessions replaced by a new one or by the MQTT listener."""

from copy import copy

import pytest

from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import AcknowledgeDatagram, Close, CloseCause, Heartbeat, PublishDatagram
from milepost.wire.mqtt import Code, Connect, Version
from milepost.wire.sealed import SealedType
from simulation.invariants import check_udp_listener
from udp_edge_in_memory import HOME, UdpEdge, Vehicle

NORTH = Place(HOME.latitude + 0.0005, HOME.longitude)
HOUR_NS = 3_600 * SECOND_NS


def causes(vehicle: Vehicle) -> list[CloseCause]:
    return [one.cause for one in vehicle.received_of(Close)]


def renew(vehicle: Vehicle) -> Vehicle:
    """Resume under new keys; return the vehicle as it was, with the previous ones."""
    before = Vehicle(vehicle.edge, vehicle.name)
    before.address, before.maybe_token, before.keys, before.counter = (
        vehicle.address,
        vehicle.token,
        vehicle.keys,
        vehicle.counter,
    )
    vehicle.open(former=vehicle.token)
    return before


def test_a_session_resumed_under_new_keys_keeps_its_state() -> None:
    edge = UdpEdge()
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    vehicle.subscribe("topic:t")
    once = vehicle.message("x", reliable=True)
    vehicle.publish(once)
    sender.publish(sender.message("t", b"in flight", reliable=True))
    vehicle.received_raw()
    renew(vehicle)
    assert vehicle.ack is not None
    assert vehicle.ack.is_resumed
    edge.pass_time(0.3)
    (message,) = vehicle.messages()
    assert message.body == b"in flight"
    vehicle.acknowledge(message)
    edge.pass_time(0.6)
    assert vehicle.bodies() == []
    accepted = edge.broker.counts.accepted
    vehicle.publish(once)
    assert edge.broker.counts.accepted == accepted
    sender.publish(sender.message("t", b"after"))
    assert vehicle.bodies() == [b"after"]
    assert (edge.broker.counts.sessions_opened, len(edge.udp.session_table)) == (2, 2)


def test_the_previous_token_is_accepted_for_ten_seconds(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    previous = renew(vehicle)
    edge.step(9, alive=[vehicle])
    previous.publish(previous.message("t"))
    assert edge.broker.counts.accepted == 1
    edge.step(1, alive=[vehicle])
    previous.publish(previous.message("t"))
    assert edge.broker.counts.accepted == 1
    assert edge.broker.counts.refused[Reason.SESSION_UNKNOWN] == 1
    check_udp_listener(edge)


def test_a_datagram_under_the_previous_token_in_the_batch_of_the_first_under_the_new_one_is_accepted(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    before = copy(vehicle)
    edge.now = Instant(edge.now + 1)
    vehicle.accept(vehicle.send_init(former=vehicle.token))
    edge.receive(vehicle.report_datagram(), before.datagram_of(PublishDatagram(before.message("t"))))
    assert edge.broker.counts.accepted == 1
    check_udp_listener(edge)


def test_after_several_key_changes_all_previous_tokens_belong_to_the_session(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    previous = [renew(vehicle) for _ in range(3)]
    for one in previous:
        one.publish(one.message("t", number=previous.index(one) + 1))
    assert edge.broker.counts.accepted == 3
    check_udp_listener(edge)
    previous[0].close()
    assert len(edge.udp.session_table) == 0
    check_udp_listener(edge)


def test_only_the_session_s_own_endpoint_can_resume_it(edge: UdpEdge) -> None:
    vehicle, thief = edge.vehicle("a"), Vehicle(edge, "thief")
    answer = thief.send_init(former=vehicle.token)
    assert isinstance(answer, AcknowledgeDatagram)
    assert not answer.is_resumed
    thief.accept(answer)
    thief.report()
    assert sorted(connection.session.name for connection in edge.udp.session_table) == ["a", "thief"]


def test_a_certificate_of_another_role_does_not_resume_a_session() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a", role="ambulance")
    again = Vehicle(edge, "a", role="vehicle")
    again.open(former=vehicle.token)
    assert again.ack is not None
    assert not again.ack.is_resumed
    (connection,) = edge.udp.session_table
    assert connection.identity.role == "vehicle"


def test_a_session_that_ends_before_it_is_resumed_gets_a_reset(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.pass_time(2.9)
    answer = vehicle.send_init(former=vehicle.token)
    assert isinstance(answer, AcknowledgeDatagram)
    assert answer.is_resumed
    edge.pass_time(0.2)
    vehicle.received_raw()
    vehicle.accept(answer)
    vehicle.report()
    (reset,) = vehicle.received_raw()
    if edge.identity is not None:
        assert reset[0] == SealedType.RESET
    assert len(edge.udp.session_table) == 0
    vehicle.open(former=vehicle.token)
    assert vehicle.ack is not None
    assert not vehicle.ack.is_resumed


def test_a_session_with_expired_keys_ends() -> None:
    edge = UdpEdge(udp=UdpSettings(key_lifetime_ns=10 * SECOND_NS))
    vehicle = edge.vehicle("a")
    edge.step(14.5, alive=[vehicle])
    assert len(edge.udp.session_table) == 1
    edge.step(1, alive=[vehicle])
    assert len(edge.udp.session_table) == 0


def test_a_new_session_of_an_endpoint_replaces_the_old_one_which_receives_close(edge: UdpEdge) -> None:
    old = edge.vehicle("a")
    old.subscribe("topic:t")
    old.received_raw()
    new = edge.vehicle("a")
    assert causes(old) == [CloseCause.REPLACED]
    assert [connection.token for connection in edge.udp.session_table] == [new.token]
    edge.vehicle("b").publish(edge.vehicle("c").message("t", source="b"))
    assert new.bodies() == [], "a new session has no subscriptions"
    old.report()
    assert len(edge.udp.session_table) == 3
    check_udp_listener(edge)


def test_datagrams_of_the_old_session_do_not_change_the_address_of_the_new_one(edge: UdpEdge) -> None:
    old = edge.vehicle("a")
    new = Vehicle(edge, "a")
    edge.now = Instant(edge.now + 1)
    new.accept(new.send_init())
    edge.receive(new.report_datagram(), old.report_datagram(), old.datagram_of(PublishDatagram(old.message("t"))))
    old.received_raw()
    edge.pass_time(3)
    assert [one.session for one in new.received_of(Heartbeat)] == [new.token]
    assert old.received_raw() == []
    check_udp_listener(edge)


def test_an_mqtt_client_cannot_take_over_the_session_of_an_endpoint_with_a_certificate() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    client = edge.connect("a")
    assert client.connack is not None
    assert client.connack.code is Code.NOT_AUTHORIZED
    assert causes(vehicle) == []
    vehicle.close()
    assert edge.connect("a").is_open


def test_without_encryption_an_mqtt_client_takes_over_and_the_endpoint_receives_close() -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    client = edge.connect("a")
    assert client.is_open
    assert causes(vehicle) == [CloseCause.REPLACED]
    check_udp_listener(edge)


@pytest.mark.parametrize("then", ["speak", "tick", "open", "use"])
def test_in_the_tick_of_an_mqtt_takeover_no_input_of_the_udp_session_is_processed(then: str) -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    other = Vehicle(edge, "a")
    other.accept(other.send_init())
    client = edge.open_connection()
    client.send(Connect("a", Version.V5))
    if then == "speak":
        edge.on_batch(
            vehicle.datagram_of(PublishDatagram(vehicle.message("t"))),
            vehicle.report_datagram(),
            vehicle.datagram_of(Close(vehicle.token)),
        )
    elif then == "tick":
        edge.monotonic_now += 5 * SECOND_NS
        edge.committer.on_timer(edge.now)
    elif then == "open":
        edge.on_batch(other.report_datagram())
    else:
        edge.broker.use_rules(edge.rules)
        edge.udp.shut_down(edge.now)
    edge.run_ticks()
    assert edge.broker.counts.accepted == 0
    assert causes(vehicle) == [CloseCause.REPLACED]
    client.read_packets()
    assert client.is_open == (then != "open")
    assert edge.broker.counts.reports == 2 + 2 * (then == "open")
    check_udp_listener(edge)


def test_a_udp_endpoint_takes_its_session_over_from_mqtt(edge: UdpEdge) -> None:
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t")
    vehicle = edge.vehicle("a")
    assert client.ended_with() is Code.SESSION_TAKEN_OVER
    client.drop_connection()
    vehicle.publish(vehicle.message("t", to=ToEndpoint(EndpointId("a"))))
    assert len(vehicle.messages()) == 1
    check_udp_listener(edge)


def test_an_endpoint_without_a_certificate_does_not_open_the_session_of_a_user() -> None:
    edge = UdpEdge(is_sealed=False)
    client = edge.open_connection()
    client.stream.user = "ada"
    client.send(Connect("a", Version.V5, True, 0))
    edge.run_ticks()
    refused = edge.udp.session_table.refuse_opening(EndpointId("a"), None, edge.now)
    assert refused is not None
    assert refused.reason is Reason.SESSION_OF_ANOTHER_OWNER
    assert edge.udp.session_table.refuse_opening(EndpointId("a"), "vehicle", edge.now) is None
    client.read_packets()
    assert client.is_open
