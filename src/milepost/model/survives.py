"""Survives: how much may go wrong before something is lost whose write has returned."""

from enum import Enum


class Survives(Enum):
    """What a finished write survives, in the words of the key `survives` of the configuration file."""

    NOTHING = "nothing"
    """Nothing is written: what waits is gone when the process is."""
    PROCESS_CRASH = "process crash"
    """The operating system has it: a killed process loses nothing, a power loss the last moments, but never the whole."""
    POWER_LOSS = "power loss"
    """The disk has it: each write waits for the disk."""
