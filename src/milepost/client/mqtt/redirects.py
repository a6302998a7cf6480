"""Redirects and keepalive of an MQTT client: decisions without a clock."""

from enum import Enum
from typing import Final

from milepost.client.mqtt.streams import MqttTarget, resolve_reference

FAILURES_MAX: Final = 3
"""Maximum failed attempts at a server that the client was redirected to."""

REDIRECTS_MAX: Final = 5
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

    def __init__(self, home: MqttTarget) -> None:
        self._home = home
        self.target = home
        """The server in use or being tried."""
        self._failures = 0
        self._redirect_count = 0

    @property
    def is_home(self) -> bool:
        """Whether the target is the configured server."""
        return self.target == self._home

    def follow(self, reference: str) -> bool:
        """Follow a server reference (names separated by spaces); return whether it names a server."""
        targets = [target for name in reference.split() if (target := resolve_reference(self._home, name)) is not None]
        if not targets:
            return False
        self._failures = 0
        self._redirect_count += 1
        self.target = targets[0] if self._redirect_count <= REDIRECTS_MAX else self._home
        return True

    def return_home(self) -> bool:
        """Return to the configured server after a refusal; return whether the client was elsewhere."""
        was_home, self.target = self.is_home, self._home
        return not was_home

    def on_failure(self) -> None:
        """Count a failed attempt."""
        self._failures += 1
        if self._failures >= FAILURES_MAX:
            self.return_home()

    def on_connected(self) -> None:
        """Record that a server accepted the connection."""
        self._failures = 0

    def on_stable(self) -> None:
        """Record a stable connection."""
        self._redirect_count = 0


PINGRESP_S: Final = 10.0
"""Maximum time for PINGRESP."""

PING_FRACTION: Final = 0.75
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
        self._sent_at = self._received_at = now_s
        self._pinged_at: float | None = None

    def on_sent(self, now_s: float) -> None:
        """Record that a packet was sent."""
        self._sent_at = now_s

    def on_received(self, now_s: float) -> None:
        """Record that a packet was received."""
        self._received_at = now_s
        self._pinged_at = None

    def due_s(self, now_s: float) -> float:
        """Return the time until the next action."""
        if self._pinged_at is not None:
            return max(0.0, self._pinged_at + PINGRESP_S - now_s)
        if not self._interval_s:
            return 3_600.0
        return max(0.0, min(self._sent_at, self._received_at) + self._interval_s * PING_FRACTION - now_s)

    def step(self, now_s: float) -> KeepAliveStep:
        """Return the action that is due."""
        if self.due_s(now_s) > 0 or not self._interval_s:
            return KeepAliveStep.WAIT
        if self._pinged_at is not None:
            return KeepAliveStep.GIVE_UP
        self._pinged_at = now_s
        return KeepAliveStep.PING
