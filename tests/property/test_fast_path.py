"""The short way: taking usual packets without taking them apart gives what the long way gives, however the bytes arrive."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_in_memory import SMALL, Client, EdgeInMemory
from effort import examples
from milepost.broker.admission import Rules
from milepost.broker.counts import Counts
from milepost.broker.limits import Limits
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt import listener as door_module
from milepost.listeners.mqtt.context import MqttSettings
from milepost.model.priorities import Priority
from milepost.vetting.access import Access, Rule, Verbs
from milepost.vetting.payloads import PayloadRule, Payloads
from milepost.wire.mqtt import NO_PROPERTIES, Acknowledge, Disconnect, Kind, Packet, Ping, Properties, Publish, Version, encode

RULES = Rules(
    Access([Rule(False, Verbs.PUBLISH, "closed")]),
    Payloads([PayloadRule("json", json=True)]),
    (("urgent", Priority.EMERGENCY),),
)
LIMITS = Limits(sessions_max=16, subscriptions_max=64, in_flight_max=3, queue_messages_max=20)
SETTINGS = MqttSettings(packet_bytes_max=400, receive_max=5, limits=MqttLimits(messages_per_s=50, messages_burst=30))

TOPICS = ("a", "a/b", "urgent", "json", "closed", "shared", "own", "a" * 200)
topics = st.sampled_from(["a", "urgent"]) | st.sampled_from(TOPICS)
payloads = st.sampled_from([b"", b"1", b"{}", b"x" * 120, b"x" * 130]) | st.binary(max_size=6)
some_properties = st.just(NO_PROPERTIES) | st.just(Properties(content_type="t"))


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    qos = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
    retain = draw(st.integers(0, 9)) == 0
    return Publish(draw(topics), draw(payloads), qos, retain, False, draw(st.integers(1, 40)) if qos else None, NO_PROPERTIES)


acknowledges = st.builds(Acknowledge, st.sampled_from([Kind.PUBACK] * 4 + [Kind.PUBREC]), st.integers(1, 12))
odd: st.SearchStrategy[bytes] = st.sampled_from(
    [b"\x40\x02\x00\x00", b"\x40\x03\x00\x01\x00", b"\x30\x00", b"\x30\x80\x00", b"\x32\x02\x00\x00", b"\x30\xf4\x03\x00\x01a"]
)


@dataclass(frozen=True)
class Burst:
    """What one client sends in one go, cut into pieces as they arrive, perhaps with a pause before the turn ends."""

    who: int
    packets: list[Packet]
    tail: bytes
    cuts: list[int]
    is_turn_over: bool
    seconds: int


bursts = st.builds(
    Burst,
    st.integers(0, 2),
    st.lists(publishes() | acknowledges | st.just(Ping()), min_size=1, max_size=8),
    st.just(b"") | st.just(b"") | st.just(b"") | odd,
    st.lists(st.integers(1, 300), max_size=3),
    st.booleans(),
    st.sampled_from([0, 0, 0, 1]),
)


@contextmanager
def only_the_long_way() -> Iterator[None]:
    def no_plain(*arguments: object) -> object:
        return arguments[4]

    def no_acknowledged(*arguments: object) -> object:
        return arguments[3]

    with patch.object(door_module, "take_plain", no_plain), patch.object(door_module, "take_acknowledged", no_acknowledged):
        yield


def play(
    bursts: list[Burst], versions: tuple[Version, ...], asked: list[tuple[int, str, int, int]]
) -> tuple[list[bytes], Counts]:
    """The same traffic each time; gives the bytes that every client got, and what was counted."""
    edge = EdgeInMemory(limits=LIMITS, settings=SETTINGS, rules=RULES)
    clients = [
        edge.connect(f"c{number}", version, clean=False, expiry_s=100 * (number > 0 and version is Version.V5))
        for number, version in enumerate(versions)
    ]
    for who, topic_filter, qos, label in asked:
        clients[who].subscribe(topic_filter, qos=qos, label=label if versions[who] is Version.V5 else 0)
    for client in clients:  # from here on their topics are known
        client.send(*[Publish(topic, b"{}") for topic in TOPICS])
        edge.settle()
    for burst in bursts:
        edge.now = type(edge.now)(edge.now + burst.seconds * 1_000_000_000)
        _send(clients[burst.who], burst)
        if burst.is_turn_over:
            edge.settle()
    edge.settle()
    return [bytes(client.stream.taken) for client in clients], edge.broker.counts


def _send(client: Client, burst: Burst) -> None:
    data = b"".join(encode(packet, client.version) for packet in burst.packets) + burst.tail
    at = 0
    for size in (*burst.cuts, len(data)):
        if data[at : at + size]:
            client.send_bytes(data[at : at + size])
        at += size


versions = st.tuples(*[st.sampled_from(list(Version))] * 3)
filters = st.sampled_from(["a", "#", "a/#", "urgent", "json", "$share/g/shared", "own"])
asked = st.lists(st.tuples(st.integers(0, 2), filters, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6)


@settings(max_examples=examples(fast=60, full=400))
@given(st.lists(bursts, max_size=12), versions, asked)
def test_both_ways_tell_every_client_the_same_and_count_the_same(
    bursts: list[Burst], versions: tuple[Version, ...], asked: list[tuple[int, str, int, int]]
) -> None:
    short = play(bursts, versions, asked)
    with only_the_long_way():
        long = play(bursts, versions, asked)
    assert short == long


@given(st.lists(publishes() | acknowledges, min_size=1, max_size=5), st.sampled_from(list(Version)), st.data())
def test_bytes_may_be_cut_anywhere(packets: list[Packet], version: Version, data: st.DataObject) -> None:
    whole = b"".join(encode(packet, version) for packet in packets)
    cut = data.draw(st.integers(0, len(whole)))
    found = []
    for pieces in ([whole], [whole[:cut], whole[cut:]], [whole[at : at + 1] for at in range(len(whole))]):
        edge = EdgeInMemory(limits=SMALL, rules=RULES)
        sender, taker = edge.connect("s", version), edge.connect("t")
        taker.subscribe("#", qos=2)
        for piece in pieces:
            if piece:
                sender.send_bytes(piece)
        edge.settle()
        found.append((bytes(sender.stream.taken), bytes(taker.stream.taken), edge.broker.counts))
    assert found[0] == found[1] == found[2]


def test_what_goes_together_keeps_its_order_and_its_urgency() -> None:
    """All topics have the same takers, so that nothing but order and urgency can keep messages apart."""
    for way in (nullcontext(), only_the_long_way()):
        with way:
            edge = EdgeInMemory(rules=RULES)
            taker, sender = edge.connect("t"), edge.connect("s")
            taker.subscribe("#", qos=1)
            sender.send(Publish("a", b""), Publish("urgent", b""))
            edge.settle()
            taker.take()
            sender.send(Publish("a", b"1"), Publish("a", b"2", 1, number=1), Publish("a", b"3"), Publish("urgent", b"now"))
            edge.settle()
            assert taker.bodies() == [b"now", b"1", b"2", b"3"]


def test_the_short_way_is_taken_at_all() -> None:
    edge = EdgeInMemory()
    taker, sender = edge.connect("t"), edge.connect("s")
    taker.subscribe("a")
    sender.publish("a", b"1")
    with patch.object(door_module, "decode", side_effect=AssertionError("the long way")):
        sender.send(Publish("a", b"2"), Publish("a", b"x" * 300), Publish("a", b"3", 1, number=9))
    edge.settle()
    assert taker.bodies() == [b"1", b"2", b"x" * 300, b"3"]
    assert sender.take() == [Acknowledge(Kind.PUBACK, 9)]
    sender.send(Disconnect())
