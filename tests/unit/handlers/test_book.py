"""The book: rules one by one, then any history of claimants that write, die in the middle and write late, against a plain model."""

from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from milepost.backbone.log import Entry, Record
from milepost.handlers.book import Book
from milepost.handlers.notes import CLAIM, NOTE, VALUE_MARK, Kept, Note, kept_to_bytes, note_to_bytes
from milepost.model.instants import Instant

UNSAID = (Entry("inbox", "truck-7", b"answer"),)


class Topic:
    """The book's topic, as a list."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self._next = 0

    def append(self, key: str, value: bytes | None) -> int:
        self.records.append(Record("book", self._next, key, value, Instant(0)))
        self._next += 1
        return self._next - 1

    def claim(self, token: bytes) -> int:
        return self.append(CLAIM, token)

    def value(self, era: int, position: int, key: str, value: bytes | None) -> None:
        self.append(VALUE_MARK + key, kept_to_bytes(Kept(era, position, value)))

    def note(self, era: int, position: int, unsaid: tuple[Entry, ...] = ()) -> Note:
        note = Note(era, position, position * 10, 0, 1, unsaid)
        self.append(NOTE, note_to_bytes(note))
        return note

    def compact(self) -> None:
        """Keep the last record of each key."""
        last = {record.key: record.offset for record in self.records}
        self.records = [record for record in self.records if last[record.key] == record.offset]

    def read(self, token: bytes = b"reader") -> Book:
        """The book as somebody finds it who claims the part now; the claim is not left behind."""
        book = Book(token)
        for record in self.records:
            book.fold(record)
        if not book.is_mine:
            book.fold(Record("book", self._next, CLAIM, token, Instant(0)))
        return book


def test_a_new_book_is_empty() -> None:
    book = Topic().read()
    assert (book.is_mine, book.note.position, book.values, book.spoiled) == (True, None, {}, set())


def test_values_count_with_the_note_behind_them() -> None:
    topic = Topic()
    era = topic.claim(b"a")
    topic.value(era, 1, "x", b"1")
    note = topic.note(era, 1, UNSAID)
    topic.value(era, 2, "x", b"2")
    topic.value(era, 2, "y", b"2")
    book = topic.read()
    assert (book.values, book.note) == ({"x": b"1"}, note)
    assert book.spoiled == {"x", "y"}


def test_what_is_gone_is_gone_and_can_be_taken_out() -> None:
    topic = Topic()
    era = topic.claim(b"a")
    topic.value(era, 1, "x", b"1")
    topic.note(era, 1)
    topic.value(era, 2, "x", None)
    topic.note(era, 2)
    book = topic.read()
    assert (book.values, book.gone) == ({}, {"x"})


def test_the_last_claimant_has_the_part_and_the_one_before_hears_of_it() -> None:
    topic = Topic()
    first, second = Book(b"a"), Book(b"b")
    topic.claim(b"a")
    topic.claim(b"b")
    for book in (first, second):
        for record in topic.records:
            book.fold(record)
    assert (first.is_mine, first.is_over) == (False, True)
    assert (second.is_mine, second.is_over) == (True, False)


def test_what_is_written_after_another_s_claim_counts_for_nobody() -> None:
    topic = Topic()
    old = topic.claim(b"a")
    topic.value(old, 1, "x", b"1")
    note = topic.note(old, 1)
    book = Book(b"b")
    topic.claim(b"b")
    topic.value(old, 2, "x", b"2")
    topic.note(old, 2)
    for record in topic.records:
        book.fold(record)
    assert (book.values, book.note) == ({"x": b"1"}, note)
    assert (book.spoiled, book.is_note_spoiled) == ({"x"}, True)
    later = topic.read()
    assert (later.values, later.note, later.spoiled) == ({"x": b"1"}, note, {"x"})


def test_own_notes_are_seen_and_own_values_are_not_spoiled() -> None:
    topic = Topic()
    era = topic.claim(b"a")
    topic.value(era, 1, "x", b"1")
    note = topic.note(era, 1)
    book = Book(b"a")
    for record in topic.records:
        book.fold(record)
    assert (book.note, book.values, book.spoiled) == (note, {}, set())


@dataclass
class Writer:
    """A claimant: what it believes, and what the model says of it."""

    token: bytes
    era: int
    position: int
    values: dict[str, bytes]
    heals: set[str]
    is_stale: bool = False


@dataclass
class Model:
    position: int = 0
    values: dict[str, bytes] = field(default_factory=dict)


KEYS = ("x", "y", "z")
CHANGES = st.dictionaries(st.sampled_from(KEYS), st.none() | st.sampled_from([b"1", b"2", b"3"]), max_size=3)
STEPS = st.lists(
    st.one_of(
        st.just(("claim",)),
        st.tuples(st.just("commit"), st.integers(0, 3), CHANGES),
        st.tuples(st.just("die"), st.integers(0, 3), CHANGES, st.integers(0, 3)),
        st.just(("compact",)),
    ),
    max_size=30,
)


class History:
    """Claimants that take turns, and the model of what counts."""

    def __init__(self) -> None:
        self.topic = Topic()
        self.model = Model()
        self.writers: list[Writer] = []
        self.is_sound = True
        """Whether nothing stands in the log that a claimant has to write again: only then may the log be cleaned in this model."""

    def claim(self) -> None:
        token = b"token-%d" % len(self.writers)
        era = self.topic.claim(token)
        book = self.topic.read(token)
        assert book.is_mine
        assert (book.values, book.note.position or 0) == (self.model.values, self.model.position)
        for writer in self.writers:
            writer.is_stale = True
        self.writers.append(Writer(token, era, self.model.position, dict(book.values), set(book.spoiled)))
        self.is_sound = self.is_sound and not book.spoiled

    def commit(self, which: int, changes: dict[str, bytes | None], written: int | None = None) -> None:
        """A claimant writes; only so many records if it dies meanwhile."""
        if not self.writers:
            return
        writer = self.writers[-1 - which % len(self.writers)]
        if not writer.is_stale:
            writer.heals |= set(self.topic.read(writer.token).spoiled)
        position = writer.position + 1
        healed = {key: writer.values.get(key) for key in writer.heals} | changes
        rows = list(healed.items())
        for key, value in rows[:written]:
            self.topic.value(writer.era, position, key, value)
        if written is not None:
            self.is_sound = self.is_sound and not rows[:written]
            writer.is_stale = True  # dead: it writes no note of this era that the model would know
            if self.writers[-1] is writer:
                self.claim()
            return
        self.topic.note(writer.era, position)
        writer.position = position
        for key, value in changes.items():
            writer.values.pop(key, None)
            if value is not None:
                writer.values[key] = value
        if writer.is_stale:
            self.is_sound = False
            return
        writer.heals = set()
        self.is_sound = True
        self.model = Model(position, dict(writer.values))


@given(STEPS)
def test_whatever_claimants_do_the_next_one_finds_what_counts(steps: list[tuple[object, ...]]) -> None:
    history = History()
    for step in steps:
        match step:
            case ("claim",):
                history.claim()
            case ("commit", int(which), dict(changes)):
                history.commit(which, changes)
            case ("die", int(which), dict(changes), int(written)):
                history.commit(which, changes, written)
            case _ if history.is_sound:
                history.topic.compact()
    book = history.topic.read()
    assert (book.values, book.note.position or 0) == (history.model.values, history.model.position)
