"""Limits of the MQTT listeners: connections and rates; each is a key of the configuration file.

A rate of 0 means unlimited; its burst is then ignored.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class MqttLimits:
    """Limits for all MQTT connections together, and for each."""

    connections_max: int = 100_000
    """Maximum open connections."""
    handshakes_max: int = 1_000
    """Maximum connections that have not finished CONNECT."""
    connections_per_address_max: int = 0
    """Maximum open connections from one address; 0: unlimited."""
    messages_per_s: int = 100_000
    """Sustained rate of messages per client."""
    messages_burst: int = 200_000
    """Maximum burst of messages per client."""
    bytes_per_s: int = 200_000_000
    """Sustained rate of received bytes per client."""
    bytes_burst: int = 400_000_000
    """Maximum burst of received bytes per client."""
    subscribes_per_s: int = 1_000
    """Sustained rate of subscribed filters per client."""
    subscribes_burst: int = 5_000
    """Maximum burst of subscribed filters per client."""
    unsent_bytes_max: int = 262_144
    """Maximum unsent bytes per connection."""

    def __post_init__(self) -> None:
        for name in ("connections_max", "handshakes_max", "unsent_bytes_max"):
            self._check_positive(name)
        for rate in ("messages", "bytes", "subscribes"):
            if getattr(self, f"{rate}_per_s"):
                self._check_positive(f"{rate}_burst")

    def _check_positive(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise ValueError(f"{name} is {getattr(self, name)}, which would refuse everything; at least 1")
