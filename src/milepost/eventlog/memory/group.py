"""Consumer groups in memory: claims, committed offsets, and the members that read."""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial

from milepost.eventlog.log import divide
from milepost.eventlog.memory.reader import MemoryReader
from milepost.eventlog.memory.topics import MemoryTopic, Step, StepKind


@dataclass(slots=True)
class MemoryGroup:
    """Requested topics by member number, claims (member, generation) and committed offsets by topic."""

    members: dict[int, frozenset[str]] = field(default_factory=dict)
    claims: dict[str, tuple[int, int]] = field(default_factory=dict)
    committed: dict[str, int] = field(default_factory=dict)
    generation: int = 0
    joined: int = 0

    def join(self, wishes: frozenset[str]) -> int:
        """Add a member; return its number."""
        self.joined += 1
        self.members[self.joined] = wishes
        return self.joined

    def due(self, member: int) -> set[str]:
        """Return the topics due to a member."""
        return {topic for topic, number in divide(self.members).items() if number == member}

    def claim(self, topic: str, member: int) -> int:
        """Claim an unclaimed topic; return the generation of the claim."""
        assert topic not in self.claims
        self.generation += 1
        self.claims[topic] = (member, self.generation)
        return self.generation

    def leave(self, member: int) -> None:
        """Remove a member and its claims."""
        self.members.pop(member, None)
        self.claims = {topic: claim for topic, claim in self.claims.items() if claim[0] != member}


class MemoryMember:
    """One member of a group."""

    def __init__(
        self,
        name: str,
        group: MemoryGroup,
        wishes: Mapping[str, MemoryTopic],
        reader: MemoryReader,
        changed: Callable[[frozenset[str]], None] | None,
    ) -> None:
        self._name = name
        self._group = group
        self._wishes = wishes
        self._reader = reader
        self._changed = changed
        self._number = group.join(frozenset(wishes))
        self._claims: dict[str, int] = {}
        self._commits: deque[tuple[str, int, int]] = deque()
        self._is_alive = True

    def commit(self, topic: str, offset: int) -> None:
        """Commit `offset`: all records before it are processed; ignored if the topic went to another member."""
        if topic in self._claims:
            self._commits.append((topic, self._claims[topic], offset))

    def close(self) -> None:
        """Write pending commits and leave the group."""
        while self._commits:
            self._write_commit(self._commits[0])
        self.die()
        self._group.leave(self._number)

    def die(self) -> None:
        """Die with the log: pending commits are lost, and claims stay until an EXPIRE step."""
        self._is_alive = False
        self._commits.clear()
        self._reader.close()

    def ready(self, log: int) -> Iterator[Step]:
        """Yield the steps this member may take next."""
        if self._number not in self._group.members:
            return
        if not self._is_alive:
            yield Step(StepKind.EXPIRE, log, self._name, partial(self._group.leave, self._number))
            return
        if self._commits:
            yield Step(StepKind.COMMIT, log, self._name, partial(self._write_commit, self._commits[0]))
        if self._is_unsettled():
            yield Step(StepKind.SETTLE, log, self._name, self._settle)
        yield from self._reader.ready(log)

    def _is_unsettled(self) -> bool:
        due = self._group.due(self._number)
        return bool(self._claims.keys() - due or due - self._group.claims.keys())

    def _settle(self) -> None:
        if not self._is_alive or not self._is_unsettled():
            return
        due, before = self._group.due(self._number), frozenset(self._claims)
        for topic in sorted(before - due):
            self._reader.drop(topic)
            del self._claims[topic], self._group.claims[topic]
        free = sorted(due - self._group.claims.keys())
        for topic in free:
            self._claims[topic] = self._group.claim(topic, self._number)
        if self._changed is not None and self._claims.keys() != before:
            self._changed(frozenset(self._claims))
        for topic in free:
            self._reader.add(self._wishes[topic], self._group.committed.get(topic, self._wishes[topic].first))

    def _write_commit(self, commit: tuple[str, int, int]) -> None:
        if not self._commits or self._commits[0] is not commit:
            return
        topic, generation, offset = self._commits.popleft()
        if self._group.claims.get(topic) == (self._number, generation):
            self._group.committed[topic] = offset
