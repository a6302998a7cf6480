"""The MQTT listener: handshakes, rates, access rules, and Milepost's user properties in MQTT packets."""

import pytest

from edge_in_memory import EdgeInMemory
from milepost.broker.admission import AdmissionRules
from milepost.listeners.event_loop import READABLE
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.connect import admit, deny
from milepost.listeners.mqtt.connection import MqttConnection, MqttConnectionState
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.endpoints import EndpointId
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.vetting.access import AccessAction, AccessList, AccessRule, ClientIdentity
from milepost.vetting.payloads import PayloadChecks, PayloadRule
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connect,
    FilterRequest,
    PacketType,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Subscribe,
    Version,
    Will,
)


def milepost_properties(**values: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in values.items()))


def test_too_many_unfinished_handshakes_drop_the_oldest() -> None:
    edge = EdgeInMemory(settings=MqttSettings(limits=MqttLimits(handshakes_max=2)))
    connected = edge.connect("here")
    first, second, third = (edge.open_connection() for _ in range(3))
    assert [one.stream.is_closed for one in (connected, first, second, third)] == [False, True, False, False]
    assert edge.broker.counts.refused == {Reason.HANDSHAKES_FULL: 1}
    second.send(Connect("second", Version.V5))
    edge.run_ticks()
    edge.open_connection()
    assert not third.stream.is_closed, "finished handshakes do not count"


def test_a_client_over_its_rate_is_refused_until_it_slows_down() -> None:
    limits = MqttLimits(messages_per_s=10, messages_burst=10)
    edge = EdgeInMemory(settings=MqttSettings(limits=limits))
    receiver, sender = edge.connect("t"), edge.connect("s")
    receiver.subscribe("t")
    sender.send(*[Publish("t", b"%d" % number) for number in range(12)])
    sender.send(Publish("t", b"last"))
    sender.send(Publish("t", b"over"))
    edge.run_ticks()
    assert len(receiver.bodies()) == 13, "messages before the rate check are accepted and charged later"
    sender.publish("t", b"over", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.code is Code.QUOTA_EXCEEDED
    assert edge.broker.counts.refused == {Reason.RATE_TOO_HIGH: 2}
    assert receiver.bodies() == []
    edge.pass_time(5)
    sender.publish("t", b"first")
    sender.publish("t", b"second")
    assert b"second" in receiver.bodies()


def test_subscriptions_have_a_rate_of_their_own() -> None:
    edge = EdgeInMemory(settings=MqttSettings(limits=MqttLimits(subscribes_per_s=1, subscribes_burst=2)))
    client = edge.connect("a")
    assert client.subscribe("1", "2", "3").codes == (Code.SUCCESS, Code.SUCCESS, Code.QUOTA_EXCEEDED)
    edge.pass_time(1)
    assert client.subscribe("3").codes == (Code.SUCCESS,)


def test_reloaded_rules_apply_to_connected_clients_at_once() -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("t"), edge.connect("s")
    receiver.subscribe("t")
    for body in (b"1", b"2"):
        sender.publish("t", body)
    edge.broker.use_rules(
        AdmissionRules(AccessList([AccessRule(False, AccessAction.PUBLISH, "t"), AccessRule(False, AccessAction.SUBSCRIBE, "u")]))
    )
    sender.publish("t", b"3")
    assert receiver.bodies() == [b"1", b"2"]
    assert edge.broker.counts.refused == {Reason.NOT_ALLOWED: 1}
    assert receiver.subscribe("u").codes == (Code.NOT_AUTHORIZED,)
    edge.broker.use_rules(AdmissionRules())
    sender.publish("t", b"4")
    assert receiver.bodies() == [b"4"]


def test_a_refused_subscription_is_logged_with_its_detail(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = EdgeInMemory(rules=AdmissionRules(AccessList([AccessRule(False, AccessAction.SUBSCRIBE, "u/#")])))
    lines: list[dict[str, object]] = []
    monkeypatch.setattr(edge.log, "info_limited", lambda event, **fields: lines.append({"event": event, **fields}))
    edge.connect("t").subscribe("u/1")
    (line,) = [line for line in lines if line["event"] == "subscription refused"]
    assert (line["client"], line["filter"], line["reason"]) == ("t", "u/1", "NOT_ALLOWED")
    assert "deny subscribe u/#" in str(line["detail"])


def test_the_fast_path_applies_rules_that_name_clients() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(AccessList([AccessRule(False, AccessAction.PUBLISH, "t", client="bad")])))
    receiver, good, bad = (edge.connect(name) for name in ("t", "good", "bad"))
    receiver.subscribe("t")
    for _ in range(2):
        for client in (good, bad):
            client.publish("t", client.connection.identity.client_id.encode() if client.connection.identity else b"")
    assert receiver.bodies() == [b"good", b"good"]


def test_a_rule_sets_the_priority_of_a_topic_and_the_publisher_may_override_it() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(priorities=(("a/#", Priority.TRAFFIC), ("#", Priority.CONVENIENCE))))
    receiver, sender = edge.connect("t", expiry_s=10), edge.connect("s")
    receiver.subscribe("#", qos=1)
    sender.publish("a/b", b"", 1)
    sender.publish("b", b"", 1)
    sender.publish("b", b"", 1, properties=milepost_properties(priority="safety"))
    sender.publish("a", b"", 1, properties=milepost_properties(tag="ice"))
    sender.publish("b", b"", 1, properties=milepost_properties(priority="emergency"))
    found = [one.publication.priority for one in edge.session("t").in_flight.values()]
    assert found == [Priority.TRAFFIC, Priority.CONVENIENCE, Priority.SAFETY, Priority.TRAFFIC]
    assert edge.broker.counts.refused == {Reason.PRIORITY_TOO_HIGH: 1}


