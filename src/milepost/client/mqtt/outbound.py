"""Messages on their way to the server.

    stage      when                       effect of the server's answer
    WAITING    no packet identifier yet   -
    SENT       PUBLISH was sent           PUBACK (1), a PUBREC with an error (2) ─▶ done       PUBREC (2) ─▶ RELEASED
    RELEASED   PUBREL was sent            PUBCOMP ─▶ done

Invariants:
- messages are sent in the order they were queued, and resent in that order [MQTT-4.4.0-1], [MQTT-4.6.0-1];
- at most `window` of them are sent and unanswered [MQTT-3.3.4-7];
- if the server still has the session, each is resent under its packet identifier; if not, unanswered ones start over, and the
  server may receive one twice, because it lost its state. One that it had acknowledged with PUBREC is done;
- in a session inherited from a previous run of the client the server may still hold packet identifiers of that run, and mistake
  a message of QoS 2 under one of them for a duplicate: so an identifier is released before its first use. (A deviation:
  [MQTT-3.2.2-4] requires discarding such a session, with all messages queued in it.)
"""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Final

from milepost.client.errors import RefusedByEdge
from milepost.client.events import Done
from milepost.client.mqtt.mapping import refused_by
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Code, Packet, PacketType, Publish, Version, encode

PACKET_ID_MAX: Final = 65_535


class PacketIds:
    """Packet identifiers, shared by all packets that are answered; each is reused only after its exchange. [MQTT-2.2.1-3]"""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._last = 0

    @property
    def has_free(self) -> bool:
        """Whether an identifier is free."""
        return len(self._taken) < PACKET_ID_MAX

    def take(self) -> int:
        """Return a free identifier and mark it as used."""
        assert self.has_free, "callers check `has_free` first"
        packet_id = self._last
        while True:
            packet_id = packet_id % PACKET_ID_MAX + 1
            if packet_id not in self._taken:
                break
        self._last = packet_id
        self._taken.add(packet_id)
        return packet_id

    def release(self, packet_id: int) -> None:
        """Free the identifier of a completed exchange."""
        self._taken.discard(packet_id)


EXPIRY_S_MAX: Final = 0xFFFFFFFF
_EXPIRY_BYTES: Final = 5
_REST_BYTES: Final = 100


class OutboundStage(Enum):
    """Progress of an outbound message."""

    WAITING = 0
    SENT = 1
    RELEASED = 2


@dataclass(slots=True, eq=False)
class PendingPublish:
    """An outbound message."""

    ticket: int
    packet: Publish
    valid_until: Instant | None = None
    needs_service: bool = False
    """Whether only a Milepost edge can answer it: other servers have no subscriber on its topic."""
    stage: OutboundStage = OutboundStage.WAITING


@dataclass(slots=True)
class ServerLimits:
    """Limits that the server set in CONNACK."""

    window: int = PACKET_ID_MAX
    qos: int = 2
    retain: bool = True
    packet_bytes: int = 268_435_460


