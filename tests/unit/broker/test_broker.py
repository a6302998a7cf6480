"""The broker: sessions opened, resumed, taken over and ended; wills; addresses (M5, M15); faults."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, START, EdgeInMemory
from milepost.broker.publication import EDGE_ITSELF
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Connect, Disconnect, FilterRequest, Properties, Publish, Version, Will
from milepost.wire.times import instant_to_text
from publications import publication

GONE = Will("will", b"gone", 1)


def user_properties(**values: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in values.items()))


def after(seconds: float) -> str:
    return instant_to_text(Instant(START + int(seconds * SECOND_NS)))


def test_a_session_is_resumed_unless_a_clean_start_is_requested() -> None:
    edge = EdgeInMemory()
    for clean, is_present, bodies in ((False, False, [b"1"]), (False, True, [b"1"]), (True, False, [])):
        client = edge.connect("a", clean=clean, expiry_s=100)
        assert client.connack is not None
        assert client.connack.session_present == is_present
        if not is_present and not clean:
            client.subscribe("t")
        edge.connect("p").publish("t", b"1")
        assert client.bodies() == bodies
        client.drop_connection()
    assert (edge.broker.counts.sessions_opened, edge.broker.counts.sessions_resumed) == (5, 1)


def test_another_connection_of_the_same_name_takes_over_and_the_former_one_gets_the_reason() -> None:
    edge = EdgeInMemory()
    first = edge.connect("a", expiry_s=100)
    first.subscribe("t")
    second = edge.connect("a", clean=False, expiry_s=100)
    assert first.ended_with() is Code.SESSION_TAKEN_OVER
    edge.connect("p").publish("t", b"x")
    assert second.bodies() == [b"x"]
    first.drop_connection()
    edge.connect("p").publish("t", b"y")
    assert second.bodies() == [b"y"], "the end of the former connection does not affect the session"


@pytest.mark.parametrize("clean", [True, False])
def test_packets_of_a_connection_in_the_tick_of_its_takeover_are_ignored(clean: bool) -> None:
    edge = EdgeInMemory()
    former = edge.connect("a", expiry_s=100)
    former.subscribe("t")
    later = edge.open_connection()
    later.send(Connect("a", Version.V5, clean, properties=Properties(session_expiry_s=100)))
    former.send(Publish("t", b"late"), Disconnect(properties=Properties(session_expiry_s=0)))
    edge.run_ticks()
    later.take()
    later.subscribe("t")
    edge.connect("p").publish("t", b"x")
    assert later.bodies() == [b"x"]
    assert edge.session("a").connection is later.connection


def test_a_session_ends_exactly_when_its_expiry_has_passed() -> None:
    edge = EdgeInMemory()
    edge.connect("a", expiry_s=10).drop_connection()
    edge.pass_time(9)
    assert edge.broker.sessions.find("a") is not None
    edge.connect("a", clean=False, expiry_s=10).drop_connection()
    edge.pass_time(9)
    assert edge.broker.sessions.find("a") is not None, "its expiry started again"
    edge.pass_time(1)
    assert edge.broker.sessions.find("a") is None
    assert edge.stored.load().sessions == {}


def test_disconnect_may_change_the_session_expiry() -> None:
    edge = EdgeInMemory()
    for expiry_s, is_there in ((0, False), (50, True)):
        edge.connect("a", expiry_s=10).disconnect(properties=Properties(session_expiry_s=expiry_s))
        edge.pass_time(20)
        assert (edge.broker.sessions.find("a") is not None) == is_there


def test_no_session_lives_longer_than_the_limit() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, session_expiry_s_max=60))
    client = edge.connect("a", expiry_s=1000)
    assert client.connack is not None
    assert client.connack.properties.session_expiry_s == 60
    client.drop_connection()
    edge.pass_time(61)
    assert edge.broker.sessions.find("a") is None


def test_at_the_limit_of_sessions_a_new_one_is_refused_and_an_existing_one_is_resumed() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, sessions_max=2))
    edge.connect("a", expiry_s=10).drop_connection()
    edge.connect("b")
    refused = edge.connect("c")
    assert refused.connack is not None
    assert refused.connack.code is Code.QUOTA_EXCEEDED
    assert edge.connect("a", clean=True).is_open


def test_a_will_is_published_after_a_lost_connection_and_not_after_disconnect() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will", qos=1)
    edge.connect("a", will=GONE).disconnect()
    assert watcher.bodies() == []
    edge.connect("a", will=GONE).drop_connection()
    assert watcher.bodies() == [b"gone"]
    edge.connect("a", will=GONE).disconnect(Code.DISCONNECT_WITH_WILL)
    assert watcher.bodies() == [b"gone"]


def test_a_will_waits_for_its_delay_and_is_cancelled_by_a_reconnect() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    delayed = replace(GONE, properties=Properties(will_delay_s=5))
    edge.connect("a", expiry_s=100, will=delayed).drop_connection()
    edge.pass_time(4)
    edge.connect("a", clean=False, expiry_s=100).disconnect()
    edge.pass_time(10)
    assert watcher.bodies() == []
    edge.connect("a", clean=False, expiry_s=100, will=delayed).drop_connection()
    edge.pass_time(5)
    assert watcher.bodies() == [b"gone"]
    edge.pass_time(50)
    assert watcher.bodies() == [], "once"


def test_a_will_is_published_at_the_end_of_its_session_if_that_is_sooner() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    delayed = replace(GONE, properties=Properties(will_delay_s=50))
    edge.connect("a", expiry_s=5, will=delayed).drop_connection()
    edge.pass_time(5)
    assert watcher.bodies() == [b"gone"]
    edge.connect("a", expiry_s=50, will=delayed).drop_connection()
    edge.connect("a", clean=True)
    assert watcher.bodies() == [b"gone"]


@pytest.mark.parametrize(("clean", "bodies"), [(False, []), (True, [b"gone"])])
def test_a_delayed_will_is_published_on_takeover_only_if_the_session_ends(clean: bool, bodies: list[bytes]) -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    edge.connect("a", expiry_s=50, will=replace(GONE, properties=Properties(will_delay_s=5)))
    edge.connect("a", clean=clean, expiry_s=50)
    edge.pass_time(60)
    assert watcher.bodies() == bodies


def test_a_retained_will_is_retained_and_counted_like_any_message() -> None:
    edge = EdgeInMemory()
    edge.connect("a", will=replace(GONE, retain=True)).drop_connection()
    assert edge.broker.counts.accepted == 1
    later = edge.restarted()
    watcher = later.connect("w")
    watcher.subscribe("will")
    assert watcher.bodies() == [b"gone"]


def test_the_validity_of_a_will_starts_when_it_is_published() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    client = edge.connect("a", will=replace(GONE, properties=Properties(message_expiry_s=7)))
    edge.pass_time(100)
    client.drop_connection()
    (message,) = watcher.messages()
    assert message.properties.message_expiry_s == 7


def test_a_subscription_ends_with_its_time_window() -> None:
    # T7
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", properties=user_properties(time_window=f"{after(0)}/{after(10)}"))
    publisher = edge.connect("p")
    publisher.publish("t", b"1")
    edge.pass_time(11)
    publisher.publish("t", b"2")
    assert client.bodies() == [b"1"]
    assert edge.session("a").subscriptions == {}
    assert edge.stored.load().subscriptions == {}


def test_a_time_window_that_is_over_is_refused() -> None:
    edge = EdgeInMemory()
    edge.pass_time(100)
    answer = edge.connect("a").subscribe("t", properties=user_properties(time_window=f"{after(0)}/{after(10)}"))
    assert answer.codes[0] >= Code.UNSPECIFIED_ERROR


def test_an_address_determines_the_receivers_subscribed_or_not() -> None:
    # M5, M15
    edge = EdgeInMemory()
    clients = {}
    for name, at in (("near", "40.0,-111.0"), ("far", "41.0,-111.0")):
        clients[name] = edge.connect(name, properties=user_properties(report=at))
    clients["unknown"] = edge.connect("unknown")
    sender = edge.connect("sender")
    for to, receivers in (
        ("area:circle 40.0,-111.0 1000", {"near"}),
        ("endpoint:far", {"far"}),
        ("endpoint:nobody", set()),
        ("everyone", {"near", "far", "unknown"}),
    ):
        sender.publish("t", b"x", 1, properties=user_properties(to=to))
        assert {name for name, client in clients.items() if client.bodies()} == receivers, to


def test_m26_an_alert_for_a_road_goes_to_vehicles_that_drive_towards_the_place_only() -> None:
    edge = EdgeInMemory()
    reports = {"there": "40.0,-111.0,90,20", "back": "40.0,-111.0,270,20", "off": "40.001,-111.0"}
    clients = {name: edge.connect(name, properties=user_properties(report=report)) for name, report in reports.items()}
    road = "UPSTREAM ((-111.01 40.0, -110.99 40.0; 15, 60 0, 1700 0))"
    edge.connect("sender").publish("t", b"x", 1, properties=user_properties(to=f"area:{road}"))
    assert {name for name, client in clients.items() if client.bodies()} == {"there"}


def test_a_message_restricted_to_an_area_reaches_subscribers_inside_it() -> None:
    edge = EdgeInMemory()
    near, far = edge.connect("near", properties=user_properties(report="40.0,-111.0")), edge.connect("far")
    for client in (near, far):
        client.subscribe("t")
    edge.connect("p").publish("t", b"x", properties=user_properties(within="circle 40.0,-111.0 1000"))
    assert (near.bodies(), far.bodies()) == ([b"x"], [])


@pytest.mark.parametrize("to", [{"to": "everyone"}, {}])
def test_a_message_that_expired_before_it_arrived_is_not_delivered_and_does_not_delay_later_ones(to: dict[str, str]) -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("a", expiry_s=100), edge.connect("p")
    receiver.subscribe("t", qos=1)
    sender.publish("t", b"old", 1, properties=user_properties(seen_at=after(-9), valid_until=after(-5), **to))
    assert edge.session("a").in_flight == {}
    sender.publish("t", b"new", 1, properties=Properties(content_type="text"))
    assert receiver.bodies() == [b"new"]


@pytest.mark.parametrize("to", [{"to": "everyone"}, {}])
def test_a_message_that_ends_before_it_was_seen_is_refused_as_a_whole(to: dict[str, str]) -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("a", expiry_s=100), edge.connect("p")
    receiver.subscribe("t", qos=1)
    sender.publish("t", b"odd", 1, retain=True, properties=user_properties(valid_until=after(-5), **to))
    assert edge.broker.counts.refused == {Reason.VALIDITY_BACKWARDS: 1}
    assert edge.session("a").in_flight == {}
    assert len(edge.broker.retained) == 0


def test_messages_of_the_edge_itself_are_retained_but_neither_stored_nor_counted() -> None:
    edge = EdgeInMemory()
    message = publication(b"1", "$SYS/x", qos=0, is_retained=True)
    message.origin = EDGE_ITSELF
    edge.broker.accept(message, None, edge.now)
    client = edge.connect("a")
    client.subscribe("$SYS/#")
    assert client.bodies() == [b"1"]
    assert edge.stored.load().retained == {}
    assert edge.broker.counts.accepted == 0


def test_while_storage_fails_only_requests_that_need_storage_are_refused() -> None:
    edge = EdgeInMemory()
    durable, other, sender = edge.connect("k", expiry_s=100), edge.connect("o"), edge.connect("s")
    durable.subscribe("k", "both", qos=1)
    other.subscribe("o", qos=1)
    edge.broker.storage_error = "disk full"
    refused = {}
    for topic, qos, retain in (("k", 1, False), ("k", 0, False), ("o", 1, False), ("o", 0, True)):
        sender.publish(topic, b"x", qos, retain=retain)
        refused[topic, qos, retain] = edge.broker.counts.refused[Reason.STORAGE_UNAVAILABLE]
    assert list(refused.values()) == [1, 1, 1, 2]
    assert (durable.bodies(), other.bodies()) == ([b"x"], [b"x"])
    assert durable.subscribe(FilterRequest("new")).codes[0] >= Code.UNSPECIFIED_ERROR
    assert other.subscribe(FilterRequest("new")).codes == (Code.SUCCESS,)
    denied, admitted = edge.connect("x", expiry_s=10), edge.connect("y")
    assert not denied.is_open
    assert admitted.is_open


def test_subscriptions_are_limited_for_each_endpoint_and_one_may_be_replaced() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, subscriptions_per_session_max=2))
    client = edge.connect("a")
    answer = client.subscribe("1", "2", "3", "2")
    assert [code >= Code.UNSPECIFIED_ERROR for code in answer.codes] == [False, False, True, False]
    assert edge.broker.counts.refused == {Reason.SUBSCRIPTIONS_FULL: 1}


def test_sessions_that_come_and_go_leave_no_state_behind() -> None:
    edge = EdgeInMemory()
    for _ in range(300):
        edge.connect("a", clean=False, expiry_s=1000).drop_connection()
    assert len(edge.broker._session_timers) < 100


def test_a_retained_message_for_one_endpoint_is_not_delivered_to_others() -> None:
    edge = EdgeInMemory()
    edge.connect("p").publish("t", b"secret", 1, retain=True, properties=user_properties(to="endpoint:friend"))
    other = edge.connect("other")
    other.subscribe("#")
    assert other.bodies() == []


def test_a_will_with_valid_until_is_not_published_after_that_instant() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    client = edge.connect("a", will=replace(GONE, properties=user_properties(valid_until=after(5))))
    edge.pass_time(100)
    client.drop_connection()
    assert watcher.bodies() == []
