"""One admission order for every protocol: MQTT 5, MQTT 3.1.1, UDP, wills and requests below `$milepost/`."""

from collections.abc import Callable
from dataclasses import dataclass, replace

import pytest

from edge_in_memory import OPEN, Client
from milepost.broker.admission import AdmissionRules
from milepost.broker.alert_rules import AlertRule
from milepost.broker.federation_port import FederationPort
from milepost.broker.presence import PlausibilityRules
from milepost.broker.publication import Publication
from milepost.config.settings import Settings
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.udp.settings import UdpSettings
from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import EventKind
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.model.session_datagrams import PublishDatagram
from milepost.runtime.admission_rules import read_rules
from milepost.vetting import Reputations
from milepost.vetting.access import AccessAction, AccessList, AccessRule, SystemTopics
from milepost.vetting.payloads import PayloadChecks, PayloadRule
from milepost.wire.json_form import to_json
from milepost.wire.mqtt import Acknowledge, Code, Connect, Properties, Version, Will
from udp_edge_in_memory import HOME, UdpEdge

KIND = EventKind("Pothole", "road/pothole", "witnesses >= 3", priority=Priority.TRAFFIC, valid_s=120.0)
FAR = Circle(Place(-33.87, 151.2), 100.0)
FAR_TEXT = "area:circle -33.87,151.2 100"
PUBLISHER = EndpointId("car-7")
SLOW = MqttLimits(messages_per_s=1, messages_burst=1)


class Recorder(FederationPort):
    """Records every accepted message."""

    def __init__(self) -> None:
        self.messages: list[Publication] = []

    def has_interest(self, topic: str) -> bool:
        return True

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        self.messages.append(publication)
        return None


@dataclass(frozen=True)
class Statement:
    """The values that a publisher states; the others have defaults."""

    topic: str = KIND.topic
    body: bytes = b"{}"
    priority: Priority | None = None
    valid_for_s: int | None = None
    is_far: bool = False
    """Addressed to an area outside the edge's coverage."""

    def properties(self) -> Properties:
        priority = () if self.priority is None else (("milepost-priority", self.priority.name.lower()),)
        address = (("milepost-to", FAR_TEXT),) if self.is_far else ()
        return Properties(user=(*priority, *address), message_expiry_s=self.valid_for_s)

    def message(self, now: Instant) -> Message:
        message = Message(MessageId(1), PUBLISHER, self.topic, now, body=self.body, reliable=True)
        if self.priority is not None:
            message = replace(message, priority=self.priority)
        if self.valid_for_s is not None:
            message = replace(message, valid_until=Instant(now + self.valid_for_s * SECOND_NS))
        return replace(message, address=ToArea(FAR)) if self.is_far else message


def publish_over_mqtt(edge: UdpEdge, statement: Statement) -> None:
    edge.connect(PUBLISHER).publish(statement.topic, statement.body, 1, properties=statement.properties())


def publish_over_udp(edge: UdpEdge, statement: Statement) -> None:
    edge.vehicle(PUBLISHER).send(PublishDatagram(statement.message(edge.now)))


def publish_by_request(edge: UdpEdge, statement: Statement) -> None:
    edge.connect(PUBLISHER).publish("$milepost/publish", to_json(statement.message(edge.now)), 1)


def publish_as_will(edge: UdpEdge, statement: Statement) -> None:
    edge.connect(PUBLISHER, will=Will(statement.topic, statement.body, 1, properties=statement.properties())).drop_connection()


WAYS_IN = (publish_over_mqtt, publish_over_udp, publish_by_request, publish_as_will)
WayIn = Callable[[UdpEdge, Statement], None]


def edge_with(rules: AdmissionRules | None = None, **options: object) -> UdpEdge:
    return UdpEdge(is_sealed=False, rules=rules or AdmissionRules(OPEN.access, kinds=(KIND,)), **options)  # type: ignore[arg-type]


def accepted_by(edge: UdpEdge, way_in: WayIn, statement: Statement) -> Publication:
    recorder = edge.broker.federation = Recorder()
    way_in(edge, statement)
    (publication,) = [one for one in recorder.messages if one.topic == statement.topic]
    return publication


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_m29_an_event_kind_gives_priority_and_validity(way_in: WayIn) -> None:
    publication = accepted_by(edge_with(), way_in, Statement())
    assert publication.priority is Priority.TRAFFIC
    assert publication.valid_until == publication.seen_at + 120 * SECOND_NS


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_m29_a_stated_priority_and_validity_are_preserved(way_in: WayIn) -> None:
    publication = accepted_by(edge_with(), way_in, Statement(priority=Priority.SAFETY, valid_for_s=30))
    assert publication.priority is Priority.SAFETY
    assert publication.valid_until == publication.seen_at + 30 * SECOND_NS


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_m29_a_priority_rule_comes_before_the_kind_and_other_topics_have_no_validity(way_in: WayIn) -> None:
    rules = AdmissionRules(kinds=(KIND,), priorities=((KIND.topic, Priority.EMERGENCY),))
    assert accepted_by(edge_with(rules), way_in, Statement()).priority is Priority.EMERGENCY
    other = accepted_by(edge_with(rules), way_in, Statement("chat"))
    assert (other.priority, other.valid_until) == (Priority.CONVENIENCE, FOREVER)


