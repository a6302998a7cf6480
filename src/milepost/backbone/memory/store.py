"""The store: what several logs in memory share, as processes share a folder or a cluster.

Everything that an append, a follower or a member sets off waits as a `Step`. `ready` lists the steps that the promises of `Log`
allow next; the owner runs any of them, asks again, and so plays every order that could happen. `run_all` runs them until
nothing is left to do. There is no thread and no time but the owner's.

What must hold: a step that is no longer ready does nothing when it is run; whatever the order, the promises of `Log` are kept.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Final

from milepost.backbone.memory.log import MemoryLog
from milepost.backbone.memory.steps import Step, StepKind
from milepost.backbone.memory.topics import MemoryGroup, MemoryTopic
from milepost.model.instants import Instant

STEPS_MAX: Final = 1_000_000
"""After so many rounds `run_all` takes it for a circle."""


class MemoryStore:
    """Topics, groups and logs of one site; `clock` says what time it is."""

    def __init__(self, clock: Callable[[], Instant]) -> None:
        self._clock = clock
        self._topics: dict[str, MemoryTopic] = {}
        self._groups: dict[str, MemoryGroup] = {}
        self._logs: list[MemoryLog] = []

    def open(self) -> MemoryLog:
        """One more log object, as one more process would have."""
        log = MemoryLog(self._topics, self._groups, self._clock, len(self._logs) + 1)
        self._logs.append(log)
        return log

    def ready(self) -> list[Step]:
        """All that may happen next."""
        return [*(step for log in self._logs for step in log.ready()), *self._cleaning()]

    def run_all(self) -> None:
        """Run everything until nothing is left to do; cleaning comes last, so that readers get all there is."""
        for _ in range(STEPS_MAX):
            steps = self.ready()
            if not steps:
                return
            for step in [one for one in steps if one.kind is not StepKind.CLEAN] or steps:
                step.run()
        raise AssertionError("what is run sets off more and more")

    def _cleaning(self) -> Iterator[Step]:
        for name, topic in self._topics.items():
            if topic.wants_cleaning(self._clock()):
                yield Step(StepKind.CLEAN, 0, name, partial(self._clean, topic))

    def _clean(self, topic: MemoryTopic) -> None:
        topic.clean(self._clock())
