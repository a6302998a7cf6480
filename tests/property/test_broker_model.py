"""The broker against a model of lists and loops: both deliver the same, whatever clients do and however often it restarts."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_in_memory import START, Client, EdgeInMemory
from effort import examples
from milepost.broker.limits import BrokerLimits
from milepost.broker.session import Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    FilterRequest,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Unsuback,
    Unsubscribe,
    Version,
)
from model_broker import Choice, ModelBroker, ModelDelivery, ModelSession

WINDOW = 3
LIMITS = BrokerLimits(sessions_max=16, subscriptions_max=64, in_flight_max=WINDOW)
FOR_V3_S = LIMITS.session_expiry_s_max

NAMES = ("ann", "bob", "cid")
names = st.sampled_from(NAMES)
topics = st.sampled_from(["a", "a/b", "a/c", "b"])
filters = st.sampled_from(["a", "a/b", "a/+", "#", "+", "a/#", "+/b", "$share/g/a/#", "$share/g/+", "$share/h/a/b"])
qos_levels = st.integers(0, 2)
versions = st.sampled_from(list(Version))


ARGUMENTS: dict[str, tuple[int, st.SearchStrategy[tuple[object, ...]]]] = {
    "connect": (4, st.tuples(names, versions, st.booleans(), st.sampled_from([0, 30, 1000, 1000]), st.integers(1, WINDOW))),
    "subscribe": (4, st.tuples(names, filters, qos_levels, st.tuples(st.booleans(), st.booleans(), qos_levels), qos_levels)),
    "unsubscribe": (1, st.tuples(names, filters)),
    "publish": (
        6,
        st.tuples(names, topics, qos_levels, st.booleans(), st.booleans(), st.sampled_from([None, 5]), st.none() | names),
    ),
    "publish_two": (6, st.tuples(st.tuples(names, names), topics, qos_levels, st.booleans(), names)),
    "publish_again": (1, st.tuples(names, topics)),
    "end_exchanges": (1, st.tuples(names)),
    "acknowledge": (6, st.tuples(names, st.integers(0, WINDOW - 1), st.booleans())),
    "acknowledge_all": (2, st.tuples(names)),
    "leave": (3, st.tuples(names, st.booleans(), st.sampled_from([None, None, 0, 5]))),
    "pass_time": (1, st.tuples(st.sampled_from([1, 6, 40]))),
    "restart": (1, st.tuples()),
}
"""Steps, with their weights and arguments."""

WEIGHTED = [name for name, (weight, _) in ARGUMENTS.items() for _ in range(weight)]
steps = st.sampled_from(WEIGHTED).flatmap(lambda name: st.tuples(st.just(name), ARGUMENTS[name][1]))


def outstanding(session: Session) -> dict[int, int]:
    """Return the packet ids of all messages that a session has not acknowledged, with their QoS."""
    waiting = session.queue.all() if session.queue is not None else []
    return {number: delivery.qos for number, delivery in (*session.in_flight.items(), *waiting)}


class Edges(RuleBasedStateMachine):
    """One edge through several restarts, its clients, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = EdgeInMemory(limits=LIMITS)
        self.model = ModelBroker(START)
        self.clients: dict[str, Client] = {}
        self.bodies = 0

    @initialize(
        filters_of=st.lists(st.tuples(names, filters, qos_levels), min_size=3, max_size=6), versions=st.tuples(*[versions] * 3)
    )
    def begin(self, filters_of: list[tuple[str, str, int]], versions: tuple[Version, ...]) -> None:
        for name, version in zip(NAMES, versions, strict=True):
            self.connect(name, version, False, 1000)
        for name, topic_filter, qos in filters_of:
            self.subscribe(name, topic_filter, qos, (False, False, 0), 0)

    def connected(self, name: str) -> ModelSession | None:
        session = self.model.sessions.get(name)
        return session if session is not None and session.is_connected else None

    def actor(self, name: str) -> tuple[str, ModelSession]:
        """Return a connected client: the named one or, if that is disconnected, another."""
        at = NAMES.index(name)
        for other in (*NAMES[at:], *NAMES[:at]):
            if (session := self.connected(other)) is not None:
                return other, session
        self.connect(name, Version.V5, False, 1000)
        return name, self.model.sessions[name]

    def observe(self) -> dict[str, list[Packet]]:
        """Let every client receive; return the packets that are no messages."""
        self.edge.run_ticks()
        others: dict[str, list[Packet]] = {}
        for name, client in self.clients.items():
            if (session := self.connected(name)) is None:
                continue
            others[name] = []
            for packet in client.take():
                if isinstance(packet, Publish):
                    session.on_message(packet, self.model.now)
                else:
                    others[name].append(packet)
        return others

    def connect(self, name: str, version: Version, clean: bool, expiry_s: int, window: int = WINDOW) -> None:
        if version is Version.V3:
            expiry_s, window = 0 if clean else FOR_V3_S, WINDOW
        session = self.model.sessions.get(name)
        if session is not None and session.is_connected:
            self.model.disconnect(session)
            session = self.model.sessions.get(name)
        if session is not None and clean:
            self.model.end(session)
            session = None
        if session is None:
            self.model.sessions[name] = ModelSession(name, version, expiry_s, window)
        else:
            self.model.resume(session, version, expiry_s, window)
        if name in self.clients:
            self.clients[name].take()
        v5_expiry_s = expiry_s if version is Version.V5 else 0
        properties = Properties(receive_maximum=window) if window != WINDOW else NO_PROPERTIES
        client = self.edge.connect(name, version, clean=clean, expiry_s=v5_expiry_s, properties=properties)
        self.clients[name] = client
        assert client.connack is not None
        assert client.connack.session_present == (session is not None)
        repeated = self.observe()[name]
        released = [delivery.number for delivery in session.waiting if delivery.is_released] if session is not None else []
        assert sorted(repeated, key=str) == sorted([Acknowledge(PacketType.PUBREL, number) for number in released], key=str)

    def subscribe(self, name: str, topic_filter: str, qos: int, flags: tuple[bool, bool, int], subscription_id: int) -> None:
        name, session = self.actor(name)
        request, client = FilterRequest(topic_filter, qos), self.clients[name]
        if session.version is Version.V5:
            no_local, as_published, handling = flags
            request = FilterRequest(topic_filter, qos, no_local and not topic_filter.startswith("$share"), as_published, handling)
        else:
            subscription_id = 0
        self.model.subscribe(session, request, subscription_id)
        answer = client.subscribe(request, subscription_id=subscription_id)
        assert isinstance(answer, Suback)
        assert answer.codes == (Code(qos),)
        assert self.observe()[name] == []

    def unsubscribe(self, name: str, topic_filter: str) -> None:
        name, session = self.actor(name)
        was_subscribed = session.subscriptions.pop(topic_filter, None) is not None
        (answer,) = self.clients[name].request(Unsubscribe(7, (topic_filter,)))
        assert isinstance(answer, Unsuback)
        if session.version is Version.V5:
            assert answer.codes == (Code.SUCCESS if was_subscribed else Code.NO_SUBSCRIPTION_EXISTED,)
        self.observe()

    def publish(
        self, name: str, topic: str, qos: int, retain: bool, is_empty: bool, expiry_s: int | None, acknowledging: str | None
    ) -> None:
        name, session = self.actor(name)
        if len(session.open_packet_ids) > 5:
            return
        if acknowledging is not None:
            self.acknowledge_in_the_same_tick(acknowledging)
        expiry_s = expiry_s if session.version is Version.V5 else None
        until = FOREVER if expiry_s is None else Instant(self.model.now + expiry_s * SECOND_NS)
        self.bodies += 1
        body = b"" if retain and is_empty else str(self.bodies).encode()
        number = next(one for one in range(1, 9) if one not in session.open_packet_ids) if qos else None
        before = {one.name: outstanding(one) for one in self.edge.broker.sessions}
        expected = self.model.publish(name, topic, body, qos, retain=retain, until=until)
        properties = NO_PROPERTIES if expiry_s is None else Properties(message_expiry_s=expiry_s)
        self.clients[name].send(Publish(topic, body, qos, retain, False, number, properties))
        self.edge.run_ticks()
        self.model.settle_shares(
            expected, self.found(before), ModelDelivery(topic, body, qos, retain, (), until, self.model.publications)
        )
        has_no_receivers = not expected.count and session.version is Version.V5
        code = Code.NO_MATCHING_SUBSCRIBERS if has_no_receivers else Code.SUCCESS
        kind = PacketType.PUBACK if qos == 1 else PacketType.PUBREC
        assert self.observe()[name] == ([Acknowledge(kind, number, code)] if number else [])
        if qos == 2 and number is not None:
            session.open_packet_ids.add(number)

    def publish_two(self, names: tuple[str, str], topic: str, qos: int, retain: bool, acknowledging: str) -> None:
        """Publish twice in a row, the most frequent case in practice."""
        self.publish(names[0], topic, qos, retain, False, None, None)
        self.publish(names[1], topic, 1, False, False, None, acknowledging)

    @rule(step=steps)
    def do(self, step: tuple[str, tuple[object, ...]]) -> None:
        """Run one step: with a rule for each kind of step, whole runs would leave out half of them."""
        getattr(self, step[0])(*step[1])

    def acknowledge_in_the_same_tick(self, name: str) -> None:
        """Free a packet id in the same tick in which the next message is published."""
        session = self.connected(name)
        if session is not None and session.in_flight and session.in_flight[0].qos == 1:
            delivery = session.in_flight[0]
            self.clients[name].send(Acknowledge(PacketType.PUBACK, delivery.number))
            session.waiting = [one for one in session.waiting if one is not delivery]

    def found(self, before: dict[EndpointId, dict[int, int]]) -> Counter[Choice]:
        """Return the receivers of a copy since then, and the QoS."""
        found: Counter[Choice] = Counter()
        for name, client in self.clients.items():
            client.read_packets()
            if self.connected(name) is not None:
                found[name, 0] += sum(isinstance(packet, Publish) and packet.qos == 0 for packet in client.inbox)
        for session in self.edge.broker.sessions:
            found.update(
                (session.name, qos) for number, qos in outstanding(session).items() if number not in before[session.name]
            )
        return +found

    def publish_again(self, name: str, topic: str) -> None:
        """Repeat the open QoS 2 messages of a sender: no receiver gets them twice."""
        name, session = self.actor(name)
        for number in sorted(session.open_packet_ids):
            self.clients[name].send(Publish(topic, b"again", 2, False, True, number))
        answers = self.observe()[name]
        assert answers == [Acknowledge(PacketType.PUBREC, number) for number in sorted(session.open_packet_ids)]

    def end_exchanges(self, name: str) -> None:
        name, session = self.actor(name)
        for number in sorted(session.open_packet_ids):
            self.clients[name].send(Acknowledge(PacketType.PUBREL, number))
        answers = self.observe()[name]
        assert answers == [Acknowledge(PacketType.PUBCOMP, number) for number in sorted(session.open_packet_ids)]
        session.open_packet_ids.clear()

    def acknowledge(self, name: str, which: int, is_taken: bool) -> None:
        name, session = self.actor(name)
        if which >= len(session.in_flight):
            return
        delivery, client = session.in_flight[which], self.clients[name]
        if delivery.qos == 2 and not delivery.is_released:
            code = Code.SUCCESS if is_taken or session.version is Version.V3 else Code.UNSPECIFIED_ERROR
            client.send(Acknowledge(PacketType.PUBREC, delivery.number, code))
            if code is Code.SUCCESS:
                delivery.is_released = True
                assert self.observe()[name] == [Acknowledge(PacketType.PUBREL, delivery.number)]
                return
        else:
            client.send(Acknowledge(PacketType.PUBACK if delivery.qos == 1 else PacketType.PUBCOMP, delivery.number))
        session.waiting = [one for one in session.waiting if one is not delivery]
        assert self.observe()[name] == []

    def acknowledge_all(self, name: str) -> None:
        name, session = self.actor(name)
        while session.in_flight:
            self.acknowledge(name, 0, True)

    def leave(self, name: str, is_polite: bool, expiry_s: int | None) -> None:
        name, session = self.actor(name)
        client = self.clients.pop(name)
        if not is_polite:
            self.model.disconnect(session)
            client.drop_connection()
            return
        expiry_s = expiry_s if session.version is Version.V5 and session.expiry_s else None
        self.model.disconnect(session, expiry_s)
        client.disconnect(properties=NO_PROPERTIES if expiry_s is None else Properties(session_expiry_s=expiry_s))

    def pass_time(self, seconds: int) -> None:
        self.model.pass_time(seconds)
        self.edge.pass_time(seconds)
        self.observe()

    def restart(self) -> None:
        self.edge = self.edge.restarted()
        self.clients = {}
        self.model.restart(sum(len(outstanding(one)) for one in self.edge.broker.sessions))
        self.edge.pass_time(0)

    @invariant()
    def every_client_has_received_what_is_due(self) -> None:
        for session in self.model.sessions.values():
            if session.is_connected:
                session.check_quiet(self.model.now)

    @invariant()
    def sessions_and_retained_messages_are_the_same(self) -> None:
        broker = self.edge.broker
        expected = {session.name: set(session.subscriptions) for session in self.model.sessions.values()}
        assert {session.name: set(session.subscriptions) for session in broker.sessions} == expected
        retained = {one.topic: (one.body, one.qos, one.valid_until) for one in broker.retained.find_on_filter("#")}
        assert retained == self.model.retained
        assert set(self.edge.storage.load().retained) == set(retained)

    @invariant()
    def every_delivery_is_accounted_for(self) -> None:
        counts = self.edge.broker.counts
        waiting = sum(len(one.queue) for one in self.edge.broker.sessions if one.queue is not None)
        dropped = counts.dropped.total()
        assert set(counts.dropped) <= {Reason.RECEIVER_OFFLINE, Reason.EXPIRED, Reason.SESSION_EXPIRED}
        found = counts.delivered + waiting + dropped
        assert found == self.model.delivered + self.model.delivered_before + self.model.recounted
        assert self.edge.broker.deliveries.queued_bytes == sum(
            one.queue.size for one in self.edge.broker.sessions if one.queue is not None
        )

    def teardown(self) -> None:
        """Let every client reconnect and acknowledge everything: only sessions and subscriptions remain."""
        for name, session in list(self.model.sessions.items()):
            if not session.is_connected:
                self.connect(name, session.version, False, session.expiry_s)
            self.end_exchanges(name)
            self.acknowledge_all(name)
        self.edge.run_ticks()
        for one in self.edge.broker.sessions:
            assert not one.in_flight
            assert not one.released
        stored = self.edge.storage.load()
        assert (stored.queued, stored.messages, list(stored.received)) == ({}, {}, [])
        durable = {session.name for session in self.model.sessions.values() if session.expiry_s}
        assert {self.edge.session(name).number for name in durable} == set(stored.sessions)
        subscriptions = {
            (self.edge.session(name).number, one) for name in durable for one in self.model.sessions[name].subscriptions
        }
        assert set(stored.subscriptions) == subscriptions


TestEdges = Edges.TestCase
TestEdges.settings = settings(max_examples=examples(fast=25, full=150), stateful_step_count=50)
