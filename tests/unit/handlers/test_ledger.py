"""The state: its rules one by one, then any history of claimants that write, die in between and write late, against a model."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from milepost.eventlog.log import Entry, Record
from milepost.handlers.ledger import LedgerState
from milepost.handlers.records import CLAIM, NOTE, VALUE_MARK, Note, StoredValue, note_to_bytes, stored_value_to_bytes
from milepost.model.instants import Instant

LEDGER = "state"
ANSWER = Entry("inbox", "truck-7", b"answer")

Changes = dict[str, bytes | None]


class Topic:
    """The state's topic, as a list."""

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

    def say(self, revision: int, changes: Changes) -> None:
        for entry in values_of(revision, changes):
            self.append(entry.key, entry.value)

    def compact(self) -> None:
        """Keep the last record of each key."""
        last = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if last[record.key] == record.offset]

    def read(self, token: bytes = b"reader") -> LedgerState:
        """The state as somebody finds it who claims the part now, and leaves no claim behind."""
        state = LedgerState(token)
        for record in self.records:
            state.fold(record)
        if not state.is_mine:
            state.fold(Record(LEDGER, self._next, CLAIM, token, Instant(0)))
        return state


def values_of(revision: int, changes: Changes) -> list[Entry]:
    return [
        Entry(LEDGER, VALUE_MARK + key, stored_value_to_bytes(StoredValue(revision, value))) for key, value in changes.items()
    ]


def test_a_new_book_is_empty() -> None:
    state = Topic().read()
    assert (state.is_mine, state.note.revision, state.values, state.stale) == (True, 0, {}, set())


def test_what_a_note_holds_counts_before_it_is_written() -> None:
    topic = Topic()
    fence = topic.claim(b"a")
    topic.note(fence, 1, {"x": b"1", "y": b"1"})
    topic.say(1, {"x": b"1", "y": b"1"})
    note = topic.note(fence, 2, {"x": b"2", "y": None})
    topic.say(2, {"x": b"2"})
    state = topic.read()
    assert (state.values, state.note, state.stale) == ({"x": b"2"}, note, set())
    assert note.pending[-1] == ANSWER


def test_what_is_gone_can_be_taken_out_and_put_in_again() -> None:
    topic = Topic()
    fence = topic.claim(b"a")
    topic.note(fence, 1, {"x": b"1"})
    topic.note(fence, 2, {"x": None})
    topic.say(2, {"x": None})
    assert (topic.read().values, topic.read().tombstones) == ({}, ["x"])
    topic.append(VALUE_MARK + "x", None)
    assert (topic.read().values, topic.read().tombstones) == ({}, [])
    topic.note(fence, 3, {"x": b"3"})
    assert topic.read().values == {"x": b"3"}


def test_the_last_claimant_has_the_part_and_the_one_before_hears_of_it() -> None:
    topic = Topic()
    topic.claim(b"a")
    topic.claim(b"b")
    first, second = topic.read(b"a"), topic.read(b"b")
    assert first.is_over
    assert (second.is_mine, second.is_over) == (True, False)


def test_a_note_written_after_another_s_claim_counts_for_nobody() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    note = topic.note(old, 1, {"x": b"1"})
    topic.claim(b"b")
    topic.note(old, 2, {"x": b"2"})
    for state in (topic.read(b"b"), topic.read()):
        assert (state.values, state.note, state.is_note_stale) == ({"x": b"1"}, note, True)


def test_a_value_that_comes_late_spoils_its_key_until_it_is_written_again() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    topic.note(old, 1, {"x": b"1"})
    new = topic.claim(b"b")
    topic.say(1, {"x": b"1"})
    topic.note(new, 2, {"x": b"2"})
    topic.say(2, {"x": b"2"})
    topic.say(1, {"x": b"1"})
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, {"x"})
    topic.say(2, {"x": b"2"})
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, set())
    topic.append(VALUE_MARK + "x", None)
    assert (topic.read().values, topic.read().stale) == ({"x": b"2"}, {"x"})


