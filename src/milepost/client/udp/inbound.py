"""Messages from the edge: which are delivered to the application, and which are acknowledged to the edge.

    stage      when                                  treatment of a copy
    -          it is new                             delivered ─▶ UNTAKEN, or TAKEN if unreliable; outside, forged: suppressed
    UNTAKEN    not yet taken by the application      ignored: the edge keeps resending
    TAKEN      taken by the application              not delivered; if reliable, acknowledged with RECEIVED

Invariants:
- of the last `NAMES_MAX` message names none is delivered twice, in whichever session it arrives;
- a suppressed message leaves no state, so that a forged message cannot block a genuine one of the same name;
- at most `untaken_max` messages wait for the application: further ones are left for the edge to resend.
"""

from enum import Enum
from typing import Final

import numpy as np

from milepost.model.addresses import ToArea
from milepost.model.endpoints import SourceId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.session_datagrams import MessageName
from milepost.trust.signing import Verifier

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


class UdpInbound:
    """The names of the most recent messages, with their stages."""

    def __init__(self, verifier: Verifier | None, untaken_max: int) -> None:
        self._verifier = verifier
        self._untaken_max = untaken_max
        self._untaken_count = 0
        self._stages: dict[tuple[SourceId, MessageId], DeliveryStage] = {}

    def decide(self, message: Message, place: Place, now: Instant) -> InboundVerdict:
        """Decide about a message; `place` is the endpoint's position."""
        stage = self._stages.get(message.key)
        if stage is DeliveryStage.TAKEN:
            return InboundVerdict.ACKNOWLEDGE if message.reliable else InboundVerdict.IGNORE
        if stage is DeliveryStage.UNTAKEN:
            return InboundVerdict.IGNORE
        if message.signature and self._verifier is not None and self._verifier.check(message, now) is not None:
            return InboundVerdict.FORGED
        if isinstance(message.address, ToArea) and not message.address.area.contains(place.vector[np.newaxis, :])[0]:
            return InboundVerdict.OUTSIDE
        if message.reliable and self._untaken_count >= self._untaken_max:
            return InboundVerdict.IGNORE
        self._remember(message)
        return InboundVerdict.DELIVER

    def is_verified(self, message: Message) -> bool:
        """Return whether a delivered message carries a verified signature."""
        return bool(message.signature) and self._verifier is not None

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
