"""One MQTT 5 session from the client's side, over as many connections as it takes: bytes and calls in, bytes and events out.

    phase      may arrive                                  goes to
    OFF        -                                           begin ─▶ OPENING
    OPENING    CONNACK                                     yes ─▶ OPEN, no ─▶ OFF
    OPEN       all but CONNACK, CONNECT and requests       DISCONNECT ─▶ OFF, on_lost ─▶ OFF

What must hold:
- now is an argument; no clock, no socket, no randomness: the same calls give the same bytes;
- state is kept in memory only: a client that is restarted knows of nothing it sent before;
- after `on_lost` nothing of the old connection is sent, and everything unanswered is in `Outbound`, `Inbound` and `Wishes`.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.client.carriers import Motion
from milepost.client.mqtt.events import Arrived, Done, Ended, Event, Opened
from milepost.client.mqtt.inbound import Held, Inbound
from milepost.client.mqtt.numbers import NUMBER_MAX, Numbers
from milepost.client.mqtt.outbound import Allowed, Outbound
from milepost.client.mqtt.refusals import is_final, refused_by
from milepost.client.mqtt.wishes import Wishes
from milepost.client.mqtt.words import report_json
from milepost.client.values import Wish
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed, Reason
from milepost.wire.asks import REPLY_TOPIC, SERVICE_PREFIX
from milepost.wire.asks.services import Service
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

CHUNK_BYTES: Final = 65_536
"""About so much of what waits is handed over at once."""

_REPORT_TOPIC: Final = SERVICE_PREFIX + Service.REPORT.value


class Phase(Enum):
    """Where a session is with its connection."""

    OFF = 0
    OPENING = 1
    OPEN = 2


@dataclass(frozen=True, slots=True)
class Setup:
    """What a client tells the server with CONNECT."""

    client_id: EndpointId
    clean_start: bool = False
    session_expiry_s: int = 3_600
    keep_alive_s: int = 30
    user: str | None = None
    password: bytes | None = None
    will: Will | None = None
    receive_max: int = 100
    packet_bytes_max: int = 4_000_000


class Session:
    """One session."""

    def __init__(self, setup: Setup) -> None:
        self.setup = setup
        self.phase = Phase.OFF
        self.keep_alive_s = setup.keep_alive_s
        numbers = Numbers()
        self._outbound = Outbound(numbers)
        self._inbound = Inbound(setup.receive_max)
        self._wishes = Wishes(setup.client_id, numbers, self._outbound)
        self._motion: tuple[Motion, Instant, int] | None = None
        """Where we are, when that was said, and with which ticket."""
        self._has_labels = True
        self._is_first = True
        self._buffer = b""
        self._replies: list[Packet] = []

    def begin(self) -> None:
        """A connection is there: introduce ourselves."""
        self.phase = Phase.OPENING
        self._buffer = b""
        self._replies = [self.hello()]

    def hello(self) -> Connect:
        """What the client says first."""
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
        """What to send now, and what is done once it was sent."""
        events: list[Event] = []
        packets = [encode(packet, Version.V5) for packet in self._replies]
        self._replies.clear()
        if self.phase is Phase.OPEN:
            packets += [encode(packet, Version.V5) for packet in self._wishes.take()]
            more, done = self._outbound.take(now, CHUNK_BYTES)
            packets += more
            events += [event for one in done if (event := self._wishes.maybe_answered(one)) is not None]
        return b"".join(packets), events

    def on_bytes(self, data: bytes, now: Instant) -> list[Event]:
        """Bytes came; what cannot be understood is `Malformed`, and ends the connection."""
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
                return self._on_publish(packet)
            case Acknowledge():
                return self._on_acknowledge(packet)
            case Suback() | Unsuback():
                answer = self._wishes.on_answer(packet)
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
        events: list[Event] = [Opened(packet.session_present)]
        if packet.session_present:
            self._outbound.is_inherited |= self._is_first
            self._outbound.go_on()
            self._inbound.go_on()
        else:
            self._inbound.start_over()
            self._wishes.start_over()
            events += [event for one in self._outbound.start_over() if (event := self._wishes.maybe_answered(one)) is not None]
        self._is_first = False
        return events

    def _ended(self, packet: Connack | Disconnect) -> Ended:
        self.phase = Phase.OFF
        refused = refused_by(packet.code, packet.properties)
        return Ended(refused, is_final(packet.code, refused), packet.properties.server_reference or "")

    def _settle(self, said: Properties) -> None:
        """Go by what the server allows."""
        self._has_labels = said.subscription_ids_available is not False
        self.keep_alive_s = self.setup.keep_alive_s if said.server_keep_alive_s is None else said.server_keep_alive_s
        self._outbound.allowed = Allowed(
            window=said.receive_maximum or NUMBER_MAX,
            qos=2 if said.maximum_qos is None else said.maximum_qos,
            retain=said.retain_available is not False,
            packet_bytes=said.maximum_packet_size or Allowed().packet_bytes,
        )

    def _on_publish(self, packet: Publish) -> list[Event]:
        if packet.properties.topic_alias is not None:  # we announced that we take none
            raise Malformed(Reason.TOPIC_ALIAS, f"{packet.properties.topic_alias}, none is allowed")
        is_ours = packet.topic == REPLY_TOPIC  # what it says was said in the answer to the request too
        if not packet.qos:
            return [] if is_ours else [Arrived(packet)]
        held, answer = self._inbound.on_publish(packet)
        if self._inbound.is_overrun:
            raise Malformed(Reason.WINDOW_EXCEEDED, f"{self.setup.receive_max} were allowed")
        if answer is not None:
            self._replies.append(answer)
        if held is None:
            return []
        if is_ours:
            self.took(held)
            return []
        return [Arrived(packet, held)]

    def _on_acknowledge(self, packet: Acknowledge) -> list[Event]:
        if packet.kind is Kind.PUBREL:
            self._replies.append(self._inbound.on_release(packet.number))
            return []
        reply, done = self._outbound.on_answer(packet)
        if reply is not None:
            self._replies.append(reply)
        event = None if done is None else self._wishes.maybe_answered(done)
        return [] if event is None else [event]

    def on_lost(self) -> list[Done]:
        """The connection is gone."""
        self.phase = Phase.OFF
        self._replies.clear()
        self._outbound.on_lost()
        self._inbound.on_lost()
        return self._wishes.on_lost()

    def object_to(self, fault: Malformed) -> None:
        """The server does not keep to the protocol: tell it so, and nothing else."""
        code = fitting(code_of(fault.reason), Kind.DISCONNECT)
        self._replies = [Disconnect(code)] if self.phase is Phase.OPEN else []
        self.phase = Phase.OFF

    def leave(self, *, forget: bool) -> None:
        """Say goodbye; with `forget`, the server need not keep the session."""
        if self.phase is Phase.OPEN:
            self._replies.append(Disconnect(properties=Properties(session_expiry_s=0)) if forget else Disconnect())
        self.phase = Phase.OFF

    def ping(self) -> None:
        """Ask whether the server is still there."""
        self._replies.append(Ping())

    def publish(self, packet: Publish, valid_until: Instant | None) -> int:
        """Have a message sent; gives the ticket of its `Done`."""
        return self._outbound.put(packet, valid_until)

    def withdraw(self, ticket: int) -> None:
        """Nobody waits for a message any more: do not send it, if it was not sent yet."""
        self._outbound.withdraw(ticket)

    def report(self, motion: Motion, now: Instant) -> int:
        """Have a report sent; gives the ticket of its `Done`."""
        body = report_json(motion, self.setup.client_id, now, tells_when=self.phase is not Phase.OPEN)
        ticket = self._outbound.put(Publish(_REPORT_TOPIC, body, qos=1), needs_service=True)
        self._motion = motion, now, ticket
        return ticket

    def _tell_place_again(self, now: Instant) -> None:
        """A server that was restarted does not know where we are; a report that was not answered is sent again by itself."""
        if self._motion is not None and not self._outbound.has(self._motion[2]):
            motion, said_at, _ = self._motion
            body = report_json(motion, self.setup.client_id, min(said_at, now), tells_when=True)
            self._replies.append(Publish(_REPORT_TOPIC, body))

    def label_for(self, wish: Wish) -> int:
        """The label that a subscription would have."""
        return self._wishes.label_for(wish)

    def subscribe(self, label: int, wish: Wish) -> int:
        """Have a subscription; gives the ticket of its `Done`."""
        ticket = self._outbound.new_ticket()
        self._wishes.add(label, wish, ticket)
        return ticket

    def unsubscribe(self, label: int) -> tuple[int, Done | None]:
        """Have it no more; gives the ticket, and its `Done` if that is known at once."""
        ticket = self._outbound.new_ticket()
        return ticket, self._wishes.remove(label, ticket)

    def labels_of(self, packet: Publish) -> tuple[int, ...]:
        """For which subscriptions a message came; without the server's help: whose filter it passes."""
        if self._has_labels:
            return packet.properties.subscription_ids
        return self._wishes.matching(packet.topic)

    def took(self, held: object) -> None:
        """The application has a message."""
        assert isinstance(held, Held), "receipts are made by `Inbound`"
        answer = self._inbound.took(held)
        if answer is not None:
            self._replies.append(answer)
