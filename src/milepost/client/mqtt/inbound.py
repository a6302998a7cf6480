"""Messages on their way to the application, and what the server is owed for them.

    stage      when                                          goes on when
    HELD       the application does not have it yet          it takes it: PUBACK, done (1); PUBREC ─▶ RECEIVED (2)
    OWED       it took it while the server was away          the server sends it again: answered at once, not shown again
    RECEIVED   PUBREC was sent (2)                           PUBREL: PUBCOMP, done

What must hold:
- the server is answered when the application has the message, not before, so that what is not answered is bounded by the receive
  maximum we announced;
- under quality 2 no message is shown twice while this object lives and the server keeps the session [MQTT-4.3.3-10];
- after a reconnection, what is `HELD` is expected again from the server (`is_expected`): with DUP it is the same message, without
  it the server gave the old one up and uses its number anew.
"""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.wire.mqtt import Acknowledge, Code, Kind, Publish

OVERRUN_MAX: Final = 1_000
"""So many messages beyond what was allowed are put up with."""


class Stage(Enum):
    """How far a message is."""

    HELD = 0
    OWED = 1
    RECEIVED = 2


@dataclass(slots=True, eq=False)
class Held:
    """A message that the server waits to hear of."""

    number: int
    qos: int
    stage: Stage = Stage.HELD
    is_expected: bool = False


class Inbound:
    """All messages that the server waits to hear of."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._held: dict[int, Held] = {}
        self._is_connected = False

    def __len__(self) -> int:
        return len(self._held)

    @property
    def is_overrun(self) -> bool:
        """Whether the server has sent far more than it may without an answer. [MQTT-3.3.4-9]

        Not at once: Mosquitto 2.0 miscounts when it is answered in a bundle, and to disconnect would not cure that.
        """
        return len(self._held) > self._limit + OVERRUN_MAX

    def on_publish(self, packet: Publish) -> tuple[Held | None, Acknowledge | None]:
        """A message of quality 1 or 2: what to hand out, if it is new, and what to answer at once."""
        assert packet.number is not None, "it has a number, or it could not have been read"
        held = self._held.get(packet.number)
        if held is None or self._is_another(held, packet):
            new = self._held[packet.number] = Held(packet.number, packet.qos)
            return new, None
        held.is_expected = False
        match held.stage:
            case Stage.HELD:
                return None, None
            case Stage.OWED:
                return None, self._answer(held)
            case Stage.RECEIVED:
                return None, Acknowledge(Kind.PUBREC, held.number)

    @staticmethod
    def _is_another(held: Held, packet: Publish) -> bool:
        return packet.qos != held.qos or (held.is_expected and not packet.dup and held.stage is not Stage.RECEIVED)

    def took(self, held: Held) -> Acknowledge | None:
        """The application has a message: what to tell the server, if anything."""
        if self._held.get(held.number) is not held or held.stage is not Stage.HELD:
            return None  # of a session that the server forgot
        if not self._is_connected or held.is_expected:
            held.stage = Stage.OWED
            return None
        return self._answer(held)

    def _answer(self, held: Held) -> Acknowledge:
        if held.qos == 1:
            del self._held[held.number]
            return Acknowledge(Kind.PUBACK, held.number)
        held.stage = Stage.RECEIVED
        return Acknowledge(Kind.PUBREC, held.number)

    def on_release(self, number: int) -> Acknowledge:
        """PUBREL: the server will not send that message again. [MQTT-4.3.3-11]"""
        held = self._held.get(number)
        if held is None or held.stage is not Stage.RECEIVED:
            return Acknowledge(Kind.PUBCOMP, number, Code.PACKET_IDENTIFIER_NOT_FOUND)
        del self._held[number]
        return Acknowledge(Kind.PUBCOMP, number)

    def on_lost(self) -> None:
        """The connection is gone."""
        self._is_connected = False

    def go_on(self) -> None:
        """The server still has the session, and will send again what it was not told of."""
        self._is_connected = True
        for held in self._held.values():
            held.is_expected = True

    def start_over(self) -> None:
        """The server has a new session; what the application still has to take is nobody's business."""
        self._is_connected = True
        self._held.clear()
