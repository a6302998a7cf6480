"""Attack: a will, accepted while its client had the right to publish it, fires after that right was revoked."""

import time

import pytest

from live.attacks.edge_rules import reload_now, reload_with, remove_user, rule
from live.mqtt.brokers import Broker
from live.mqtt.connections import Connections, ConnectTo, MakeBroker
from live.mqtt.packets import P, Will
from live.mqtt.raw_client import RawClient

LASTING = [(P.SESSION_EXPIRY, 300)]
DELAY_S = 2


def watcher_of(connections: Connections) -> RawClient:
    watcher = connections.join("watcher", clean=False, props=LASTING)
    watcher.subscribe(("#", 1))
    return watcher


def wait_for_wills(connections: Connections, watcher: RawClient) -> list[bytes]:
    """Return the messages until the will of another client, whose rights were not revoked, was published, too."""
    delay = [(P.WILL_DELAY, DELAY_S)]
    connections.join("honest", props=LASTING, will=Will("open", b"honest", props=delay)).reset()
    found = []
    while (message := watcher.message()).payload != b"honest":
        found.append(message.payload)
    return found


@pytest.mark.parametrize("is_connected", [True, False])
def test_a_will_is_refused_by_rules_that_came_after_it(
    make_broker: MakeBroker, connect_to: ConnectTo, is_connected: bool
) -> None:
    """Also a delayed one, whose client has published on the topic before and has disconnected."""
    broker = make_broker()
    connections = connect_to(broker)
    watcher = watcher_of(connections)
    delay = [(P.WILL_DELAY, DELAY_S)]
    mallory = connections.join("mallory", props=LASTING, will=Will("closed", b"forged", props=delay))
    mallory.publish("closed", b"before", qos=1)
    assert watcher.message().payload == b"before"
    if not is_connected:
        mallory.drop()
    reload_with(broker, rule("closed", "publish"))
    mallory.close()
    assert wait_for_wills(connections, watcher) == []


def restarted(broker: Broker, more: str) -> None:
    """Restart the edge, which writes its settings again, with more rules."""
    broker.kill()
    object.__setattr__(broker.setup, "more", broker.setup.more + more)
    broker.start()


def test_a_will_is_refused_by_rules_that_changed_while_the_edge_was_down(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    watcher_of(connections)
    connections.join("mallory", props=LASTING, will=Will("closed", b"forged", qos=1))
    restarted(broker, rule("closed", "publish"))
    assert wait_for_wills(connections, watcher_of(connections)) == []


def test_a_will_does_not_reach_a_client_that_may_no_longer_read_it(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker()
    connections = connect_to(broker)
    watcher = watcher_of(connections)
    owner = connections.join("owner", will=Will("secret/plan", b"secret"))
    reload_with(broker, rule("secret/#"))
    owner.reset()
    assert wait_for_wills(connections, watcher) == []


def test_the_delayed_will_of_a_removed_user_is_not_published(make_broker: MakeBroker, connect_to: ConnectTo) -> None:
    broker = make_broker(users={"ada": "a", "bob": "b"})
    connections = connect_to(broker)
    watcher = connections.join("watcher", user="bob", password=b"b")
    watcher.subscribe(("#", 0))
    will = Will("open", b"last words", props=[(P.WILL_DELAY, 1)])
    connections.join("ada", user="ada", password=b"a", props=LASTING, will=will).drop()
    remove_user(broker, "ada")
    reload_now(broker)
    time.sleep(2)  # the delay of the will is over
    assert watcher.drain() == []
