"""The log in memory, for simulations and property tests, which decide the order of its steps."""

from milepost.eventlog.memory.log import MemoryLog, MemoryStore
from milepost.eventlog.memory.topics import Step, StepKind

__all__ = ["MemoryLog", "MemoryStore", "Step", "StepKind"]