class MqttOutbound:
    """All messages that are queued or in flight."""

    def __init__(self, packet_ids: PacketIds) -> None:
        self.server_limits = ServerLimits()
        self.is_inherited = False
        self._packet_ids = packet_ids
        self._tickets = count(1)
        self._waiting: deque[PendingPublish] = deque()
        self._to_resend: deque[PendingPublish] = deque()
        self._in_flight: dict[int, PendingPublish] = {}
        """By packet identifier, in the order of first sending."""
        self._in_flight_count = 0
        """Messages sent over this connection and not answered."""
        self._used_packet_ids: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._in_flight)

    def has(self, ticket: int) -> bool:
        """Return whether the message with this ticket is queued or in flight."""
        return any(one.ticket == ticket for one in (*self._in_flight.values(), *self._waiting))

    def new_ticket(self) -> int:
        """Return a unique ticket."""
        return next(self._tickets)

    def put(self, packet: Publish, valid_until: Instant | None = None, *, needs_service: bool = False) -> int:
        """Queue a message; return its ticket."""
        pending = PendingPublish(self.new_ticket(), packet, valid_until, needs_service)
        self._waiting.append(pending)
        return pending.ticket

    def put_first(self, packet: Publish) -> int:
        """Queue a service request ahead of all waiting messages, as SUBSCRIBE is; return its ticket."""
        pending = PendingPublish(self.new_ticket(), packet, needs_service=True)
        self._waiting.appendleft(pending)
        return pending.ticket

    def withdraw(self, ticket: int) -> None:
        """Remove a message that is not sent yet; one that is in flight continues."""
        self._waiting = deque(one for one in self._waiting if one.ticket != ticket)

    def take(self, now: Instant, bytes_max: int) -> tuple[list[bytes], list[Done]]:
        """Return packets to send now, about `bytes_max` bytes, and the completed messages."""
        packets: list[bytes] = []
        done: list[Done] = []
        size = 0
        while size < bytes_max and (pending := self._maybe_next()) is not None:
            refused = self._maybe_refusal(pending, now)
            if refused is not None:
                done.append(Done(pending.ticket, refused))
                continue
            packets += self._send(pending, now)
            size += len(packets[-1])
            if not pending.packet.qos:
                done.append(Done(pending.ticket))
        return packets, done

    def _maybe_next(self) -> PendingPublish | None:
        queue = self._to_resend or self._waiting
        if not queue:
            return None
        is_blocked = queue[0].packet.qos > 0 and (
            self._in_flight_count >= self.server_limits.window or not self._packet_ids.has_free
        )
        return None if is_blocked else queue.popleft()

    def _maybe_refusal(self, pending: PendingPublish, now: Instant) -> RefusedByEdge | None:
        """Return why a message that was never sent must not be sent; None if it may be."""
        if pending.stage is not OutboundStage.WAITING:
            return None
        packet, server_limits = pending.packet, self.server_limits
        if pending.valid_until is not None and now > pending.valid_until:
            return RefusedByEdge.of(Reason.EXPIRED, "the message expired before it could be sent")
        if packet.qos > server_limits.qos:
            return _not_supported(Code.QOS_NOT_SUPPORTED, f"the server supports QoS {server_limits.qos} at most")
        if packet.retain and not server_limits.retain:
            return _not_supported(Code.RETAIN_NOT_SUPPORTED, "the server does not support retained messages")
        size = _size_upper_bound(packet)
        if size > server_limits.packet_bytes:
            size = len(encode(replace(packet, packet_id=1 if packet.qos else None), Version.V5)) + _EXPIRY_BYTES
        if size > server_limits.packet_bytes:  # [MQTT-3.2.2-15]
            return RefusedByEdge.of(
                Reason.PACKET_TOO_LARGE, f"the packet has {size} bytes, the server accepts {server_limits.packet_bytes}"
            )
        return None

    def _send(self, pending: PendingPublish, now: Instant) -> list[bytes]:
        packets: list[Packet] = []
        if not pending.packet.qos:
            return [encode(_with_remaining_expiry(pending, now), Version.V5)]
        self._in_flight_count += 1
        packet_id = pending.packet.packet_id
        if pending.stage is OutboundStage.RELEASED:
            assert packet_id is not None, "a sent message has a packet identifier"
            return [encode(Acknowledge(PacketType.PUBREL, packet_id), Version.V5)]
        if packet_id is None:
            packet_id = self._packet_ids.take()
            pending.packet = replace(pending.packet, packet_id=packet_id)
            if self.is_inherited and pending.packet.qos == 2 and packet_id not in self._used_packet_ids:
                packets.append(Acknowledge(PacketType.PUBREL, packet_id))
            self._used_packet_ids.add(packet_id)
        pending.stage = OutboundStage.SENT
        self._in_flight[packet_id] = pending
        packets.append(_with_remaining_expiry(pending, now))
        return [encode(packet, Version.V5) for packet in packets]

    def on_answer(self, packet: Acknowledge) -> tuple[Packet | None, Done | None]:
        """Process PUBACK, PUBREC or PUBCOMP; return the reply, if any, and the completed message, if any."""
        pending = self._in_flight.get(packet.packet_id)
        is_refused = packet.code >= Code.UNSPECIFIED_ERROR
        if packet.kind is PacketType.PUBREC and not is_refused:
            if pending is None:
                return Acknowledge(PacketType.PUBREL, packet.packet_id, Code.PACKET_IDENTIFIER_NOT_FOUND), None
            pending.stage = OutboundStage.RELEASED
            return Acknowledge(PacketType.PUBREL, packet.packet_id), None  # [MQTT-4.3.3-4]
        if pending is None or _expected(pending) is not packet.kind:
            return None, None  # from an earlier connection, or for an identifier that was released before its first use
        self._complete(packet.packet_id)
        if packet.kind is PacketType.PUBCOMP:  # even with PACKET_IDENTIFIER_NOT_FOUND: then the exchange was complete before
            return None, Done(pending.ticket)
        if pending.needs_service and packet.code == Code.NO_MATCHING_SUBSCRIBERS:
            return None, Done(pending.ticket, _no_service_refusal())
        return None, Done(pending.ticket, refused_by(packet.code, packet.properties) if is_refused else None)

    def _complete(self, packet_id: int) -> None:
        del self._in_flight[packet_id]
        self._packet_ids.release(packet_id)
        self._in_flight_count -= 1

    def on_lost(self) -> None:
        """Process the loss of the connection."""
        self._in_flight_count = 0
        self._to_resend.clear()

    def resume(self) -> None:
        """Resume the session: queue all unanswered messages for resending. [MQTT-4.4.0-1]"""
        for pending in self._in_flight.values():
            if pending.stage is OutboundStage.SENT:
                pending.packet = replace(pending.packet, dup=True)  # [MQTT-3.3.1-1]
        self._to_resend.extend(self._in_flight.values())

    def restart(self) -> list[Done]:
        """Start a new session; return the messages that are done because the previous session had received them."""
        in_flight, self._in_flight = self._in_flight, {}
        for packet_id in in_flight:
            self._packet_ids.release(packet_id)
        done = [Done(one.ticket) for one in in_flight.values() if one.stage is OutboundStage.RELEASED]
        unanswered = [one for one in in_flight.values() if one.stage is OutboundStage.SENT]
        for pending in reversed(unanswered):
            pending.stage = OutboundStage.WAITING
            pending.packet = replace(pending.packet, packet_id=None, dup=False)
            self._waiting.appendleft(pending)
        self.is_inherited = False
        return done


