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
from milepost.wire.mqtt import Acknowledge, Code, Kind, Packet, Publish, Version, encode

PACKET_ID_MAX: Final = 65_535


class PacketIds:
    """Packet identifiers, shared by all packets that are answered; each is reused only after its exchange. [MQTT-2.2.1-3]"""

    def __init__(self) -> None:
        self._taken: set[int] = set()
        self._last = 0

    @property
    def has_any(self) -> bool:
        """Whether an identifier is free."""
        return len(self._taken) < PACKET_ID_MAX

    def take(self) -> int:
        """Return a free identifier and mark it as used."""
        assert self.has_any, "whoever takes a number asks first whether there is one"
        number = self._last
        while True:
            number = number % PACKET_ID_MAX + 1
            if number not in self._taken:
                break
        self._last = number
        self._taken.add(number)
        return number

    def give_back(self, number: int) -> None:
        """Free the identifier of a completed exchange."""
        self._taken.discard(number)


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
class Allowed:
    """Limits that the server set in CONNACK."""

    window: int = PACKET_ID_MAX
    qos: int = 2
    retain: bool = True
    packet_bytes: int = 268_435_460


class MqttOutbound:
    """All messages that are queued or in flight."""

    def __init__(self, packet_ids: PacketIds) -> None:
        self.allowed = Allowed()
        self.is_inherited = False
        self._packet_ids = packet_ids
        self._tickets = count(1)
        self._waiting: deque[PendingPublish] = deque()
        self._again: deque[PendingPublish] = deque()
        self._flight: dict[int, PendingPublish] = {}
        """By packet identifier, in the order of first sending."""
        self._open = 0
        """Messages sent over this connection and not answered."""
        self._own_numbers: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flight)

    def has(self, ticket: int) -> bool:
        """Return whether the message with this ticket is queued or in flight."""
        return any(one.ticket == ticket for one in (*self._flight.values(), *self._waiting))

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
            refused = self._why_not(pending, now)
            if refused is not None:
                done.append(Done(pending.ticket, refused))
                continue
            packets += self._send(pending, now)
            size += len(packets[-1])
            if not pending.packet.qos:
                done.append(Done(pending.ticket))
        return packets, done

    def _maybe_next(self) -> PendingPublish | None:
        queue = self._again or self._waiting
        if not queue:
            return None
        is_blocked = queue[0].packet.qos > 0 and (self._open >= self.allowed.window or not self._packet_ids.has_any)
        return None if is_blocked else queue.popleft()

    def _why_not(self, pending: PendingPublish, now: Instant) -> RefusedByEdge | None:
        """Return why a message that was never sent must not be sent; None if it may be."""
        if pending.stage is not OutboundStage.WAITING:
            return None
        packet, allowed = pending.packet, self.allowed
        if pending.valid_until is not None and now > pending.valid_until:
            return RefusedByEdge.of(Reason.EXPIRED, "it was not sent before its validity ended")
        if packet.qos > allowed.qos:
            return _not_supported(Code.QOS_NOT_SUPPORTED, f"the server takes QoS {allowed.qos} at most")
        if packet.retain and not allowed.retain:
            return _not_supported(Code.RETAIN_NOT_SUPPORTED, "the server retains nothing")
        size = _size_at_most(packet)
        if size > allowed.packet_bytes:
            size = len(encode(replace(packet, number=1 if packet.qos else None), Version.V5)) + _EXPIRY_BYTES
        if size > allowed.packet_bytes:  # [MQTT-3.2.2-15]
            return RefusedByEdge.of(Reason.PACKET_TOO_LARGE, f"{size} bytes, the server takes {allowed.packet_bytes}")
        return None

    def _send(self, pending: PendingPublish, now: Instant) -> list[bytes]:
        packets: list[Packet] = []
        if not pending.packet.qos:
            return [encode(_aged(pending, now), Version.V5)]
        self._open += 1
        number = pending.packet.number
        if pending.stage is OutboundStage.RELEASED:
            assert number is not None, "what was sent has a number"
            return [encode(Acknowledge(Kind.PUBREL, number), Version.V5)]
        if number is None:
            number = self._packet_ids.take()
            pending.packet = replace(pending.packet, number=number)
            if self.is_inherited and pending.packet.qos == 2 and number not in self._own_numbers:
                packets.append(Acknowledge(Kind.PUBREL, number))
            self._own_numbers.add(number)
        pending.stage = OutboundStage.SENT
        self._flight[number] = pending
        packets.append(_aged(pending, now))
        return [encode(packet, Version.V5) for packet in packets]

    def on_answer(self, packet: Acknowledge) -> tuple[Packet | None, Done | None]:
        """Process PUBACK, PUBREC or PUBCOMP; return the reply, if any, and the completed message, if any."""
        pending = self._flight.get(packet.number)
        is_no = packet.code >= Code.UNSPECIFIED_ERROR
        if packet.kind is Kind.PUBREC and not is_no:
            if pending is None:
                return Acknowledge(Kind.PUBREL, packet.number, Code.PACKET_IDENTIFIER_NOT_FOUND), None
            pending.stage = OutboundStage.RELEASED
            return Acknowledge(Kind.PUBREL, packet.number), None  # [MQTT-4.3.3-4]
        if pending is None or _expected(pending) is not packet.kind:
            return None, None  # from an earlier connection, or for an identifier that was released before its first use
        self._forget(packet.number)
        if packet.kind is Kind.PUBCOMP:  # even with PACKET_IDENTIFIER_NOT_FOUND: then the exchange was complete before
            return None, Done(pending.ticket)
        if pending.needs_service and packet.code == Code.NO_MATCHING_SUBSCRIBERS:
            return None, Done(pending.ticket, _no_service())
        return None, Done(pending.ticket, refused_by(packet.code, packet.properties) if is_no else None)

    def _forget(self, number: int) -> None:
        del self._flight[number]
        self._packet_ids.give_back(number)
        self._open -= 1

    def on_lost(self) -> None:
        """Process the loss of the connection."""
        self._open = 0
        self._again.clear()

    def go_on(self) -> None:
        """Resume the session: queue all unanswered messages for resending. [MQTT-4.4.0-1]"""
        for pending in self._flight.values():
            if pending.stage is OutboundStage.SENT:
                pending.packet = replace(pending.packet, dup=True)  # [MQTT-3.3.1-1]
        self._again.extend(self._flight.values())

    def start_over(self) -> list[Done]:
        """Start a new session; return the messages that are done because the previous session had received them."""
        flight, self._flight = self._flight, {}
        for number in flight:
            self._packet_ids.give_back(number)
        done = [Done(one.ticket) for one in flight.values() if one.stage is OutboundStage.RELEASED]
        unanswered = [one for one in flight.values() if one.stage is OutboundStage.SENT]
        for pending in reversed(unanswered):
            pending.stage = OutboundStage.WAITING
            pending.packet = replace(pending.packet, number=None, dup=False)
            self._waiting.appendleft(pending)
        self.is_inherited = False
        return done


