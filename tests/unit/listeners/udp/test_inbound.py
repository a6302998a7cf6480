"""What endpoints say inside sessions: what is let in, what is refused and told, and how much of it (M3, M4, M15, M27)."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.admission import Rules
from milepost.broker.presence import Ground
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.sessions import (
    Acknowledge,
    MessageName,
    Publish,
    Received,
    Refusal,
    ReportSent,
    SessionToken,
    Subscribe,
    SubscriptionName,
    Unsubscribe,
    refusal_of,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.vetting import ReportLimits
from milepost.vetting.access import Access, Rule, Verbs
from milepost.vetting.payloads import PayloadRule, Payloads
from udp_edge_in_memory import HOME, UdpEdge, Vehicle

FAR = Place(10.0, 10.0)


def name_of(vehicle: Vehicle, number: int) -> MessageName:
    return MessageName(vehicle.name, vehicle.message(number=number).id)


def test_a_reliable_message_is_answered_and_another_is_not(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", number=1, reliable=True))
    vehicle.publish(vehicle.message("t", number=2))
    assert [one.name for one in vehicle.take(Received)] == [name_of(vehicle, 1)]
    assert edge.broker.counts.accepted == 2


def test_a_reliable_message_that_comes_again_counts_once_and_is_answered_again(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    message = vehicle.message("t", number=1, reliable=True)
    for _ in range(3):
        vehicle.publish(message)
    edge.hear(*(vehicle.letter(Publish(message)) for _ in range(2)))
    assert [one.name for one in vehicle.take(Received)] == [name_of(vehicle, 1)] * 5
    assert edge.broker.counts.accepted == 1


def test_so_many_names_are_remembered_and_the_oldest_is_forgotten(edge: UdpEdge) -> None:
    generous = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=10_000, messages_burst=10_000))
    vehicle = generous.vehicle("a")
    for number in range(1, 258):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    for number in (2, 257, 1):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    assert generous.broker.counts.accepted == 258


def test_a_subscription_is_answered_replaced_and_ended_by_its_number(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    for query in ("topic:t", "topic:t", "topic:u"):
        vehicle.subscribe(query)
        assert [one.name for one in vehicle.take(Received)] == [SubscriptionName(vehicle.name, SubscriptionId(1))]
    for topic in ("t", "u"):
        sender.publish(sender.message(topic, topic.encode()))
    (found,) = vehicle.take(Publish)
    assert (found.message.body, found.matches) == (b"u", (1,))
    for _ in range(2):
        vehicle.say(Unsubscribe(SubscriptionName(vehicle.name, SubscriptionId(1))))
        assert len(vehicle.take(Received)) == 1, "also if there was none"
    sender.publish(sender.message("u"))
    assert vehicle.messages() == []


def test_a_subscription_of_somebody_else_is_refused(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.say(Subscribe(Subscription(EndpointId("b"), parse_query("x"), id=SubscriptionId(3))))
    (refusal,) = vehicle.take(Refusal)
    assert (refusal.reason, refusal.about) == (Reason.SOURCE_FORGED, SubscriptionName(EndpointId("b"), SubscriptionId(3)))


def test_a_message_of_somebody_else_is_refused(edge: UdpEdge) -> None:
    # M4, M27
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", source="b", number=4, reliable=True))
    (refusal,) = vehicle.take(Refusal)
    assert (refusal.reason, refusal.about) == (Reason.SOURCE_FORGED, MessageName(EndpointId("b"), vehicle.message(number=4).id))
    assert edge.broker.counts.refused == {Reason.SOURCE_FORGED: 1}


def test_a_report_of_somebody_else_is_refused(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.vehicle("b")
    vehicle.say(ReportSent(vehicle.token, replace(vehicle.report_of(seen_at=edge.now + 1), endpoint=EndpointId("b"))))
    assert vehicle.refusals() == ["REPORT_NOT_OWN"]
    assert edge.broker.counts.refused == {Reason.REPORT_NOT_OWN: 1}


@pytest.mark.parametrize("value", [Acknowledge(SessionToken(1), 1, EndpointId("e")), refusal_of(Refused(Reason.MALFORMED))])
def test_what_only_edges_say_is_refused(edge: UdpEdge, value: Acknowledge | Refusal) -> None:
    # M4
    vehicle = edge.vehicle("a")
    vehicle.say(replace(value, session=vehicle.token))
    assert vehicle.refusals() == ["PROTOCOL_ERROR"]


def test_what_is_no_datagram_inside_a_whole_seal_is_refused_and_told() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    edge.hear((vehicle.sealed(b"\xff\xff"), vehicle.address))
    assert vehicle.refusals() == ["MALFORMED"]


def only(role: str) -> Rules:
    denied = Rule(False, Verbs.BOTH, "siren/#")
    return Rules(Access((Rule(True, Verbs.BOTH, "siren/#", role=role), denied, Rule(True, Verbs.BOTH, "#"))))


def test_rules_can_ask_for_a_role(edge: UdpEdge) -> None:
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=only("ambulance"))
    for name, role in (("a", "ambulance"), ("b", "vehicle")):
        vehicle = ruled.vehicle(name, role=role)
        vehicle.subscribe("topic:siren/1")
        vehicle.publish(vehicle.message("siren/1", reliable=True))
        is_allowed = ruled.identity is not None and role == "ambulance"
        assert [type(one) for one in vehicle.taken() if not isinstance(one, Publish)] == [Received if is_allowed else Refusal] * 2
        vehicle.publish(vehicle.message("other", reliable=True))
        assert [type(one) for one in vehicle.taken()] == [Received]


def test_who_must_be_near_is_held_to_its_last_report(edge: UdpEdge) -> None:
    near = Rule(True, Verbs.PUBLISH, "Collision", within_m=500.0)
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=Rules(Access((near,))))
    vehicle = ruled.vehicle("a")
    here = vehicle.report_of(seen_at=ruled.now).place  # it said so when it came
    for north_m in (400.0, 600.0):
        vehicle.publish(replace(vehicle.message("Collision", reliable=True), place=moved(here, 0.0, north_m)))
    confirmed, refused = vehicle.taken()
    assert isinstance(confirmed, Received)
    assert isinstance(refused, Refusal)
    assert refused.name == "PLACE_NOT_SEEN"


def test_rules_that_change_hold_for_open_sessions_and_what_they_asked_for(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    vehicle.subscribe("topic:siren/1")
    vehicle.subscribe("topic:t", number=2)
    sender.publish(sender.message("siren/1", b"before"))
    assert vehicle.bodies() == [b"before"]
    edge.broker.use(only("ambulance"))
    edge.settle()
    (refusal,) = vehicle.take(Refusal)
    assert refusal.about == SubscriptionName(vehicle.name, SubscriptionId(1))
    for topic in ("siren/1", "t"):
        sender.publish(sender.message(topic, topic.encode()))
    assert vehicle.bodies() == [b"t"]
    (refusal,) = sender.take(Refusal)
    assert refusal.name in ("NOT_ALLOWED", "CERTIFICATE_ROLE")


def test_payloads_are_looked_at_as_the_rules_say(edge: UdpEdge) -> None:
    rules = Rules(payloads=Payloads((PayloadRule("json/#", json=True),)))
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=rules)
    vehicle = ruled.vehicle("a")
    for body in (b"{", b"{}"):
        vehicle.publish(vehicle.message("json/1", body, reliable=True))
    vehicle.publish(vehicle.message("t", b"{", reliable=True))
    refused, *confirmed = vehicle.taken()
    assert isinstance(refused, Refusal)
    assert refused.name == "PAYLOAD_NOT_JSON"
    assert [type(one) for one in confirmed] == [Received] * 2


def test_the_class_of_a_topic_holds_for_who_says_none(edge: UdpEdge) -> None:
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=Rules(priorities=(("brake/#", Priority.SAFETY),)))
    taker, vehicle = ruled.vehicle("a"), ruled.vehicle("b")
    taker.subscribe("topic:#")
    for topic, priority in (("brake/1", Priority.CONVENIENCE), ("brake/1", Priority.TRAFFIC), ("t", Priority.CONVENIENCE)):
        vehicle.publish(vehicle.message(topic, priority=priority))
    assert [one.priority for one in taker.messages()] == [Priority.SAFETY, Priority.TRAFFIC, Priority.CONVENIENCE]


def test_what_is_over_the_rate_is_not_answered_so_that_it_comes_again(edge: UdpEdge) -> None:
    slow = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=1, messages_burst=2))
    vehicle = slow.vehicle("a")
    for number in (1, 2, 3):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    vehicle.subscribe("x")
    assert [one.name for one in vehicle.take(Received)] == [name_of(vehicle, 1), name_of(vehicle, 2)]
    assert slow.broker.counts.refused == {Reason.RATE_TOO_HIGH: 2}
    vehicle.publish(vehicle.message("t", number=1, reliable=True))
    assert len(vehicle.take(Received)) == 1, "what was let in already costs nothing"
    slow.pass_time(1)
    vehicle.publish(vehicle.message("t", number=3, reliable=True))
    assert [one.name for one in vehicle.take(Received)] == [name_of(vehicle, 3)]


def test_refused_reports_are_told_once_a_second(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.taken_raw()
    vehicle.place = FAR
    for _ in range(11):
        edge.pass_time(0.2)
        vehicle.report()
    assert vehicle.refusals() == ["MOVE_TELEPORT"] * 3
    assert edge.broker.counts.refused == {Reason.MOVE_TELEPORT: 11}


def test_reports_that_are_late_or_too_many_are_not_told(edge: UdpEdge) -> None:
    few = UdpEdge(is_sealed=edge.identity is not None, limits=replace(SMALL, reports_per_s=1, reports_burst=4))
    vehicle = few.vehicle("a")
    vehicle.say(*(ReportSent(vehicle.token, vehicle.report_of(seen_at=few.now)) for _ in range(5)))
    assert vehicle.taken_raw() == []
    assert few.broker.counts.refused == {Reason.REPORT_OUT_OF_ORDER: 2, Reason.RATE_TOO_HIGH: 3}


def test_one_endpoint_at_a_hundred_times_its_rate_costs_others_nothing(edge: UdpEdge) -> None:
    # M27
    flood, others = edge.vehicle("a"), [edge.vehicle(f"b{number}") for number in range(5)]
    for _ in range(4):
        edge.pass_time(0.25)
        letters = [flood.letter(Publish(flood.message("t", reliable=True))) for _ in range(1_250)]
        letters += [flood.report_letter() for _ in range(500)]
        for vehicle in others:
            letters += [
                vehicle.report_letter(),
                *(vehicle.letter(Publish(vehicle.message("t", reliable=True))) for _ in range(10)),
            ]
        edge.random.shuffle(letters)
        edge.hear(*letters)
    for vehicle in others:
        assert len(vehicle.take(Received)) == 40
        assert edge.broker.watch.tracks.reports_of(edge.session(vehicle.name).number) == 6
    assert len(flood.take(Received)) <= 250


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (UdpSettings(prefix_per_s=10, prefix_burst=10), Reason.PREFIX_RATE_TOO_HIGH),
        (UdpSettings(total_per_s=10, total_burst=10), Reason.EDGE_RATE_TOO_HIGH),
    ],
)
def test_prefixes_and_the_edge_have_rates(edge: UdpEdge, limit: UdpSettings, reason: Reason) -> None:
    limited = UdpEdge(is_sealed=edge.identity is not None, udp=limit)
    vehicle, far = limited.vehicle("a"), limited.vehicle("b", host="10.0.7.1")
    limited.pass_time(2)
    counts = limited.broker.counts
    vehicle.say(*(Publish(vehicle.message("t")) for _ in range(8)))
    limited.hear(*(vehicle.letter(Publish(vehicle.message("t"))) for _ in range(8)), vehicle.report_letter())
    assert (counts.refused, counts.accepted) == ({reason: 8}, 8)
    far.say(*(Publish(far.message("t")) for _ in range(8)))
    is_apart = reason is Reason.PREFIX_RATE_TOO_HIGH
    assert counts.accepted == (16 if is_apart else 8), "other parts of the network have their own"
    limited.pass_time(1)
    vehicle.publish(vehicle.message("t"))
    assert counts.accepted == (17 if is_apart else 9), "who waits is let in"


def test_what_is_over_a_prefix_s_rate_is_still_a_sign_of_life() -> None:
    edge = UdpEdge(udp=UdpSettings(prefix_per_s=1, prefix_burst=4))
    vehicle = edge.vehicle("a")
    for _ in range(8):
        edge.pass_time(0.5)
        edge.hear(*(vehicle.report_letter() for _ in range(6)))
    assert len(edge.udp.session_table) == 1


def test_areas_that_do_not_touch_the_coverage_are_refused(edge: UdpEdge) -> None:
    # M15, M27
    edge.broker.watch.ground = Ground(Circle(HOME, 5_000.0), ReportLimits())
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", to=ToArea(Circle(FAR, 5_000.0)), reliable=True))
    assert vehicle.refusals() == ["AREA_NOT_COVERED"]


def test_a_message_of_the_past_is_let_in_by_its_validity_alone(edge: UdpEdge) -> None:
    vehicle, taker = edge.vehicle("a"), edge.vehicle("b")
    taker.subscribe("topic:t")
    message = vehicle.message("t", b"old", reliable=True, valid_s=1)
    edge.now = Instant(edge.now + 2 * SECOND_NS)
    vehicle.publish(message)
    assert taker.bodies() == []
