"""Restoring: the edge that begins after a crash does what the one before would have done."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, Client, EdgeInMemory
from milepost.wire.mqtt import Acknowledge, Kind, Packet, Properties, Publish, Request, Version, Will


def numbered(packets: list[Packet]) -> list[tuple[bytes, int | None, bool]]:
    return [(one.payload, one.number, one.dup) for one in packets if isinstance(one, Publish)]


def back(edge: EdgeInMemory, name: str = "a") -> Client:
    return edge.connect(name, clean=False, expiry_s=100)


def test_a_session_is_there_again_with_its_subscriptions_and_how_they_were_wanted() -> None:
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe(Request("own", 1, no_local=True), Request("t", 2, retain_as_published=True), label=7)
    edge = edge.restarted()
    client = back(edge)
    assert client.connack is not None
    assert client.connack.session_present
    client.publish("own", b"mine")
    edge.connect("p").publish("t", b"x", 2, retain=True)
    (message,) = client.messages()
    assert (message.payload, message.qos, message.retain) == (b"x", 2, True)
    assert message.properties.subscription_ids == (7,)


def test_what_was_in_flight_or_waited_comes_in_order_under_its_number_as_a_repetition() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, in_flight_max=2))
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", qos=1)
    sender = edge.connect("p")
    for body in (b"1", b"2", b"3"):
        sender.publish("t", body, 1)
    sent = numbered(client.take())
    assert [body for body, *_ in sent] == [b"1", b"2"]
    edge = edge.restarted()
    client = back(edge)
    assert numbered(client.take()) == [(body, number, True) for body, number, _ in sent]
    (third,) = numbered(client.acknowledge(Kind.PUBACK, sent[0][1]))
    assert (third[0], third[2]) == (b"3", True)


@pytest.mark.parametrize("qos", [1, 2])
def test_what_was_acknowledged_does_not_come_again(qos: int) -> None:
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", qos=qos)
    edge.connect("p").publish("t", b"x", qos)
    ((_, number, _),) = numbered(client.take())
    if qos == 2:
        assert client.acknowledge(Kind.PUBREC, number) == [Acknowledge(Kind.PUBREL, number or 0)]
        edge = edge.restarted()
        client = back(edge)
        assert client.take() == [Acknowledge(Kind.PUBREL, number or 0)], "the end of the exchange is asked for again"
        client.acknowledge(Kind.PUBCOMP, number)
    else:
        client.acknowledge(Kind.PUBACK, number)
    edge = edge.restarted()
    assert back(edge).take() == []
    kept = edge.kept.load()
    assert (kept.queued, kept.messages) == ({}, {})


def test_a_sender_that_repeats_itself_after_a_crash_is_not_taken_twice() -> None:
    edge = EdgeInMemory()
    taker = edge.connect("t", expiry_s=100)
    taker.subscribe("t", qos=2)
    sender = edge.connect("a", expiry_s=100)
    number = sender.publish("t", b"x", 2)
    edge = edge.restarted()
    sender = back(edge)
    assert sender.ask(Publish("t", b"x", 2, False, True, number)) == [Acknowledge(Kind.PUBREC, number or 0)]
    assert len(back(edge, "t").bodies()) == 1
    assert sender.acknowledge(Kind.PUBREL, number) == [Acknowledge(Kind.PUBCOMP, number or 0)]
    assert list(edge.kept.load().received) == []


def test_order_in_a_topic_survives_though_a_number_became_free_and_was_needed_at_once() -> None:
    edge = EdgeInMemory()
    back(edge).subscribe("t", qos=1)
    sender = edge.connect("p")
    for body in (b"A", b"B"):
        sender.publish("t", body, 1)
    edge = edge.restarted()
    client, sender = back(edge), edge.connect("p")
    first, _ = client.messages()
    client.send(Acknowledge(Kind.PUBACK, first.number or 0))
    sender.send(Publish("t", b"C", 1, number=1))
    edge.settle()
    assert back(edge.restarted()).bodies() == [b"B", b"C"]


def test_restarts_without_end_change_nothing() -> None:
    edge = EdgeInMemory()
    client = back(edge)
    client.subscribe("t", qos=1)
    edge.connect("p").publish("t", b"x", 1, retain=True)
    before = edge.kept.load()
    for _ in range(3):
        edge = edge.restarted()
        edge.settle()
    assert edge.kept.load() == before


def test_a_session_that_ran_out_while_nobody_looked_ends_at_the_first_look_and_its_will_is_published() -> None:
    edge = EdgeInMemory()
    edge.connect("w", expiry_s=1000).subscribe("will", qos=1)
    edge.connect("a", expiry_s=10, will=Will("will", b"gone", 1, properties=Properties(will_delay_s=500))).lose()
    edge = edge.restarted(after_s=20)
    edge.pass_time(0)
    assert edge.broker.sessions.maybe("a") is None
    assert back(edge, "w").bodies() == [b"gone"]


def test_who_was_connected_when_the_process_died_is_lost_and_its_will_published() -> None:
    edge = EdgeInMemory()
    edge.connect("w", expiry_s=1000).subscribe("will", qos=1)
    edge.connect("a", expiry_s=100, will=Will("will", b"gone", 1))
    edge = edge.restarted()
    edge.settle()
    assert back(edge, "w").bodies() == [b"gone"]
    assert back(edge.restarted(), "w").bodies() == [b"gone"], "kept, and published once"
    edge.pass_time(101)
    assert edge.broker.sessions.maybe("a") is None


def test_a_session_that_was_to_end_with_its_connection_is_not_there_again() -> None:
    edge = EdgeInMemory()
    edge.connect("a").subscribe("t", qos=1)
    kept = edge.connect("b", expiry_s=100)
    kept.subscribe("t", qos=1)
    edge.connect("b", clean=False).take()
    assert len(edge.restarted().broker.sessions) == 0


def test_retained_messages_are_there_again_until_they_expire() -> None:
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


def test_limits_that_are_lower_now_cost_messages_but_nobody_elses() -> None:
    """What is given up for one session while others are still being restored must stay for those."""
    edge = EdgeInMemory()
    urgent = Properties(user=(("milepost-priority", "emergency"),))
    for name in "ab":
        back(edge, name).subscribe("both", f"only/{name}", qos=1)
        edge.session(name)
    for link in list(edge.door.links):
        edge.door._lose(link, edge.now)
    sender = edge.connect("p")
    sender.publish("only/a", b"urgent", 1, properties=urgent)
    sender.publish("both", b"both", 1)
    edge = edge.restarted(limits=replace(SMALL, queue_messages_max=1))
    edge.settle()
    edge = edge.restarted()
    assert (back(edge, "a").bodies(), back(edge, "b").bodies()) == ([b"urgent"], [b"both"])


def test_plans_made_while_a_session_was_away_since_the_start_do_not_speak_another_version_to_it() -> None:
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
    edge.connect("a", expiry_s=1000, will=Will("will", b"gone", 1, properties=Properties(will_delay_s=60))).lose()
    edge.pass_time(50)
    edge = edge.restarted()
    edge.pass_time(11)
    assert back(edge, "w").bodies() == [b"gone"]
