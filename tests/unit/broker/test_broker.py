"""The corridor: sessions that begin, go on, are taken over and end; wills; where addresses lead (M5, M15); faults."""

from dataclasses import replace

import pytest

from edge_in_memory import SMALL, START, EdgeInMemory
from milepost.broker.publication import EDGE_ITSELF
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Code, Connect, Disconnect, Properties, Publish, Request, Version, Will
from milepost.wire.times import instant_to_text
from publications import publication

GONE = Will("will", b"gone", 1)


def words(**said: str) -> Properties:
    return Properties(user=tuple((f"milepost-{name.replace('_', '-')}", value) for name, value in said.items()))


def after(seconds: float) -> str:
    return instant_to_text(Instant(START + int(seconds * SECOND_NS)))


def test_a_session_goes_on_where_it_was_unless_a_clean_one_is_wanted() -> None:
    edge = EdgeInMemory()
    for clean, is_present, bodies in ((False, False, [b"1"]), (False, True, [b"1"]), (True, False, [])):
        client = edge.connect("a", clean=clean, expiry_s=100)
        assert client.connack is not None
        assert client.connack.session_present == is_present
        if not is_present and not clean:
            client.subscribe("t")
        edge.connect("p").publish("t", b"1")
        assert client.bodies() == bodies
        client.lose()
    assert (edge.broker.counts.sessions_opened, edge.broker.counts.sessions_resumed) == (5, 1)


def test_another_connection_of_the_same_name_takes_over_and_the_former_is_told() -> None:
    edge = EdgeInMemory()
    first = edge.connect("a", expiry_s=100)
    first.subscribe("t")
    second = edge.connect("a", clean=False, expiry_s=100)
    assert first.ended_with() is Code.SESSION_TAKEN_OVER
    edge.connect("p").publish("t", b"x")
    assert second.bodies() == [b"x"]
    first.lose()
    edge.connect("p").publish("t", b"y")
    assert second.bodies() == [b"y"], "the end of the former connection is nothing to the session"


@pytest.mark.parametrize("clean", [True, False])
def test_what_the_former_connection_says_in_the_turn_it_is_taken_over_is_not_heard(clean: bool) -> None:
    edge = EdgeInMemory()
    former = edge.connect("a", expiry_s=100)
    former.subscribe("t")
    later = edge.enter()
    later.send(Connect("a", Version.V5, clean, properties=Properties(session_expiry_s=100)))
    former.send(Publish("t", b"late"), Disconnect(properties=Properties(session_expiry_s=0)))
    edge.settle()
    later.take()
    later.subscribe("t")
    edge.connect("p").publish("t", b"x")
    assert later.bodies() == [b"x"]
    assert edge.session("a").link is later.link


def test_a_session_ends_when_nobody_came_back_in_time_and_not_before() -> None:
    edge = EdgeInMemory()
    edge.connect("a", expiry_s=10).lose()
    edge.pass_time(9)
    assert edge.broker.sessions.maybe("a") is not None
    edge.connect("a", clean=False, expiry_s=10).lose()
    edge.pass_time(9)
    assert edge.broker.sessions.maybe("a") is not None, "its time began again"
    edge.pass_time(1)
    assert edge.broker.sessions.maybe("a") is None
    assert edge.kept.load().sessions == {}


def test_goodbye_may_shorten_or_lengthen_what_is_left_of_a_session() -> None:
    edge = EdgeInMemory()
    for expiry_s, is_there in ((0, False), (50, True)):
        edge.connect("a", expiry_s=10).leave(properties=Properties(session_expiry_s=expiry_s))
        edge.pass_time(20)
        assert (edge.broker.sessions.maybe("a") is not None) == is_there


def test_no_session_lives_longer_than_the_limit() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, session_expiry_s_max=60))
    client = edge.connect("a", expiry_s=1000)
    assert client.connack is not None
    assert client.connack.properties.session_expiry_s == 60
    client.lose()
    edge.pass_time(61)
    assert edge.broker.sessions.maybe("a") is None


def test_when_all_sessions_are_taken_one_more_is_refused_and_one_that_is_there_may_come_back() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, sessions_max=2))
    edge.connect("a", expiry_s=10).lose()
    edge.connect("b")
    refused = edge.connect("c")
    assert refused.connack is not None
    assert refused.connack.code is Code.QUOTA_EXCEEDED
    assert edge.connect("a", clean=True).is_open


def test_a_will_is_published_for_who_is_lost_and_not_for_who_says_goodbye() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will", qos=1)
    edge.connect("a", will=GONE).leave()
    assert watcher.bodies() == []
    edge.connect("a", will=GONE).lose()
    assert watcher.bodies() == [b"gone"]
    edge.connect("a", will=GONE).leave(Code.DISCONNECT_WITH_WILL)
    assert watcher.bodies() == [b"gone"]


