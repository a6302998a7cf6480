"""Messages for the application, and the acknowledgements that the server waits for.

    stage      when                                          next
    UNTAKEN    not yet taken by the application              taken: PUBACK, done (1); PUBREC ─▶ RECEIVED (2)
    ACK_DUE    taken while the server was unreachable        redelivered: acknowledged at once, not delivered again
    RECEIVED   PUBREC was sent (2)                           PUBREL: PUBCOMP, done

Invariants:
- a message is acknowledged only once the application has it, so that the announced receive maximum bounds the unacknowledged
  messages;
- with QoS 2 no message is delivered twice while this object exists and the server has the session [MQTT-4.3.3-10];
- after a reconnection the server is expected to redeliver `UNTAKEN` messages (`is_expected`): with DUP it is the same message,
  without DUP the server discarded the old one and reuses its packet identifier.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.wire.mqtt import Acknowledge, Code, PacketType, Publish

OVERRUN_MAX: Final = 1_000
"""Tolerated messages beyond the receive maximum."""


class InboundStage(Enum):
    """Progress of an inbound message."""

    UNTAKEN = 0
    ACK_DUE = 1
    RECEIVED = 2


@dataclass(slots=True, eq=False)
class UnacknowledgedMessage:
    """A message whose acknowledgement the server waits for."""

    packet_id: int
    qos: int
    stage: InboundStage = InboundStage.UNTAKEN
    is_expected: bool = False


class MqttInbound:
    """All messages whose acknowledgement the server waits for."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._unacknowledged: dict[int, UnacknowledgedMessage] = {}
        self._is_connected = False

    def __len__(self) -> int:
        return len(self._unacknowledged)

    @property
    def is_overrun(self) -> bool:
        """Whether the server far exceeds the receive maximum. [MQTT-3.3.4-9]

        Tolerant, because Mosquitto 2.0 miscounts when acknowledgements arrive in a batch, and disconnecting would not cure that.
        """
        return len(self._unacknowledged) > self._limit + OVERRUN_MAX

    def on_publish(self, packet: Publish) -> tuple[UnacknowledgedMessage | None, Acknowledge | None]:
        """Process a PUBLISH of QoS 1 or 2; return the message if it is new, and the acknowledgement to send at once, if any."""
        assert packet.packet_id is not None, "a PUBLISH of QoS 1 or 2 has a packet identifier"
        message = self._unacknowledged.get(packet.packet_id)
        if message is None or self._is_new_message(message, packet):
            new = self._unacknowledged[packet.packet_id] = UnacknowledgedMessage(packet.packet_id, packet.qos)
            return new, None
        message.is_expected = False
        match message.stage:
            case InboundStage.UNTAKEN:
                return None, None
            case InboundStage.ACK_DUE:
                return None, self._answer(message)
            case InboundStage.RECEIVED:
                return None, Acknowledge(PacketType.PUBREC, message.packet_id)

    @staticmethod
    def _is_new_message(message: UnacknowledgedMessage, packet: Publish) -> bool:
        return packet.qos != message.qos or (
            message.is_expected and not packet.dup and message.stage is not InboundStage.RECEIVED
        )

    def acknowledge(self, message: UnacknowledgedMessage) -> Acknowledge | None:
        """Record that the application has a message; return the acknowledgement to send, if any."""
        if self._unacknowledged.get(message.packet_id) is not message or message.stage is not InboundStage.UNTAKEN:
            return None  # from a session that the server discarded
        if not self._is_connected or message.is_expected:
            message.stage = InboundStage.ACK_DUE
            return None
        return self._answer(message)

    def _answer(self, message: UnacknowledgedMessage) -> Acknowledge:
        if message.qos == 1:
            del self._unacknowledged[message.packet_id]
            return Acknowledge(PacketType.PUBACK, message.packet_id)
        message.stage = InboundStage.RECEIVED
        return Acknowledge(PacketType.PUBREC, message.packet_id)

    def on_release(self, packet_id: int) -> Acknowledge:
        """Process PUBREL: the server will not send that message again. [MQTT-4.3.3-11]"""
        message = self._unacknowledged.get(packet_id)
        if message is None or message.stage is not InboundStage.RECEIVED:
            return Acknowledge(PacketType.PUBCOMP, packet_id, Code.PACKET_IDENTIFIER_NOT_FOUND)
        del self._unacknowledged[packet_id]
        return Acknowledge(PacketType.PUBCOMP, packet_id)

    def on_lost(self) -> None:
        """Process the loss of the connection."""
        self._is_connected = False

    def resume(self) -> None:
        """Resume the session: the server will resend unacknowledged messages."""
        self._is_connected = True
        for message in self._unacknowledged.values():
            message.is_expected = True

    def restart(self) -> None:
        """Start a new session; messages that the application has not taken need no acknowledgement any more."""
        self._is_connected = True
        self._unacknowledged.clear()