def _expected(pending: PendingPublish) -> PacketType:
    """Return the packet that ends an exchange; a PUBREC compared with it carries an error."""
    if pending.stage is OutboundStage.RELEASED:
        return PacketType.PUBCOMP
    return PacketType.PUBACK if pending.packet.qos == 1 else PacketType.PUBREC


def _size_upper_bound(packet: Publish) -> int:
    """Return an upper bound of the packet's size without encoding it."""
    characters = len(packet.topic) + sum(len(name) + len(value) for name, value in packet.properties.user)
    return len(packet.payload) + 4 * characters + 5 * len(packet.properties.user) + _REST_BYTES


def _not_supported(code: Code, detail: str) -> RefusedByEdge:
    return RefusedByEdge(code.value, code.name, detail)


def _no_service_refusal() -> RefusedByEdge:
    return RefusedByEdge(
        Code.IMPLEMENTATION_SPECIFIC_ERROR.value,
        "NO_MILEPOST_EDGE",
        "this server has no Milepost services ($milepost/…)",
        "Connect to a Milepost edge, or use neither reports nor two subscriptions to one filter.",
    )


def _with_remaining_expiry(pending: PendingPublish, now: Instant) -> Publish:
    """Return the packet with its remaining validity as message expiry."""
    if pending.valid_until is None:
        return pending.packet
    remaining_s = max(1, -((now - pending.valid_until) // SECOND_NS))
    properties = replace(pending.packet.properties, message_expiry_s=min(remaining_s, EXPIRY_S_MAX))
    return replace(pending.packet, properties=properties)
