"""When to ask whether the server is still there, and when to try again: decisions without a clock."""

from collections.abc import Callable
from enum import Enum
from typing import Final

ANSWER_S: Final = 10.0
"""So long a server may take to answer a ping."""

PART: Final = 0.75
"""A ping goes out when so much of the keep-alive interval has passed in silence."""


class Step(Enum):
    """What to do at a time."""

    WAIT = 0
    PING = 1
    GIVE_UP = 2


class KeepAlive:
    """Pings a server that was not heard, or that did not hear of us, for a while. [MQTT-3.1.2-20]"""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._sent_at = self._heard_at = now_s
        self._asked_at: float | None = None

    def sent(self, now_s: float) -> None:
        """Something was sent."""
        self._sent_at = now_s

    def heard(self, now_s: float) -> None:
        """Something came."""
        self._heard_at = now_s
        self._asked_at = None

    def due_s(self, now_s: float) -> float:
        """How long nothing has to be done."""
        if self._asked_at is not None:
            return max(0.0, self._asked_at + ANSWER_S - now_s)
        if not self._interval_s:
            return 3_600.0
        return max(0.0, min(self._sent_at, self._heard_at) + self._interval_s * PART - now_s)

    def step(self, now_s: float) -> Step:
        """What to do now."""
        if self.due_s(now_s) > 0 or not self._interval_s:
            return Step.WAIT
        if self._asked_at is not None:
            return Step.GIVE_UP
        self._asked_at = now_s
        return Step.PING


class BackOff:
    """Waits between attempts: twice as long each time, up to a limit, and at random below that, so that not all come at once."""

    FIRST_S: Final = 0.2
    MOST_S: Final = 20.0

    def __init__(self, draw: Callable[[], float]) -> None:
        self._draw = draw
        self._attempts = 0

    def reset(self) -> None:
        """The last connection was a good one."""
        self._attempts = 0

    def next_s(self) -> float:
        """How long to wait before the next attempt: at least half of what it could be."""
        ceiling = min(self.MOST_S, self.FIRST_S * 2.0 ** min(self._attempts, 30))
        self._attempts += 1
        return ceiling * (0.5 + 0.5 * self._draw())