def test_m29_a_plain_qos_0_message_of_mqtt_311_gets_the_validity_of_its_kind() -> None:
    edge = edge_with()
    receiver, sender = edge.connect("r", expiry_s=1_000), edge.connect("s", Version.V3)
    receiver.subscribe(KIND.topic)
    for _ in range(2):  # the second one meets a cached route
        sender.publish(KIND.topic, b"{}")
    assert [message.properties.message_expiry_s for message in receiver.messages()] == [120, 120]


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_the_order_is_plausibility_then_access_then_payload(way_in: WayIn) -> None:
    """A message that breaks three rules is refused for the first; fixing one reveals the next."""
    denied = AccessRule(False, AccessAction.PUBLISH, KIND.topic)
    payloads = PayloadChecks((PayloadRule(KIND.topic, json=True),))
    both, payload_only = (
        AdmissionRules(AccessList((denied,)), payloads, kinds=(KIND,)),
        AdmissionRules(payloads=payloads, kinds=(KIND,)),
    )
    cases = (
        (both, Statement(body=b"{", is_far=True), Reason.AREA_NOT_COVERED),
        (both, Statement(body=b"{"), Reason.NOT_ALLOWED),
        (payload_only, Statement(body=b"{"), Reason.PAYLOAD_NOT_JSON),
    )
    for rules, statement, reason in cases:
        edge = edge_with(rules)
        edge.broker.configure(PlausibilityRules(Circle(HOME, 10_000.0)), ())
        way_in(edge, statement)
        assert edge.broker.counts.refused == {reason: 1}, (way_in, statement)
        assert edge.broker.counts.accepted == 0


def slow_edge(rules: AdmissionRules, *, burst: int) -> UdpEdge:
    """An edge that lets every session send *burst* messages, then one a second."""
    edge = edge_with(rules, udp=UdpSettings(messages_per_s=1, messages_burst=burst), settings=MqttSettings(limits=SLOW))
    edge.context.rates = edge.context.rates._replace(messages_burst=burst)
    return edge


@pytest.mark.parametrize("way_in", [publish_over_mqtt, publish_over_udp, publish_by_request])
def test_the_rate_comes_first(way_in: WayIn) -> None:
    """Once a session is over its rate, a message is refused for that, not for the access it lacks."""
    edge = slow_edge(AdmissionRules(AccessList((AccessRule(False, AccessAction.PUBLISH, KIND.topic),)), kinds=(KIND,)), burst=1)
    if way_in is publish_over_udp:
        vehicle = edge.vehicle(PUBLISHER)
        for number in (1, 2, 3):
            vehicle.send(PublishDatagram(replace(Statement().message(edge.now), id=MessageId(number))))
    else:
        client, is_request = edge.connect(PUBLISHER), way_in is publish_by_request
        for _ in range(3):
            body = to_json(Statement().message(edge.now)) if is_request else b"{}"
            client.publish("$milepost/publish" if is_request else KIND.topic, body, 1)
    refused = edge.broker.counts.refused
    assert refused[Reason.RATE_TOO_HIGH] >= 1
    assert refused == {Reason.RATE_TOO_HIGH: refused[Reason.RATE_TOO_HIGH], Reason.NOT_ALLOWED: 3 - refused[Reason.RATE_TOO_HIGH]}


def refused_for_rate(edge: UdpEdge, name: str, *, is_udp: bool) -> int:
    """Publish 60 messages; return how many were refused for their rate."""
    before = edge.broker.counts.refused[Reason.RATE_TOO_HIGH]
    if is_udp:
        vehicle = edge.vehicle(name)
        for _ in range(60):
            vehicle.publish(vehicle.message("chat", reliable=True))
    else:
        client = edge.connect(name)
        for _ in range(60):
            client.publish("chat", b"", 1, properties=Properties(content_type="text/plain"))
    return edge.broker.counts.refused[Reason.RATE_TOO_HIGH] - before


@pytest.mark.parametrize("is_udp", [True, False])
def test_m27_a_low_reputation_lowers_the_rate_over_udp_and_over_mqtt(is_udp: bool) -> None:
    edge = slow_edge(AdmissionRules(), burst=100)
    edge.broker.use_reputations(Reputations({EndpointId("doubted"): 0.1}))
    assert refused_for_rate(edge, "trusted", is_udp=is_udp) == 0
    assert refused_for_rate(edge, "doubted", is_udp=is_udp) > 30


