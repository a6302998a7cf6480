"""What leaves the door: emergencies first, within what the network takes; and to whom messages go, over both doors."""

from dataclasses import replace

import numpy as np
import pytest

from milepost.broker.emergency import AlertRule, Shape
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
from milepost.model.sessions import Publish, Received
from milepost.model.tags import Tag
from milepost.trust.certificates import Authority
from milepost.trust.signing import Verifier, signing_public_of
from milepost.vetting import Reputations
from milepost.wire.mqtt import Properties
from udp_edge_in_memory import AUTHORITY_KEY, HOME, UdpEdge, Vehicle

COLLISION = AlertRule("collision", alert="Alert/collision", radius_m=500.0, valid_s=30.0)


def around(edge: UdpEdge, count: int = 24) -> list[Vehicle]:
    """Vehicles on two rings around home."""
    return [edge.vehicle(f"v{at}", moved(HOME, at * 15.0, 300.0 if at % 2 else 900.0)) for at in range(count)]


@pytest.mark.parametrize("is_refused_too", [False, True])
def test_the_alert_of_an_emergency_is_the_first_that_is_sent_of_all_that_one_batch_caused(
    edge: UdpEdge, is_refused_too: bool
) -> None:
    edge.broker.alerts.rules = (COLLISION,)
    vehicles = [edge.vehicle(f"v{number}") for number in range(20)]
    for vehicle in vehicles:
        vehicle.subscribe("topic:#")
    letters = [one.letter(Publish(one.message("t", b"x", reliable=True))) for _ in range(5) for one in vehicles]
    letters += [one.report_letter() for _ in range(5) for one in vehicles]
    if is_refused_too:
        letters.insert(0, vehicles[3].letter(Publish(vehicles[3].message("t", source="forged"))))
        stranger = Vehicle(edge, "stranger")
        letters.insert(0, (stranger.init_bytes()[0], stranger.address))
    letters.insert(-1, vehicles[7].letter(Publish(vehicles[7].message("collision", b"crash"))))
    first = len(edge.post.order)
    edge.hear(*letters)
    sent = edge.post.order[first:]
    assert len(sent) > 2_000
    by_address = {vehicle.address: vehicle for vehicle in vehicles}
    alerted = [by_address[address].opened(data) for address, data in sent[:20]]
    assert [one.message.topic for one in alerted if isinstance(one, Publish)] == ["Alert/collision"] * 20


def test_an_alert_reaches_those_near_the_emergency_signed_by_the_edge() -> None:
    edge = UdpEdge()
    edge.broker.alerts.rules = (COLLISION,)
    vehicles = around(edge)
    reporter = edge.vehicle("reporter")
    reporter.publish(reporter.message("collision", b"crash", tags=["i80"], fields={"cars": 2}))
    verifier = Verifier(Authority(signing_public_of(AUTHORITY_KEY)))
    for number, vehicle in enumerate(vehicles):
        messages = vehicle.messages()
        assert len(messages) == number % 2
        for message in messages:
            assert verifier.check(message, edge.now) is None
            assert (message.source, message.topic, message.body) == ("edge-1", "Alert/collision", b"crash")
            assert message.tags == {Tag("i80")}
            assert dict(message.fields) == {"cars": 2, "raised_by": "reporter", "raised_on": "collision"}
            assert (message.priority, message.reliable, message.place) == (Priority.EMERGENCY, True, HOME)
            assert message.address == ToArea(Circle(HOME, 500.0))
    assert len(reporter.messages()) == 1


def test_an_alert_along_the_heading_reaches_those_behind(edge: UdpEdge) -> None:
    edge.broker.alerts.rules = (AlertRule("collision", shape=Shape.CORRIDOR, ahead_m=100.0, behind_m=1_000.0, half_width_m=20.0),)
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
    vehicles = around(edge)
    sender = edge.vehicle("sender", Place(10.0, 10.0))
    sender.publish(sender.message("t", b"x", to=ToArea(area)))
    inside = area.contains(np.array([vehicle.place.vector for vehicle in vehicles])).tolist()
    assert 0 < sum(inside) < len(inside)
    assert [len(vehicle.messages()) for vehicle in vehicles] == inside


