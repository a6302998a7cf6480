"""The client side of one MQTT 5 session, over any number of connections: bytes and calls in, bytes and events out.

    phase      accepted packets                            next
    OFF        -                                           begin ─▶ OPENING
    OPENING    CONNACK                                     success ─▶ OPEN, error ─▶ OFF
    OPEN       all but CONNACK, CONNECT and requests       DISCONNECT ─▶ OFF, on_lost ─▶ OFF

Invariants:
- `now` is an argument; no clock, no socket, no randomness: the same calls produce the same bytes;
- state is in memory only: a restarted client does not know its earlier messages;
- after `on_lost` nothing of the old connection is sent; unanswered messages stay in `MqttOutbound`, `MqttInbound` and
  `MqttSubscriptions`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.client.carrier import Motion
from milepost.client.events import Arrival, Connected, Done, Ended, Event
from milepost.client.mqtt.inbound import Held, MqttInbound
from milepost.client.mqtt.mapping import is_final, received_from, refused_by, report_json
from milepost.client.mqtt.outbound import PACKET_ID_MAX, Allowed, MqttOutbound, PacketIds
from milepost.client.mqtt.subscriptions import MqttSubscriptions
from milepost.client.values import SubscriptionRequest
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    Kind,
    Packet,
    Ping,
    Pong,
    Properties,
    Publish,
    Suback,
    Unsuback,
    Version,
    Will,
    code_of,
    decode,
    encode,
    fitting,
    frame_at,
)
from milepost.wire.requests import REPLY_TOPIC, SERVICE_PREFIX, Service

CHUNK_BYTES: Final = 65_536
"""Approximate maximum of bytes returned by one `take`."""

_REPORT_TOPIC: Final = SERVICE_PREFIX + Service.REPORT.value


class Phase(Enum):
    """Phase of a session's connection."""

    OFF = 0
    OPENING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class MqttSetup:
    """Contents of CONNECT."""

    client_id: EndpointId
    clean_start: bool = False
    session_expiry_s: int = 3_600
    keep_alive_s: int = 30
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    receive_max: int = 100
    packet_bytes_max: int = 4_000_000