def test_a_will_is_charged_as_a_message_at_connect() -> None:
    edge = slow_edge(AdmissionRules(), burst=1)
    client = edge.connect("c", will=Will("t", b"gone"))
    for _ in range(2):
        client.publish("chat", b"", 1)
    assert edge.broker.counts.refused == {Reason.RATE_TOO_HIGH: 1}, "the will took the one message of the burst"


def test_m27_a_will_is_checked_for_plausibility_when_it_is_published() -> None:
    edge = edge_with()
    client = edge.connect("c", will=Will("t", b"gone", properties=Statement(is_far=True).properties()))
    assert client.connack is not None
    assert client.connack.code is Code.SUCCESS
    edge.broker.configure(PlausibilityRules(Circle(HOME, 10_000.0)), ())  # the coverage is read again
    client.drop_connection()
    assert edge.broker.counts.refused == {Reason.AREA_NOT_COVERED: 1}
    assert edge.broker.counts.accepted == 0


def edge_with_a_will_of_ada() -> UdpEdge:
    """Only the user ada may publish on t; her client connected, left a will there, and the edge was killed."""
    edge = edge_with(
        AdmissionRules(
            AccessList((AccessRule(True, AccessAction.PUBLISH, "t", user="ada"), AccessRule(False, AccessAction.PUBLISH, "t")))
        )
    )
    edge.connect("w", expiry_s=1_000).subscribe("t", qos=1)
    client = edge.open_connection()
    client.stream.user = "ada"
    will = Will("t", b"gone", 1, properties=Properties(will_delay_s=5))
    client.send(Connect("c", Version.V5, True, 0, will, properties=Properties(session_expiry_s=100)))
    edge.run_ticks()
    return edge


def test_a_will_is_published_with_the_rights_of_its_user_also_after_a_restart() -> None:
    later = edge_with_a_will_of_ada().restarted(after_s=1)
    later.pass_time(10)
    assert later.connect("w", clean=False, expiry_s=1_000).bodies() == [b"gone"]


def test_a_will_is_refused_when_the_rules_changed_since_connect() -> None:
    later = edge_with_a_will_of_ada().restarted(after_s=1)
    later.broker.use_rules(AdmissionRules(AccessList((AccessRule(False, AccessAction.PUBLISH, "t"),))))
    later.pass_time(10)
    assert later.broker.counts.refused == {Reason.NOT_ALLOWED: 1}
    assert later.connect("w", clean=False, expiry_s=1_000).bodies() == []


@pytest.mark.parametrize("way_in", WAYS_IN)
def test_every_message_has_an_id_that_its_source_uses_once(way_in: WayIn) -> None:
    edge = edge_with()
    recorder = edge.broker.federation = Recorder()
    for _ in range(3):
        way_in(edge, Statement(body=b"%d" % edge.now))
        edge.pass_time(1.0)
    ids = [publication.id for publication in recorder.messages if publication.topic == KIND.topic]
    assert len(ids) == 3
    assert all(ids)
    if way_in in (publish_over_mqtt, publish_as_will):  # the others choose their own ids, and chose the same one
        assert len(set(ids)) == 3


@pytest.mark.parametrize("qos", [1, 2])
def test_a_publisher_that_requests_it_receives_the_id_of_its_message(qos: int) -> None:
    edge = edge_with()
    recorder = edge.broker.federation = Recorder()
    client = edge.connect("c", properties=Properties(request_response_information=True))
    client.publish("chat", b"hello", qos)
    (answer,) = [packet for packet in client.take() if isinstance(packet, Acknowledge)]
    assert answer.properties.user == (("milepost-id", str(recorder.messages[-1].id)),)
    silent = edge.connect("d")
    silent.publish("chat", b"hello", qos)
    (answer,) = [packet for packet in silent.take() if isinstance(packet, Acknowledge)]
    assert answer.properties.user == ()


def test_a_publisher_may_choose_the_id_and_receivers_see_it() -> None:
    edge = edge_with()
    receiver, sender = edge.connect("r"), edge.connect("s")
    receiver.subscribe("chat")
    sender.publish("chat", b"x", 1, properties=Properties(user=(("milepost-id", "4711"),)))
    (message,) = receiver.messages()
    assert ("milepost-id", "4711") in message.properties.user
    (answer,) = [packet for packet in sender.take() if isinstance(packet, Acknowledge)]
    assert answer.properties.user == (("milepost-id", "4711"),)


@pytest.mark.parametrize("text", ["0", "-1", "18446744073709551616", "seven", ""])
def test_an_invalid_message_id_is_refused(text: str) -> None:
    edge = edge_with()
    edge.connect("s").publish("chat", b"x", 1, properties=Properties(user=(("milepost-id", text),)))
    assert edge.broker.counts.refused == {Reason.FIELD_RANGE: 1}


