"""Steps: what waits to happen in a log in memory.

| step | ready when | what it does |
|---|---|---|
| WRITE | no earlier append of this log waits for the same topic | the records of one append for one topic can be read |
| TELL | all of the append is written, all before it were told | `done` |
| TAKE | a reader's topic has something for it | `lost` if there is a gap, then one batch to `take` |
| COMMIT | a member has committed, its earlier commits are done | the group begins there, if the member still has the topic |
| SETTLE | a member has what another should have, or could have what it has not | lets go and takes up; `changed` |
| EXPIRE | a member died with its log | its topics are free |
| CLEAN | retention or compaction has something to remove | removes it |
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum


class StepKind(Enum):
    """What a step does; see the table on top."""

    WRITE = "write"
    TELL = "tell"
    TAKE = "take"
    COMMIT = "commit"
    SETTLE = "settle"
    EXPIRE = "expire"
    CLEAN = "clean"


@dataclass(frozen=True, slots=True)
class Step:
    """Something that may happen next: in which log (0: in none of them), and to which topic or group."""

    kind: StepKind
    log: int
    name: str
    run: Callable[[], None] = field(compare=False)