def test_a_will_waits_for_its_delay_and_is_cancelled_by_coming_back() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    delayed = replace(GONE, properties=Properties(will_delay_s=5))
    edge.connect("a", expiry_s=100, will=delayed).lose()
    edge.pass_time(4)
    edge.connect("a", clean=False, expiry_s=100).leave()
    edge.pass_time(10)
    assert watcher.bodies() == []
    edge.connect("a", clean=False, expiry_s=100, will=delayed).lose()
    edge.pass_time(5)
    assert watcher.bodies() == [b"gone"]
    edge.pass_time(50)
    assert watcher.bodies() == [], "once"


def test_a_will_comes_at_the_end_of_its_session_if_that_is_sooner() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    delayed = replace(GONE, properties=Properties(will_delay_s=50))
    edge.connect("a", expiry_s=5, will=delayed).lose()
    edge.pass_time(5)
    assert watcher.bodies() == [b"gone"]
    edge.connect("a", expiry_s=50, will=delayed).lose()
    edge.connect("a", clean=True)
    assert watcher.bodies() == [b"gone"]


@pytest.mark.parametrize(("clean", "bodies"), [(False, []), (True, [b"gone"])])
def test_a_delayed_will_of_who_is_taken_over_is_sent_only_if_the_session_ends(clean: bool, bodies: list[bytes]) -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    edge.connect("a", expiry_s=50, will=replace(GONE, properties=Properties(will_delay_s=5)))
    edge.connect("a", clean=clean, expiry_s=50)
    edge.pass_time(60)
    assert watcher.bodies() == bodies


def test_a_retained_will_is_kept_and_its_message_counted_like_any_other() -> None:
    edge = EdgeInMemory()
    edge.connect("a", will=replace(GONE, retain=True)).lose()
    assert edge.broker.counts.accepted == 1
    later = edge.restarted()
    watcher = later.connect("w")
    watcher.subscribe("will")
    assert watcher.bodies() == [b"gone"]


def test_a_will_is_valid_from_when_it_is_published() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    client = edge.connect("a", will=replace(GONE, properties=Properties(message_expiry_s=7)))
    edge.pass_time(100)
    client.lose()
    (message,) = watcher.messages()
    assert message.properties.message_expiry_s == 7


def test_a_subscription_ends_with_its_time_window() -> None:
    # T7
    edge = EdgeInMemory()
    client = edge.connect("a", expiry_s=100)
    client.subscribe("t", properties=words(time_window=f"{after(0)}/{after(10)}"))
    publisher = edge.connect("p")
    publisher.publish("t", b"1")
    edge.pass_time(11)
    publisher.publish("t", b"2")
    assert client.bodies() == [b"1"]
    assert edge.session("a").subscriptions == {}
    assert edge.kept.load().subscriptions == {}


def test_a_time_window_that_is_over_is_refused() -> None:
    edge = EdgeInMemory()
    edge.pass_time(100)
    answer = edge.connect("a").subscribe("t", properties=words(time_window=f"{after(0)}/{after(10)}"))
    assert answer.codes[0] >= Code.UNSPECIFIED_ERROR


def test_an_address_decides_who_gets_a_message_subscribed_or_not() -> None:
    # M5, M15
    edge = EdgeInMemory()
    clients = {}
    for name, at in (("near", "40.0,-111.0"), ("far", "41.0,-111.0")):
        clients[name] = edge.connect(name, properties=words(report=at))
    clients["unknown"] = edge.connect("unknown")
    sender = edge.connect("sender")
    for to, takers in (
        ("area:circle 40.0,-111.0 1000", {"near"}),
        ("endpoint:far", {"far"}),
        ("endpoint:nobody", set()),
        ("everyone", {"near", "far", "unknown"}),
    ):
        sender.publish("t", b"x", 1, properties=words(to=to))
        assert {name for name, client in clients.items() if client.bodies()} == takers, to


def test_m26_an_alert_for_a_road_goes_to_those_who_drive_towards_it_not_to_the_other_side() -> None:
    edge = EdgeInMemory()
    said = {"there": "40.0,-111.0,90,20", "back": "40.0,-111.0,270,20", "off": "40.001,-111.0"}
    clients = {name: edge.connect(name, properties=words(report=report)) for name, report in said.items()}
    road = "UPSTREAM ((-111.01 40.0, -110.99 40.0; 15, 60 0, 1700 0))"
    edge.connect("sender").publish("t", b"x", 1, properties=words(to=f"area:{road}"))
    assert {name for name, client in clients.items() if client.bodies()} == {"there"}


