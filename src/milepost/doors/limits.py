"""Limits of the doors: how many connections, and how fast each may be; each a key of the configuration file.

A rate of 0 is no limit; a burst has no meaning then.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class DoorLimits:
    """How much the doors take from all, and from each connection."""

    connections_max: int = 100_000
    """Open connections."""
    handshakes_max: int = 1_000
    """Connections that have not finished their CONNECT."""
    connections_per_address_max: int = 0
    """Open connections from one address; 0: any number."""
    messages_per_s: int = 100_000
    """Messages a client may publish in a second, for long."""
    messages_burst: int = 200_000
    """Messages a client may publish at once after it was quiet."""
    bytes_per_s: int = 200_000_000
    """Bytes a client may send in a second, for long."""
    bytes_burst: int = 400_000_000
    """Bytes a client may send at once after it was quiet."""
    subscribes_per_s: int = 1_000
    """Filters a client may subscribe to in a second, for long."""
    subscribes_burst: int = 5_000
    """Filters a client may subscribe to at once after it was quiet."""
    unsent_bytes_max: int = 262_144
    """Bytes handed to a connection and not yet taken by it."""

    def __post_init__(self) -> None:
        for name in ("connections_max", "handshakes_max", "unsent_bytes_max"):
            self._check_positive(name)
        for what in ("messages", "bytes", "subscribes"):
            if getattr(self, f"{what}_per_s"):
                self._check_positive(f"{what}_burst")

    def _check_positive(self, name: str) -> None:
        if getattr(self, name) < 1:
            raise ValueError(f"{name} is {getattr(self, name)}, which would let nothing through; at least 1")
