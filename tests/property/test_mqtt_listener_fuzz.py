"""Whatever bytes a client sends, before or after CONNECT: the door goes on, and others are served as if nothing had been."""

from hypothesis import given, settings
from hypothesis import strategies as st

from edge_in_memory import SMALL, Client, EdgeInMemory
from effort import examples
from milepost.broker.admission import AdmissionRules
from milepost.listeners.mqtt.connection import MqttConnectionState
from milepost.listeners.mqtt.context import MqttSettings
from milepost.vetting.access import AccessAction, AccessList, AccessRule
from milepost.vetting.payloads import PayloadChecks, PayloadRule
from milepost.wire.mqtt import Connect, Packet, Properties, Version, Will, encode
from strategies_mqtt import packets

SETTINGS = MqttSettings(packet_bytes_max=2_000)
RULES = AdmissionRules(
    AccessList([AccessRule(False, AccessAction.BOTH, "%c/#"), AccessRule(True, AccessAction.BOTH, "#")]),
    PayloadChecks([PayloadRule("json/#", json=True)]),
)
SERVICES = ("$milepost/subscribe", "$milepost/report", "$milepost/publish", "$milepost/unsubscribe", "$milepost/none")


@st.composite
def changed(draw: st.DrawFn, data: bytes) -> bytes:
    """Bytes with some of them changed, taken out, doubled or cut off."""
    found = bytearray(data)
    for _ in range(draw(st.integers(0, 3))):
        if not found:
            break
        at = draw(st.integers(0, len(found) - 1))
        match draw(st.integers(0, 4)):
            case 0:
                found[at] = draw(st.integers(0, 255))
            case 1:
                found[at] ^= 1 << draw(st.integers(0, 7))
            case 2:
                del found[at : at + draw(st.integers(1, 4))]
            case 3:
                found[at:at] = draw(st.binary(min_size=1, max_size=4))
            case _:
                del found[at:]
    return bytes(found)


@st.composite
def talks(draw: st.DrawFn) -> tuple[Version, bytes, list[int]]:
    """A few packets of one version, most of them as they should be, joined, and where they are cut on their way."""
    version = draw(st.sampled_from(list(Version)))
    whole = [encode(packet, version) for packet in draw(st.lists(packets(version), min_size=1, max_size=5))]
    pieces = [draw(changed(one)) if draw(st.integers(0, 2)) == 0 else one for one in whole]
    data = b"".join(pieces) + draw(st.just(b"") | st.binary(max_size=6))
    return version, data, draw(st.lists(st.integers(1, len(data) or 1), max_size=3))


def say(client: Client, data: bytes, cuts: list[int]) -> None:
    """Send in pieces; whoever is not read any more is not sent to either."""
    at = 0
    for size in (*cuts, len(data)):
        piece = data[at : at + size]
        at += size
        if piece and client.connection.state is not MqttConnectionState.CLOSED:
            client.send_bytes(piece)


class Stage:
    """An edge with two clients that mean well."""

    def __init__(self) -> None:
        self.edge = EdgeInMemory(limits=SMALL, settings=SETTINGS, rules=RULES)
        self.taker, self.sender = self.edge.connect("good-taker", expiry_s=100), self.edge.connect("good-sender")
        self.taker.subscribe("good/+", qos=1)

    def check(self, culprit: Client) -> None:
        """The others are unharmed, the culprit is either served or gone, and a restart finds everything in order."""
        self.edge.run_ticks()
        assert culprit.connection.state in (
            MqttConnectionState.NEW,
            MqttConnectionState.OPEN,
            MqttConnectionState.CLOSING,
            MqttConnectionState.CLOSED,
        )
        self.taker.take()
        self.sender.publish("good/one", b"still here", 1)
        messages = [message.payload for message in self.taker.messages() if message.topic == "good/one"]
        assert messages == [b"still here"]
        assert self.edge.broker.counts.faults == 0
        self.edge.pass_time(1)
        culprit.drop_connection()
        self.edge.run_ticks()
        again = self.edge.restarted().connect("good-taker", clean=False, expiry_s=100)
        assert b"still here" in again.bodies()


@settings(max_examples=examples(fast=40, full=150))
@given(talks())
def test_before_connect_whatever_comes_costs_one_connection_at_most(talk: tuple[Version, bytes, list[int]]) -> None:
    stage = Stage()
    culprit = stage.edge.open_connection(talk[0])
    say(culprit, talk[1], talk[2])
    stage.check(culprit)


