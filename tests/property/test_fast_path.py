"""The fast path, which does not decode usual packets, equals the long path, however the bytes arrive."""

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_in_memory import SMALL, Client, EdgeInMemory
from effort import examples
from milepost.broker.admission import AdmissionRules
from milepost.broker.broker_counters import BrokerCounters
from milepost.broker.limits import BrokerLimits
from milepost.listeners.limits import MqttLimits
from milepost.listeners.mqtt import listener as door_module
from milepost.listeners.mqtt.context import MqttSettings
from milepost.model.priorities import Priority
from milepost.vetting.access import AccessAction, AccessList, AccessRule, SystemTopics
from milepost.vetting.payloads import PayloadChecks, PayloadRule
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Disconnect,
    Packet,
    PacketType,
    Ping,
    Properties,
    Publish,
    Version,
    encode,
)

RULES = AdmissionRules(
    AccessList(
        [AccessRule(False, AccessAction.PUBLISH, "closed"), AccessRule(True, AccessAction.PUBLISH, "brief", valid_s=10.0)],
        SystemTopics(proven=("proven",)),
    ),
    PayloadChecks([PayloadRule("json", json=True)]),
    (("urgent", Priority.EMERGENCY),),
)
LIMITS = BrokerLimits(sessions_max=16, subscriptions_max=64, in_flight_max=3, queue_messages_max=20)
SETTINGS = MqttSettings(packet_bytes_max=400, receive_max=5, limits=MqttLimits(messages_per_s=50, messages_burst=30))

TOPICS = ("a", "a/b", "urgent", "json", "closed", "brief", "proven", "shared", "own", "a" * 200)
topics = st.sampled_from(["a", "urgent"]) | st.sampled_from(TOPICS)
payloads = st.sampled_from([b"", b"1", b"{}", b"x" * 120, b"x" * 130]) | st.binary(max_size=6)
some_properties = st.just(NO_PROPERTIES) | st.just(Properties(content_type="t"))


@st.composite
def publishes(draw: st.DrawFn) -> Publish:
    qos = draw(st.sampled_from([0, 0, 0, 1, 1, 2]))
    retain = draw(st.integers(0, 9)) == 0
    return Publish(draw(topics), draw(payloads), qos, retain, False, draw(st.integers(1, 40)) if qos else None, NO_PROPERTIES)


acknowledges = st.builds(Acknowledge, st.sampled_from([PacketType.PUBACK] * 4 + [PacketType.PUBREC]), st.integers(1, 12))
unusual: st.SearchStrategy[bytes] = st.sampled_from(
    [b"\x40\x02\x00\x00", b"\x40\x03\x00\x01\x00", b"\x30\x00", b"\x30\x80\x00", b"\x32\x02\x00\x00", b"\x30\xf4\x03\x00\x01a"]
)


@dataclass(frozen=True)
class Burst:
    """The bytes that one client sends at once, split as they arrive, perhaps with a pause before the end of the tick."""

    client: int
    packets: list[Packet]
    tail: bytes
    cuts: list[int]
    is_turn_over: bool
    seconds: int


