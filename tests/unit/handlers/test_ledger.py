"""The ledger's state: its rules one by one, then any history of claimants that write, crash and write late, against a model."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from milepost.eventlog.log import Entry, Record
from milepost.handlers.ledger import LedgerState
from milepost.handlers.records import CLAIM, NOTE, VALUE_PREFIX, Note, StoredValue, note_to_bytes, stored_value_to_bytes
from milepost.model.instants import Instant

LEDGER = "state"
ANSWER = Entry("inbox", "truck-7", b"answer")

Changes = dict[str, bytes | None]


class Topic:
    """The ledger's topic, as a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._next = 0

    def append(self, key: str, value: bytes | None) -> int:
        self.records.append(Record(LEDGER, self._next, key, value, Instant(0)))
        self._next += 1
        return self._next - 1

    def claim(self, token: bytes) -> int:
        return self.append(CLAIM, token)

    def note(self, fence: int, revision: int, changes: Changes) -> Note:
        pending = (*(values_of(revision, changes)), ANSWER)
        note = Note(fence, revision, {LEDGER: revision * 10}, {}, 0, 0, 1, pending)
        self.append(NOTE, note_to_bytes(note))
        return note

    def append_values(self, revision: int, changes: Changes) -> None:
        for entry in values_of(revision, changes):
            self.append(entry.key, entry.value)

    def compact(self) -> None:
        """Keep the last record of each key."""
        last = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if last[record.key] == record.offset]

    def read(self, token: bytes = b"reader") -> LedgerState:
        """Return the state that a new claimant of the partition would read, without leaving its claim in the topic."""
        state = LedgerState(token)
        for record in self.records:
            state.apply(record)
        if not state.is_owned:
            state.apply(Record(LEDGER, self._next, CLAIM, token, Instant(0)))
        return state


def values_of(revision: int, changes: Changes) -> list[Entry]:
    return [
        Entry(LEDGER, VALUE_PREFIX + key, stored_value_to_bytes(StoredValue(revision, value))) for key, value in changes.items()
    ]


def test_a_new_ledger_is_empty() -> None:
    state = Topic().read()
    assert (state.is_owned, state.note.revision, state.values, state.stale) == (True, 0, {}, set())


def test_values_in_a_note_are_valid_before_they_are_appended() -> None:
    topic = Topic()
    fence = topic.claim(b"a")
    topic.note(fence, 1, {"x": b"1", "y": b"1"})
    topic.append_values(1, {"x": b"1", "y": b"1"})
    note = topic.note(fence, 2, {"x": b"2", "y": None})
    topic.append_values(2, {"x": b"2"})
    state = topic.read()
    assert (state.values, state.note, state.stale) == ({"x": b"2"}, note, set())
    assert note.pending[-1] == ANSWER


def test_a_removed_key_can_be_deleted_from_the_log_and_stored_again() -> None:
    topic = Topic()
    fence = topic.claim(b"a")
    topic.note(fence, 1, {"x": b"1"})
    topic.note(fence, 2, {"x": None})
    topic.append_values(2, {"x": None})
    assert (topic.read().values, topic.read().tombstones) == ({}, ["x"])
    topic.append(VALUE_PREFIX + "x", None)
    assert (topic.read().values, topic.read().tombstones) == ({}, [])
    topic.note(fence, 3, {"x": b"3"})
    assert topic.read().values == {"x": b"3"}


def test_the_last_claimant_owns_the_partition_and_the_previous_one_notices() -> None:
    topic = Topic()
    topic.claim(b"a")
    topic.claim(b"b")
    first, second = topic.read(b"a"), topic.read(b"b")
    assert first.is_lost
    assert (second.is_owned, second.is_lost) == (True, False)


def test_a_note_written_after_another_claim_is_ignored() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    note = topic.note(old, 1, {"x": b"1"})
    topic.claim(b"b")
    topic.note(old, 2, {"x": b"2"})
    for state in (topic.read(b"b"), topic.read()):
        assert (state.values, state.note, state.is_note_stale) == ({"x": b"1"}, note, True)


