"""Redirects and keepalive of an MQTT client: decisions without a clock."""

from enum import Enum
from typing import Final

from milepost.client.mqtt.streams import Target, referred

FAILURES_MAX: Final = 3
"""Maximum failed attempts at a server that the client was redirected to."""

FOLLOWED_MAX: Final = 5
"""Maximum consecutive redirects without a stable connection."""


class Redirects:
    """The server for the next attempt, when servers redirect their clients (MQTT 5, 4.11).

        home         redirected                    ─▶ elsewhere
        elsewhere    3 failed attempts             ─▶ home
                     refused there for good        ─▶ home
                     redirected                    ─▶ elsewhere, but home after 5 consecutive redirects
                     a stable connection           ─▶ the count restarts

    Invariant: servers that redirect in a cycle do not keep the back-off from growing.
    """

    def __init__(self, home: Target) -> None:
        self._home = home
        self.target = home
        """The server in use or being tried."""
        self._failures = 0
        self._followed = 0

    @property
    def is_home(self) -> bool:
        """Whether the target is the configured server."""
        return self.target == self._home

    def follow(self, reference: str) -> bool:
        """Follow a server reference (names separated by spaces); return whether it names a server."""
        named = [found for one in reference.split() if (found := referred(self._home, one)) is not None]
        if not named:
            return False
        self._failures = 0
        self._followed += 1
        self.target = named[0] if self._followed <= FOLLOWED_MAX else self._home
        return True

    def turn_back(self) -> bool:
        """Return to the configured server after a refusal; return whether the client was elsewhere."""
        was_home, self.target = self.is_home, self._home
        return not was_home

    def failed(self) -> None:
        """Count a failed attempt."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self.turn_back()

    def opened(self) -> None:
        """Record that a server accepted the connection."""
        self._failures = 0

    def settled(self) -> None:
        """Record a stable connection."""
        self._followed = 0


ANSWER_S: Final = 10.0
"""Maximum time for PINGRESP."""

PART: Final = 0.75
"""The fraction of the keepalive interval after which PINGREQ is sent."""


class KeepAliveStep(Enum):
    """Next action of the keepalive."""

    WAIT = 0
    PING = 1
    GIVE_UP = 2


class KeepAlive:
    """Sends PINGREQ when nothing was sent or nothing was received for a while. [MQTT-3.1.2-20]"""

    def __init__(self, interval_s: float, now_s: float) -> None:
        self._interval_s = interval_s
        self._sent_at = self._heard_at = now_s
        self._asked_at: float | None = None

    def sent(self, now_s: float) -> None:
        """Record that a packet was sent."""
        self._sent_at = now_s

    def heard(self, now_s: float) -> None:
        """Record that a packet was received."""
        self._heard_at = now_s
        self._asked_at = None

    def due_s(self, now_s: float) -> float:
        """Return the time until the next action."""
        if self._asked_at is not None:
            return max(0.0, self._asked_at + ANSWER_S - now_s)
        if not self._interval_s:
            return 3_600.0
        return max(0.0, min(self._sent_at, self._heard_at) + self._interval_s * PART - now_s)

    def step(self, now_s: float) -> KeepAliveStep:
        """Return the action that is due."""
        if self.due_s(now_s) > 0 or not self._interval_s:
            return KeepAliveStep.WAIT
        if self._asked_at is not None:
            return KeepAliveStep.GIVE_UP
        self._asked_at = now_s
        return KeepAliveStep.PING
