"""The broker against a model of lists and loops: whatever clients do and however often it dies, both agree on who gets what."""

from collections import Counter

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from edge_in_memory import START, Client, EdgeInMemory
from effort import examples
from milepost.broker.limits import Limits
from milepost.broker.session import Session
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    Kind,
    Packet,
    Properties,
    Publish,
    Request,
    Suback,
    Unsuback,
    Unsubscribe,
    Version,
)
from model_broker import Choice, ModelBroker, ModelSession, Said

WINDOW = 3
LIMITS = Limits(sessions_max=16, subscriptions_max=64, in_flight_max=WINDOW)
FOR_V3_S = LIMITS.session_expiry_s_max

NAMES = ("ann", "bob", "cid")
names = st.sampled_from(NAMES)
topics = st.sampled_from(["a", "a/b", "a/c", "b"])
filters = st.sampled_from(["a", "a/b", "a/+", "#", "+", "a/#", "+/b", "$share/g/a/#", "$share/g/+", "$share/h/a/b"])
qualities = st.integers(0, 2)
versions = st.sampled_from(list(Version))


ARGUMENTS: dict[str, tuple[int, st.SearchStrategy[tuple[object, ...]]]] = {
    "connect": (4, st.tuples(names, versions, st.booleans(), st.sampled_from([0, 30, 1000, 1000]), st.integers(1, WINDOW))),
    "subscribe": (4, st.tuples(names, filters, qualities, st.tuples(st.booleans(), st.booleans(), qualities), qualities)),
    "unsubscribe": (1, st.tuples(names, filters)),
    "publish": (
        6,
        st.tuples(names, topics, qualities, st.booleans(), st.booleans(), st.sampled_from([None, 5]), st.none() | names),
    ),
    "publish_two": (6, st.tuples(st.tuples(names, names), topics, qualities, st.booleans(), names)),
    "publish_again": (1, st.tuples(names, topics)),
    "end_exchanges": (1, st.tuples(names)),
    "acknowledge": (6, st.tuples(names, st.integers(0, WINDOW - 1), st.booleans())),
    "acknowledge_all": (2, st.tuples(names)),
    "go": (3, st.tuples(names, st.booleans(), st.sampled_from([None, None, 0, 5]))),
    "pass_time": (1, st.tuples(st.sampled_from([1, 6, 40]))),
    "restart": (1, st.tuples()),
}
"""What can happen, how often, and to whom."""

WEIGHTED = [name for name, (weight, _) in ARGUMENTS.items() for _ in range(weight)]
steps = st.sampled_from(WEIGHTED).flatmap(lambda name: st.tuples(st.just(name), ARGUMENTS[name][1]))


def outstanding(session: Session) -> dict[int, int]:
    """Numbers of all that a session is to get and has not confirmed, and with what quality."""
    waiting = session.waiting.all() if session.waiting is not None else []
    return {number: delivery.qos for number, delivery in (*session.in_flight.items(), *waiting)}


