"""Output of the UDP listener: emergencies first, within the limits of the socket; and delivery across both listeners."""

from dataclasses import replace

import numpy as np
import pytest

from milepost.broker.alert_rules import AlertRule, AlertShape
from milepost.broker.publication import Publication
from milepost.listeners.udp.sender import ensure_id
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Area, Box, Circle, Corridor
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Scalar
from milepost.model.places import Place, moved
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason
from milepost.model.session_datagrams import PublishDatagram, ReceivedDatagram
from milepost.model.tags import Tag
from milepost.trust.certificates import CertificateAuthority
from milepost.trust.signing import Verifier, signing_public_of
from milepost.vetting import Reputations
from milepost.wire.mqtt import Properties
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, Vehicle

COLLISION = AlertRule("collision", alert="Alert/collision", radius_m=500.0, valid_s=30.0)


def vehicles_around(edge: UdpEdge, count: int = 24) -> list[Vehicle]:
    """Open vehicles on two rings around home."""
    return [edge.vehicle(f"v{at}", moved(HOME, at * 15.0, 300.0 if at % 2 else 900.0)) for at in range(count)]


@pytest.mark.parametrize("is_refused_too", [False, True])
def test_the_alert_of_an_emergency_is_sent_before_all_other_output_of_its_batch(edge: UdpEdge, is_refused_too: bool) -> None:
    edge.broker.alerts.rules = (COLLISION,)
    vehicles = [edge.vehicle(f"v{number}") for number in range(20)]
    for vehicle in vehicles:
        vehicle.subscribe("topic:#")
    datagrams = [one.datagram_of(PublishDatagram(one.message("t", b"x", reliable=True))) for _ in range(5) for one in vehicles]
    datagrams += [one.report_datagram() for _ in range(5) for one in vehicles]
    if is_refused_too:
        datagrams.insert(0, vehicles[3].datagram_of(PublishDatagram(vehicles[3].message("t", source="forged"))))
        stranger = Vehicle(edge, "stranger")
        datagrams.insert(0, (stranger.init_bytes()[0], stranger.address))
    datagrams.insert(-1, vehicles[7].datagram_of(PublishDatagram(vehicles[7].message("collision", b"crash"))))
    first = len(edge.output.order)
    edge.receive(*datagrams)
    sent = edge.output.order[first:]
    assert len(sent) > 2_000
    by_address = {vehicle.address: vehicle for vehicle in vehicles}
    alerted = [by_address[address].decrypted(data) for address, data in sent[:20]]
    assert [one.message.topic for one in alerted if isinstance(one, PublishDatagram)] == ["Alert/collision"] * 20


def test_an_alert_signed_by_the_edge_reaches_vehicles_near_the_emergency() -> None:
    edge = UdpEdge()
    edge.broker.alerts.rules = (COLLISION,)
    vehicles = vehicles_around(edge)
    reporter = edge.vehicle("reporter")
    reporter.publish(reporter.message("collision", b"crash", tags=["i80"], fields={"cars": 2}))
    verifier = Verifier(CertificateAuthority(signing_public_of(AUTHORITY_KEY)))
    for number, vehicle in enumerate(vehicles):
        messages = vehicle.messages()
        assert len(messages) == number % 2
        for message in messages:
            assert verifier.check(message, edge.now) == ("edge", "edge-1")
            assert (message.source, message.topic, message.body) == ("@edge/edge-1", "Alert/collision", b"crash")
            assert message.tags == {Tag("i80")}
            assert dict(message.fields) == {"cars": 2, "raised_by": "reporter", "raised_on": "collision"}
            assert (message.priority, message.reliable, message.place) == (Priority.EMERGENCY, True, HOME)
            assert message.address == ToArea(Circle(HOME, 500.0))
    assert len(reporter.messages()) == 1


def test_an_alert_along_the_heading_reaches_vehicles_behind(edge: UdpEdge) -> None:
    edge.broker.alerts.rules = (
        AlertRule("collision", shape=AlertShape.CORRIDOR, ahead_m=100.0, behind_m=1_000.0, half_width_m=20.0),
    )
    places = {
        "behind": moved(HOME, 180, 800),
        "ahead": moved(HOME, 0, 300),
        "beside": moved(HOME, 90, 60),
        "near": moved(HOME, 0, 80),
    }
    vehicles = {name: edge.vehicle(name, place) for name, place in places.items()}
    reporter = edge.vehicle("reporter")
    reporter.report(heading=359.9999999)
    reporter.publish(reporter.message("collision"))
    assert [name for name, vehicle in vehicles.items() if vehicle.messages()] == ["behind", "near"]


