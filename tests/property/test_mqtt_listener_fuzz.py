"""Invalid bytes from a client, before or after CONNECT, cost at most its own connection; other clients are served normally."""

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
    """Return *data* with some bytes changed, inserted, removed or cut off."""
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
def packet_streams(draw: st.DrawFn) -> tuple[Version, bytes, list[int]]:
    """Return a version, the bytes of a few packets, most of them valid, and the sizes of the pieces to send."""
    version = draw(st.sampled_from(list(Version)))
    whole = [encode(packet, version) for packet in draw(st.lists(packets(version), min_size=1, max_size=5))]
    pieces = [draw(changed(one)) if draw(st.integers(0, 2)) == 0 else one for one in whole]
    data = b"".join(pieces) + draw(st.just(b"") | st.binary(max_size=6))
    return version, data, draw(st.lists(st.integers(1, len(data) or 1), max_size=3))


def send_in_pieces(client: Client, data: bytes, cuts: list[int]) -> None:
    """Send *data* in pieces, until the connection is closed."""
    at = 0
    for size in (*cuts, len(data)):
        piece = data[at : at + size]
        at += size
        if piece and client.connection.state is not MqttConnectionState.CLOSED:
            client.send_bytes(piece)


class Stage:
    """An edge with two well-behaved clients."""

    def __init__(self) -> None:
        self.edge = EdgeInMemory(limits=SMALL, settings=SETTINGS, rules=RULES)
        self.receiver, self.sender = self.edge.connect("good-receiver", expiry_s=100), self.edge.connect("good-sender")
        self.receiver.subscribe("good/+", qos=1)

    def check(self, faulty: Client) -> None:
        """Check that the others are served, that the faulty client is served or disconnected, and that a restart recovers."""
        self.edge.run_ticks()
        assert faulty.connection.state in (
            MqttConnectionState.NEW,
            MqttConnectionState.OPEN,
            MqttConnectionState.CLOSING,
            MqttConnectionState.CLOSED,
        )
        self.receiver.take()
        self.sender.publish("good/one", b"still here", 1)
        messages = [message.payload for message in self.receiver.messages() if message.topic == "good/one"]
        assert messages == [b"still here"]
        assert self.edge.broker.counts.faults == 0
        self.edge.pass_time(1)
        faulty.drop_connection()
        self.edge.run_ticks()
        again = self.edge.restarted().connect("good-receiver", clean=False, expiry_s=100)
        assert b"still here" in again.bodies()


@settings(max_examples=examples(fast=40, full=150))
@given(packet_streams())
def test_invalid_bytes_before_connect_cost_at_most_one_connection(stream: tuple[Version, bytes, list[int]]) -> None:
    stage = Stage()
    faulty = stage.edge.open_connection(stream[0])
    send_in_pieces(faulty, stream[1], stream[2])
    stage.check(faulty)


@settings(max_examples=examples(fast=60, full=250))
@given(packet_streams(), st.booleans(), st.sampled_from([0, 40, 300]))
def test_invalid_bytes_after_connect_cost_at_most_one_connection(
    stream: tuple[Version, bytes, list[int]], is_durable: bool, packet_max: int
) -> None:
    stage = Stage()
    version, data, cuts = stream
    properties = Properties(maximum_packet_size=packet_max) if packet_max and version is Version.V5 else Properties()
    expiry_s = 50 if is_durable and version is Version.V5 else 0
    faulty = stage.edge.connect("bad", version, clean=not is_durable, expiry_s=expiry_s, properties=properties)
    faulty.subscribe("#", "json/#", qos=2)
    send_in_pieces(faulty, data, cuts)
    stage.check(faulty)


@settings(max_examples=examples(fast=30, full=200))
@given(st.binary(max_size=40), st.booleans())
def test_random_bytes_cost_at_most_one_connection(data: bytes, is_connected: bool) -> None:
    stage = Stage()
    faulty = stage.edge.connect("bad") if is_connected else stage.edge.open_connection()
    send_in_pieces(faulty, data, [])
    stage.check(faulty)


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
def test_invalid_service_requests_do_not_affect_other_clients(
    invalid: list[tuple[str, bytes]], qos: int, version: Version
) -> None:
    stage = Stage()
    faulty = stage.edge.connect("bad", version)
    faulty.subscribe("$milepost/reply", "#", qos=2)
    for topic, body in invalid:
        if faulty.is_open:
            faulty.publish(topic, body, qos)
    stage.check(faulty)


PROPERTY_NAMES = (
    "tag",
    "place",
    "priority",
    "to",
    "within",
    "valid-until",
    "seen-at",
    "source",
    "report",
    "query",
    "area",
    "time-window",
)
VALUES = (
    *("ice", "ice & !x", "1,2", "90,180", "emergency", "everyone", "endpoint:good-receiver", "area:circle 1,2 500"),
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
user_properties = st.lists(
    st.tuples(st.sampled_from(PROPERTY_NAMES).map("milepost-".__add__), st.sampled_from(VALUES)), min_size=1, max_size=4
)


@settings(max_examples=examples(fast=40, full=300))
@given(user_properties, user_properties, st.integers(0, 2), st.booleans())
def test_random_milepost_user_properties_do_not_affect_other_clients(
    of_subscription: list[tuple[str, str]], of_message: list[tuple[str, str]], qos: int, retain: bool
) -> None:
    stage = Stage()
    faulty = stage.edge.connect("bad", expiry_s=50)
    faulty.subscribe("#", qos=2, properties=Properties(user=tuple(of_subscription)))
    will = Will("w", b"", qos, retain, Properties(user=tuple(of_message)))
    stage.edge.connect("worse", expiry_s=1, will=will, properties=Properties(user=tuple(of_subscription))).drop_connection()
    for _ in range(2):
        faulty.publish("t", b"x", qos, retain=retain, properties=Properties(user=tuple(of_message), message_expiry_s=1))
        stage.edge.pass_time(1)
    faulty.subscribe("+", qos=2)
    stage.check(faulty)


def test_a_packet_that_only_servers_send_closes_the_connection_of_its_sender() -> None:
    for packet in (b"\x20\x03\x00\x00\x00", b"\xd0\x00", b"\xf0\x00"):
        stage = Stage()
        faulty = stage.edge.connect("bad")
        send_in_pieces(faulty, packet, [])
        stage.edge.run_ticks()
        assert faulty.connection.state >= MqttConnectionState.CLOSING
        stage.check(faulty)


def test_a_second_connect_closes_the_connection() -> None:
    stage = Stage()
    faulty = stage.edge.connect("bad")
    second: Packet = Connect("worse", Version.V5)
    faulty.send(second)
    stage.edge.run_ticks()
    assert faulty.connection.state >= MqttConnectionState.CLOSING
    assert stage.edge.broker.sessions.find("worse") is None
