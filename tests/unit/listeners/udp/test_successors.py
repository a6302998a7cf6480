"""Who goes on with a session under new keys, and who takes its place: another session of the name, or the other door."""

from copy import copy

import pytest

from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToEndpoint
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place
from milepost.model.reasons import Reason
from milepost.model.sessions import Acknowledge, Close, CloseCause, Heartbeat, Publish
from milepost.wire.mqtt import Code, Connect, Version
from milepost.wire.sealed import Kind
from simulation.invariants import check_door
from udp_edge_in_memory import HOME, UdpEdge, Vehicle

NORTH = Place(HOME.latitude + 0.0005, HOME.longitude)
HOUR_NS = 3_600 * SECOND_NS


def causes(vehicle: Vehicle) -> list[CloseCause]:
    return [one.cause for one in vehicle.take(Close)]


def renew(vehicle: Vehicle) -> Vehicle:
    """Go on under new keys; gives the vehicle as it was, with the former ones."""
    before = Vehicle(vehicle.edge, vehicle.name)
    before.address, before.maybe_token, before.keys, before.counter = (
        vehicle.address,
        vehicle.token,
        vehicle.keys,
        vehicle.counter,
    )
    vehicle.open(former=vehicle.token)
    return before


def test_with_new_keys_a_session_goes_on_with_all_that_belongs_to_it() -> None:
    edge = UdpEdge()
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    vehicle.subscribe("topic:t")
    once = vehicle.message("x", reliable=True)
    vehicle.publish(once)
    sender.publish(sender.message("t", b"in flight", reliable=True))
    vehicle.taken_raw()
    renew(vehicle)
    assert vehicle.ack is not None
    assert vehicle.ack.is_resumed
    edge.pass_time(0.3)
    (message,) = vehicle.messages()
    assert message.body == b"in flight"
    vehicle.answer(message)
    edge.pass_time(0.6)
    assert vehicle.bodies() == []
    accepted = edge.broker.counts.accepted
    vehicle.publish(once)
    assert edge.broker.counts.accepted == accepted
    sender.publish(sender.message("t", b"after"))
    assert vehicle.bodies() == [b"after"]
    assert (edge.broker.counts.sessions_opened, len(edge.udp.session_table)) == (2, 2)


