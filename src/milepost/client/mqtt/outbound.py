"""Messages on their way to the server.

    stage      when                       what the server's answer does
    WAITING    no number yet              -
    SENT       PUBLISH was sent           PUBACK (1), a PUBREC that says no (2) ─▶ done       PUBREC (2) ─▶ RELEASED
    RELEASED   PUBREL was sent            PUBCOMP ─▶ done

What must hold:
- messages are sent in the order they were put, and sent again in that order [MQTT-4.4.0-1], [MQTT-4.6.0-1];
- never more than `window` of them are sent and not answered [MQTT-3.3.4-7];
- if the server kept the session, each is sent again under its number; if not, those it did not answer start over: it may then get
  one twice, for it forgot what it had. One that it had acknowledged with PUBREC is done;
- in a session inherited from an earlier life of the client the server may still hold numbers of that life, and take a message of
  quality 2 under one of them for an old one: so a number is released before it is used for the first time. (A departure:
  [MQTT-3.2.2-4] would have us throw such a session away, with all that waits in it.)
"""

from collections import deque
from dataclasses import dataclass, replace
from enum import Enum
from itertools import count
from typing import Final

from milepost.client.faults import RefusedByEdge
from milepost.client.mqtt.events import Done
from milepost.client.mqtt.numbers import NUMBER_MAX, Numbers
from milepost.client.mqtt.refusals import refused_by
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason
from milepost.wire.mqtt import Acknowledge, Code, Kind, Packet, Publish, Version, encode

EXPIRY_S_MAX: Final = 0xFFFFFFFF
_EXPIRY_BYTES: Final = 5
_REST_BYTES: Final = 100


class Stage(Enum):
    """How far a message is."""

    WAITING = 0
    SENT = 1
    RELEASED = 2


@dataclass(slots=True, eq=False)
class Sending:
    """One message on its way."""

    ticket: int
    packet: Publish
    valid_until: Instant | None = None
    needs_service: bool = False
    """Whether only an edge of ours can answer it: elsewhere nobody listens there."""
    stage: Stage = Stage.WAITING


@dataclass(slots=True)
class Allowed:
    """What CONNACK lets us send."""

    window: int = NUMBER_MAX
    qos: int = 2
    retain: bool = True
    packet_bytes: int = 268_435_460


