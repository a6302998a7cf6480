"""Over a network that loses, duplicates and reorders: reliable messages arrive exactly once, across sessions."""

from hypothesis import given
from hypothesis import strategies as st

from milepost.client.events import Arrival, Done
from milepost.client.udp.session import UdpPhase
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import parse_query
from milepost.model.session_datagrams import MessageName, PublishDatagram, ReceivedDatagram, SubscriptionName
from milepost.model.subscriptions import Subscription, SubscriptionId
from unit.client.udp.scripted_edge import CAR, NOW, Network, ScriptedEdge, make_session, message, report_at

SUBSCRIPTION = SubscriptionId(5)


class Repeater:
    """The edge's side of reliable messages: each is resent every second until it is acknowledged."""

    def __init__(self, network: Network, count: int) -> None:
        self._network = network
        self._messages = [message(number, source="car-2") for number in range(1, count + 1)]

    def unanswered(self) -> list[int]:
        acknowledged = {one.name for one in self._network.edge.received if isinstance(one, ReceivedDatagram)}
        return [one.id for one in self._messages if MessageName(one.source, one.id) not in acknowledged]

    def datagram_of(self) -> None:
        edge = self._network.edge
        if edge.sessions and edge.sessions[edge.token].is_confirmed:
            self._network.send(edge.heartbeat(), to_edge=False)
            for number in self.unanswered():
                self._network.send(edge.datagram_of(PublishDatagram(self._messages[number - 1])), to_edge=False)


steps = st.lists(st.sampled_from(["publish", "forget", "cut", "mend", "hold", "take", "pass"]), max_size=12)


@given(
    seed=st.integers(0, 2**32),
    is_sealed=st.booleans(),
    loss=st.sampled_from([0.0, 0.1, 0.4]),
    doubling=st.sampled_from([0.0, 0.3]),
    script=steps,
)
def test_reliable_messages_arrive_exactly_once_over_a_lossy_network(
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
            network.takes_messages = (lambda: False) if step == "hold" else (lambda: True)
        repeater.datagram_of()
        network.run_until(Instant(network.now + 2 * SECOND_NS))
    network.loss, network.takes_messages = 0.0, lambda: True
    for event in network.events:
        if isinstance(event, Arrival) and event.receipt is not None:
            session.acknowledge(event.receipt)
    for _ in range(60):
        repeater.datagram_of()
        network.run_until(Instant(network.now + SECOND_NS))

    assert session.phase in (UdpPhase.OPEN, UdpPhase.RENEWING)
    assert sorted(number for _, number in network.delivered()) == [1, 2, 3, 4, 5]
    assert repeater.unanswered() == []
    assert {number for _, number in network.edge.names()} == set(range(1, published + 1))
    done = [event for event in network.events if isinstance(event, Done)]
    assert [event for event in done if event.refused is not None] == []
    assert sorted(event.key.id for event in done if isinstance(event.key, MessageName)) == list(range(1, published + 1))
    assert SubscriptionName(CAR, SUBSCRIPTION) in [event.key for event in done]
    assert network.edge.sessions[network.edge.token].subscriptions == {SUBSCRIPTION}


@given(data=st.lists(st.binary(max_size=200), max_size=20), is_sealed=st.booleans(), kind=st.integers(0, 8))
def test_arbitrary_bytes_do_not_end_the_session(data: list[bytes], is_sealed: bool, kind: int) -> None:
    session = make_session(is_sealed=is_sealed)
    edge = ScriptedEdge(is_sealed=is_sealed)
    session.start(report_at(NOW), NOW)
    for answer in [answer for one in session.take_outgoing() for answer in edge.on_datagram(one, NOW)]:
        session.on_datagram(answer, NOW)
    for noise in data:
        session.on_datagram(noise, NOW)
        session.on_datagram(bytes([kind]) + noise, NOW)
    assert session.phase is UdpPhase.OPEN
    session.publish(message(1), NOW)
    for one in session.take_outgoing():
        edge.on_datagram(one, NOW)
    assert edge.names() == [(CAR, 1)]


@given(seed=st.integers(0, 2**32))
def test_the_same_calls_produce_the_same_bytes(seed: int) -> None:
    def run() -> list[bytes]:
        session, sent = make_session(seed=seed), []
        session.start(report_at(NOW), NOW)
        for step in range(20):
            sent += session.take_outgoing()
            session.on_tick(Instant(NOW + step * SECOND_NS))
        return sent

    assert run() == run()