@pytest.mark.parametrize(
    "area",
    [
        Circle(HOME, 600.0),
        Box(HOME.latitude, -112.0, 41.0, HOME.longitude),
        Corridor((moved(HOME, 200, 2_000), moved(HOME, 20, 2_000)), 250.0),
    ],
)
def test_a_message_to_an_area_reaches_exactly_those_inside(edge: UdpEdge, area: Area) -> None:
    vehicles = vehicles_around(edge)
    sender = edge.vehicle("sender", Place(10.0, 10.0))
    sender.publish(sender.message("t", b"x", to=ToArea(area)))
    inside = area.contains(np.array([vehicle.place.vector for vehicle in vehicles])).tolist()
    assert 0 < sum(inside) < len(inside)
    assert [len(vehicle.messages()) for vehicle in vehicles] == inside


def test_an_endpoint_that_moved_is_matched_at_its_last_report(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    edge.pass_time(2)
    vehicle.report(moved(HOME, 0, 150))
    for metres in (100.0, 200.0):
        sender.publish(sender.message("t", str(metres).encode(), to=ToArea(Circle(HOME, metres))))
    assert vehicle.bodies() == [b"200.0"]


def test_a_message_reaches_everyone_or_one_endpoint_by_its_address(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(name) for name in "abc"]
    client = edge.connect("mqtt")
    for to in (ToEveryone(), ToEndpoint(EndpointId("b")), ToEndpoint(EndpointId("nobody")), ToEndpoint(EndpointId("mqtt"))):
        vehicles[0].publish(vehicles[0].message("t", type(to).__name__.encode(), to=to))
    to_all, to_one = b"ToEveryone", b"ToEndpoint"
    assert [vehicle.bodies() for vehicle in vehicles] == [[to_all], [to_all, to_one], [to_all]]
    assert client.bodies() == [to_all, to_one]


def test_content_within_an_area_reaches_subscribers_inside_it(edge: UdpEdge) -> None:
    near, far = edge.vehicle("near"), edge.vehicle("far", moved(HOME, 0, 5_000))
    for vehicle in (near, far):
        vehicle.subscribe("topic:t")
    silent = edge.vehicle("silent")
    near.publish(near.message("t", b"x", to=ToContent(Circle(HOME, 1_000.0))))
    assert [len(vehicle.messages()) for vehicle in (near, far, silent)] == [1, 0, 0]


def test_mqtt_messages_reach_udp_with_tags_place_priority_and_user_properties_as_fields(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.subscribe("i80 & topic:road/#")
    vehicle.received_raw()
    client = edge.connect("mqtt")
    properties = {"tag": "i80", "place": "40.7,-111.8", "priority": "traffic"}
    user = (("milepost-tag", "ice"), *((f"milepost-{name}", value) for name, value in properties.items()), ("colour", "red"))
    client.publish("road/1", b"x", 1, properties=Properties(user=user))
    (message,) = vehicle.messages()
    assert (message.source, message.topic, message.body) == ("mqtt", "road/1", b"x")
    assert message.tags == {Tag("i80"), Tag("ice")}
    assert (message.place, message.priority) == (Place(40.7, -111.8), Priority.TRAFFIC)
    assert dict(message.fields) == {"colour": "red"}
    assert message.id > 0
    assert message.reliable, "the subscription is of QoS 1, so it must be acknowledged"


def test_udp_messages_reach_mqtt_with_their_metadata_as_user_properties(edge: UdpEdge) -> None:
    client = edge.connect("mqtt")
    client.subscribe("road/#", qos=1)
    vehicle = edge.vehicle("a")
    vehicle.publish(
        vehicle.message(
            "road/1", b"x", tags=["i80"], priority=Priority.SAFETY, fields={"colour": "red", "cars": 2}, reliable=True
        )
    )
    (message,) = client.messages()
    assert (message.topic, message.payload, message.qos) == ("road/1", b"x", 1)
    properties = dict(message.properties.user)
    assert properties["milepost-tag"] == "i80"
    assert properties["milepost-source"] == "a"
    assert properties["milepost-priority"] == "safety"
    assert properties["colour"] == "red"
    assert "40.7608" in properties["milepost-place"], "the position of the endpoint"


def test_datagrams_that_a_full_socket_rejects_are_sent_later_the_most_urgent_first(edge: UdpEdge) -> None:
    receiver, sender = edge.vehicle("a"), edge.vehicle("b")
    edge.output.capacity = 0
    for body, priority in ((b"low", Priority.CONVENIENCE), (b"middle", Priority.TRAFFIC), (b"high", Priority.EMERGENCY)):
        sender.publish(sender.message("t", body, to=ToEndpoint(receiver.name), priority=priority))
    sender.publish(sender.message("t", reliable=True))
    assert (receiver.received_raw(), edge.udp.sender.has_unsent) == ([], True)
    for room, bodies in ((1, [b"high"]), (1, []), (1, [b"middle"]), (0, []), (9, [b"low"])):
        edge.output.capacity = room
        edge.run_ticks()
        assert receiver.bodies() == bodies
    assert len(sender.received_of(ReceivedDatagram)) == 1
    assert not edge.udp.sender.has_unsent


def test_a_message_to_many_resumes_where_the_socket_was_full(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(f"v{number}") for number in range(10)]
    edge.output.capacity = 3
    vehicles[0].publish(vehicles[0].message("t", b"x", to=ToEveryone()))
    assert sum(bool(vehicle.received_raw()) for vehicle in vehicles) == 3
    edge.output.capacity = None
    edge.run_ticks()
    assert sum(len(edge.output.sent[vehicle.address]) for vehicle in vehicles) == 2 * 10, (
        "the reply to INIT and the message, each once"
    )


def test_unsent_bytes_are_limited_and_the_least_urgent_are_dropped(edge: UdpEdge) -> None:
    small = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(unsent_bytes_max=10_000))
    receiver, sender = small.vehicle("a"), small.vehicle("b")
    small.output.capacity = 0
    for number in range(10):
        priority = Priority.SAFETY if number % 2 else Priority.CONVENIENCE
        message = sender.message("t", bytes((number,)) * 1_800, to=ToEndpoint(receiver.name), priority=priority)
        sender.publish(message)
    small.output.capacity = None
    small.run_ticks()
    bodies = [body[0] for body in receiver.bodies()]
    assert bodies == [1, 3, 5, 7, 9]
    assert small.broker.counts.dropped == {Reason.QUEUE_FULL: 5}


def test_bytes_and_datagrams_are_counted_both_ways(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", reliable=True))
    sent = edge.output.sent[vehicle.address]
    assert (edge.udp.sender.datagrams_sent, edge.udp.sender.bytes_sent) == (len(sent), sum(map(len, sent)))
    assert edge.udp.datagrams_received == 3
    before = edge.udp.bytes_received
    edge.receive((b"12345", vehicle.address))
    assert edge.udp.bytes_received == before + 5


def test_fields_reach_mqtt_subscribers_as_text_and_cannot_forge_milepost_properties(edge: UdpEdge) -> None:
    vehicle, dash = edge.vehicle("a"), edge.connect("dash")
    dash.subscribe("t")
    fields: dict[str, Scalar] = {"cars": 2, "exact": 0.5, "is_open": True, "photo": b"\x00\xff", "note": "ice"}
    unencodable: dict[str, Scalar] = {"zero": "a\0b", "milepost-source": "somebody-else"}
    vehicle.publish(replace(vehicle.message("t"), fields=fields))
    vehicle.publish(replace(vehicle.message("t"), fields=unencodable | {"note": "snow"}))
    received = [dict(message.properties.user) for message in dash.messages()]
    own = {"milepost-source": "a"}
    assert [{name: text for name, text in one.items() if not name.startswith("milepost-")} for one in received] == [
        {"cars": "2", "exact": "0.5", "is_open": "true", "photo": "AP8=", "note": "ice"},
        {"note": "snow"},
    ]
    assert all(own.items() <= one.items() for one in received)


def test_a_falling_reputation_lowers_the_rate_of_a_connected_endpoint(edge: UdpEdge) -> None:
    limited = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=10, messages_burst=10))
    vehicle = limited.vehicle("a")
    vehicle.publish(vehicle.message("t"))
    limited.broker.use_reputations(Reputations({vehicle.name: 0.25}))
    limited.pass_time(2)
    vehicle.send(*(PublishDatagram(vehicle.message("t")) for _ in range(8)))
    assert limited.broker.counts.accepted == 1 + 2, "ten tokens, of which each message takes four"


def test_d15_a_forwarded_message_without_an_id_gets_the_same_id_at_every_edge() -> None:
    here, there, alone = (Publication("t", b"x", Instant(1), source=EndpointId("mqtt")) for _ in range(3))
    here.forwarded_number = there.forwarded_number = 77
    for publication, number in ((here, 1), (there, 2), (alone, 77)):
        ensure_id(publication, number)
    assert here.id == there.id
    assert alone.id not in (0, here.id), "another message of the same source"
