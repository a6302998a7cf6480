"""Limits of an edge; each is a key of the configuration file."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.model.topics import TOPIC_LEVELS_MAX

QUEUE_MESSAGES_MOST: Final = 50_000
IN_FLIGHT_MOST: Final = 15_000
"""Together below the 65,535 packet ids of a session."""


class SlowPolicy(Enum):
    """Policy for a receiver whose queue is full."""

    DROP = "drop"
    """Drop the oldest message of the lowest class, and count it."""
    DISCONNECT = "disconnect"
    """Disconnect the receiver; its durable messages stay queued up to the limit."""


@dataclass(frozen=True, slots=True)
class BrokerLimits:
    """Limits of an edge as a whole, and per endpoint."""

    sessions_max: int = 1 << 20
    """Sessions, connected or durable."""
    subscriptions_max: int = 1 << 20
    """Subscriptions of all sessions."""
    subscriptions_per_session_max: int = 1_000
    """Subscriptions of one session."""
    topic_levels_max: int = 32
    """Levels of a topic or filter."""
    retained_max: int = 100_000
    """Retained messages."""
    retained_bytes_max: int = 256_000_000
    """Bytes of all retained messages."""
    queue_messages_max: int = 10_000
    """Messages queued for one session."""
    queue_bytes_max: int = 16_000_000
    """Bytes of the messages queued for one session."""
    total_queue_bytes_max: int = 1_000_000_000
    """Bytes of the messages queued for all sessions."""
    in_flight_max: int = 1_000
    """Messages sent to one session and not yet acknowledged."""
    reports_per_s: int = 20
    """Sustained position reports per second of one endpoint; 0: unlimited."""
    reports_burst: int = 100
    """Reports that one endpoint may send at once after a pause."""
    session_expiry_s_max: int = 7 * 86_400
    """Maximum time for which a session is stored after its endpoint disconnected."""
    slow_consumer: SlowPolicy = SlowPolicy.DROP

    def __post_init__(self) -> None:
        for name, least, most in (
            ("queue_messages_max", 1, QUEUE_MESSAGES_MOST),
            ("in_flight_max", 1, IN_FLIGHT_MOST),
            ("topic_levels_max", 1, TOPIC_LEVELS_MAX),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, not in {least}..{most}")