def test_a_message_within_an_area_reaches_subscribers_that_are_there() -> None:
    edge = EdgeInMemory()
    near, far = edge.connect("near", properties=words(report="40.0,-111.0")), edge.connect("far")
    for client in (near, far):
        client.subscribe("t")
    edge.connect("p").publish("t", b"x", properties=words(within="circle 40.0,-111.0 1000"))
    assert (near.bodies(), far.bodies()) == ([b"x"], [])


@pytest.mark.parametrize("to", [{"to": "everyone"}, {}])
def test_a_message_that_expired_before_it_came_is_for_nobody_and_harms_no_later_one(to: dict[str, str]) -> None:
    edge = EdgeInMemory()
    taker, sender = edge.connect("a", expiry_s=100), edge.connect("p")
    taker.subscribe("t", qos=1)
    sender.publish("t", b"old", 1, properties=words(seen_at=after(-9), valid_until=after(-5), **to))
    assert edge.session("a").in_flight == {}
    sender.publish("t", b"new", 1, properties=Properties(content_type="text"))
    assert taker.bodies() == [b"new"]


@pytest.mark.parametrize("to", [{"to": "everyone"}, {}])
def test_a_message_that_ends_before_it_was_seen_is_refused_as_a_whole(to: dict[str, str]) -> None:
    edge = EdgeInMemory()
    taker, sender = edge.connect("a", expiry_s=100), edge.connect("p")
    taker.subscribe("t", qos=1)
    sender.publish("t", b"odd", 1, retain=True, properties=words(valid_until=after(-5), **to))
    assert edge.broker.counts.refused == {Reason.VALIDITY_BACKWARDS: 1}
    assert edge.session("a").in_flight == {}
    assert len(edge.broker.retained) == 0


def test_what_the_edge_says_of_itself_is_retained_and_neither_kept_nor_counted() -> None:
    edge = EdgeInMemory()
    said = publication(b"1", "$SYS/x", qos=0, is_retained=True)
    said.origin = EDGE_ITSELF
    edge.broker.accept(said, None, edge.now)
    client = edge.connect("a")
    client.subscribe("$SYS/#")
    assert client.bodies() == [b"1"]
    assert edge.kept.load().retained == {}
    assert edge.broker.counts.accepted == 0


def test_while_nothing_can_be_kept_only_what_would_have_to_be_is_refused() -> None:
    edge = EdgeInMemory()
    kept, other, sender = edge.connect("k", expiry_s=100), edge.connect("o"), edge.connect("s")
    kept.subscribe("k", "both", qos=1)
    other.subscribe("o", qos=1)
    edge.broker.trouble = "disk full"
    refused = {}
    for topic, qos, retain in (("k", 1, False), ("k", 0, False), ("o", 1, False), ("o", 0, True)):
        sender.publish(topic, b"x", qos, retain=retain)
        refused[topic, qos, retain] = edge.broker.counts.refused[Reason.STORAGE_UNAVAILABLE]
    assert list(refused.values()) == [1, 1, 1, 2]
    assert (kept.bodies(), other.bodies()) == ([b"x"], [b"x"])
    assert kept.subscribe(Request("new")).codes[0] >= Code.UNSPECIFIED_ERROR
    assert other.subscribe(Request("new")).codes == (Code.SUCCESS,)
    denied, let_in = edge.connect("x", expiry_s=10), edge.connect("y")
    assert not denied.is_open
    assert let_in.is_open


def test_subscriptions_are_limited_for_each_endpoint_and_one_may_be_replaced() -> None:
    edge = EdgeInMemory(limits=replace(SMALL, subscriptions_each_max=2))
    client = edge.connect("a")
    answer = client.subscribe("1", "2", "3", "2")
    assert [code >= Code.UNSPECIFIED_ERROR for code in answer.codes] == [False, False, True, False]
    assert edge.broker.counts.refused == {Reason.SUBSCRIPTIONS_FULL: 1}


def test_coming_and_going_leaves_nothing_behind() -> None:
    edge = EdgeInMemory()
    for _ in range(300):
        edge.connect("a", clean=False, expiry_s=1000).lose()
    assert len(edge.broker._session_timers) < 100


def test_a_retained_message_for_one_endpoint_is_not_given_to_others() -> None:
    edge = EdgeInMemory()
    edge.connect("p").publish("t", b"secret", 1, retain=True, properties=words(to="endpoint:friend"))
    stranger = edge.connect("stranger")
    stranger.subscribe("#")
    assert stranger.bodies() == []


def test_a_will_that_says_until_when_it_is_valid_is_not_published_after_that() -> None:
    edge = EdgeInMemory()
    watcher = edge.connect("w")
    watcher.subscribe("will")
    client = edge.connect("a", will=replace(GONE, properties=words(valid_until=after(5))))
    edge.pass_time(100)
    client.lose()
    assert watcher.bodies() == []