def test_those_who_moved_are_where_they_last_said(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    edge.pass_time(2)
    vehicle.report(moved(HOME, 0, 150))
    for metres in (100.0, 200.0):
        sender.publish(sender.message("t", str(metres).encode(), to=ToArea(Circle(HOME, metres))))
    assert vehicle.bodies() == [b"200.0"]


def test_a_message_goes_to_everyone_or_to_one_as_it_is_addressed(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(name) for name in "abc"]
    client = edge.connect("mqtt")
    for to in (ToEveryone(), ToEndpoint(EndpointId("b")), ToEndpoint(EndpointId("nobody")), ToEndpoint(EndpointId("mqtt"))):
        vehicles[0].publish(vehicles[0].message("t", type(to).__name__.encode(), to=to))
    to_all, to_one = b"ToEveryone", b"ToEndpoint"
    assert [vehicle.bodies() for vehicle in vehicles] == [[to_all], [to_all, to_one], [to_all]]
    assert client.bodies() == [to_all, to_one]


def test_content_within_an_area_reaches_those_who_asked_and_are_inside(edge: UdpEdge) -> None:
    near, far = edge.vehicle("near"), edge.vehicle("far", moved(HOME, 0, 5_000))
    for vehicle in (near, far):
        vehicle.subscribe("topic:t")
    silent = edge.vehicle("silent")
    near.publish(near.message("t", b"x", to=ToContent(Circle(HOME, 1_000.0))))
    assert [len(vehicle.messages()) for vehicle in (near, far, silent)] == [1, 0, 0]


def test_what_mqtt_publishes_endpoints_get_with_tags_place_priority_and_words_as_fields(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.subscribe("i80 & topic:road/#")
    vehicle.taken_raw()
    client = edge.connect("mqtt")
    words = {"tag": "i80", "place": "40.7,-111.8", "priority": "traffic"}
    user = (("milepost-tag", "ice"), *((f"milepost-{name}", value) for name, value in words.items()), ("colour", "red"))
    client.publish("road/1", b"x", 1, properties=Properties(user=user))
    (message,) = vehicle.messages()
    assert (message.source, message.topic, message.body) == ("mqtt", "road/1", b"x")
    assert message.tags == {Tag("i80"), Tag("ice")}
    assert (message.place, message.priority) == (Place(40.7, -111.8), Priority.TRAFFIC)
    assert dict(message.fields) == {"colour": "red"}
    assert message.id > 0
    assert message.reliable, "it is to be answered, since the subscription is of quality 1"


def test_what_endpoints_publish_mqtt_gets_with_words_for_what_is_beside_topic_and_body(edge: UdpEdge) -> None:
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
    words = dict(message.properties.user)
    assert words["milepost-tag"] == "i80"
    assert words["milepost-source"] == "a"
    assert words["milepost-priority"] == "safety"
    assert words["colour"] == "red"
    assert "40.7608" in words["milepost-place"], "where the endpoint was"


def test_what_the_network_does_not_take_is_sent_later_the_more_urgent_first(edge: UdpEdge) -> None:
    taker, sender = edge.vehicle("a"), edge.vehicle("b")
    edge.post.room = 0
    for body, priority in ((b"low", Priority.CONVENIENCE), (b"middle", Priority.TRAFFIC), (b"high", Priority.EMERGENCY)):
        sender.publish(sender.message("t", body, to=ToEndpoint(taker.name), priority=priority))
    sender.publish(sender.message("t", reliable=True))
    assert (taker.taken_raw(), edge.udp.sender.has_unsent) == ([], True)
    for room, bodies in ((1, [b"high"]), (1, []), (1, [b"middle"]), (0, []), (9, [b"low"])):
        edge.post.room = room
        edge.settle()
        assert taker.bodies() == bodies
    assert len(sender.take(Received)) == 1
    assert not edge.udp.sender.has_unsent


def test_a_message_to_many_goes_on_where_the_network_stopped_taking(edge: UdpEdge) -> None:
    vehicles = [edge.vehicle(f"v{number}") for number in range(10)]
    edge.post.room = 3
    vehicles[0].publish(vehicles[0].message("t", b"x", to=ToEveryone()))
    assert sum(bool(vehicle.taken_raw()) for vehicle in vehicles) == 3
    edge.post.room = None
    edge.settle()
    assert sum(len(edge.post.sent[vehicle.address]) for vehicle in vehicles) == 2 * 10, (
        "an answer to INIT and the message, each once"
    )


def test_no_more_waits_for_the_network_than_may_and_the_least_urgent_is_given_up(edge: UdpEdge) -> None:
    small = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(unsent_bytes_max=10_000))
    taker, sender = small.vehicle("a"), small.vehicle("b")
    small.post.room = 0
    for number in range(10):
        priority = Priority.SAFETY if number % 2 else Priority.CONVENIENCE
        message = sender.message("t", bytes((number,)) * 1_800, to=ToEndpoint(taker.name), priority=priority)
        sender.publish(message)
    small.post.room = None
    small.settle()
    bodies = [body[0] for body in taker.bodies()]
    assert bodies == [1, 3, 5, 7, 9]
    assert small.broker.counts.dropped == {Reason.QUEUE_FULL: 5}


def test_bytes_and_datagrams_are_counted_both_ways(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", reliable=True))
    sent = edge.post.sent[vehicle.address]
    assert (edge.udp.sender.datagrams_sent, edge.udp.sender.bytes_sent) == (len(sent), sum(map(len, sent)))
    assert edge.udp.datagrams_received == 3
    before = edge.udp.bytes_received
    edge.hear((b"12345", vehicle.address))
    assert edge.udp.bytes_received == before + 5


def test_fields_reach_mqtt_takers_as_text_and_none_of_them_passes_for_our_own_words(edge: UdpEdge) -> None:
    vehicle, dash = edge.vehicle("a"), edge.connect("dash")
    dash.subscribe("t")
    fields: dict[str, Scalar] = {"cars": 2, "exact": 0.5, "is_open": True, "photo": b"\x00\xff", "note": "ice"}
    unsayable: dict[str, Scalar] = {"zero": "a\0b", "milepost-source": "somebody-else"}
    vehicle.publish(replace(vehicle.message("t"), fields=fields))
    vehicle.publish(replace(vehicle.message("t"), fields=unsayable | {"note": "snow"}))
    told = [dict(message.properties.user) for message in dash.messages()]
    ours = {"milepost-source": "a"}
    assert [{name: text for name, text in one.items() if not name.startswith("milepost-")} for one in told] == [
        {"cars": "2", "exact": "0.5", "is_open": "true", "photo": "AP8=", "note": "ice"},
        {"note": "snow"},
    ]
    assert all(ours.items() <= one.items() for one in told)


def test_a_reputation_that_falls_lowers_the_rate_of_who_is_here(edge: UdpEdge) -> None:
    limited = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=10, messages_burst=10))
    vehicle = limited.vehicle("a")
    vehicle.publish(vehicle.message("t"))
    limited.broker.believe(Reputations({vehicle.name: 0.25}))
    limited.pass_time(2)
    vehicle.say(*(Publish(vehicle.message("t")) for _ in range(8)))
    assert limited.broker.counts.accepted == 1 + 2, "ten tokens, of which each message takes four"


def test_d15_what_has_no_id_gets_the_same_at_every_edge_that_it_comes_to() -> None:
    here, there, alone = (Publication("t", b"x", Instant(1), source=EndpointId("mqtt")) for _ in range(3))
    here.forwarded_number = there.forwarded_number = 77
    for publication, number in ((here, 1), (there, 2), (alone, 77)):
        ensure_id(publication, number)
    assert here.id == there.id
    assert alone.id not in (0, here.id), "of the same source, and not the same"
