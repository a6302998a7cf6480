"""What came from the edge: which messages are shown, and of which the edge hears that they arrived.

    stage      when                                  what becomes of a copy
    -          it is new                             shown ─▶ HELD, or TAKEN if unreliable; outside, forged: passed over
    HELD       the application has not taken it      nothing: the edge goes on repeating
    TAKEN      it has                                not shown; if reliable, answered with received

What must hold:
- of the last `NAMES_MAX` names none is shown twice, whatever session they came in;
- what is not shown leaves no trace, so that nobody can keep a message away by sending another one under its name before;
- no more than `held_max` wait for the application: further ones are left to the edge to repeat.
"""

from enum import Enum
from typing import Final

import numpy as np

from milepost.model.addresses import ToArea
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.sessions import MessageName
from milepost.trust.signing import Verifier

NAMES_MAX: Final = 4096


class Stage(Enum):
    """How far a message is."""

    HELD = 0
    TAKEN = 1


class Verdict(Enum):
    """What becomes of a message that came."""

    SHOW = 0
    ANSWER = 1
    """The application has it: only the edge is to be told."""
    IGNORE = 2
    OUTSIDE = 3
    FORGED = 4


class Arrivals:
    """The names of the last messages."""

    def __init__(self, verifier: Verifier | None, held_max: int) -> None:
        self._verifier = verifier
        self._held_max = held_max
        self._held = 0
        self._stages: dict[tuple[EndpointId, MessageId], Stage] = {}

    def judge(self, message: Message, place: Place, now: Instant) -> Verdict:
        """What is to become of a message; `place` is where the endpoint is."""
        stage = self._stages.get(message.key)
        if stage is Stage.TAKEN:
            return Verdict.ANSWER if message.reliable else Verdict.IGNORE
        if stage is Stage.HELD:
            return Verdict.IGNORE
        if message.signature and self._verifier is not None and self._verifier.check(message, now) is not None:
            return Verdict.FORGED
        if isinstance(message.address, ToArea) and not message.address.area.contains(place.vector[np.newaxis, :])[0]:
            return Verdict.OUTSIDE
        if message.reliable and self._held >= self._held_max:
            return Verdict.IGNORE
        self._remember(message)
        return Verdict.SHOW

    def is_vouched_for(self, message: Message) -> bool:
        """Whether a message that is shown carries a signature that was checked."""
        return bool(message.signature) and self._verifier is not None

    def took(self, name: MessageName) -> bool:
        """The application has a message; whether that is news."""
        key = name.source, name.id
        if self._stages.get(key) is not Stage.HELD:
            return False
        self._stages[key] = Stage.TAKEN
        self._held -= 1
        return True

    def _remember(self, message: Message) -> None:
        if len(self._stages) >= NAMES_MAX:
            self._held -= self._stages.pop(next(iter(self._stages))) is Stage.HELD
        self._stages[message.key] = Stage.HELD if message.reliable else Stage.TAKEN
        self._held += message.reliable
