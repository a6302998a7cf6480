"""A client's session and the other end of its connection, without one."""

from milepost.client.events import Arrival, Event
from milepost.client.mqtt.session import MqttSession, MqttSetup
from milepost.client.values import SubscriptionRequest
from milepost.model import EndpointId, Instant
from milepost.model.queries import parse_query
from milepost.wire.mqtt import (
    NO_PROPERTIES,
    Acknowledge,
    Code,
    Connack,
    Connect,
    Kind,
    Packet,
    Properties,
    Publish,
    Suback,
    Version,
    decode,
    encode,
    frame_at,
)

NOW = Instant(1_900_000_000_000_000_000)


class Talk:
    """What the session says and hears; `begin` and `lose` are the life of a connection."""

    def __init__(self, *, clean_start: bool = False, receive_max: int = 100) -> None:
        self.session = MqttSession(MqttSetup(EndpointId("car-1"), clean_start=clean_start, receive_max=receive_max))

    def begin(self, properties: Properties = NO_PROPERTIES, *, present: bool = False) -> list[Event]:
        self.session.begin()
        (hello,) = self.said()
        assert isinstance(hello, Connect)
        return self.hear(Connack(present, properties=properties))

    def lose(self) -> list[Event]:
        return list(self.session.on_lost())

    def again(self, *, present: bool) -> list[Event]:
        """Lose the connection and get another one."""
        return self.lose() + self.begin(present=present)

    def hear(self, *packets: Packet) -> list[Event]:
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

    def said(self) -> list[Packet]:
        return self.take()[0]

    def publish(self, qos: int, body: bytes = b"x", *, valid_until: Instant | None = None) -> int:
        return self.session.publish(Publish("a", body, qos), valid_until)

    def subscribe(self, text: str, query: str | None = None, qos: int = 1) -> int:
        """Ask, and have it granted; gives the subscription_id."""
        request = SubscriptionRequest(text, query=None if query is None else parse_query(query), qos=qos)
        subscription_id = self.session.subscription_id_for(request)
        self.session.subscribe(subscription_id, request)
        (packet,) = self.said()
        self.hear(granted(packet))
        return subscription_id


def granted(packet: Packet) -> Packet:
    """The yes to SUBSCRIBE, or to a request to the service."""
    if isinstance(packet, Publish):
        assert packet.number is not None
        return Acknowledge(Kind.PUBACK, packet.number)
    number = getattr(packet, "number", None)
    assert isinstance(number, int)
    return Suback(number, (Code.GRANTED_QOS_1,))


def numbers_of(packets: list[Packet]) -> list[tuple[str, int | None, bool]]:
    """Kind, number and DUP of each packet, for comparing."""
    found = []
    for packet in packets:
        name = packet.kind.name if isinstance(packet, Acknowledge) else type(packet).__name__.upper()
        found.append((name, getattr(packet, "number", None), getattr(packet, "dup", False)))
    return found


def arrived(events: list[Event]) -> list[bytes]:
    return [event.received.body for event in events if isinstance(event, Arrival)]