def test_a_payload_rule_refuses_invalid_payloads_but_not_the_removal_of_a_retained_message() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(payloads=PayloadChecks([PayloadRule("t", json=True)])))
    receiver, sender = edge.connect("t"), edge.connect("s")
    receiver.subscribe("t")
    for body in (b"{}", b"no", b"[]", b"no"):
        sender.publish("t", body, retain=True)
    sender.publish("t", b"no", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.code is Code.PAYLOAD_FORMAT_INVALID
    sender.publish("t", b"", retain=True)
    assert receiver.bodies() == [b"{}", b"[]", b""]
    assert edge.broker.counts.refused == {Reason.PAYLOAD_NOT_JSON: 3}
    assert len(edge.broker.retained) == 0


def test_a_3_1_1_client_whose_message_is_refused_is_disconnected() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(AccessList([AccessRule(False, AccessAction.PUBLISH, "t")])))
    client = edge.connect("a", Version.V3)
    client.publish("t", b"x")
    assert client.is_open, "QoS 0 has no acknowledgement"
    client.publish("t", b"x", 1)
    assert not client.is_open


def test_exceeding_the_receive_maximum_closes_the_connection() -> None:
    edge = EdgeInMemory(settings=MqttSettings(receive_max=2))
    for qos in (1, 2):
        client = edge.connect(f"c{qos}")
        client.send(*[Publish("t", b"", qos, packet_id=number) for number in (1, 2)])
        edge.run_ticks()
        assert client.is_open
        if qos == 1:
            client.send(*[Publish("t", b"", qos, packet_id=number) for number in (1, 2, 3)])
        else:
            client.send(Publish("t", b"", qos, packet_id=3))
        edge.run_ticks()
        assert client.ended_with() is Code.RECEIVE_MAXIMUM_EXCEEDED


def test_a_will_that_would_be_refused_is_refused_at_once() -> None:
    access = AccessList(
        [AccessRule(False, AccessAction.PUBLISH, "t"), AccessRule(True, AccessAction.PUBLISH, "near", within_m=100.0)]
    )
    edge = EdgeInMemory(rules=AdmissionRules(access, PayloadChecks([PayloadRule("json", json=True)])))
    for will in (
        Will("near", b"", properties=milepost_properties(place="50,8")),
        Will("t", b""),
        Will("$milepost/report", b"{}"),
        Will("json", b"no"),
        Will("a", b"", properties=milepost_properties(place="x")),
    ):
        client = edge.connect("a", will=will)
        assert client.connack is not None
        assert client.connack.code >= Code.UNSPECIFIED_ERROR
        assert not client.is_open
    assert len(edge.broker.sessions) == 0


