"""Messages from the edge: which are delivered to the application, and which are acknowledged to the edge.

    stage      when                                  treatment of a copy
    -          it is new                             delivered ─▶ UNTAKEN, or TAKEN if unreliable; outside, forged: suppressed;
                                                     signed and delivered before: as if TAKEN
    UNTAKEN    not yet taken by the application      ignored: the edge keeps resending
    TAKEN      taken by the application              not delivered; if reliable, acknowledged with RECEIVED

Invariants:
- of the last `NAMES_MAX` message names none is delivered twice, in whichever session it arrives;
- a suppressed message leaves no state, so that a forged message cannot block a genuine one of the same name;
- at most `untaken_max` messages wait for the application: further ones are left for the edge to resend.
"""

from enum import Enum
from typing import Final, NamedTuple

import numpy as np

from milepost.client.trust import ClientTrust
from milepost.model.addresses import ToArea
from milepost.model.endpoints import SourceId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId, MessageSigner
from milepost.model.places import Place
from milepost.model.reasons import Refused
from milepost.model.session_datagrams import MessageName

NAMES_MAX: Final = 4096


class DeliveryStage(Enum):
    """Progress of an inbound message."""

    UNTAKEN = 0
    TAKEN = 1


class InboundVerdict(Enum):
    """Decision about an inbound message."""

    DELIVER = 0
    ACKNOWLEDGE = 1
    """The application has it already: only acknowledge it."""
    IGNORE = 2
    OUTSIDE = 3
    FORGED = 4


class InboundDecision(NamedTuple):
    """A verdict, the verified signer of a message, and why a forged one is refused."""

    verdict: InboundVerdict
    signer: MessageSigner | None = None
    detail: str = ""


class UdpInbound:
    """The names of the most recent messages, with their stages."""

    def __init__(self, trust: ClientTrust | None, untaken_max: int) -> None:
        self._trust = trust
        self._untaken_max = untaken_max
        self._untaken_count = 0
        self._stages: dict[tuple[SourceId, MessageId], DeliveryStage] = {}

    def decide(self, message: Message, place: Place, now: Instant) -> "InboundDecision":
        """Decide about a message; `place` is the endpoint's position."""
        stage = self._stages.get(message.key)
        if stage is DeliveryStage.TAKEN:
            return InboundDecision(InboundVerdict.ACKNOWLEDGE if message.reliable else InboundVerdict.IGNORE)
        if stage is DeliveryStage.UNTAKEN:
            return InboundDecision(InboundVerdict.IGNORE)
        signer = None if self._trust is None else self._trust.verify(message, now)
        if isinstance(signer, Refused):
            return InboundDecision(InboundVerdict.FORGED, detail=str(signer))
        return InboundDecision(self._decide_verified(message, place, signer), signer)

    def _decide_verified(self, message: Message, place: Place, signer: MessageSigner | None) -> InboundVerdict:
        if signer is not None and self._trust is not None and self._trust.was_delivered(message):
            return InboundVerdict.ACKNOWLEDGE if message.reliable else InboundVerdict.IGNORE
        if isinstance(message.address, ToArea) and not message.address.area.contains(place.vector[np.newaxis, :])[0]:
            return InboundVerdict.OUTSIDE
        if message.reliable and self._untaken_count >= self._untaken_max:
            return InboundVerdict.IGNORE
        self._remember(message)
        if signer is not None and self._trust is not None:
            self._trust.remember(message)
        return InboundVerdict.DELIVER

    def acknowledge(self, name: MessageName) -> bool:
        """Record that the application has a message; return whether it was held until now."""
        key = name.source, name.id
        if self._stages.get(key) is not DeliveryStage.UNTAKEN:
            return False
        self._stages[key] = DeliveryStage.TAKEN
        self._untaken_count -= 1
        return True

    def _remember(self, message: Message) -> None:
        if len(self._stages) >= NAMES_MAX:
            self._untaken_count -= self._stages.pop(next(iter(self._stages))) is DeliveryStage.UNTAKEN
        self._stages[message.key] = DeliveryStage.UNTAKEN if message.reliable else DeliveryStage.TAKEN
        self._untaken_count += message.reliable