class Edges(RuleBasedStateMachine):
    """One edge and the processes it lives through, its clients, and the model beside them."""

    def __init__(self) -> None:
        super().__init__()
        self.edge = EdgeInMemory(limits=LIMITS)
        self.model = ModelBroker(START)
        self.clients: dict[str, Client] = {}
        self.bodies = 0

    @initialize(asked=st.lists(st.tuples(names, filters, qualities), min_size=3, max_size=6), versions=st.tuples(*[versions] * 3))
    def begin(self, asked: list[tuple[str, str, int]], versions: tuple[Version, ...]) -> None:
        for name, version in zip(NAMES, versions, strict=True):
            self.connect(name, version, False, 1000)
        for name, topic_filter, qos in asked:
            self.subscribe(name, topic_filter, qos, (False, False, 0), 0)

    def connected(self, name: str) -> ModelSession | None:
        session = self.model.sessions.get(name)
        return session if session is not None and session.is_connected else None

    def actor(self, name: str) -> tuple[str, ModelSession]:
        """Who does something: the one named or, if that one is away, another."""
        at = NAMES.index(name)
        for other in (*NAMES[at:], *NAMES[:at]):
            if (session := self.connected(other)) is not None:
                return other, session
        self.connect(name, Version.V5, False, 1000)
        return name, self.model.sessions[name]

    def observe(self) -> dict[str, list[Packet]]:
        """Everybody reads what came; gives what were no messages."""
        self.edge.settle()
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
            self.model.leave(session)
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
        again = self.observe()[name]
        released = [said.number for said in session.waiting if said.is_released] if session is not None else []
        assert sorted(again, key=str) == sorted([Acknowledge(Kind.PUBREL, number) for number in released], key=str)

    def subscribe(self, name: str, asked: str, qos: int, flags: tuple[bool, bool, int], label: int) -> None:
        name, session = self.actor(name)
        request, client = Request(asked, qos), self.clients[name]
        if session.version is Version.V5:
            no_local, as_published, handling = flags
            request = Request(asked, qos, no_local and not asked.startswith("$share"), as_published, handling)
        else:
            label = 0
        self.model.subscribe(session, request, label)
        answer = client.subscribe(request, label=label)
        assert isinstance(answer, Suback)
        assert answer.codes == (Code(qos),)
        assert self.observe()[name] == []

    def unsubscribe(self, name: str, asked: str) -> None:
        name, session = self.actor(name)
        was_there = session.asked.pop(asked, None) is not None
        (answer,) = self.clients[name].ask(Unsubscribe(7, (asked,)))
        assert isinstance(answer, Unsuback)
        if session.version is Version.V5:
            assert answer.codes == (Code.SUCCESS if was_there else Code.NO_SUBSCRIPTION_EXISTED,)
        self.observe()

    def publish(
        self, name: str, topic: str, qos: int, retain: bool, is_empty: bool, expiry_s: int | None, confirming: str | None
    ) -> None:
        name, session = self.actor(name)
        if len(session.open_numbers) > 5:
            return
        if confirming is not None:
            self.confirm_without_a_pause(confirming)
        expiry_s = expiry_s if session.version is Version.V5 else None
        until = FOREVER if expiry_s is None else Instant(self.model.now + expiry_s * SECOND_NS)
        self.bodies += 1
        body = b"" if retain and is_empty else str(self.bodies).encode()
        number = next(one for one in range(1, 9) if one not in session.open_numbers) if qos else None
        before = {one.name: outstanding(one) for one in self.edge.broker.sessions}
        handout = self.model.publish(name, topic, body, qos, retain=retain, until=until)
        properties = NO_PROPERTIES if expiry_s is None else Properties(message_expiry_s=expiry_s)
        self.clients[name].send(Publish(topic, body, qos, retain, False, number, properties))
        self.edge.settle()
        self.model.settle_shares(handout, self.found(before), Said(topic, body, qos, retain, (), until, self.model.publications))
        is_for_nobody = not handout.takers and session.version is Version.V5
        code = Code.NO_MATCHING_SUBSCRIBERS if is_for_nobody else Code.SUCCESS
        kind = Kind.PUBACK if qos == 1 else Kind.PUBREC
        assert self.observe()[name] == ([Acknowledge(kind, number, code)] if number else [])
        if qos == 2 and number is not None:
            session.open_numbers.add(number)

    def publish_two(self, names: tuple[str, str], topic: str, qos: int, retain: bool, confirming: str) -> None:
        """What happens most, so that it happens most here too."""
        self.publish(names[0], topic, qos, retain, False, None, None)
        self.publish(names[1], topic, 1, False, False, None, confirming)

    @rule(step=steps)
    def do(self, step: tuple[str, tuple[object, ...]]) -> None:
        """One rule for all that can happen: of many, whole runs would leave half out."""
        getattr(self, step[0])(*step[1])

    def confirm_without_a_pause(self, name: str) -> None:
        """The number that becomes free, and what is published next, are in one turn."""
        session = self.connected(name)
        if session is not None and session.in_flight and session.in_flight[0].qos == 1:
            said = session.in_flight[0]
            self.clients[name].send(Acknowledge(Kind.PUBACK, said.number))
            session.waiting = [one for one in session.waiting if one is not said]

    def found(self, before: dict[EndpointId, dict[int, int]]) -> Counter[Choice]:
        """Who got a copy since, and with what quality."""
        found: Counter[Choice] = Counter()
        for name, client in self.clients.items():
            client.look()
            if self.connected(name) is not None:
                found[name, 0] += sum(isinstance(packet, Publish) and packet.qos == 0 for packet in client.inbox)
        for session in self.edge.broker.sessions:
            found.update(
                (session.name, qos) for number, qos in outstanding(session).items() if number not in before[session.name]
            )
        return +found

    def publish_again(self, name: str, topic: str) -> None:
        """A sender that saw no answer sends once more: nobody gets it twice."""
        name, session = self.actor(name)
        for number in sorted(session.open_numbers):
            self.clients[name].send(Publish(topic, b"again", 2, False, True, number))
        answers = self.observe()[name]
        assert answers == [Acknowledge(Kind.PUBREC, number) for number in sorted(session.open_numbers)]

    def end_exchanges(self, name: str) -> None:
        name, session = self.actor(name)
        for number in sorted(session.open_numbers):
            self.clients[name].send(Acknowledge(Kind.PUBREL, number))
        answers = self.observe()[name]
        assert answers == [Acknowledge(Kind.PUBCOMP, number) for number in sorted(session.open_numbers)]
        session.open_numbers.clear()

    def acknowledge(self, name: str, which: int, is_taken: bool) -> None:
        name, session = self.actor(name)
        if which >= len(session.in_flight):
            return
        said, client = session.in_flight[which], self.clients[name]
        if said.qos == 2 and not said.is_released:
            code = Code.SUCCESS if is_taken or session.version is Version.V3 else Code.UNSPECIFIED_ERROR
            client.send(Acknowledge(Kind.PUBREC, said.number, code))
            if code is Code.SUCCESS:
                said.is_released = True
                assert self.observe()[name] == [Acknowledge(Kind.PUBREL, said.number)]
                return
        else:
            client.send(Acknowledge(Kind.PUBACK if said.qos == 1 else Kind.PUBCOMP, said.number))
        session.waiting = [one for one in session.waiting if one is not said]
        assert self.observe()[name] == []

    def acknowledge_all(self, name: str) -> None:
        name, session = self.actor(name)
        while session.in_flight:
            self.acknowledge(name, 0, True)

    def go(self, name: str, is_polite: bool, expiry_s: int | None) -> None:
        name, session = self.actor(name)
        client = self.clients.pop(name)
        if not is_polite:
            self.model.leave(session)
            client.lose()
            return
        expiry_s = expiry_s if session.version is Version.V5 and session.expiry_s else None
        self.model.leave(session, expiry_s)
        client.leave(properties=NO_PROPERTIES if expiry_s is None else Properties(session_expiry_s=expiry_s))

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
    def everybody_has_what_is_due(self) -> None:
        for session in self.model.sessions.values():
            if session.is_connected:
                session.check_quiet(self.model.now)

    @invariant()
    def sessions_and_retained_messages_are_the_same(self) -> None:
        broker = self.edge.broker
        meant = {session.name: set(session.asked) for session in self.model.sessions.values()}
        assert {session.name: set(session.subscriptions) for session in broker.sessions} == meant
        retained = {one.topic: (one.body, one.qos, one.valid_until) for one in broker.retained.on("#")}
        assert retained == self.model.retained
        assert set(self.edge.storage.load().retained) == set(retained)

    @invariant()
    def whatever_was_handed_out_is_accounted_for(self) -> None:
        counts = self.edge.broker.counts
        waiting = sum(len(one.waiting) for one in self.edge.broker.sessions if one.waiting is not None)
        dropped = counts.dropped.total()
        assert set(counts.dropped) <= {Reason.RECEIVER_AWAY, Reason.EXPIRED, Reason.SESSION_EXPIRED}
        found = counts.delivered + waiting + dropped
        assert found == self.model.handed + self.model.handed_before + self.model.twice
        assert self.edge.broker.deliveries.waiting_bytes == sum(
            one.waiting.size for one in self.edge.broker.sessions if one.waiting is not None
        )

    def teardown(self) -> None:
        """Everybody comes back and confirms everything: nothing is left but who they are and what they asked for."""
        for name, session in list(self.model.sessions.items()):
            if not session.is_connected:
                self.connect(name, session.version, False, session.expiry_s)
            self.end_exchanges(name)
            self.acknowledge_all(name)
        self.edge.settle()
        for one in self.edge.broker.sessions:
            assert not one.in_flight
            assert not one.released
        kept = self.edge.storage.load()
        assert (kept.queued, kept.messages, list(kept.received)) == ({}, {}, [])
        lasting = {session.name for session in self.model.sessions.values() if session.expiry_s}
        assert {self.edge.session(name).number for name in lasting} == set(kept.sessions)
        asked = {(self.edge.session(name).number, one) for name in lasting for one in self.model.sessions[name].asked}
        assert set(kept.subscriptions) == asked


TestEdges = Edges.TestCase
TestEdges.settings = settings(max_examples=examples(fast=25, full=150), stateful_step_count=50)
