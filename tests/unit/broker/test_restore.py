"""Restore: an edge restarted after a crash behaves as the one before would have."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, Client, EdgeInMemory
from milepost.wire.mqtt import Acknowledge, FilterRequest, Packet, PacketType, Properties, Publish, Version, Will


def numbered(packets: list[Packet]) -> list[tuple[bytes, int | None, bool]]:
    return [(one.payload, one.packet_id, one.dup) for one in packets if isinstance(one, Publish)]


def reconnect(edge: EdgeInMemory, name: str = "a") -> Client:
    return edge.connect(name, clean=False, expiry_s=100)


def test_a_session_is_restored_with_its_subscriptions_and_their_options() -> None:
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe(FilterRequest("own", 1, no_local=True), FilterRequest("t", 2, retain_as_published=True), subscription_id=7)
    edge = edge.restarted()
    client = reconnect(edge)
    assert client.connack is not None
    assert client.connack.session_present
    client.publish("own", b"mine")
    edge.connect("p").publish("t", b"x", 2, retain=True)
    (message,) = client.messages()
    assert (message.payload, message.qos, message.retain) == (b"x", 2, True)
    assert message.properties.subscription_ids == (7,)


def test_in_flight_and_queued_messages_are_sent_again_in_order_under_their_packet_ids_as_duplicates() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, in_flight_max=2))
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", qos=1)
    sender = edge.connect("p")
    for body in (b"1", b"2", b"3"):
        sender.publish("t", body, 1)
    sent = numbered(client.take())
    assert [body for body, *_ in sent] == [b"1", b"2"]
    edge = edge.restarted()
    client = reconnect(edge)
    assert numbered(client.take()) == [(body, number, True) for body, number, _ in sent]
    (third,) = numbered(client.acknowledge(PacketType.PUBACK, sent[0][1]))
    assert (third[0], third[2]) == (b"3", True)


@pytest.mark.parametrize("qos", [1, 2])
def test_acknowledged_messages_are_not_delivered_again(qos: int) -> None:
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", qos=qos)
    edge.connect("p").publish("t", b"x", qos)
    ((_, number, _),) = numbered(client.take())
    if qos == 2:
        assert client.acknowledge(PacketType.PUBREC, number) == [Acknowledge(PacketType.PUBREL, number or 0)]
        edge = edge.restarted()
        client = reconnect(edge)
        assert client.take() == [Acknowledge(PacketType.PUBREL, number or 0)], "PUBREL is sent again"
        client.acknowledge(PacketType.PUBCOMP, number)
    else:
        client.acknowledge(PacketType.PUBACK, number)
    edge = edge.restarted()
    assert reconnect(edge).take() == []
    stored = edge.stored.load()
    assert (stored.queued, stored.messages) == ({}, {})


def test_a_qos_2_message_repeated_after_a_crash_is_accepted_once() -> None:
    edge = EdgeInMemory()
    receiver = edge.connect("t", expiry_s=100)
    receiver.subscribe("t", qos=2)
    sender = edge.connect("a", expiry_s=100)
    number = sender.publish("t", b"x", 2)
    edge = edge.restarted()
    sender = reconnect(edge)
    assert sender.request(Publish("t", b"x", 2, False, True, number)) == [Acknowledge(PacketType.PUBREC, number or 0)]
    assert len(reconnect(edge, "t").bodies()) == 1
    assert sender.acknowledge(PacketType.PUBREL, number) == [Acknowledge(PacketType.PUBCOMP, number or 0)]
    assert list(edge.stored.load().received) == []


def test_order_in_a_topic_is_preserved_when_a_freed_packet_id_is_needed_at_once() -> None:
    edge = EdgeInMemory()
    reconnect(edge).subscribe("t", qos=1)
    sender = edge.connect("p")
    for body in (b"A", b"B"):
        sender.publish("t", body, 1)
    edge = edge.restarted()
    client, sender = reconnect(edge), edge.connect("p")
    first, _ = client.messages()
    client.send(Acknowledge(PacketType.PUBACK, first.packet_id or 0))
    sender.send(Publish("t", b"C", 1, packet_id=1))
    edge.run_ticks()
    assert reconnect(edge.restarted()).bodies() == [b"B", b"C"]


def test_repeated_restarts_change_nothing() -> None:
    edge = EdgeInMemory()
    client = reconnect(edge)
    client.subscribe("t", qos=1)
    edge.connect("p").publish("t", b"x", 1, retain=True)
    before = edge.stored.load()
    for _ in range(3):
        edge = edge.restarted()
        edge.run_ticks()
    assert edge.stored.load() == before


def test_a_session_that_expired_while_the_process_was_down_ends_at_the_first_tick_and_its_will_is_published() -> None:
    edge = EdgeInMemory()
    edge.connect("w", expiry_s=1000).subscribe("will", qos=1)
    edge.connect("a", expiry_s=10, will=Will("will", b"gone", 1, properties=Properties(will_delay_s=500))).drop_connection()
    edge = edge.restarted(after_s=20)
    edge.pass_time(0)
    assert edge.broker.sessions.find("a") is None
    assert reconnect(edge, "w").bodies() == [b"gone"]


def test_a_client_connected_at_a_crash_counts_as_lost_and_its_will_is_published() -> None:
    edge = EdgeInMemory()
    edge.connect("w", expiry_s=1000).subscribe("will", qos=1)
    edge.connect("a", expiry_s=100, will=Will("will", b"gone", 1))
    edge = edge.restarted()
    edge.run_ticks()
    assert reconnect(edge, "w").bodies() == [b"gone"]
    assert reconnect(edge.restarted(), "w").bodies() == [b"gone"], "stored, and published once"
    edge.pass_time(101)
    assert edge.broker.sessions.find("a") is None


def test_a_session_without_expiry_is_not_restored() -> None:
    edge = EdgeInMemory()
    edge.connect("a").subscribe("t", qos=1)
    stored = edge.connect("b", expiry_s=100)
    stored.subscribe("t", qos=1)
    edge.connect("b", clean=False).take()
    assert len(edge.restarted().broker.sessions) == 0


def test_retained_messages_are_restored_until_they_expire() -> None:
    edge = EdgeInMemory()
    sender = edge.connect("p")
    sender.publish("long", b"1", 1, retain=True, properties=Properties(content_type="text"))
    sender.publish("short", b"2", retain=True, properties=Properties(message_expiry_s=5))
    sender.publish("gone", b"3", retain=True)
    sender.publish("gone", b"", retain=True)
    edge = edge.restarted(after_s=6)
    client = edge.connect("a")
    client.subscribe("#", qos=2)
    (message,) = client.messages()
    assert (message.topic, message.qos, message.properties.content_type) == ("long", 1, "text")


def test_lower_limits_after_a_restart_drop_messages_of_the_affected_session_only() -> None:
    """A message dropped for one session while others are being restored must remain for those."""
    edge = EdgeInMemory()
    urgent = Properties(user=(("milepost-priority", "emergency"),))
    for name in "ab":
        reconnect(edge, name).subscribe("both", f"only/{name}", qos=1)
        edge.session(name)
    for connection in list(edge.listener.connections):
        edge.listener._connection_lost(connection, edge.now)
    sender = edge.connect("p")
    sender.publish("only/a", b"urgent", 1, properties=urgent)
    sender.publish("both", b"both", 1)
    edge = edge.restarted(limits=replace(SMALL, queue_messages_max=1))
    edge.run_ticks()
    edge = edge.restarted()
    assert (reconnect(edge, "a").bodies(), reconnect(edge, "b").bodies()) == ([b"urgent"], [b"both"])


def test_routes_cached_while_a_restored_session_was_disconnected_use_its_new_encoding() -> None:
    edge = EdgeInMemory()
    edge.connect("a", Version.V3, clean=False).subscribe("t")
    edge = edge.restarted()
    sender = edge.connect("p")
    sender.publish("t", b"1")
    client = edge.connect("a", Version.V3, clean=False)
    sender.publish("t", b"2")
    sender.publish("t", b"3")
    assert client.bodies() == [b"2", b"3"]


def test_a_delayed_will_is_not_delayed_again_by_a_restart() -> None:
    edge = EdgeInMemory()
    edge.connect("w", expiry_s=1000).subscribe("will", qos=1)
    edge.connect("a", expiry_s=1000, will=Will("will", b"gone", 1, properties=Properties(will_delay_s=60))).drop_connection()
    edge.pass_time(50)
    edge = edge.restarted()
    edge.pass_time(11)
    assert reconnect(edge, "w").bodies() == [b"gone"]
