"""Limits of an edge: how much of everything it will hold, each a key of the configuration file."""

from dataclasses import dataclass
from enum import Enum
from typing import Final

from milepost.model.topics import TOPIC_LEVELS_MAX

QUEUE_MESSAGES_MOST: Final = 50_000
IN_FLIGHT_MOST: Final = 15_000
"""Together below the 65,535 numbers that a session has for what is not acknowledged."""


class SlowPolicy(Enum):
    """What happens to a receiver whose queue is full."""

    DROP = "drop"
    """The oldest message of the lowest class is dropped, and counted."""
    DISCONNECT = "disconnect"
    """The receiver is disconnected; what must be kept for it is kept up to the limit."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much an edge holds for all, and for each endpoint."""

    sessions_max: int = 1 << 20
    """Sessions, connected or kept."""
    subscriptions_max: int = 1 << 20
    """Subscriptions of all sessions."""
    subscriptions_each_max: int = 1_000
    """Subscriptions of one session."""
    topic_levels_max: int = 32
    """Levels of a topic or filter."""
    retained_max: int = 100_000
    """Retained messages."""
    retained_bytes_max: int = 256_000_000
    """Bytes of all retained messages."""
    queue_messages_max: int = 10_000
    """Messages that wait for one session."""
    queue_bytes_max: int = 16_000_000
    """Bytes of the messages that wait for one session."""
    queues_bytes_max: int = 1_000_000_000
    """Bytes of all messages that wait for anybody."""
    in_flight_max: int = 1_000
    """Messages sent to one session and not yet acknowledged."""
    reports_per_s: int = 20
    """Reports of its place that one endpoint may send in a second, for long; 0: any number."""
    reports_burst: int = 100
    """Reports that one endpoint may send at once after it was quiet."""
    session_expiry_s_max: int = 7 * 86_400
    """How long a session is kept after its endpoint left, at most."""
    when_slow: SlowPolicy = SlowPolicy.DROP

    def __post_init__(self) -> None:
        for name, least, most in (
            ("queue_messages_max", 1, QUEUE_MESSAGES_MOST),
            ("in_flight_max", 1, IN_FLIGHT_MOST),
            ("topic_levels_max", 1, TOPIC_LEVELS_MAX),
        ):
            if not least <= getattr(self, name) <= most:
                raise ValueError(f"{name} is {getattr(self, name)}, not in {least}..{most}")
