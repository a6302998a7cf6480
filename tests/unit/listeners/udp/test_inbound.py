"""Datagrams inside sessions: which are accepted, which are refused, and how many (M3, M4, M15, M27)."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL
from milepost.broker.admission import AdmissionRules
from milepost.broker.presence import PlausibilityRules
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.places import Place, moved
from milepost.model.priorities import Priority
from milepost.model.queries import parse_query
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import (
    AcknowledgeDatagram,
    MessageName,
    PublishDatagram,
    ReceivedDatagram,
    Refusal,
    ReportSent,
    SessionToken,
    SubscribeDatagram,
    SubscriptionName,
    UnsubscribeDatagram,
    refusal_of,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.vetting import ReportLimits
from milepost.vetting.access import AccessAction, AccessList, AccessRule
from milepost.vetting.payloads import PayloadChecks, PayloadRule
from udp_edge_in_memory import HOME, UdpEdge, Vehicle

FAR = Place(10.0, 10.0)


def name_of(vehicle: Vehicle, number: int) -> MessageName:
    return MessageName(vehicle.name, vehicle.message(number=number).id)


def test_only_reliable_messages_are_acknowledged(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", number=1, reliable=True))
    vehicle.publish(vehicle.message("t", number=2))
    assert [one.name for one in vehicle.received_of(ReceivedDatagram)] == [name_of(vehicle, 1)]
    assert edge.broker.counts.accepted == 2


def test_a_repeated_reliable_message_is_published_once_and_acknowledged_each_time(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    message = vehicle.message("t", number=1, reliable=True)
    for _ in range(3):
        vehicle.publish(message)
    edge.receive(*(vehicle.datagram_of(PublishDatagram(message)) for _ in range(2)))
    assert [one.name for one in vehicle.received_of(ReceivedDatagram)] == [name_of(vehicle, 1)] * 5
    assert edge.broker.counts.accepted == 1


def test_duplicate_detection_remembers_a_limited_number_of_messages(edge: UdpEdge) -> None:
    generous = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=10_000, messages_burst=10_000))
    vehicle = generous.vehicle("a")
    for number in range(1, 258):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    for number in (2, 257, 1):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    assert generous.broker.counts.accepted == 258


def test_a_subscription_is_acknowledged_replaced_and_ended_by_its_id(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    for query in ("topic:t", "topic:t", "topic:u"):
        vehicle.subscribe(query)
        assert [one.name for one in vehicle.received_of(ReceivedDatagram)] == [SubscriptionName(vehicle.name, SubscriptionId(1))]
    for topic in ("t", "u"):
        sender.publish(sender.message(topic, topic.encode()))
    (found,) = vehicle.received_of(PublishDatagram)
    assert (found.message.body, found.matches) == (b"u", (1,))
    for _ in range(2):
        vehicle.send(UnsubscribeDatagram(SubscriptionName(vehicle.name, SubscriptionId(1))))
        assert len(vehicle.received_of(ReceivedDatagram)) == 1, "also if it did not exist"
    sender.publish(sender.message("u"))
    assert vehicle.messages() == []


def test_a_subscription_in_the_name_of_another_endpoint_is_refused(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.send(SubscribeDatagram(Subscription(EndpointId("b"), parse_query("x"), id=SubscriptionId(3))))
    (refusal,) = vehicle.received_of(Refusal)
    assert (refusal.reason, refusal.about) == (Reason.SOURCE_FORGED, SubscriptionName(EndpointId("b"), SubscriptionId(3)))


def test_a_message_in_the_name_of_another_endpoint_is_refused(edge: UdpEdge) -> None:
    # M4, M27
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", source="b", number=4, reliable=True))
    (refusal,) = vehicle.received_of(Refusal)
    assert (refusal.reason, refusal.about) == (Reason.SOURCE_FORGED, MessageName(EndpointId("b"), vehicle.message(number=4).id))
    assert edge.broker.counts.refused == {Reason.SOURCE_FORGED: 1}


def test_a_report_in_the_name_of_another_endpoint_is_refused(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    edge.vehicle("b")
    vehicle.send(ReportSent(vehicle.token, replace(vehicle.report_of(seen_at=edge.now + 1), endpoint=EndpointId("b"))))
    assert vehicle.refusals() == ["REPORT_NOT_OWN"]
    assert edge.broker.counts.refused == {Reason.REPORT_NOT_OWN: 1}


@pytest.mark.parametrize(
    "value", [AcknowledgeDatagram(SessionToken(1), 1, EndpointId("e")), refusal_of(Refused(Reason.MALFORMED))]
)
def test_datagrams_that_only_edges_send_are_refused(edge: UdpEdge, value: AcknowledgeDatagram | Refusal) -> None:
    # M4
    vehicle = edge.vehicle("a")
    vehicle.send(replace(value, session=vehicle.token))
    assert vehicle.refusals() == ["PROTOCOL_ERROR"]


def test_an_undecodable_datagram_inside_valid_encryption_is_refused() -> None:
    edge = UdpEdge()
    vehicle = edge.vehicle("a")
    edge.receive((vehicle.sealed(b"\xff\xff"), vehicle.address))
    assert vehicle.refusals() == ["MALFORMED"]


def only(role: str) -> AdmissionRules:
    denied = AccessRule(False, AccessAction.BOTH, "siren/#")
    return AdmissionRules(
        AccessList((AccessRule(True, AccessAction.BOTH, "siren/#", role=role), denied, AccessRule(True, AccessAction.BOTH, "#")))
    )


def test_access_rules_can_require_a_role(edge: UdpEdge) -> None:
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=only("ambulance"))
    for name, role in (("a", "ambulance"), ("b", "vehicle")):
        vehicle = ruled.vehicle(name, role=role)
        vehicle.subscribe("topic:siren/1")
        vehicle.publish(vehicle.message("siren/1", reliable=True))
        is_allowed = ruled.identity is not None and role == "ambulance"
        assert [type(one) for one in vehicle.received() if not isinstance(one, PublishDatagram)] == [
            ReceivedDatagram if is_allowed else Refusal
        ] * 2
        vehicle.publish(vehicle.message("other", reliable=True))
        assert [type(one) for one in vehicle.received()] == [ReceivedDatagram]


def test_a_distance_rule_uses_the_publisher_s_last_report(edge: UdpEdge) -> None:
    near = AccessRule(True, AccessAction.PUBLISH, "Collision", within_m=500.0)
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=AdmissionRules(AccessList((near,))))
    vehicle = ruled.vehicle("a")
    here = vehicle.report_of(seen_at=ruled.now).place  # its last report
    vehicle.publish(replace(vehicle.message("Collision", reliable=True), place=here))
    assert vehicle.refusals() == ["POSITION_TOO_NEW"]
    ruled.step(5.5, alive=[vehicle])
    vehicle.received()
    for north_m in (400.0, 600.0):
        vehicle.publish(replace(vehicle.message("Collision", reliable=True), place=moved(here, 0.0, north_m)))
    confirmed, refused = vehicle.received()
    assert isinstance(confirmed, ReceivedDatagram)
    assert isinstance(refused, Refusal)
    assert refused.name == "PLACE_NOT_SEEN"


def test_changed_rules_apply_to_open_sessions_and_their_subscriptions(edge: UdpEdge) -> None:
    vehicle, sender = edge.vehicle("a"), edge.vehicle("b")
    vehicle.subscribe("topic:siren/1")
    vehicle.subscribe("topic:t", number=2)
    sender.publish(sender.message("siren/1", b"before"))
    assert vehicle.bodies() == [b"before"]
    edge.broker.use_rules(only("ambulance"))
    edge.run_ticks()
    (refusal,) = vehicle.received_of(Refusal)
    assert refusal.about == SubscriptionName(vehicle.name, SubscriptionId(1))
    for topic in ("siren/1", "t"):
        sender.publish(sender.message(topic, topic.encode()))
    assert vehicle.bodies() == [b"t"]
    (refusal,) = sender.received_of(Refusal)
    assert refusal.name in ("NOT_ALLOWED", "CERTIFICATE_ROLE")


def test_payloads_are_checked_by_the_rules(edge: UdpEdge) -> None:
    rules = AdmissionRules(payloads=PayloadChecks((PayloadRule("json/#", json=True),)))
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=rules)
    vehicle = ruled.vehicle("a")
    for body in (b"{", b"{}"):
        vehicle.publish(vehicle.message("json/1", body, reliable=True))
    vehicle.publish(vehicle.message("t", b"{", reliable=True))
    refused, *confirmed = vehicle.received()
    assert isinstance(refused, Refusal)
    assert refused.name == "PAYLOAD_NOT_JSON"
    assert [type(one) for one in confirmed] == [ReceivedDatagram] * 2


def test_the_priority_of_a_topic_applies_to_messages_without_one(edge: UdpEdge) -> None:
    ruled = UdpEdge(is_sealed=edge.identity is not None, rules=AdmissionRules(priorities=(("brake/#", Priority.SAFETY),)))
    receiver, vehicle = ruled.vehicle("a"), ruled.vehicle("b")
    receiver.subscribe("topic:#")
    for topic, priority in (("brake/1", Priority.CONVENIENCE), ("brake/1", Priority.TRAFFIC), ("t", Priority.CONVENIENCE)):
        vehicle.publish(vehicle.message(topic, priority=priority))
    assert [one.priority for one in receiver.messages()] == [Priority.SAFETY, Priority.TRAFFIC, Priority.CONVENIENCE]


def test_messages_over_the_rate_get_no_reply_so_that_they_are_repeated(edge: UdpEdge) -> None:
    slow = UdpEdge(is_sealed=edge.identity is not None, udp=UdpSettings(messages_per_s=1, messages_burst=2))
    vehicle = slow.vehicle("a")
    for number in (1, 2, 3):
        vehicle.publish(vehicle.message("t", number=number, reliable=True))
    vehicle.subscribe("x")
    assert [one.name for one in vehicle.received_of(ReceivedDatagram)] == [name_of(vehicle, 1), name_of(vehicle, 2)]
    assert slow.broker.counts.refused == {Reason.RATE_TOO_HIGH: 2}
    vehicle.publish(vehicle.message("t", number=1, reliable=True))
    assert len(vehicle.received_of(ReceivedDatagram)) == 1, "a repeated message is not charged"
    slow.pass_time(1)
    vehicle.publish(vehicle.message("t", number=3, reliable=True))
    assert [one.name for one in vehicle.received_of(ReceivedDatagram)] == [name_of(vehicle, 3)]


def test_refusals_of_reports_are_sent_once_a_second(edge: UdpEdge) -> None:
    vehicle = edge.vehicle("a")
    vehicle.received_raw()
    vehicle.place = FAR
    for _ in range(11):
        edge.pass_time(0.2)
        vehicle.report()
    assert vehicle.refusals() == ["MOVE_TELEPORT"] * 3
    assert edge.broker.counts.refused == {Reason.MOVE_TELEPORT: 11}


def test_late_and_excess_reports_get_no_refusal(edge: UdpEdge) -> None:
    few = UdpEdge(is_sealed=edge.identity is not None, limits=replace(SMALL, reports_per_s=1, reports_burst=4))
    vehicle = few.vehicle("a")
    vehicle.send(*(ReportSent(vehicle.token, vehicle.report_of(seen_at=few.now)) for _ in range(5)))
    assert vehicle.received_raw() == []
    assert few.broker.counts.refused == {Reason.REPORT_OUT_OF_ORDER: 2, Reason.RATE_TOO_HIGH: 3}


def test_one_endpoint_at_a_hundred_times_its_rate_does_not_affect_others(edge: UdpEdge) -> None:
    # M27
    flood, others = edge.vehicle("a"), [edge.vehicle(f"b{number}") for number in range(5)]
    for _ in range(4):
        edge.pass_time(0.25)
        datagrams = [flood.datagram_of(PublishDatagram(flood.message("t", reliable=True))) for _ in range(1_250)]
        datagrams += [flood.report_datagram() for _ in range(500)]
        for vehicle in others:
            datagrams += [
                vehicle.report_datagram(),
                *(vehicle.datagram_of(PublishDatagram(vehicle.message("t", reliable=True))) for _ in range(10)),
            ]
        edge.random.shuffle(datagrams)
        edge.receive(*datagrams)
    for vehicle in others:
        assert len(vehicle.received_of(ReceivedDatagram)) == 40
        assert edge.broker.presence.last_reports.reports_of(edge.session(vehicle.name).number) == 6
    assert len(flood.received_of(ReceivedDatagram)) <= 250


@pytest.mark.parametrize(
    ("limit", "reason"),
    [
        (UdpSettings(prefix_per_s=10, prefix_burst=10), Reason.PREFIX_RATE_TOO_HIGH),
        (UdpSettings(total_per_s=10, total_burst=10), Reason.EDGE_RATE_TOO_HIGH),
    ],
)
def test_rates_per_prefix_and_per_edge_are_enforced(edge: UdpEdge, limit: UdpSettings, reason: Reason) -> None:
    limited = UdpEdge(is_sealed=edge.identity is not None, udp=limit)
    vehicle, far = limited.vehicle("a"), limited.vehicle("b", host="10.0.7.1")
    limited.pass_time(2)
    counts = limited.broker.counts
    vehicle.send(*(PublishDatagram(vehicle.message("t")) for _ in range(8)))
    limited.receive(*(vehicle.datagram_of(PublishDatagram(vehicle.message("t"))) for _ in range(8)), vehicle.report_datagram())
    assert (counts.refused, counts.accepted) == ({reason: 8}, 8)
    far.send(*(PublishDatagram(far.message("t")) for _ in range(8)))
    is_apart = reason is Reason.PREFIX_RATE_TOO_HIGH
    assert counts.accepted == (16 if is_apart else 8), "other prefixes have their own rate"
    limited.pass_time(1)
    vehicle.publish(vehicle.message("t"))
    assert counts.accepted == (17 if is_apart else 9), "the rate recovers"


def test_datagrams_over_a_prefix_s_rate_still_count_as_keepalive() -> None:
    edge = UdpEdge(udp=UdpSettings(prefix_per_s=1, prefix_burst=4))
    vehicle = edge.vehicle("a")
    for _ in range(8):
        edge.pass_time(0.5)
        edge.receive(*(vehicle.report_datagram() for _ in range(6)))
    assert len(edge.udp.session_table) == 1


def test_areas_outside_the_coverage_are_refused(edge: UdpEdge) -> None:
    # M15, M27
    edge.broker.presence.plausibility_rules = PlausibilityRules(Circle(HOME, 5_000.0), ReportLimits())
    vehicle = edge.vehicle("a")
    vehicle.publish(vehicle.message("t", to=ToArea(Circle(FAR, 5_000.0)), reliable=True))
    assert vehicle.refusals() == ["AREA_NOT_COVERED"]


def test_an_expired_message_is_not_delivered(edge: UdpEdge) -> None:
    vehicle, receiver = edge.vehicle("a"), edge.vehicle("b")
    receiver.subscribe("topic:t")
    message = vehicle.message("t", b"old", reliable=True, valid_s=1)
    edge.now = Instant(edge.now + 2 * SECOND_NS)
    vehicle.publish(message)
    assert receiver.bodies() == []