class Outbound:
    """All messages that were put and are not done."""

    def __init__(self, numbers: Numbers) -> None:
        self.allowed = Allowed()
        self.is_inherited = False
        self._numbers = numbers
        self._tickets = count(1)
        self._waiting: deque[Sending] = deque()
        self._again: deque[Sending] = deque()
        self._flight: dict[int, Sending] = {}
        """By number, in the order they were first sent."""
        self._open = 0
        """How many were sent over this connection and are not answered."""
        self._own_numbers: set[int] = set()

    def __len__(self) -> int:
        return len(self._waiting) + len(self._flight)

    def has(self, ticket: int) -> bool:
        """Whether what has a ticket is not done."""
        return any(one.ticket == ticket for one in (*self._flight.values(), *self._waiting))

    def new_ticket(self) -> int:
        """A ticket that nothing else has."""
        return next(self._tickets)

    def put(self, packet: Publish, valid_until: Instant | None = None, *, needs_service: bool = False) -> int:
        """Have a message sent; gives its ticket."""
        sending = Sending(self.new_ticket(), packet, valid_until, needs_service)
        self._waiting.append(sending)
        return sending.ticket

    def put_first(self, packet: Publish) -> int:
        """Have a request to the service sent before all that waits, as SUBSCRIBE is."""
        sending = Sending(self.new_ticket(), packet, needs_service=True)
        self._waiting.appendleft(sending)
        return sending.ticket

    def withdraw(self, ticket: int) -> None:
        """Nobody wants it sent any more; what was sent already takes its course."""
        self._waiting = deque(one for one in self._waiting if one.ticket != ticket)

    def take(self, now: Instant, bytes_max: int) -> tuple[list[bytes], list[Done]]:
        """Packets to be sent now, about `bytes_max` of them, and what is done with that."""
        packets: list[bytes] = []
        done: list[Done] = []
        size = 0
        while size < bytes_max and (sending := self._maybe_next()) is not None:
            refused = self._why_not(sending, now)
            if refused is not None:
                done.append(Done(sending.ticket, refused))
                continue
            packets += self._send(sending, now)
            size += len(packets[-1])
            if not sending.packet.qos:
                done.append(Done(sending.ticket))
        return packets, done

    def _maybe_next(self) -> Sending | None:
        queue = self._again or self._waiting
        if not queue:
            return None
        is_blocked = queue[0].packet.qos > 0 and (self._open >= self.allowed.window or not self._numbers.has_any)
        return None if is_blocked else queue.popleft()

    def _why_not(self, sending: Sending, now: Instant) -> RefusedByEdge | None:
        """Why a message that was never sent is not worth sending."""
        if sending.stage is not Stage.WAITING:
            return None
        packet, allowed = sending.packet, self.allowed
        if sending.valid_until is not None and now > sending.valid_until:
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

    def _send(self, sending: Sending, now: Instant) -> list[bytes]:
        packets: list[Packet] = []
        if not sending.packet.qos:
            return [encode(_aged(sending, now), Version.V5)]
        self._open += 1
        number = sending.packet.number
        if sending.stage is Stage.RELEASED:
            assert number is not None, "what was sent has a number"
            return [encode(Acknowledge(Kind.PUBREL, number), Version.V5)]
        if number is None:
            number = self._numbers.take()
            sending.packet = replace(sending.packet, number=number)
            if self.is_inherited and sending.packet.qos == 2 and number not in self._own_numbers:
                packets.append(Acknowledge(Kind.PUBREL, number))
            self._own_numbers.add(number)
        sending.stage = Stage.SENT
        self._flight[number] = sending
        packets.append(_aged(sending, now))
        return [encode(packet, Version.V5) for packet in packets]

    def on_answer(self, packet: Acknowledge) -> tuple[Packet | None, Done | None]:
        """PUBACK, PUBREC or PUBCOMP: what to say to it, and what is done with it."""
        sending = self._flight.get(packet.number)
        is_no = packet.code >= Code.UNSPECIFIED_ERROR
        if packet.kind is Kind.PUBREC and not is_no:
            if sending is None:
                return Acknowledge(Kind.PUBREL, packet.number, Code.PACKET_IDENTIFIER_NOT_FOUND), None
            sending.stage = Stage.RELEASED
            return Acknowledge(Kind.PUBREL, packet.number), None  # [MQTT-4.3.3-4]
        if sending is None or _expected(sending) is not packet.kind:
            return None, None  # of an earlier connection, or of a number that was released before its first use
        self._forget(packet.number)
        if packet.kind is Kind.PUBCOMP:  # also if the server does not know the number: then it was done before
            return None, Done(sending.ticket)
        if sending.needs_service and packet.code == Code.NO_MATCHING_SUBSCRIBERS:
            return None, Done(sending.ticket, _no_service())
        return None, Done(sending.ticket, refused_by(packet.code, packet.properties) if is_no else None)

    def _forget(self, number: int) -> None:
        del self._flight[number]
        self._numbers.give_back(number)
        self._open -= 1

    def on_lost(self) -> None:
        """The connection is gone."""
        self._open = 0
        self._again.clear()

    def go_on(self) -> None:
        """The server still has the session: all that was not answered is sent again. [MQTT-4.4.0-1]"""
        for sending in self._flight.values():
            if sending.stage is Stage.SENT:
                sending.packet = replace(sending.packet, dup=True)  # [MQTT-3.3.1-1]
        self._again.extend(self._flight.values())

    def start_over(self) -> list[Done]:
        """The server has a new session; gives what is done, for the server had it."""
        flight, self._flight = self._flight, {}
        for number in flight:
            self._numbers.give_back(number)
        done = [Done(one.ticket) for one in flight.values() if one.stage is Stage.RELEASED]
        unanswered = [one for one in flight.values() if one.stage is Stage.SENT]
        for sending in reversed(unanswered):
            sending.stage = Stage.WAITING
            sending.packet = replace(sending.packet, number=None, dup=False)
            self._waiting.appendleft(sending)
        self.is_inherited = False
        return done


def _expected(sending: Sending) -> Kind:
    """What ends an exchange; a PUBREC that comes here says no."""
    if sending.stage is Stage.RELEASED:
        return Kind.PUBCOMP
    return Kind.PUBACK if sending.packet.qos == 1 else Kind.PUBREC


def _size_at_most(packet: Publish) -> int:
    """No less than the bytes of a packet, without encoding it."""
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


def _aged(sending: Sending, now: Instant) -> Publish:
    """The packet with what is left of its validity."""
    if sending.valid_until is None:
        return sending.packet
    left_s = max(1, -((now - sending.valid_until) // SECOND_NS))
    properties = replace(sending.packet.properties, message_expiry_s=min(left_s, EXPIRY_S_MAX))
    return replace(sending.packet, properties=properties)