@pytest.mark.parametrize("name", ["0", "00", "-1", "all"])
def test_t6_an_unpublish_without_a_valid_message_id_is_refused(name: str) -> None:
    edge = edge_with()
    vehicle = edge.vehicle("v")
    vehicle.publish(vehicle.message("Unpublish", fields={"id": name}, reliable=True))
    assert edge.broker.counts.refused == {Reason.FIELD_RANGE: 1}
    assert edge.broker.counts.accepted == 0


class FullOutbox(FederationPort):
    """Has no room for alerts."""

    def has_interest(self, topic: str) -> bool:
        return True

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        return Refused(Reason.SPOOL_FULL) if publication.topic == "Alert" else None


def test_m22_an_alert_that_cannot_leave_the_edge_is_counted_and_reaches_endpoints_here() -> None:
    edge = edge_with()
    edge.broker.configure(PlausibilityRules(), (AlertRule("Emergency"),))
    edge.broker.federation = FullOutbox()
    near, reporter = edge.vehicle("near"), edge.vehicle("reporter")
    reporter.publish(reporter.message("Emergency", b"brakes", reliable=True))
    assert b"brakes" in near.bodies()
    assert edge.broker.counts.refused == {Reason.SPOOL_FULL: 1}


def stock_edge() -> UdpEdge:
    """An edge with the rules of stock settings: anonymous clients over MQTT, proven ones by a common name."""
    return edge_with(read_rules(Settings()))


def connected(edge: UdpEdge, name: str, user: str | None = None, will: Will | None = None) -> Client:
    client = edge.open_connection()
    client.stream.user = user
    client.send(Connect(name, Version.V5, True, 0, will))
    edge.run_ticks()
    client.take()
    return client


def codes(client: Client) -> list[Code]:
    return [packet.code for packet in client.take() if isinstance(packet, Acknowledge)]


def test_a_right_that_needs_proof_is_decided_for_each_session_on_a_shared_route() -> None:
    edge = stock_edge()
    edge.connect("r").subscribe("Emergency")
    stranger, ada = connected(edge, "s"), connected(edge, "a", "ada")
    assert edge.session("s").routes is edge.session("a").routes
    for _ in range(2):
        for client in (ada, stranger):
            client.publish("Emergency", b"", 1)
    assert codes(stranger) == [Code.NOT_AUTHORIZED] * 2
    assert codes(ada) == [Code.SUCCESS] * 2
    assert edge.broker.counts.refused == {Reason.IDENTITY_NOT_PROVEN: 2}


@pytest.mark.parametrize(
    ("topic", "is_fast"), [("chat", True), ("Emergency", False), ("Alert", False), ("brief", False), ("near", False)]
)
def test_the_fast_path_takes_only_topics_without_conditions(topic: str, is_fast: bool) -> None:
    limited = [
        AccessRule(True, AccessAction.PUBLISH, "brief", valid_s=10.0),
        AccessRule(True, AccessAction.PUBLISH, "near", within_m=10.0),
    ]
    edge = edge_with(AdmissionRules(AccessList(limited, SystemTopics(("Alert/#",), ("Emergency",)))))
    edge.connect("r").subscribe("#")
    connected(edge, "s")
    assert (edge.broker.route(edge.session("s"), topic, edge.now).receivers is not None) is is_fast


def test_a_plain_message_keeps_the_validity_of_its_rule() -> None:
    edge = edge_with(AdmissionRules(AccessList([AccessRule(True, AccessAction.PUBLISH, "brief", valid_s=10.0)])))
    client = connected(edge, "s")
    client.publish("brief", b"", 1)
    client.publish("brief", b"", 1, properties=Properties(message_expiry_s=10))
    assert codes(client) == [Code.NOT_AUTHORIZED, Code.NO_MATCHING_SUBSCRIBERS]
    assert edge.broker.counts.refused == {Reason.VALIDITY_TOO_LONG: 1}


@pytest.mark.parametrize(("user", "reason"), [(None, Reason.IDENTITY_NOT_PROVEN), ("ada", Reason.VALIDITY_TOO_LONG)])
def test_a_will_to_an_area_needs_the_rights_of_its_client_at_connect(user: str | None, reason: Reason) -> None:
    edge = stock_edge()
    near = Properties(user=(("milepost-to", "area:circle 40,-111 500"),))
    client = edge.open_connection()
    client.stream.user = user
    client.send(Connect("c", Version.V5, True, 0, Will("t", b"gone", properties=near)))
    edge.run_ticks()
    client.take()
    answer = client.connack
    assert answer is not None
    assert answer.code is Code.NOT_AUTHORIZED
    assert answer.properties.reason_string is not None
    assert reason.name in answer.properties.reason_string
