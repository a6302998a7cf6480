"""Over a network that loses, doubles and reorders: everything reliable arrives, once, whatever becomes of sessions."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.client.events import Arrival, Done
from milepost.client.udp.session import Phase
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import parse_query
from milepost.model.sessions import MessageName, Publish, Received, SubscriptionName
from milepost.model.subscriptions import Subscription, SubscriptionId
from unit.client.udp.scripted_edge import CAR, NOW, Network, ScriptedEdge, make_session, message, report_at

SUBSCRIPTION = SubscriptionId(5)


class Repeater:
    """The edge's side of reliable messages: each is said again every second until it is answered."""

    def __init__(self, network: Network, count: int) -> None:
        self._network = network
        self._messages = [message(number, source="car-2") for number in range(1, count + 1)]

    def unanswered(self) -> list[int]:
        heard = {one.name for one in self._network.edge.heard if isinstance(one, Received)}
        return [one.id for one in self._messages if MessageName(one.source, one.id) not in heard]

    def say(self) -> None:
        edge = self._network.edge
        if edge.sessions and edge.sessions[edge.token].is_confirmed:
            self._network.send(edge.heartbeat(), to_edge=False)
            for number in self.unanswered():
                self._network.send(edge.say(Publish(self._messages[number - 1])), to_edge=False)


steps = st.lists(st.sampled_from(["publish", "forget", "cut", "mend", "hold", "take", "pass"]), max_size=12)


@given(
    seed=st.integers(0, 2**32),
    is_sealed=st.booleans(),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    doubling=st.sampled_from([0.0, 0.3]),
    script=steps,
)
def test_all_that_is_reliable_arrives_and_is_shown_once(
    seed: int, is_sealed: bool, loss: float, doubling: float, script: list[str]
) -> None:
    session = make_session(is_sealed=is_sealed, seed=seed)
    network = Network(session, ScriptedEdge(is_sealed=is_sealed), seed, loss=loss, doubling=doubling)
    repeater = Repeater(network, 5)
    session.start(report_at(NOW), NOW)
    session.subscribe(Subscription(CAR, parse_query("ice"), id=SUBSCRIPTION), NOW)
    published = 0
    for step in script:
        if step == "publish":
            published += 1
            session.publish(message(published, now=network.now), network.now)
        elif step == "forget":
            network.edge.forget()
        elif step in ("cut", "mend"):
            network.loss = 1.0 if step == "cut" else loss
        elif step in ("hold", "take"):
            network.takes = (lambda: False) if step == "hold" else (lambda: True)
        repeater.say()
        network.run_until(Instant(network.now + 2 * SECOND_NS))
    network.loss, network.takes = 0.0, lambda: True
    for event in network.events:
        if isinstance(event, Arrival) and event.receipt is not None:
            session.acknowledge(event.receipt)
    for _ in range(60):
        repeater.say()
        network.run_until(Instant(network.now + SECOND_NS))

    assert session.phase in (Phase.OPEN, Phase.RENEWING)
    assert sorted(number for _, number in network.shown()) == [1, 2, 3, 4, 5]
    assert repeater.unanswered() == []
    assert {number for _, number in network.edge.names()} == set(range(1, published + 1))
    done = [event for event in network.events if isinstance(event, Done)]
    assert [event for event in done if event.refused is not None] == []
    assert sorted(event.key.id for event in done if isinstance(event.key, MessageName)) == list(range(1, published + 1))
    assert SubscriptionName(CAR, SUBSCRIPTION) in [event.key for event in done]
    assert network.edge.sessions[network.edge.token].subscriptions == {SUBSCRIPTION}


@given(data=st.lists(st.binary(max_size=200), max_size=20), is_sealed=st.booleans(), kind=st.integers(0, 8))
def test_whatever_bytes_arrive_the_session_goes_on(data: list[bytes], is_sealed: bool, kind: int) -> None:
    session = make_session(is_sealed=is_sealed)
    edge = ScriptedEdge(is_sealed=is_sealed)
    session.start(report_at(NOW), NOW)
    for answer in [answer for one in session.take_outgoing() for answer in edge.on_datagram(one, NOW)]:
        session.on_datagram(answer, NOW)
    for noise in data:
        session.on_datagram(noise, NOW)
        session.on_datagram(bytes([kind]) + noise, NOW)
    assert session.phase is Phase.OPEN
    session.publish(message(1), NOW)
    for one in session.take_outgoing():
        edge.on_datagram(one, NOW)
    assert edge.names() == [(CAR, 1)]


@given(seed=st.integers(0, 2**32))
def test_equal_calls_give_equal_bytes(seed: int) -> None:
    def run() -> list[bytes]:
        session, sent = make_session(seed=seed), []
        session.start(report_at(NOW), NOW)
        for step in range(20):
            sent += session.take_outgoing()
            session.on_tick(Instant(NOW + step * SECOND_NS))
        return sent

    assert run() == run()
