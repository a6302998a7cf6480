"""Storage on disk against plain dicts: both have the same state after any writes, deletions and restarts."""

import shutil
import tempfile
from pathlib import Path

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from effort import examples
from milepost.broker.effects import Queued, StateChanges
from milepost.model.durability import Durability
from milepost.storage import SqliteStorage
from storage_in_memory import StorageInMemory

numbers = st.integers(0, 3) | st.integers(-(2**63), 2**63 - 1)
sessions = st.integers(1, 3)
names = st.sampled_from(["", "a", "a/+", "Ω\0"]) | st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
bodies = st.none() | st.binary(max_size=8) | st.integers(3_000, 9_000).map(bytes)
queued = st.none() | st.builds(Queued, numbers, st.integers(0, 2), st.booleans(), st.binary(max_size=8))
changes = st.builds(
    StateChanges,
    st.dictionaries(sessions, bodies, max_size=2),
    st.dictionaries(st.tuples(sessions, names), bodies, max_size=4),
    st.dictionaries(names, bodies, max_size=4),
    st.dictionaries(numbers, bodies, max_size=4) | st.dictionaries(st.integers(0, 40), bodies, min_size=10, max_size=40),
    st.dictionaries(st.tuples(sessions, numbers), queued, max_size=6),
    st.dictionaries(st.tuples(sessions, numbers), st.none() | st.just(True), max_size=4),
)


class Lives(RuleBasedStateMachine):
    """One storage with its restarts, and the model."""

    def __init__(self) -> None:
        super().__init__()
        self.folder = Path(tempfile.mkdtemp())
        self.model = StorageInMemory()
        self.storage = SqliteStorage(self.folder, Durability.PROCESS_CRASH)

    @rule(changes=changes)
    def write(self, changes: StateChanges) -> None:
        self.model.write(changes)
        self.storage.write(changes)

    @rule()
    def restart(self) -> None:
        self.storage.close()
        self.storage = SqliteStorage(self.folder, Durability.PROCESS_CRASH)

    @rule(changes=changes)
    def fail(self, changes: StateChanges) -> None:
        changes.received[2**63, 0] = True  # a number that is too large: the whole tick is rolled back
        try:
            self.storage.write(changes)
        except OverflowError:
            return
        raise AssertionError("a number of 65 bits was stored")

    @invariant()
    def both_have_the_same(self) -> None:
        found, meant = self.storage.load(), self.model.load()
        assert list(found.queued.items()) == list(meant.queued.items())
        assert sorted(found.received) == sorted(meant.received)
        found.received = meant.received
        assert found == meant

    def teardown(self) -> None:
        self.storage.close()
        shutil.rmtree(self.folder)


TestLives = Lives.TestCase
TestLives.settings = settings(max_examples=examples(fast=20, full=100), stateful_step_count=20)
