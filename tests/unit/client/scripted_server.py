"""An MQTT client session and a scripted server, without a socket."""

from milepost.client.events import Arrival, Event
from milepost.client.messages import SubscriptionRequest
from milepost.client.mqtt.session import MqttSession, MqttSetup
from milepost.model import EndpointId, Instant
from milepost.model.queries import parse_query
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    Connack,
    Connect,
    Packet,
    PacketType,
    Properties,
    Publish,
    Suback,
    Version,
    decode,
    encode,
    frame_at,
)

NOW = Instant(1_900_000_000_000_000_000)


class ClientHarness:
    """A session whose packets the test sends and receives; `begin` and `lose` open and end its connection."""

    def __init__(self, *, clean_start: bool = False, receive_max: int = 100) -> None:
        self.session = MqttSession(MqttSetup(EndpointId("car-1"), clean_start=clean_start, receive_max=receive_max))

    def begin(self, properties: Properties = NO_PROPERTIES, *, present: bool = False) -> list[Event]:
        self.session.begin()
        (connect,) = self.sent()
        assert isinstance(connect, Connect)
        return self.receive(Connack(present, properties=properties))

    def lose(self) -> list[Event]:
        return list(self.session.on_lost())

    def reconnect(self, *, present: bool) -> list[Event]:
        """Lose the connection and open another one."""
        return self.lose() + self.begin(present=present)

    def receive(self, *packets: Packet) -> list[Event]:
        return self.session.on_bytes(b"".join(encode(packet, Version.V5) for packet in packets), NOW)

    def take(self, now: Instant = NOW) -> tuple[list[Packet], list[Event]]:
        data, events = self.session.take(now)
        packets: list[Packet] = []
        at = 0
        while (frame := frame_at(data, at, 10_000_000)) is not None:
            packets.append(decode(data[at], data[frame[0] : frame[1]], Version.V5))
            at = frame[1]
        assert at == len(data)
        return packets, events

    def sent(self) -> list[Packet]:
        return self.take()[0]

    def publish(self, qos: int, body: bytes = b"x", *, valid_until: Instant | None = None) -> int:
        return self.session.publish(Publish("a", body, qos), valid_until)

    def subscribe(self, text: str, query: str | None = None, qos: int = 1) -> int:
        """Subscribe and grant it; return the subscription id."""
        request = SubscriptionRequest(text, query=None if query is None else parse_query(query), qos=qos)
        subscription_id = self.session.subscription_id_for(request)
        self.session.subscribe(subscription_id, request)
        (packet,) = self.sent()
        self.receive(granted(packet))
        return subscription_id


def granted(packet: Packet) -> Packet:
    """Return the answer that grants SUBSCRIBE, or a request to the service."""
    if isinstance(packet, Publish):
        assert packet.packet_id is not None
        return Acknowledge(PacketType.PUBACK, packet.packet_id)
    number = getattr(packet, "packet_id", None)
    assert isinstance(number, int)
    return Suback(number, (Code.GRANTED_QOS_1,))


def summary_of(packets: list[Packet]) -> list[tuple[str, int | None, bool]]:
    """Return type, packet id and DUP of each packet, for comparison."""
    found = []
    for packet in packets:
        name = packet.kind.name if isinstance(packet, Acknowledge) else type(packet).__name__.upper()
        found.append((name, getattr(packet, "packet_id", None), getattr(packet, "dup", False)))
    return found


def bodies_of(events: list[Event]) -> list[bytes]:
    return [event.received.body for event in events if isinstance(event, Arrival)]