def test_what_was_taken_out_does_not_come_back_with_a_late_writer() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    topic.note(old, 1, {"x": b"1"})
    new = topic.claim(b"b")
    topic.say(1, {"x": b"1"})
    topic.note(new, 2, {"x": None})
    topic.say(2, {"x": None})
    topic.note(new, 3, {})
    topic.append(VALUE_MARK + "x", None)
    topic.say(1, {"x": b"1"})
    assert (topic.read().values, topic.read().stale) == ({}, {"x"})


@dataclass
class Writer:
    """A claimant: what it believes, and what it has noted and not yet said."""

    token: bytes
    fence: int
    revision: int
    values: dict[str, bytes]
    pending: list[Entry] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    is_over: bool = False


KEYS = st.sampled_from(["x", "y", "z"])
CHANGES = st.dictionaries(KEYS, st.none() | st.sampled_from([b"1", b"2", b"3"]), max_size=3)
WHO = st.integers(0, 3)
STEPS = st.lists(
    st.one_of(
        st.just(("claim",)),
        st.tuples(st.just("note"), WHO, CHANGES),
        st.tuples(st.just("say"), WHO, st.integers(1, 3)),
        st.just(("compact",)),
    ),
    max_size=40,
)


class History:
    """Claimants that take turns as the ledger does: claim, say again, then note and say; and the model of what counts."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.revision = 0
        self.values: dict[str, bytes] = {}
        self.writers: list[Writer] = []

    def claim(self) -> None:
        token = b"token-%d" % len(self.writers)
        fence = self.topic.claim(token)
        state = self.topic.read(token)
        assert state.is_mine
        self.check(state)
        for writer in self.writers:
            writer.is_over = True
        values = [entry for entry in state.note.pending if entry.topic == LEDGER]
        self.writers.append(Writer(token, fence, self.revision, dict(state.values), values, state.tombstones))

    def note(self, who: int, changes: Changes) -> None:
        writer = self.maybe_writer(who)
        if writer is None or writer.pending:
            return
        revision = writer.revision + 1
        if not writer.is_over:
            stale = self.topic.read(writer.token).stale
            changes = {key: writer.values.get(key) for key in stale} | changes
        self.topic.note(writer.fence, revision, changes)
        if writer.is_over:
            return
        writer.revision = revision
        taken_out = [Entry(LEDGER, VALUE_MARK + key, None) for key in writer.gone if key not in (writer.values | changes)]
        writer.pending = [*taken_out, *values_of(revision, changes)]
        writer.gone = [key for key, value in changes.items() if value is None]
        for key, value in changes.items():
            writer.values.pop(key, None)
            if value is not None:
                writer.values[key] = value
        self.revision, self.values = revision, dict(writer.values)

    def say(self, who: int, count: int) -> None:
        """Also by one that has been stopped since it noted it."""
        writer = self.maybe_writer(who)
        if writer is not None:
            for entry in writer.pending[:count]:
                self.topic.append(entry.key, entry.value)
            writer.pending = writer.pending[count:]

    def compact(self) -> None:
        """Clean the log, at a time at which nothing is stale."""
        state = self.topic.read()
        if not state.stale and not state.is_note_stale:
            self.topic.compact()

    def maybe_writer(self, who: int) -> Writer | None:
        return self.writers[-1 - who % len(self.writers)] if self.writers else None

    def check(self, state: LedgerState) -> None:
        assert (state.values, state.note.revision) == (self.values, self.revision)


@given(STEPS)
def test_whatever_claimants_do_the_next_one_finds_what_counts(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for step in steps:
        match step:
            case ("claim",):
                history.claim()
            case ("note", int(who), dict(changes)):
                history.note(who, changes)
            case ("say", int(who), int(count)):
                history.say(who, count)
            case _:
                history.compact()
    history.check(history.topic.read())