class MqttSession:
    """One MQTT session."""

    def __init__(self, setup: MqttSetup) -> None:
        self.setup = setup
        self.phase = Phase.OFF
        self.keep_alive_s = setup.keep_alive_s
        packet_ids = PacketIds()
        self._outbound = MqttOutbound(packet_ids)
        self._inbound = MqttInbound(setup.receive_max)
        self._subscriptions = MqttSubscriptions(setup.client_id, packet_ids, self._outbound)
        self._motion: tuple[Motion, Instant, int] | None = None
        """The last reported motion, when it was reported, and its ticket."""
        self._has_subscription_ids = True
        self._is_first = True
        self._buffer = b""
        self._replies: list[Packet] = []

    def begin(self) -> None:
        """Begin a new connection: queue CONNECT."""
        self.phase = Phase.OPENING
        self._buffer = b""
        self._replies = [self.hello()]

    def hello(self) -> Connect:
        """Return the CONNECT packet."""
        setup = self.setup
        properties = Properties(
            session_expiry_s=setup.session_expiry_s,
            receive_maximum=setup.receive_max,
            maximum_packet_size=setup.packet_bytes_max,
        )
        is_clean = setup.clean_start and self._is_first
        return Connect(
            setup.client_id, Version.V5, is_clean, setup.keep_alive_s, setup.will, setup.user, setup.password, properties
        )

    def take(self, now: Instant) -> tuple[bytes, list[Event]]:
        """Return the bytes to send now, and the events that follow once they were sent."""
        events: list[Event] = []
        packets = [encode(packet, Version.V5) for packet in self._replies]
        self._replies.clear()
        if self.phase is Phase.OPEN:
            packets += [encode(packet, Version.V5) for packet in self._subscriptions.take()]
            more, done = self._outbound.take(now, CHUNK_BYTES)
            packets += more
            events += [event for one in done if (event := self._subscriptions.on_done(one)) is not None]
        return b"".join(packets), events

    def on_bytes(self, data: bytes, now: Instant) -> list[Event]:
        """Process received bytes; undecodable ones raise `Malformed`, which ends the connection."""
        data = self._buffer + data if self._buffer else data
        events: list[Event] = []
        at = 0
        while (frame := frame_at(data, at, self.setup.packet_bytes_max)) is not None:
            packet = decode(data[at], data[frame[0] : frame[1]], Version.V5)
            at = frame[1]
            events += self._on_packet(packet, now)
            if self.phase is Phase.OFF:
                return events
        self._buffer = data[at:]
        return events

    def _on_packet(self, packet: Packet, now: Instant) -> list[Event]:
        if (self.phase is Phase.OPENING) != isinstance(packet, Connack):
            raise Malformed(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} while {self.phase.name}")
        match packet:
            case Connack():
                return self._on_connack(packet, now)
            case Publish():
                return self._on_publish(packet, now)
            case Acknowledge():
                return self._on_acknowledge(packet)
            case Suback() | Unsuback():
                answer = self._subscriptions.on_answer(packet)
                return [answer] if answer is not None else []
            case Pong():
                return []
            case Disconnect():
                return [self._ended(packet)]
            case _:
                raise Malformed(Reason.PROTOCOL_ERROR, f"{type(packet).__name__} from a server")

    def _on_connack(self, packet: Connack, now: Instant) -> list[Event]:
        if packet.code >= Code.UNSPECIFIED_ERROR:
            return [self._ended(packet)]
        self.phase = Phase.OPEN
        self._settle(packet.properties)
        self._tell_place_again(now)
        events: list[Event] = [Connected(packet.session_present)]
        if packet.session_present:
            self._outbound.is_inherited |= self._is_first
            self._outbound.go_on()
            self._inbound.go_on()
        else:
            self._inbound.start_over()
            self._subscriptions.start_over()
            events += [event for one in self._outbound.start_over() if (event := self._subscriptions.on_done(one)) is not None]
        self._is_first = False
        return events

    def _ended(self, packet: Connack | Disconnect) -> Ended:
        self.phase = Phase.OFF
        refused = refused_by(packet.code, packet.properties)
        return Ended(refused, is_final(packet.code, refused), packet.properties.server_reference or "")

    def _settle(self, said: Properties) -> None:
        """Apply the limits that the server set in CONNACK."""
        self._has_subscription_ids = said.subscription_ids_available is not False
        self.keep_alive_s = self.setup.keep_alive_s if said.server_keep_alive_s is None else said.server_keep_alive_s
        self._outbound.allowed = Allowed(
            window=said.receive_maximum or PACKET_ID_MAX,
            qos=2 if said.maximum_qos is None else said.maximum_qos,
            retain=said.retain_available is not False,
            packet_bytes=said.maximum_packet_size or Allowed().packet_bytes,
        )

    def _on_publish(self, packet: Publish, now: Instant) -> list[Event]:
        if packet.properties.topic_alias is not None:  # CONNECT allowed none
            raise Malformed(Reason.TOPIC_ALIAS, f"{packet.properties.topic_alias}, none is allowed")
        is_ours = packet.topic == REPLY_TOPIC  # the acknowledgement of the request carried the same answer
        if not packet.qos:
            return [] if is_ours else [self._arrival(packet, None, now)]
        held, answer = self._inbound.on_publish(packet)
        if self._inbound.is_overrun:
            raise Malformed(Reason.WINDOW_EXCEEDED, f"{self.setup.receive_max} were allowed")
        if answer is not None:
            self._replies.append(answer)
        if held is None:
            return []
        if is_ours:
            self.acknowledge(held)
            return []
        return [self._arrival(packet, held, now)]

    def _arrival(self, packet: Publish, held: Held | None, now: Instant) -> Arrival:
        return Arrival(received_from(packet, now), self.subscription_ids_of(packet), held)

    def _on_acknowledge(self, packet: Acknowledge) -> list[Event]:
        if packet.kind is Kind.PUBREL:
            self._replies.append(self._inbound.on_release(packet.number))
            return []
        reply, done = self._outbound.on_answer(packet)
        if reply is not None:
            self._replies.append(reply)
        event = None if done is None else self._subscriptions.on_done(done)
        return [] if event is None else [event]

    def on_lost(self) -> list[Done]:
        """Process the loss of the connection."""
        self.phase = Phase.OFF
        self._replies.clear()
        self._outbound.on_lost()
        self._inbound.on_lost()
        return self._subscriptions.on_lost()

    def object_to(self, fault: Malformed) -> None:
        """Send only DISCONNECT, with the reason, after a protocol violation by the server."""
        code = fitting(code_of(fault.reason), Kind.DISCONNECT)
        self._replies = [Disconnect(code)] if self.phase is Phase.OPEN else []
        self.phase = Phase.OFF

    def leave(self, *, forget: bool) -> None:
        """Disconnect; with `forget`, the server may discard the session."""
        if self.phase is Phase.OPEN:
            self._replies.append(Disconnect(properties=Properties(session_expiry_s=0)) if forget else Disconnect())
        self.phase = Phase.OFF

    def ping(self) -> None:
        """Queue PINGREQ."""
        self._replies.append(Ping())

    def publish(self, packet: Publish, valid_until: Instant | None) -> int:
        """Queue a message; return the ticket of its `Done`."""
        return self._outbound.put(packet, valid_until)

    def withdraw(self, ticket: int) -> None:
        """Discard a message whose caller no longer waits, if it is not sent yet."""
        self._outbound.withdraw(ticket)

    def report(self, motion: Motion, now: Instant) -> int:
        """Queue a report; return the ticket of its `Done`."""
        body = report_json(motion, self.setup.client_id, now, tells_when=self.phase is not Phase.OPEN)
        ticket = self._outbound.put(Publish(_REPORT_TOPIC, body, qos=1), needs_service=True)
        self._motion = motion, now, ticket
        return ticket

    def _tell_place_again(self, now: Instant) -> None:
        """Resend the last report, because a restarted server has lost it; an unanswered one is resent anyway."""
        if self._motion is not None and not self._outbound.has(self._motion[2]):
            motion, said_at, _ = self._motion
            body = report_json(motion, self.setup.client_id, min(said_at, now), tells_when=True)
            self._replies.append(Publish(_REPORT_TOPIC, body))

    def subscription_id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription."""
        return self._subscriptions.id_for(request)

    def subscribe(self, subscription_id: int, request: SubscriptionRequest) -> int:
        """Add a subscription; return the ticket of its `Done`."""
        ticket = self._outbound.new_ticket()
        self._subscriptions.add(subscription_id, request, ticket)
        return ticket

    def unsubscribe(self, subscription_id: int) -> tuple[int, Done | None]:
        """End a subscription; return the ticket, and its `Done` if that is known at once."""
        ticket = self._outbound.new_ticket()
        return ticket, self._subscriptions.remove(subscription_id, ticket)

    def subscription_ids_of(self, packet: Publish) -> tuple[int, ...]:
        """Return the subscriptions that a message matches; by topic filter if the server sends no subscription identifiers."""
        if self._has_subscription_ids:
            return packet.properties.subscription_ids
        return self._subscriptions.matching(packet.topic)

    def acknowledge(self, held: object) -> None:
        """Acknowledge a message that the application has taken."""
        assert isinstance(held, Held), "receipts are made by `MqttInbound`"
        answer = self._inbound.acknowledge(held)
        if answer is not None:
            self._replies.append(answer)