def _expected(pending: PendingPublish) -> Kind:
    """Return the packet that ends an exchange; a PUBREC compared with it carries an error."""
    if pending.stage is OutboundStage.RELEASED:
        return Kind.PUBCOMP
    return Kind.PUBACK if pending.packet.qos == 1 else Kind.PUBREC


def _size_at_most(packet: Publish) -> int:
    """Return an upper bound of the packet's size without encoding it."""
    letters = len(packet.topic) + sum(len(name) + len(value) for name, value in packet.properties.user)
    return len(packet.payload) + 4 * letters + 5 * len(packet.properties.user) + _REST_BYTES


def _not_supported(code: Code, detail: str) -> RefusedByEdge:
    return RefusedByEdge(code.value, code.name, detail)


def _no_service() -> RefusedByEdge:
    return RefusedByEdge(
        Code.IMPLEMENTATION_SPECIFIC_ERROR.value,
        "NO_MILEPOST_EDGE",
        "this server has no topics below $milepost/",
        "Connect to an edge of Milepost, or do without reports and without two subscriptions to one filter.",
    )


def _aged(pending: PendingPublish, now: Instant) -> Publish:
    """Return the packet with its remaining validity as message expiry."""
    if pending.valid_until is None:
        return pending.packet
    left_s = max(1, -((now - pending.valid_until) // SECOND_NS))
    properties = replace(pending.packet.properties, message_expiry_s=min(left_s, EXPIRY_S_MAX))
    return replace(pending.packet, properties=properties)
