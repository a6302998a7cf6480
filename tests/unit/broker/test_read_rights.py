"""Read rights: a message reaches only sessions that may read its topic, now; new rules take effect on everything at once."""

import pytest

from edge_in_memory import START, Client, EdgeInMemory
from milepost.broker import read_rights
from milepost.broker.admission import AdmissionRules
from milepost.broker.read_rights import ReadRights, RevokedRights
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.vetting import AccessAction, AccessList, AccessRule
from milepost.wire.mqtt import Acknowledge, Code, PacketType, Properties, Publish, Will
from milepost.wire.times import instant_to_text

HERE, AREA = "40.0,-111.0", "area:circle 40.0,-111.0 1000"
HOUR_LATER = instant_to_text(Instant(START + 3_600 * SECOND_NS))


def properties(**values: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in values.items()))


def rules(*denied: str, client: str | None = None) -> AdmissionRules:
    """Deny filters to all clients, or to one, which may all send what they like."""
    denials = [AccessRule(False, AccessAction.SUBSCRIBE, one, client=client) for one in denied]
    return AdmissionRules(AccessList([AccessRule(True, AccessAction.SEND, "#"), *denials]))


def receive_all(client: Client) -> list[bytes]:
    """Return the bodies of all messages, and acknowledge them."""
    found = client.messages()
    for message in found:
        client.send(Acknowledge(PacketType.PUBACK, message.packet_id or 0))
    client.edge.run_ticks()
    return [one.payload for one in found]


@pytest.mark.parametrize("qos", [0, 1, 2])
def test_a_wildcard_subscription_gets_all_but_the_denied_topics(qos: int) -> None:
    edge = EdgeInMemory(rules=rules("secret/#", client="a"))
    reader, other, sender = edge.connect("a"), edge.connect("b"), edge.connect("p")
    for client in (reader, other):
        assert client.subscribe("#", qos=qos).codes[0] < Code.UNSPECIFIED_ERROR
    for topic in ("open", "secret/x", "open"):
        sender.publish(topic, topic.encode(), qos)
    assert reader.bodies() == [b"open", b"open"]
    assert other.bodies() == [b"open", b"secret/x", b"open"]
    assert edge.broker.counts.dropped == {}, "a filtered subscription loses nothing that it asked for in vain"


def test_a_subscription_that_can_match_nothing_allowed_is_refused() -> None:
    edge = EdgeInMemory(rules=rules("secret/#"))
    assert edge.connect("a").subscribe("secret/+/x").codes == (Code.NOT_AUTHORIZED,)


@pytest.mark.parametrize("to", [AREA, "endpoint:a", "everyone"])
def test_an_address_does_not_grant_the_right_to_read(to: str) -> None:
    edge = EdgeInMemory(rules=rules("secret", client="a"))
    denied, allowed = (edge.connect(name, properties=properties(report=HERE)) for name in "ab")
    sender = edge.connect("p")
    for topic in ("secret", "open"):
        sender.publish(topic, topic.encode(), properties=properties(to=to))
    assert denied.bodies() == [b"open"]
    assert allowed.bodies() == ([] if "endpoint" in to else [b"secret", b"open"])
    assert edge.broker.counts.dropped == ({Reason.NOT_ALLOWED: 1} if "endpoint" in to else {})


def test_an_active_alert_is_not_delivered_on_entry_until_it_may_be_read() -> None:
    edge = EdgeInMemory(rules=rules("secret", client="a"))
    sender = edge.connect("p")
    sender.publish("secret", b"x", properties=properties(to=AREA, valid_until=HOUR_LATER))
    vehicle = edge.connect("a", properties=properties(report=HERE))
    edge.pass_time(5)
    assert vehicle.bodies() == []
    edge.broker.use_rules(AdmissionRules())
    edge.pass_time(5)
    vehicle.publish("t", b"", properties=properties(report=HERE))
    assert vehicle.bodies() == [b"x"]


def test_a_retained_message_is_not_delivered_without_the_right_to_read_it() -> None:
    edge = EdgeInMemory(rules=rules("secret"))
    edge.connect("p").publish("secret", b"x", retain=True)
    edge.connect("p").publish("open", b"y", retain=True)
    reader = edge.connect("a")
    reader.subscribe("+")
    assert reader.bodies() == [b"y"]