def test_the_former_token_is_taken_for_ten_seconds_and_no_longer(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    former = renew(vehicle)
    edge.step(9, alive=[vehicle])
    former.publish(former.message("t"))
    assert edge.broker.counts.accepted == 1
    edge.step(1, alive=[vehicle])
    former.publish(former.message("t"))
    assert edge.broker.counts.accepted == 1
    assert edge.broker.counts.refused[Reason.SESSION_UNKNOWN] == 1
    check_door(edge)


def test_a_word_under_the_former_token_in_the_same_batch_as_the_first_under_the_new_one_counts(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    before = copy(vehicle)
    edge.now = Instant(edge.now + 1)
    vehicle.accept(vehicle.ask_to_open(former=vehicle.token))
    edge.hear(vehicle.report_letter(), before.letter(Publish(before.message("t"))))
    assert edge.broker.counts.accepted == 1
    check_door(edge)


def test_keys_changed_several_times_leave_all_former_tokens_with_the_same_session(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    former = [renew(vehicle) for _ in range(3)]
    for one in former:
        one.publish(one.message("t", number=former.index(one) + 1))
    assert edge.broker.counts.accepted == 3
    check_door(edge)
    former[0].leave()
    assert len(edge.udp.session_table) == 0
    check_door(edge)


def test_only_the_session_s_own_endpoint_can_go_on_with_it(edge: UdpEdge) -> None:
    vehicle, thief = edge.vehicle("a"), Vehicle(edge, "thief")
    answer = thief.ask_to_open(former=vehicle.token)
    assert isinstance(answer, Acknowledge)
    assert not answer.is_resumed
    thief.accept(answer)
    thief.report()
    assert sorted(link.session.name for link in edge.udp.session_table) == ["a", "thief"]


def test_with_a_certificate_of_another_role_a_session_does_not_go_on() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a", role="ambulance")
    again = Vehicle(edge, "a", role="vehicle")
    again.open(former=vehicle.token)
    assert again.ack is not None
    assert not again.ack.is_resumed
    (link,) = edge.udp.session_table
    assert link.who.role == "vehicle"


def test_who_was_told_that_its_session_goes_on_and_it_has_ended_since_is_told_so(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.pass_time(2.9)
    answer = vehicle.ask_to_open(former=vehicle.token)
    assert isinstance(answer, Acknowledge)
    assert answer.is_resumed
    edge.pass_time(0.2)
    vehicle.taken_raw()
    vehicle.accept(answer)
    vehicle.report()
    (reset,) = vehicle.taken_raw()
    if edge.identity is not None:
        assert reset[0] == Kind.RESET
    assert len(edge.udp.session_table) == 0
    vehicle.open(former=vehicle.token)
    assert vehicle.ack is not None
    assert not vehicle.ack.is_resumed


def test_a_session_whose_keys_are_worn_out_ends() -> None:
    edge = UdpEdge(udp=UdpSettings(keys_ns=10 * SECOND_NS))
    vehicle = edge.vehicle("a")
    edge.step(14.5, alive=[vehicle])
    assert len(edge.udp.session_table) == 1
    edge.step(1, alive=[vehicle])
    assert len(edge.udp.session_table) == 0


def test_a_fresh_session_of_a_name_takes_the_place_of_the_old_one_which_is_told(edge: UdpEdge) -> None:
    old = edge.vehicle("a")
    old.subscribe("topic:t")
    old.taken_raw()
    new = edge.vehicle("a")
    assert causes(old) == [CloseCause.REPLACED]
    assert [link.token for link in edge.udp.session_table] == [new.token]
    edge.vehicle("b").publish(edge.vehicle("c").message("t", source="b"))
    assert new.bodies() == [], "it has to ask for itself"
    old.report()
    assert len(edge.udp.session_table) == 3
    check_door(edge)


def test_words_of_the_old_session_in_the_batch_that_opens_the_new_one_do_not_move_the_new_one(edge: UdpEdge) -> None:
    old = edge.vehicle("a")
    new = Vehicle(edge, "a")
    edge.now = Instant(edge.now + 1)
    new.accept(new.ask_to_open())
    edge.hear(new.report_letter(), old.report_letter(), old.letter(Publish(old.message("t"))))
    old.taken_raw()
    edge.pass_time(3)
    assert [one.session for one in new.take(Heartbeat)] == [new.token]
    assert old.taken_raw() == []
    check_door(edge)


def test_a_client_of_mqtt_cannot_take_the_name_of_an_endpoint_with_a_certificate() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    client = edge.connect("a")
    assert client.connack is not None
    assert client.connack.code is Code.NOT_AUTHORIZED
    assert causes(vehicle) == []
    vehicle.leave()
    assert edge.connect("a").is_open


def test_without_seals_a_client_of_mqtt_takes_over_and_the_endpoint_is_told() -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    client = edge.connect("a")
    assert client.is_open
    assert causes(vehicle) == [CloseCause.REPLACED]
    check_door(edge)


@pytest.mark.parametrize("then", ["speak", "tick", "open", "use"])
def test_in_the_turn_in_which_mqtt_takes_over_nothing_of_the_endpoint_counts(then: str) -> None:
    edge = UdpEdge(is_sealed=False)
    vehicle = edge.vehicle("a")
    other = Vehicle(edge, "a")
    other.accept(other.ask_to_open())
    client = edge.enter()
    client.send(Connect("a", Version.V5))
    if then == "speak":
        edge.on_batch(
            vehicle.letter(Publish(vehicle.message("t"))), vehicle.report_letter(), vehicle.letter(Close(vehicle.token))
        )
    elif then == "tick":
        edge.beat += 5 * SECOND_NS
        edge.settling.tick(edge.now)
    elif then == "open":
        edge.on_batch(other.report_letter())
    else:
        edge.broker.use(edge.rules)
        edge.udp.shut(edge.now)
    edge.settle()
    assert edge.broker.counts.accepted == 0
    assert causes(vehicle) == [CloseCause.REPLACED]
    client.look()
    assert client.is_open == (then != "open")
    assert edge.broker.counts.reports == 2 + 2 * (then == "open")
    check_door(edge)


def test_an_endpoint_takes_its_name_over_from_mqtt(edge: UdpEdge) -> None:
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t")
    vehicle = edge.vehicle("a")
    assert client.ended_with() is Code.SESSION_TAKEN_OVER
    client.lose()
    vehicle.publish(vehicle.message("t", to=ToEndpoint(EndpointId("a"))))
    assert len(vehicle.messages()) == 1
    check_door(edge)
