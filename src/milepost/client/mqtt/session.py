"""The client side of one MQTT 5 session, over any number of connections: bytes and calls in, bytes and events out.

    phase          accepted packets                        next
    DISCONNECTED   -                                       begin ─▶ CONNECTING
    CONNECTING     CONNACK                                 success ─▶ CONNECTED, error ─▶ DISCONNECTED
    CONNECTED      all but CONNACK, CONNECT and requests   DISCONNECT ─▶ DISCONNECTED, on_lost ─▶ DISCONNECTED

Invariants:
- `now` is an argument; no clock, no socket, no randomness: the same calls produce the same bytes;
- state is in memory only: a restarted client does not know its earlier messages;
- after `on_lost` nothing of the old connection is sent; unanswered messages stay in `MqttOutbound`, `MqttInbound` and
  `MqttSubscriptions`;
- of a signed message the application gets only what its signature covers; a suppressed message is acknowledged, so that it does
  not use up the receive maximum.
"""

from dataclasses import dataclass, replace
from enum import Enum
from typing import TYPE_CHECKING, Final

from milepost.client.events import Arrival, Connected, Done, Ended, Event, Suppressed, Suppression
from milepost.client.messages import ReceivedMessage, SubscriptionRequest, received_from_message
from milepost.client.mqtt.inbound import MqttInbound, UnacknowledgedMessage
from milepost.client.mqtt.mapping import is_final, maybe_signed_message, received_from, refused_by, report_json
from milepost.client.mqtt.outbound import PACKET_ID_MAX, MqttOutbound, PacketIds, ServerLimits
from milepost.client.mqtt.subscriptions import MqttSubscriptions
from milepost.client.transport import PositionFix
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.wire.mqtt import (
    Acknowledge,
    Code,
    Connack,
    Connect,
    Disconnect,
    Packet,
    PacketType,
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
    frame_at,
    nearest_legal,
)
from milepost.wire.requests import REPLY_TOPIC, REQUEST_PREFIX, REVOCATIONS_TOPIC, RequestKind

if TYPE_CHECKING:  # imports OpenSSL and protobuf, which clients without a certificate authority do without
    from milepost.client.trust import ClientTrust

CHUNK_BYTES: Final = 65_536
"""Approximate maximum of bytes returned by one `take`."""

_REPORT_TOPIC: Final = REQUEST_PREFIX + RequestKind.REPORT.value