def test_a_shared_subscription_serves_a_member_that_may_read_the_topic() -> None:
    edge = EdgeInMemory(rules=rules("secret", client="a"))
    denied, allowed, sender = edge.connect("a"), edge.connect("b"), edge.connect("p")
    for client in (denied, allowed):
        client.subscribe("$share/g/#")
    for _ in range(4):
        sender.publish("secret", b"x")
    assert (denied.bodies(), allowed.bodies()) == ([], [b"x"] * 4)


def test_new_rules_end_rights_on_live_subscriptions_at_once() -> None:
    edge = EdgeInMemory()
    wide, narrow, sender = edge.connect("a"), edge.connect("b"), edge.connect("p")
    wide.subscribe("#")
    narrow.subscribe("secret")
    sender.publish("secret", b"1")
    assert edge.broker.use_rules(rules("secret")) == RevokedRights(1, 1, 0)
    sender.publish("secret", b"2")
    sender.publish("open", b"3")
    assert (wide.bodies(), narrow.bodies()) == ([b"1", b"3"], [b"1"])


def test_new_rules_drop_queued_messages_and_delete_them_from_storage() -> None:
    edge = EdgeInMemory()
    reader = edge.connect("a", expiry_s=100)
    reader.subscribe("#", qos=1)
    reader.drop_connection()
    sender = edge.connect("p")
    for topic in ("secret", "open"):
        sender.publish(topic, topic.encode(), 1)
    assert edge.broker.use_rules(rules("secret")) == RevokedRights(1, 0, 1)
    edge.run_ticks()
    assert edge.broker.counts.dropped == {Reason.NOT_ALLOWED: 1}
    assert edge.broker.deliveries.queued_bytes == len("open" * 2)
    stored = edge.stored.load()
    assert (len(stored.queued), len(stored.messages)) == (1, 1)
    assert edge.connect("a", clean=False, expiry_s=100).bodies() == [b"open"]


def test_new_rules_drop_messages_behind_the_window() -> None:
    edge = EdgeInMemory()
    reader = edge.connect("a", properties=Properties(receive_maximum=1))
    reader.subscribe("#", qos=1)
    sender = edge.connect("p")
    for number in range(4):
        sender.publish("secret" if number % 2 else "open", b"%d" % number, 1)
    assert edge.broker.use_rules(rules("secret")).messages == 2
    assert receive_all(reader) == [b"0"]
    assert receive_all(reader) == [b"2"]
    assert receive_all(reader) == []
    sender.publish("open", b"4", 1)
    assert receive_all(reader) == [b"4"], "the window is free again"


@pytest.mark.parametrize("is_restarted", [False, True])
def test_messages_in_flight_are_not_sent_again_without_the_right_to_read_them(is_restarted: bool) -> None:
    edge = EdgeInMemory()
    reader = edge.connect("a", expiry_s=100)
    reader.subscribe("#", qos=2)
    sender = edge.connect("p")
    for number, topic in enumerate(("secret", "open", "secret"), 1):
        sender.publish(topic, topic.encode(), min(number, 2))
    assert len(reader.bodies()) == 3
    if is_restarted:
        edge.rules = rules("secret")
        edge = edge.restarted()
    else:
        edge.broker.use_rules(rules("secret"))
        reader.drop_connection()
    again = edge.connect("a", clean=False, expiry_s=100)
    packets = again.take()
    assert [one.payload for one in packets if isinstance(one, Publish)] == [b"open"]
    (release,) = [one for one in packets if isinstance(one, Acknowledge)]
    assert release.kind is PacketType.PUBREL, "the QoS 2 exchange that has begun is finished without the message"
    again.acknowledge(PacketType.PUBCOMP, release.packet_id)
    assert edge.session("a").released == {}
    assert len(edge.stored.load().queued) == 1


def test_stored_sessions_are_checked_against_the_rules_in_force_at_the_start() -> None:
    edge = EdgeInMemory()
    reader = edge.connect("a", expiry_s=100)
    reader.subscribe("#", "secret", qos=1)
    reader.drop_connection()
    edge.connect("p").publish("secret", b"x", 1)
    edge.rules = rules("secret")
    later = edge.restarted()
    assert list(later.session("a").subscriptions) == ["#"]
    assert later.connect("a", clean=False, expiry_s=100).bodies() == []