@pytest.mark.parametrize("is_right", [True, False])
def test_packets_sent_during_the_password_check_are_handled_if_the_password_is_right(is_right: bool) -> None:
    started: list[tuple[MqttConnection, Connect]] = []

    def check(listener: MqttListener, connection: MqttConnection, packet: Connect, user: str, password: bytes) -> None:
        assert (user, password) == ("ann", b"secret")
        started.append((connection, packet))

    edge = EdgeInMemory(rules=AdmissionRules(needs_password=True), check_password=check)
    client = edge.open_connection()
    client.send(Connect("a", Version.V5, username="ann", password=b"secret"), Ping())
    client.send(Subscribe(1, (FilterRequest("t"),)))
    edge.run_ticks()
    assert client.take() == []
    ((connection, packet),) = started

    def decide() -> None:
        if is_right:
            admit(edge.context, connection, packet, "ann", edge.now)
        else:
            deny(edge.context, connection, Refused(Reason.BAD_CREDENTIALS))

    edge.listener.decide(connection, decide, edge.now)
    edge.run_ticks()
    assert client.take() == ([Pong(), Suback(1, (Code.SUCCESS,))] if is_right else [])
    assert client.connack is not None
    assert client.connack.code is (Code.SUCCESS if is_right else Code.BAD_USER_NAME_OR_PASSWORD)
    edge.listener.decide(connection, decide, edge.now)
    assert len(edge.broker.sessions) == is_right, "a second decision is ignored"


def test_without_a_user_name_a_client_is_admitted_only_if_anonymous_clients_are() -> None:
    strict = EdgeInMemory(rules=AdmissionRules(needs_password=True), check_password=lambda *_: None)
    mixed = EdgeInMemory(rules=AdmissionRules(needs_password=True, allows_anonymous=True), check_password=lambda *_: None)
    assert not strict.connect("a").is_open
    client = mixed.connect("a")
    assert client.is_open
    assert client.connection.identity == ClientIdentity("a")
    named = mixed.open_connection()
    named.send(Connect("b", Version.V5, username="ann", password=b"wrong"))
    mixed.run_ticks()
    assert named.connection.state is MqttConnectionState.CHECKING


def test_an_unknown_milepost_property_is_refused_by_name() -> None:
    edge = EdgeInMemory()
    client = edge.connect("a")
    client.publish("t", b"", 1, properties=milepost_properties(tagg="ice"))
    (answer,) = client.take()
    assert isinstance(answer, Acknowledge)
    assert answer.kind is PacketType.PUBACK
    assert answer.code >= Code.UNSPECIFIED_ERROR
    assert "milepost-tag" in (answer.properties.reason_string or "")
    assert client.subscribe("t", properties=milepost_properties(areaa="x")).codes[0] >= Code.UNSPECIFIED_ERROR
    assert edge.connect("b", properties=milepost_properties(place="1,1")).is_open is False


def test_every_client_is_disconnected_with_a_reason_when_the_edge_stops() -> None:
    edge = EdgeInMemory()
    client, nobody = edge.connect("a", expiry_s=10), edge.open_connection()
    edge.listener.shut_down()
    edge.run_ticks()
    assert client.ended_with() is Code.SERVER_SHUTTING_DOWN
    assert nobody.connection.state is MqttConnectionState.CLOSING
    edge.run_ticks()
    assert set(edge.stored.load().sessions) == {0}


def test_a_client_is_not_read_while_its_password_is_checked() -> None:
    edge = EdgeInMemory(rules=AdmissionRules(needs_password=True), check_password=lambda *_: None)
    client = edge.open_connection()
    assert client.connection.mask & READABLE
    client.send(Connect("a", Version.V5, username="ann", password=b"secret"))
    assert not client.connection.mask & READABLE
    edge.listener.decide(
        client.connection,
        lambda: admit(edge.listener.context, client.connection, Connect("a", Version.V5), "ann", edge.now),
        edge.now,
    )
    assert client.connection.mask & READABLE


def test_a_subscription_revoked_by_new_rules_receives_nothing() -> None:
    edge = EdgeInMemory()
    receiver = edge.connect("t")
    receiver.subscribe("t")
    edge.broker.use_rules(AdmissionRules(AccessList([AccessRule(False, AccessAction.SUBSCRIBE, "t")])))
    edge.connect("s").publish("t", b"secret")
    assert receiver.bodies() == []


def test_clients_of_removed_users_that_wait_for_their_session_are_denied(monkeypatch: pytest.MonkeyPatch) -> None:
    edge = EdgeInMemory()
    monkeypatch.setattr(edge.broker, "arrive", lambda *_, **__: False)
    waiting = {name: edge.open_connection() for name in ("ada", "bob")}
    for name, client in waiting.items():
        client.stream.user = name
        client.send(Connect(name, Version.V5))
    edge.listener.deny_waiting({"ada"}, edge.now)
    edge.run_ticks()
    for client in waiting.values():
        client.read_packets()
    assert waiting["ada"].connack is not None
    assert waiting["ada"].connack.code is Code.BAD_USER_NAME_OR_PASSWORD
    assert waiting["bob"].connack is None
    edge.listener.welcome(EndpointId("ada"), None, edge.now)
    assert edge.broker.sessions.find("ada") is None
