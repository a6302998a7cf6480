"""Durability: the failures that a completed write survives."""

from enum import Enum


class Durability(Enum):
    """The worst failure that a completed write survives; values are those of the configuration key `durability`."""

    NONE = "none"
    """Nothing is written: queued messages are lost with the process."""
    PROCESS_CRASH = "process crash"
    """Writes reach the operating system: a killed process loses nothing, a power loss only the most recent writes."""
    POWER_LOSS = "power loss"
    """Each write waits for the disk."""
