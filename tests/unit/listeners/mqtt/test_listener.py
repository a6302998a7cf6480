"""The door: connecting, rates, rules, handshakes, and what the words of Milepost do in MQTT packets."""

import pytest

from edge_in_memory import EdgeInMemory
from milepost.broker.admission import Rules
from milepost.listeners.event_loop import READABLE
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt.connect import admit, deny
from milepost.listeners.mqtt.connection import MqttConnection, State
from milepost.listeners.mqtt.context import MqttSettings
from milepost.listeners.mqtt.listener import MqttListener
from milepost.model.priorities import Priority
from milepost.model.reasons import Reason, Refused
from milepost.vetting.access import Access, Rule, Verbs
from milepost.vetting.payloads import PayloadRule, Payloads
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connect,
    Kind,
    Ping,
    Pong,
    Properties,
    Publish,
    Request,
    Suback,
    Subscribe,
    Version,
    Will,
)


def words(**said: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in said.items()))


def test_when_too_many_have_not_said_who_they_are_the_oldest_goes() -> None:
    edge = EdgeInMemory(settings=MqttSettings(limits=MqttLimits(handshakes_max=2)))
    here = edge.connect("here")
    first, second, third = (edge.enter() for _ in range(3))
    assert [one.stream.is_closed for one in (here, first, second, third)] == [False, True, False, False]
    assert edge.broker.counts.refused == {Reason.HANDSHAKES_FULL: 1}
    second.send(Connect("second", Version.V5))
    edge.settle()
    edge.enter()
    assert not third.stream.is_closed, "who said so does not count any more"