@settings(max_examples=examples(fast=60, full=250))
@given(talks(), st.booleans(), st.sampled_from([0, 40, 300]))
def test_after_connect_whatever_comes_costs_one_connection_at_most(
    talk: tuple[Version, bytes, list[int]], is_durable: bool, packet_max: int
) -> None:
    stage = Stage()
    version, data, cuts = talk
    properties = Properties(maximum_packet_size=packet_max) if packet_max and version is Version.V5 else Properties()
    expiry_s = 50 if is_durable and version is Version.V5 else 0
    culprit = stage.edge.connect("bad", version, clean=not is_durable, expiry_s=expiry_s, properties=properties)
    culprit.subscribe("#", "json/#", qos=2)
    say(culprit, data, cuts)
    stage.check(culprit)


@settings(max_examples=examples(fast=30, full=200))
@given(st.binary(max_size=40), st.booleans())
def test_any_bytes_at_all_cost_one_connection_at_most(data: bytes, is_connected: bool) -> None:
    stage = Stage()
    culprit = stage.edge.connect("bad") if is_connected else stage.edge.open_connection()
    say(culprit, data, [])
    stage.check(culprit)


@st.composite
def requests(draw: st.DrawFn) -> tuple[str, bytes]:
    good = [
        b'{"id":1,"query":"a & !b"}',
        b'{"id":4294967295,"query":"a","time_window":"last 10 minutes"}',
        b'{"topic":"good/one","tags":["a"],"body":"aGk="}',
        b'{"place":{"latitude":1,"longitude":2}}',
        b'{"id":1}',
    ]
    return draw(st.sampled_from(SERVICES)), draw(st.sampled_from(good).flatmap(changed))


@settings(max_examples=examples(fast=30, full=200))
@given(st.lists(requests(), min_size=1, max_size=4), st.sampled_from([0, 1, 2]), st.sampled_from(list(Version)))
def test_whatever_is_asked_of_services_harms_nobody(asked: list[tuple[str, bytes]], qos: int, version: Version) -> None:
    stage = Stage()
    culprit = stage.edge.connect("bad", version)
    culprit.subscribe("$milepost/reply", "#", qos=2)
    for topic, body in asked:
        if culprit.is_open:
            culprit.publish(topic, body, qos)
    stage.check(culprit)


WORDS = ("tag", "place", "priority", "to", "within", "valid-until", "seen-at", "source", "report", "query", "area", "time-window")
VALUES = (
    *("ice", "ice & !x", "1,2", "90,180", "emergency", "everyone", "endpoint:good-taker", "area:circle 1,2 500"),
    *(
        "circle 1,2 500",
        "1970-01-01T00:00:00Z",
        "2262-01-01T00:00:00Z",
        "2030-03-17T17:46:40Z",
        "last 10 minutes",
        "around 500",
        "",
    ),
)
said = st.lists(st.tuples(st.sampled_from(WORDS).map("milepost-".__add__), st.sampled_from(VALUES)), min_size=1, max_size=4)


@settings(max_examples=examples(fast=40, full=300))
@given(said, said, st.integers(0, 2), st.booleans())
def test_whatever_is_said_in_our_words_harms_nobody(
    asked: list[tuple[str, str]], sent: list[tuple[str, str]], qos: int, retain: bool
) -> None:
    stage = Stage()
    culprit = stage.edge.connect("bad", expiry_s=50)
    culprit.subscribe("#", qos=2, properties=Properties(user=tuple(asked)))
    will = Will("w", b"", qos, retain, Properties(user=tuple(sent)))
    stage.edge.connect("worse", expiry_s=1, will=will, properties=Properties(user=tuple(asked))).drop_connection()
    for _ in range(2):
        culprit.publish("t", b"x", qos, retain=retain, properties=Properties(user=tuple(sent), message_expiry_s=1))
        stage.edge.pass_time(1)
    culprit.subscribe("+", qos=2)
    stage.check(culprit)


def test_a_packet_that_only_servers_send_ends_the_connection_of_who_sent_it() -> None:
    for packet in (b"\x20\x03\x00\x00\x00", b"\xd0\x00", b"\xf0\x00"):
        stage = Stage()
        culprit = stage.edge.connect("bad")
        say(culprit, packet, [])
        stage.edge.run_ticks()
        assert culprit.connection.state >= MqttConnectionState.CLOSING
        stage.check(culprit)


def test_a_second_connect_ends_the_connection() -> None:
    stage = Stage()
    culprit = stage.edge.connect("bad")
    second: Packet = Connect("worse", Version.V5)
    culprit.send(second)
    stage.edge.run_ticks()
    assert culprit.connection.state >= MqttConnectionState.CLOSING
    assert stage.edge.broker.sessions.find("worse") is None
