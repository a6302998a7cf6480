"""Messages for the application, and the acknowledgements that the server waits for.

    stage      when                                          next
    HELD       not yet taken by the application              taken: PUBACK, done (1); PUBREC ─▶ RECEIVED (2)
    OWED       taken while the server was unreachable        redelivered: acknowledged at once, not delivered again
    RECEIVED   PUBREC was sent (2)                           PUBREL: PUBCOMP, done

Invariants:
- a message is acknowledged only once the application has it, so that the announced receive maximum bounds the unacknowledged
  messages;
- with QoS 2 no message is delivered twice while this object exists and the server has the session [MQTT-4.3.3-10];
- after a reconnection the server is expected to redeliver `HELD` messages (`is_expected`): with DUP it is the same message,
  without DUP the server discarded the old one and reuses its packet identifier.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.wire.mqtt import Acknowledge, Code, Kind, Publish

OVERRUN_MAX: Final = 1_000
"""Tolerated messages beyond the receive maximum."""


class InboundStage(Enum):
    """Progress of an inbound message."""

    HELD = 0
    OWED = 1
    RECEIVED = 2


@dataclass(slots=True, eq=False)
class Held:
    """A message whose acknowledgement the server waits for."""

    number: int
    qos: int
    stage: InboundStage = InboundStage.HELD
    is_expected: bool = False


class MqttInbound:
    """All messages whose acknowledgement the server waits for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[int, Held] = {}
        self._is_connected = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_overrun(self) -> bool:
        """Whether the server far exceeds the receive maximum. [MQTT-3.3.4-9]

        Tolerant, because Mosquitto 2.0 miscounts when acknowledgements arrive in a batch, and disconnecting would not cure that.
        """
        return len(self._held) > self._limit + OVERRUN_MAX

    def on_publish(self, packet: Publish) -> tuple[Held | None, Acknowledge | None]:
        """Process a PUBLISH of QoS 1 or 2; return the message if it is new, and the acknowledgement to send at once, if any."""
        assert packet.number is not None, "it has a number, or it could not have been read"
        held = self._held.get(packet.number)
        if held is None or self._is_another(held, packet):
            new = self._held[packet.number] = Held(packet.number, packet.qos)
            return new, None
        held.is_expected = False
        match held.stage:
            case InboundStage.HELD:
                return None, None
            case InboundStage.OWED:
                return None, self._answer(held)
            case InboundStage.RECEIVED:
                return None, Acknowledge(Kind.PUBREC, held.number)

    @staticmethod
    def _is_another(held: Held, packet: Publish) -> bool:
        return packet.qos != held.qos or (held.is_expected and not packet.dup and held.stage is not InboundStage.RECEIVED)

    def acknowledge(self, held: Held) -> Acknowledge | None:
        """Record that the application has a message; return the acknowledgement to send, if any."""
        if self._held.get(held.number) is not held or held.stage is not InboundStage.HELD:
            return None  # from a session that the server discarded
        if not self._is_connected or held.is_expected:
            held.stage = InboundStage.OWED
            return None
        return self._answer(held)

    def _answer(self, held: Held) -> Acknowledge:
        if held.qos == 1:
            del self._held[held.number]
            return Acknowledge(Kind.PUBACK, held.number)
        held.stage = InboundStage.RECEIVED
        return Acknowledge(Kind.PUBREC, held.number)

    def on_release(self, number: int) -> Acknowledge:
        """Process PUBREL: the server will not send that message again. [MQTT-4.3.3-11]"""
        held = self._held.get(number)
        if held is None or held.stage is not InboundStage.RECEIVED:
            return Acknowledge(Kind.PUBCOMP, number, Code.PACKET_IDENTIFIER_NOT_FOUND)
        del self._held[number]
        return Acknowledge(Kind.PUBCOMP, number)

    def on_lost(self) -> None:
        """Process the loss of the connection."""
        self._is_connected = False

    def go_on(self) -> None:
        """Resume the session: the server will resend unacknowledged messages."""
        self._is_connected = True
        for held in self._held.values():
            held.is_expected = True

    def start_over(self) -> None:
        """Start a new session; messages that the application has not taken need no acknowledgement any more."""
        self._is_connected = True
        self._held.clear()