bursts = st.builds(
    Burst,
    st.integers(0, 2),
    st.lists(publishes() | acknowledges | st.just(Ping()), min_size=1, max_size=8),
    st.just(b"") | st.just(b"") | st.just(b"") | unusual,
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

    with (
        patch.object(door_module, "publish_fast_path", no_plain),
        patch.object(door_module, "acknowledge_fast_path", no_acknowledged),
    ):
        yield


def play(
    bursts: list[Burst], versions: tuple[Version, ...], subscriptions: list[tuple[int, str, int, int]]
) -> tuple[list[bytes], BrokerCounters]:
    """Replay the traffic; return the bytes that every client got, and the counters."""
    edge = EdgeInMemory(limits=LIMITS, settings=SETTINGS, rules=RULES)
    clients = [
        edge.connect(f"c{number}", version, clean=False, expiry_s=100 * (number > 0 and version is Version.V5))
        for number, version in enumerate(versions)
    ]
    for index, topic_filter, qos, subscription_id in subscriptions:
        clients[index].subscribe(topic_filter, qos=qos, subscription_id=subscription_id if versions[index] is Version.V5 else 0)
    for client in clients:  # from here on their topics are known
        client.send(*[Publish(topic, b"{}") for topic in TOPICS])
        edge.run_ticks()
    for burst in bursts:
        edge.now = type(edge.now)(edge.now + burst.seconds * 1_000_000_000)
        _send(clients[burst.client], burst)
        if burst.is_turn_over:
            edge.run_ticks()
    edge.run_ticks()
    return [bytes(client.stream.written) for client in clients], edge.broker.counts


def _send(client: Client, burst: Burst) -> None:
    data = b"".join(encode(packet, client.version) for packet in burst.packets) + burst.tail
    at = 0
    for size in (*burst.cuts, len(data)):
        if data[at : at + size]:
            client.send_bytes(data[at : at + size])
        at += size


versions = st.tuples(*[st.sampled_from(list(Version))] * 3)
filters = st.sampled_from(["a", "#", "a/#", "urgent", "json", "$share/g/shared", "own"])
subscriptions = st.lists(st.tuples(st.integers(0, 2), filters, st.integers(0, 2), st.integers(0, 2)), min_size=1, max_size=6)


@settings(max_examples=examples(fast=60, full=400))
@given(st.lists(bursts, max_size=12), versions, subscriptions)
def test_both_paths_send_every_client_the_same_bytes_and_count_the_same(
    bursts: list[Burst], versions: tuple[Version, ...], subscriptions: list[tuple[int, str, int, int]]
) -> None:
    short = play(bursts, versions, subscriptions)
    with only_the_long_way():
        long = play(bursts, versions, subscriptions)
    assert short == long


@given(st.lists(publishes() | acknowledges, min_size=1, max_size=5), st.sampled_from(list(Version)), st.data())
def test_bytes_may_be_split_anywhere(packets: list[Packet], version: Version, data: st.DataObject) -> None:
    whole = b"".join(encode(packet, version) for packet in packets)
    cut = data.draw(st.integers(0, len(whole)))
    found = []
    for pieces in ([whole], [whole[:cut], whole[cut:]], [whole[at : at + 1] for at in range(len(whole))]):
        edge = EdgeInMemory(limits=SMALL, rules=RULES)
        sender, receiver = edge.connect("s", version), edge.connect("t")
        receiver.subscribe("#", qos=2)
        for piece in pieces:
            if piece:
                sender.send_bytes(piece)
        edge.run_ticks()
        found.append((bytes(sender.stream.written), bytes(receiver.stream.written), edge.broker.counts))
    assert found[0] == found[1] == found[2]


def test_messages_in_one_batch_keep_their_order_and_priority() -> None:
    """All topics have the same receivers, so that only order and priority can separate messages."""
    for way in (nullcontext(), only_the_long_way()):
        with way:
            edge = EdgeInMemory(rules=RULES)
            receiver, sender = edge.connect("t"), edge.connect("s")
            receiver.subscribe("#", qos=1)
            sender.send(Publish("a", b""), Publish("urgent", b""))
            edge.run_ticks()
            receiver.take()
            sender.send(Publish("a", b"1"), Publish("a", b"2", 1, packet_id=1), Publish("a", b"3"), Publish("urgent", b"now"))
            edge.run_ticks()
            assert receiver.bodies() == [b"now", b"1", b"2", b"3"]


def test_the_fast_path_is_taken() -> None:
    edge = EdgeInMemory()
    receiver, sender = edge.connect("t"), edge.connect("s")
    receiver.subscribe("a")
    sender.publish("a", b"1")
    with patch.object(door_module, "decode", side_effect=AssertionError("the long way")):
        sender.send(Publish("a", b"2"), Publish("a", b"x" * 300), Publish("a", b"3", 1, packet_id=9))
    edge.run_ticks()
    assert receiver.bodies() == [b"1", b"2", b"x" * 300, b"3"]
    assert sender.take() == [Acknowledge(PacketType.PUBACK, 9)]
    sender.send(Disconnect())