class MqttPhase(Enum):
    """Phase of a session's connection."""

    DISCONNECTED = 0
    CONNECTING = 1
    CONNECTED = 2


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

    def __init__(self, setup: MqttSetup, trust: "ClientTrust | None" = None) -> None:
        self.setup = setup
        self.trust = trust
        self.phase = MqttPhase.DISCONNECTED
        self.keep_alive_s = setup.keep_alive_s
        packet_ids = PacketIds()
        self._outbound = MqttOutbound(packet_ids)
        self._inbound = MqttInbound(setup.receive_max)
        self._subscriptions = MqttSubscriptions(setup.client_id, packet_ids, self._outbound)
        self._last_fix: tuple[PositionFix, Instant, int] | None = None
        """The last reported motion, when it was reported, and its ticket."""
        self._has_subscription_ids = True
        self._is_first_connection = True
        self._buffer = b""
        self._replies: list[Packet] = []

    def begin(self) -> None:
        """Begin a new connection: queue CONNECT."""
        self.phase = MqttPhase.CONNECTING
        self._buffer = b""
        self._replies = [self.connect_packet()]

    def connect_packet(self) -> Connect:
        """Return the CONNECT packet."""
        setup = self.setup
        properties = Properties(
            session_expiry_s=setup.session_expiry_s,
            receive_maximum=setup.receive_max,
            maximum_packet_size=setup.packet_bytes_max,
        )
        is_clean = setup.clean_start and self._is_first_connection
        return Connect(
            setup.client_id, Version.V5, is_clean, setup.keep_alive_s, setup.will, setup.user, setup.password, properties
        )

    def take(self, now: Instant) -> tuple[bytes, list[Event]]:
        """Return the bytes to send now, and the events that follow once they were sent."""
        events: list[Event] = []
        packets = [encode(packet, Version.V5) for packet in self._replies]
        self._replies.clear()
        if self.phase is MqttPhase.CONNECTED:
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
            if self.phase is MqttPhase.DISCONNECTED:
                return events
        self._buffer = data[at:]
        return events

    def _on_packet(self, packet: Packet, now: Instant) -> list[Event]:
        if (self.phase is MqttPhase.CONNECTING) != isinstance(packet, Connack):
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
        self.phase = MqttPhase.CONNECTED
        self._apply_limits(packet.properties)
        self._resend_report(now)
        events: list[Event] = [Connected(packet.session_present)]
        if packet.session_present:
            self._outbound.is_inherited |= self._is_first_connection
            self._outbound.resume()
            self._inbound.resume()
        else:
            self._inbound.restart()
            self._subscriptions.restart()
            events += [event for one in self._outbound.restart() if (event := self._subscriptions.on_done(one)) is not None]
        self._is_first_connection = False
        return events

    def _ended(self, packet: Connack | Disconnect) -> Ended:
        self.phase = MqttPhase.DISCONNECTED
        refused = refused_by(packet.code, packet.properties)
        return Ended(refused, is_final(packet.code, refused), packet.properties.server_reference or "")

    def _apply_limits(self, properties: Properties) -> None:
        """Apply the limits that the server set in CONNACK."""
        self._has_subscription_ids = properties.subscription_ids_available is not False
        self.keep_alive_s = self.setup.keep_alive_s if properties.server_keep_alive_s is None else properties.server_keep_alive_s
        self._outbound.server_limits = ServerLimits(
            window=properties.receive_maximum or PACKET_ID_MAX,
            qos=2 if properties.maximum_qos is None else properties.maximum_qos,
            retain=properties.retain_available is not False,
            packet_bytes=properties.maximum_packet_size or ServerLimits().packet_bytes,
        )

    def _on_publish(self, packet: Publish, now: Instant) -> list[Event]:
        if packet.properties.topic_alias is not None:  # CONNECT allowed none
            raise Malformed(
                Reason.TOPIC_ALIAS, f"the server uses topic alias {packet.properties.topic_alias}, and the client allows none"
            )
        if not packet.qos:
            return self._on_message(packet, None, now)
        unacknowledged, answer = self._inbound.on_publish(packet)
        if self._inbound.is_overrun:
            raise Malformed(
                Reason.RECEIVE_MAXIMUM_EXCEEDED,
                f"more unacknowledged messages than the receive maximum, {self.setup.receive_max}, allows",
            )
        if answer is not None:
            self._replies.append(answer)
        return [] if unacknowledged is None else self._on_message(packet, unacknowledged, now)

    def _on_message(self, packet: Publish, unacknowledged: UnacknowledgedMessage | None, now: Instant) -> list[Event]:
        """Deliver a message, unless it is for this client itself or suppressed: then acknowledge it at once."""
        event = self._maybe_event(packet, unacknowledged, now)
        if not isinstance(event, Arrival) and unacknowledged is not None:
            self.acknowledge(unacknowledged)
        return [] if event is None else [event]

    def _maybe_event(self, packet: Publish, receipt: UnacknowledgedMessage | None, now: Instant) -> Arrival | Suppressed | None:
        if packet.topic == REPLY_TOPIC:  # the acknowledgement of the request carried the same answer
            return None
        trust = self.trust
        if trust is None:
            return Arrival(received_from(packet, now), self.subscription_ids_of(packet), receipt)
        if packet.topic == REVOCATIONS_TOPIC:
            refused = trust.use_revoked_signers(packet.payload)
            return None if refused is None else Suppressed(Suppression.FORGED, packet.topic, str(refused))
        received = self._maybe_verified(trust, packet, now)
        if isinstance(received, Refused):
            return Suppressed(Suppression.FORGED, packet.topic, str(received))
        return None if received is None else Arrival(received, self.subscription_ids_of(packet), receipt)

    def _maybe_verified(self, trust: "ClientTrust", packet: Publish, now: Instant) -> ReceivedMessage | Refused | None:
        """Return the message with its signer, why it is suppressed, or None if it was delivered before.

        A retained message is the answer to a subscription, and is delivered to each.
        """
        signed = maybe_signed_message(packet)
        if isinstance(signed, Refused):
            return signed
        verdict = trust.refuse_unsigned(packet.topic) if signed is None else trust.verify(signed, now)
        if isinstance(verdict, Refused):
            return verdict
        if signed is None:
            return received_from(packet, now)
        if trust.was_delivered(signed) and not packet.retain:
            return None
        trust.remember(signed)
        received = received_from_message(signed, now, verdict)
        return replace(received, qos=packet.qos, is_retained=packet.retain, is_redelivery=packet.dup)

    def _on_acknowledge(self, packet: Acknowledge) -> list[Event]:
        if packet.kind is PacketType.PUBREL:
            self._replies.append(self._inbound.on_release(packet.packet_id))
            return []
        reply, done = self._outbound.on_answer(packet)
        if reply is not None:
            self._replies.append(reply)
        event = None if done is None else self._subscriptions.on_done(done)
        return [] if event is None else [event]

    def on_lost(self) -> list[Done]:
        """Process the loss of the connection."""
        self.phase = MqttPhase.DISCONNECTED
        self._replies.clear()
        self._outbound.on_lost()
        self._inbound.on_lost()
        return self._subscriptions.on_lost()

    def reject(self, fault: Malformed) -> None:
        """Send only DISCONNECT, with the reason, after a protocol violation by the server."""
        code = nearest_legal(code_of(fault.reason), PacketType.DISCONNECT)
        self._replies = [Disconnect(code)] if self.phase is MqttPhase.CONNECTED else []
        self.phase = MqttPhase.DISCONNECTED

    def disconnect(self, *, discard_session: bool) -> None:
        """Disconnect; with `discard_session`, the server may discard the session."""
        if self.phase is MqttPhase.CONNECTED:
            self._replies.append(Disconnect(properties=Properties(session_expiry_s=0)) if discard_session else Disconnect())
        self.phase = MqttPhase.DISCONNECTED

    def ping(self) -> None:
        """Queue PINGREQ."""
        self._replies.append(Ping())

    def publish(self, packet: Publish, valid_until: Instant | None) -> int:
        """Queue a message; return the ticket of its `Done`."""
        return self._outbound.put(packet, valid_until)

    def withdraw(self, ticket: int) -> None:
        """Discard a message whose caller no longer waits, if it is not sent yet."""
        self._outbound.withdraw(ticket)

    def report(self, fix: PositionFix, now: Instant) -> int:
        """Queue a report; return the ticket of its `Done`."""
        body = report_json(fix, self.setup.client_id, now, with_time=self.phase is not MqttPhase.CONNECTED)
        ticket = self._outbound.put(Publish(_REPORT_TOPIC, body, qos=1), needs_service=True)
        self._last_fix = fix, now, ticket
        return ticket

    def _resend_report(self, now: Instant) -> None:
        """Resend the last report, because a restarted server has lost it; an unanswered one is resent anyway."""
        if self._last_fix is not None and not self._outbound.has(self._last_fix[2]):
            fix, reported_at, _ = self._last_fix
            body = report_json(fix, self.setup.client_id, min(reported_at, now), with_time=True)
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

    def acknowledge(self, unacknowledged: object) -> None:
        """Acknowledge a message that the application has taken."""
        assert isinstance(unacknowledged, UnacknowledgedMessage), "receipts are made by `MqttInbound`"
        answer = self._inbound.acknowledge(unacknowledged)
        if answer is not None:
            self._replies.append(answer)