def test_a_delayed_will_is_judged_by_the_rules_at_the_time_it_fires() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("#")
    will = Will("t", b"gone", properties=Properties(will_delay_s=10))
    edge.connect("a", expiry_s=100, will=will).publish("t", b"warm the cached route")
    assert watcher.bodies() == [b"warm the cached route"]
    edge.listener.shut_down()
    edge.run_ticks()
    watcher = edge.connect("w")
    watcher.subscribe("#")
    edge.broker.use_rules(AdmissionRules(AccessList([AccessRule(False, AccessAction.PUBLISH, "t")])))
    edge.pass_time(11)
    assert watcher.bodies() == []
    assert edge.broker.counts.refused[Reason.NOT_ALLOWED] == 1


def test_a_will_that_is_due_at_the_start_is_judged_by_the_rules_in_force() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w", expiry_s=1_000)
    watcher.subscribe("#", qos=1)
    edge.connect("a", expiry_s=100, will=Will("t", b"gone", 1))
    edge.rules = AdmissionRules(AccessList([AccessRule(False, AccessAction.PUBLISH, "t")]))
    later = edge.restarted(after_s=1)
    assert later.broker.counts.refused == {Reason.NOT_ALLOWED: 1}
    assert later.connect("w", clean=False, expiry_s=1_000).bodies() == []


def test_the_will_of_a_removed_user_is_not_published() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("#")
    owner = edge.connect("a", expiry_s=100, will=Will("t", b"gone"))
    session = edge.session("a")
    session.identity = type(session.identity)("a", "ada")
    edge.broker.use_rules(AdmissionRules(users=frozenset({"bob"})))
    owner.drop_connection()
    assert watcher.bodies() == []
    assert edge.broker.counts.refused == {Reason.BAD_CREDENTIALS: 1}


def test_clients_of_removed_users_are_disconnected_with_a_reason_and_without_their_wills() -> None:
    edge = EdgeInMemory()
    watcher, ada = edge.connect("w"), edge.connect("a", expiry_s=100, will=Will("t", b"gone"))
    watcher.subscribe("#")
    session = edge.session("a")
    session.identity = type(session.identity)("a", "ada")
    assert edge.broker.expel_users({"ada"}) == 1
    edge.run_ticks()
    assert ada.ended_with() is Code.NOT_AUTHORIZED
    assert watcher.is_open
    assert watcher.bodies() == []
    assert edge.broker.sessions.find("a") is not None, "the session waits for its user until it expires"


def test_a_message_whose_answer_the_publisher_may_not_read_is_refused() -> None:
    edge = EdgeInMemory(rules=rules("secret/#"))
    client = edge.connect("a")
    for topic, code in (("secret/x", Code.NOT_AUTHORIZED), ("open", Code.NO_MATCHING_SUBSCRIBERS)):
        (answer,) = client.request(Publish("t", b"", 1, packet_id=7, properties=Properties(response_topic=topic)))
        assert isinstance(answer, Acknowledge)
        assert answer.code is code
    will = Will("t", b"", properties=Properties(response_topic="secret/x"))
    refused = edge.connect("b", will=will).connack
    assert refused is not None
    assert refused.code is Code.NOT_AUTHORIZED


def test_a_stored_will_keeps_its_response_topic_for_the_check_when_it_fires() -> None:
    edge = EdgeInMemory()
    edge.connect("a", expiry_s=100, will=Will("t", b"", properties=Properties(response_topic="secret/x")))
    edge.rules = rules("secret/#")
    assert edge.restarted(after_s=1).broker.counts.refused == {Reason.NOT_ALLOWED: 1}


def test_denied_topics_cost_no_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(read_rights, "TOPICS_MAX", 10)
    edge = EdgeInMemory()
    rights = ReadRights()
    rights.use(rules("secret/#").access)
    session = edge.broker.sessions.add(EndpointId("a"))
    for number in range(100):
        assert not rights.may_read(session, f"secret/{number}")
    assert len(rights._readers) <= 10


def test_without_denials_nothing_is_cached() -> None:
    rights, edge = ReadRights(), EdgeInMemory()
    assert rights.may_read(edge.broker.sessions.add(EndpointId("a")), "t")
    assert rights.are_open("t")
    assert rights._readers == {}