def test_over_its_rate_a_client_is_refused_and_later_heard_again() -> None:
    limits = MqttLimits(messages_per_s=10, messages_burst=10)
    edge = EdgeInMemory(settings=MqttSettings(limits=limits))
    taker, sender = edge.connect("t"), edge.connect("s")
    taker.subscribe("t")
    sender.send(*[Publish("t", b"%d" % number) for number in range(12)])
    sender.send(Publish("t", b"last"))
    sender.send(Publish("t", b"over"))
    edge.settle()
    assert len(taker.bodies()) == 13, "what came before it was looked at is let in, and owed"
    sender.publish("t", b"over", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.code is Code.QUOTA_EXCEEDED
    assert edge.broker.counts.refused == {Reason.RATE_TOO_HIGH: 2}
    assert taker.bodies() == []
    edge.pass_time(5)
    sender.publish("t", b"first")
    sender.publish("t", b"second")
    assert b"second" in taker.bodies()


def test_subscriptions_have_a_rate_of_their_own() -> None:
    edge = EdgeInMemory(settings=MqttSettings(limits=MqttLimits(subscribes_per_s=1, subscribes_burst=2)))
    client = edge.connect("a")
    assert client.subscribe("1", "2", "3").codes == (Code.SUCCESS, Code.SUCCESS, Code.QUOTA_EXCEEDED)
    edge.pass_time(1)
    assert client.subscribe("3").codes == (Code.SUCCESS,)


def test_other_rules_hold_from_the_moment_they_are_read_for_those_who_are_here() -> None:
    edge = EdgeInMemory()
    taker, sender = edge.connect("t"), edge.connect("s")
    taker.subscribe("t")
    for body in (b"1", b"2"):
        sender.publish("t", body)
    edge.broker.use(Rules(Access([Rule(False, Verbs.PUBLISH, "t"), Rule(False, Verbs.SUBSCRIBE, "u")])))
    sender.publish("t", b"3")
    assert taker.bodies() == [b"1", b"2"]
    assert edge.broker.counts.refused == {Reason.NOT_ALLOWED: 1}
    assert taker.subscribe("u").codes == (Code.NOT_AUTHORIZED,)
    edge.broker.use(Rules())
    sender.publish("t", b"4")
    assert taker.bodies() == [b"4"]


def test_rules_that_name_clients_tell_them_apart_on_the_short_way_too() -> None:
    edge = EdgeInMemory(rules=Rules(Access([Rule(False, Verbs.PUBLISH, "t", client="bad")])))
    taker, good, bad = (edge.connect(name) for name in ("t", "good", "bad"))
    taker.subscribe("t")
    for _ in range(2):
        for client in (good, bad):
            client.publish("t", client.link.who.client.encode() if client.link.who else b"")
    assert taker.bodies() == [b"good", b"good"]


def test_a_rule_says_how_urgent_a_topic_is_and_the_sender_may_say_otherwise() -> None:
    edge = EdgeInMemory(rules=Rules(priorities=(("a/#", Priority.SAFETY), ("#", Priority.TRAFFIC))))
    taker, sender = edge.connect("t", expiry_s=10), edge.connect("s")
    taker.subscribe("#", qos=1)
    sender.publish("a/b", b"", 1)
    sender.publish("b", b"", 1)
    sender.publish("b", b"", 1, properties=words(priority="emergency"))
    sender.publish("a", b"", 1, properties=words(tag="ice"))
    found = [one.publication.priority for one in edge.session("t").in_flight.values()]
    assert found == [Priority.SAFETY, Priority.TRAFFIC, Priority.EMERGENCY, Priority.SAFETY]


def test_a_rule_says_what_a_payload_must_be_but_a_removal_needs_none() -> None:
    edge = EdgeInMemory(rules=Rules(payloads=Payloads([PayloadRule("t", json=True)])))
    taker, sender = edge.connect("t"), edge.connect("s")
    taker.subscribe("t")
    for body in (b"{}", b"no", b"[]", b"no"):
        sender.publish("t", body, retain=True)
    sender.publish("t", b"no", 1)
    (answer,) = sender.take()
    assert isinstance(answer, Acknowledge)
    assert answer.code is Code.PAYLOAD_FORMAT_INVALID
    sender.publish("t", b"", retain=True)
    assert taker.bodies() == [b"{}", b"[]", b""]
    assert edge.broker.counts.refused == {Reason.PAYLOAD_NOT_JSON: 3}
    assert len(edge.broker.retained) == 0


def test_a_client_of_the_older_version_that_is_refused_is_disconnected() -> None:
    edge = EdgeInMemory(rules=Rules(Access([Rule(False, Verbs.PUBLISH, "t")])))
    client = edge.connect("a", Version.V3)
    client.publish("t", b"x")
    assert client.is_open, "quality 0 has no answer"
    client.publish("t", b"x", 1)
    assert not client.is_open


def test_more_than_may_be_open_ends_the_connection() -> None:
    edge = EdgeInMemory(settings=MqttSettings(receive_max=2))
    for qos in (1, 2):
        client = edge.connect(f"c{qos}")
        client.send(*[Publish("t", b"", qos, number=number) for number in (1, 2)])
        edge.settle()
        assert client.is_open
        if qos == 1:
            client.send(*[Publish("t", b"", qos, number=number) for number in (1, 2, 3)])
        else:
            client.send(Publish("t", b"", qos, number=3))
        edge.settle()
        assert client.ended_with() is Code.RECEIVE_MAXIMUM_EXCEEDED


def test_a_will_that_would_be_refused_is_refused_at_once() -> None:
    access = Access([Rule(False, Verbs.PUBLISH, "t"), Rule(True, Verbs.PUBLISH, "near", within_m=100.0)])
    edge = EdgeInMemory(rules=Rules(access, Payloads([PayloadRule("json", json=True)])))
    for will in (
        Will("near", b"", properties=words(place="50,8")),
        Will("t", b""),
        Will("$milepost/report", b"{}"),
        Will("json", b"no"),
        Will("a", b"", properties=words(place="x")),
    ):
        client = edge.connect("a", will=will)
        assert client.connack is not None
        assert client.connack.code >= Code.UNSPECIFIED_ERROR
        assert not client.is_open
    assert len(edge.broker.sessions) == 0


@pytest.mark.parametrize("is_right", [True, False])
def test_what_a_client_sends_while_its_password_is_checked_is_heard_if_the_password_is_right(is_right: bool) -> None:
    asked: list[tuple[MqttConnection, Connect]] = []

    def check(door: MqttListener, link: MqttConnection, packet: Connect, user: str, password: bytes) -> None:
        assert (user, password) == ("ann", b"secret")
        asked.append((link, packet))

    edge = EdgeInMemory(rules=Rules(needs_password=True), check_password=check)
    client = edge.enter()
    client.send(Connect("a", Version.V5, username="ann", password=b"secret"), Ping())
    client.send(Subscribe(1, (Request("t"),)))
    edge.settle()
    assert client.take() == []
    ((link, packet),) = asked

    def decide() -> None:
        if is_right:
            admit(edge.context, link, packet, "ann", edge.now)
        else:
            deny(edge.context, link, Refused(Reason.BAD_CREDENTIALS))

    edge.door.decide(link, decide, edge.now)
    edge.settle()
    assert client.take() == ([Pong(), Suback(1, (Code.SUCCESS,))] if is_right else [])
    assert client.connack is not None
    assert client.connack.code is (Code.SUCCESS if is_right else Code.BAD_USER_NAME_OR_PASSWORD)
    edge.door.decide(link, decide, edge.now)
    assert len(edge.broker.sessions) == is_right, "a second decision means nothing"


def test_an_unknown_word_of_ours_is_refused_where_it_stands() -> None:
    edge = EdgeInMemory()
    client = edge.connect("a")
    client.publish("t", b"", 1, properties=words(tagg="ice"))
    (answer,) = client.take()
    assert isinstance(answer, Acknowledge)
    assert answer.kind is Kind.PUBACK
    assert answer.code >= Code.UNSPECIFIED_ERROR
    assert "milepost-tag" in (answer.properties.reason_string or "")
    assert client.subscribe("t", properties=words(areaa="x")).codes[0] >= Code.UNSPECIFIED_ERROR
    assert edge.connect("b", properties=words(place="1,1")).is_open is False


def test_everybody_is_told_when_the_edge_stops() -> None:
    edge = EdgeInMemory()
    client, nobody = edge.connect("a", expiry_s=10), edge.enter()
    edge.door.shut()
    edge.settle()
    assert client.ended_with() is Code.SERVER_SHUTTING_DOWN
    assert nobody.link.state is State.CLOSING
    edge.settle()
    assert set(edge.kept.load().sessions) == {0}


def test_a_client_is_not_read_while_its_password_is_checked() -> None:
    edge = EdgeInMemory(rules=Rules(needs_password=True), check_password=lambda *_: None)
    client = edge.enter()
    assert client.link.mask & READABLE
    client.send(Connect("a", Version.V5, username="ann", password=b"secret"))
    assert not client.link.mask & READABLE
    edge.door.decide(
        client.link, lambda: admit(edge.door.context, client.link, Connect("a", Version.V5), "ann", edge.now), edge.now
    )
    assert client.link.mask & READABLE


def test_who_may_no_longer_have_what_it_subscribed_to_does_not_get_it() -> None:
    edge = EdgeInMemory()
    taker = edge.connect("t")
    taker.subscribe("t")
    edge.broker.use(Rules(Access([Rule(False, Verbs.SUBSCRIBE, "t")])))
    edge.connect("s").publish("t", b"secret")
    assert taker.bodies() == []