def test_a_late_value_makes_its_key_stale_until_it_is_rewritten() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    topic.note(old, 1, {"x": b"1"})
    new = topic.claim(b"b")
    topic.append_values(1, {"x": b"1"})
    topic.note(new, 2, {"x": b"2"})
    topic.append_values(2, {"x": b"2"})
    topic.append_values(1, {"x": b"1"})
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, {"x"})
    topic.append_values(2, {"x": b"2"})
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, set())
    topic.append(VALUE_PREFIX + "x", None)
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, {"x"})


def test_a_late_writer_does_not_restore_a_removed_key() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    topic.note(old, 1, {"x": b"1"})
    new = topic.claim(b"b")
    topic.append_values(1, {"x": b"1"})
    topic.note(new, 2, {"x": None})
    topic.append_values(2, {"x": None})
    topic.note(new, 3, {})
    topic.append(VALUE_PREFIX + "x", None)
    topic.append_values(1, {"x": b"1"})
    assert (topic.read().values, topic.read().stale) == ({}, {"x"})


@dataclass
class Writer:
    """A claimant: its view of the state, and the noted entries that it has not appended yet."""

    token: bytes
    fence: int
    revision: int
    values: dict[str, bytes]
    pending: list[Entry] = field(default_factory=list)
    removed: list[str] = field(default_factory=list)
    is_lost: bool = False


KEYS = st.sampled_from(["x", "y", "z"])
CHANGES = st.dictionaries(KEYS, st.none() | st.sampled_from([b"1", b"2", b"3"]), max_size=3)
WRITER = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.just(("claim",)),
        st.tuples(st.just("note"), WRITER, CHANGES),
        st.tuples(st.just("append"), WRITER, st.integers(1, 3)),
        st.just(("compact",)),
    ),
    max_size=40,
)


class History:
    """Claimants that act as the ledger does (claim, append pending entries, note, append), and a model of the valid state."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.revision = 0
        self.values: dict[str, bytes] = {}
        self.writers: list[Writer] = []

    def claim(self) -> None:
        token = b"token-%d" % len(self.writers)
        fence = self.topic.claim(token)
        state = self.topic.read(token)
        assert state.is_owned
        self.check(state)
        for writer in self.writers:
            writer.is_lost = True
        values = [entry for entry in state.note.pending if entry.topic == LEDGER]
        self.writers.append(Writer(token, fence, self.revision, dict(state.values), values, state.tombstones))

    def note(self, writer_index: int, changes: Changes) -> None:
        writer = self.find_writer(writer_index)
        if writer is None or writer.pending:
            return
        revision = writer.revision + 1
        if not writer.is_lost:
            stale = self.topic.read(writer.token).stale
            changes = {key: writer.values.get(key) for key in stale} | changes
        self.topic.note(writer.fence, revision, changes)
        if writer.is_lost:
            return
        writer.revision = revision
        tombstones = [Entry(LEDGER, VALUE_PREFIX + key, None) for key in writer.removed if key not in (writer.values | changes)]
        writer.pending = [*tombstones, *values_of(revision, changes)]
        writer.removed = [key for key, value in changes.items() if value is None]
        for key, value in changes.items():
            writer.values.pop(key, None)
            if value is not None:
                writer.values[key] = value
        self.revision, self.values = revision, dict(writer.values)

    def append_pending(self, writer_index: int, count: int) -> None:
        """Append pending entries, also those of a writer that was paused after its note."""
        writer = self.find_writer(writer_index)
        if writer is not None:
            for entry in writer.pending[:count]:
                self.topic.append(entry.key, entry.value)
            writer.pending = writer.pending[count:]

    def compact(self) -> None:
        """Compact the log while nothing is stale."""
        state = self.topic.read()
        if not state.stale and not state.is_note_stale:
            self.topic.compact()

    def find_writer(self, writer_index: int) -> Writer | None:
        return self.writers[-1 - writer_index % len(self.writers)] if self.writers else None

    def check(self, state: LedgerState) -> None:
        assert (state.values, state.note.revision) == (self.values, self.revision)


@given(STEPS)
def test_after_any_history_of_claimants_the_next_one_reads_the_valid_state(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for step in steps:
        match step:
            case ("claim",):
                history.claim()
            case ("note", int(writer_index), dict(changes)):
                history.note(writer_index, changes)
            case ("append", int(writer_index), int(count)):
                history.append_pending(writer_index, count)
            case _:
                history.compact()
    history.check(history.topic.read())
