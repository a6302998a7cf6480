"""Attack: a client keeps what it had when the operator revokes its rights. SIGHUP takes effect at once, on everything."""

import pytest

from live.attacks.edge_rules import change_password, reload_now, reload_with, remove_user, revoked, rule
from live.mqtt.connections import ConnectTo, MakeBroker
from live.mqtt.packets import V4, V5, Kind, P, Will, publish
from live.mqtt.raw_client import RawClient

LASTING = [(P.SESSION_EXPIRY, 300)]
NOT_AUTHORIZED = 0x87
SECRET = rule("secret/#")
BOTH = pytest.mark.parametrize("level", [V4, V5])


def payloads(client: RawClient) -> list[bytes]:
    return [one.payload for one in client.drain() if one.kind is Kind.PUBLISH]


@BOTH
@pytest.mark.parametrize("qos", [0, 1])
def test_a_live_wildcard_subscription_loses_the_topic(
    make_broker: MakeBroker, connect_to: ConnectTo, level: int, qos: int
) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    spy, narrow, sender = (connections.join(one, level) for one in ("spy", "narrow", "sender"))
    spy.subscribe(("#", qos))
    narrow.subscribe(("secret/plan", qos))
    sender.publish("secret/plan", b"before", qos=qos)
    assert (spy.message().payload, narrow.message().payload) == (b"before", b"before")
    line = reload_with(broker, SECRET)
    sender.publish("secret/plan", b"after", qos=qos)
    sender.publish("open", b"open", qos=qos)
    assert spy.message().payload == b"open"
    assert narrow.drain() == []
    assert revoked(line, "subscriptions_ended") == 1


def test_the_queue_of_a_disconnected_session_loses_the_topic_also_in_storage(
    make_broker: MakeBroker, connect_to: ConnectTo
) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    spy, sender = connections.join("spy", clean=True, props=LASTING), connections.join("sender")
    spy.subscribe(("#", 2))
    spy.drop()
    for qos in (1, 2):
        sender.publish("secret/plan", b"secret", qos=qos)
        sender.publish("open", b"open", qos=qos)
    line = reload_with(broker, SECRET)
    again = connections.join("spy", clean=False, props=LASTING)
    assert payloads(again) == [b"open", b"open"]
    assert revoked(line, "messages_dropped") == 2
    again.drop()
    broker.kill()
    path = broker.setup.folder / "edge.toml"
    path.write_text(path.read_text().replace(SECRET, ""))
    broker.start()
    assert payloads(connections.join("spy", clean=False, props=LASTING)) == [b"open", b"open"]


def test_messages_behind_the_window_are_dropped(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    spy, sender = connections.join("spy", props=[(P.RECEIVE_MAXIMUM, 1)]), connections.join("sender")
    spy.subscribe(("#", 1))
    for number in range(6):
        sender.publish("secret/plan" if number % 2 else "open", b"%d" % number, qos=1)
    reload_with(broker, SECRET)
    found = []
    for _ in range(3):
        found.append(spy.message())
        spy.finish(found[-1])
    assert [one.payload for one in found] == [b"0", b"2", b"4"]
    assert spy.drain() == []


@pytest.mark.parametrize("qos", [1, 2])
def test_a_message_in_flight_is_not_sent_again(make_broker: MakeBroker, connect_to: ConnectTo, qos: int) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    spy, sender = connections.join("spy", props=LASTING), connections.join("sender")
    spy.subscribe(("#", 2))
    sender.publish("secret/plan", b"secret", qos=qos)
    sender.publish("open", b"open", qos=qos)
    first = spy.messages(2)
    spy.drop()
    reload_with(broker, SECRET)
    again = connections.join("spy", clean=False, props=LASTING)
    found = again.drain()
    assert [one.payload for one in found if one.kind is Kind.PUBLISH] == [b"open"]
    released = [one.packet_id for one in found if one.kind is Kind.PUBREL]
    assert released == ([first[0].packet_id] if qos == 2 else []), "an exchange that has begun goes on without the message"


def test_a_topic_alias_grants_no_revoked_right_to_publish(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    reader, sender = connections.join("reader"), connections.join("sender")
    reader.subscribe(("#", 0))
    alias = [(P.TOPIC_ALIAS, 1)]
    sender.publish("closed", b"before", qos=1, props=alias)
    reload_with(broker, rule("closed", "publish"))
    answer = sender.publish("", b"after", qos=1, props=alias)
    assert answer is not None
    assert answer.reason == NOT_AUTHORIZED
    assert payloads(reader) == [b"before"]


def test_a_topic_alias_of_the_edge_grants_no_revoked_right_to_read(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    spy, sender = connections.join("spy", props=[(P.TOPIC_ALIAS_MAXIMUM, 5)]), connections.join("sender")
    spy.subscribe(("#", 0))
    sender.publish("secret/plan", b"before")
    assert spy.message().payload == b"before"
    reload_with(broker, SECRET)
    sender.publish("secret/plan", b"after")
    sender.publish("open", b"open")
    assert spy.message().payload == b"open"


def test_an_open_qos_2_exchange_of_a_publisher_ends_and_delivers_nothing_more(
    make_broker: MakeBroker, connect_to: ConnectTo
) -> None:
    """A message is delivered at PUBLISH: its duplicate is acknowledged and not delivered, a new one is refused."""
    broker = make_broker()
    connections = connect_to(broker)
    reader, sender = connections.join("reader"), connections.join("sender")
    reader.subscribe(("#", 0))
    sender.send(publish("closed", b"before", V5, qos=2, packet_id=7))
    assert sender.take(Kind.PUBREC).reason == 0
    assert reader.message().payload == b"before"
    reload_with(broker, rule("closed", "publish"))
    sender.send(publish("closed", b"forged", V5, qos=2, packet_id=7, dup=True))
    assert sender.take(Kind.PUBREC).reason == 0
    sender.acknowledge(Kind.PUBREL, 7)
    assert sender.take(Kind.PUBCOMP).reason == 0
    sender.send(publish("closed", b"again", V5, qos=2, packet_id=7, dup=True))
    assert sender.take(Kind.PUBREC).reason == NOT_AUTHORIZED
    assert reader.drain() == []


@pytest.mark.parametrize("change", ["removed", "new password"])
def test_clients_of_a_user_that_can_no_longer_log_in_are_disconnected(
    make_broker: MakeBroker, connect_to: ConnectTo, change: str
) -> None:
    broker = make_broker(users={"ada": "a", "bob": "b"})
    connections = connect_to(broker)
    ada = connections.join("1", user="ada", password=b"a", will=Will("open", b"last words"))
    bob = connections.join("2", user="bob", password=b"b")
    bob.subscribe(("#", 0))
    if change == "removed":
        remove_user(broker, "ada")
    else:
        change_password(broker, "ada", "other")
    line = reload_now(broker)
    assert ada.close_reason() == NOT_AUTHORIZED
    assert bob.drain() == [], "neither is her will published"
    assert revoked(line, "users_ended") == 1
    assert connections.dial().try_join("x", user="ada", password=b"a").reason >= 0x80
