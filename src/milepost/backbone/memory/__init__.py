"""The log in memory: for simulations and property tests, whose owner decides what happens when."""

from milepost.backbone.memory.log import MemoryLog
from milepost.backbone.memory.steps import Step, StepKind
from milepost.backbone.memory.store import MemoryStore

__all__ = ["MemoryLog", "MemoryStore", "Step", "StepKind"]
