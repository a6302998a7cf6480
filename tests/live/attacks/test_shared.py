"""Attack: a member of a shared subscription that may not read a topic takes its turn: another member gets the message."""

from live.attacks.edge_rules import rule
from live.mqtt.connections import ConnectTo, MakeBroker

COUNT = 6


def test_a_share_serves_only_members_that_may_read_the_topic(make_broker: MakeBroker, connect_to: ConnectTo, name: str) -> None:
    connections = connect_to(make_broker(more=rule("secret/#", client=f"{name}spy")))
    spy, reader, sender = (connections.join(one) for one in ("spy", "reader", "sender"))
    for client in (spy, reader):
        assert client.subscribe(("$share/g/#", 1)).codes == (1,)
    for number in range(COUNT):
        sender.publish("secret/plan", b"%d" % number, qos=1)
    assert [reader.message().payload for _ in range(COUNT)] == [b"%d" % number for number in range(COUNT)]
    assert spy.drain() == []
    for _ in range(2):
        sender.publish("open", b"x", qos=1)
    assert (len(spy.drain()), len(reader.drain())) == (1, 1), "they take turns on topics that both may read"


def test_a_share_of_which_no_member_may_read_a_topic_gets_nothing(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    connections = connect_to(make_broker(more=rule("secret/#")))
    spy, sender = connections.join("spy"), connections.join("sender")
    assert spy.subscribe(("$share/g/+/plan", 1)).codes == (1,)
    answer = sender.publish("secret/plan", b"x", qos=1)
    assert answer is not None
    assert answer.reason == 0x10, "no matching subscribers"
    assert spy.drain() == []
