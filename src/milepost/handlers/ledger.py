"""The ledger of a part: its book in the log, and what is to be written there next.

    claim ─▶ book, as it was ─▶ say again what is unsaid ─▶ … add, add ─▶ commit: note ─▶ say: values, answers ─▶ …

What must hold:
- nothing is said before the note that holds it stands in the log, in the claimant's era: whoever takes over says the same once
  more, under the same numbers, and goes on behind it. So each request has one effect and one answer, though it may be dealt
  with several times;
- a note is written only when all that the note before it held was said;
- a note fits into a record: limits on what one call changes and says see to that.
"""

import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from secrets import token_bytes
from typing import Final

from milepost.backbone.log import Edge, Entry, Following, Log, LogLost, Record
from milepost.handlers.appending import LOOK_S, Appender, CalledOff
from milepost.handlers.book import Book
from milepost.handlers.names import COMPACTED, book_topic
from milepost.handlers.notes import CLAIM, NOTE, VALUE_MARK, Kept, Note, kept_to_bytes, note_to_bytes
from milepost.handlers.store import ROW_BYTES, Shelf, change_bytes
from milepost.model.sites import EdgeRef

BATCH_REQUESTS_MAX: Final = 64
BATCH_BYTES_MAX: Final = 200_000
"""Then a note is written: a process that dies deals again with no more than this."""

SKIPPED_MAX: Final = 1_000
"""So many requests for other parts pass without a note."""

MARKS_MAX: Final = 1_000
"""Edges whose numbers are remembered; the one that was silent for longest is forgotten."""

TOKEN_BYTES: Final = 16


class Ledger:
    """Claims a part and keeps its book; `over` ends all waiting."""

    def __init__(self, log: Log, handler: str, part: int, parts: int, over: threading.Event) -> None:
        self._log = log
        self._topic = book_topic(handler, part)
        self._parts = parts
        self._over = over
        self._token = token_bytes(TOKEN_BYTES)
        self._book = Book(self._token)
        self._grown = threading.Condition()
        self._following: Following | None = None
        self._writing = Appender(log, over)
        self._saying = Appender(log, over)
        self.shelf = Shelf({})
        self.positions: dict[str, int] = {}
        """By topic: the offset of what comes next."""
        self._marks: dict[str, int] = {}
        self.number = 0
        self.parked = 0
        self._unsaid: list[Entry] = []
        self._changes: dict[str, bytes | None] = {}
        self._gone: list[str] = []
        self._requests = self._skipped = self._bytes = 0

    @property
    def trouble(self) -> str | None:
        """Why nothing can be written at the moment."""
        return self._writing.trouble or self._saying.trouble

    @property
    def parts_before(self) -> int:
        """Into how many parts the handler was divided when it was last run; 0: it never was."""
        return self._book.note.parts

    def claim(self) -> None:
        """Take the part; comes back when the book is read, or raises `CalledOff`."""
        self._log.make(self._topic, COMPACTED)
        self._following = self._log.follow({self._topic: Edge.BEGINNING}, self._take, _ignore_gap)
        self._writing.begin([Entry(self._topic, CLAIM, self._token)])
        self._writing.finish()
        self._wait(lambda: self._book.is_mine)
        note = self._book.note
        self.shelf, self._gone = Shelf(self._book.values), self._book.gone
        self.positions, self._marks = dict(note.positions), dict(note.marks)
        self.number, self.parked = note.number, note.parked
        self._saying.begin(note.unsaid)
        self._saying.finish()

    def is_new(self, sender: EdgeRef, number: int) -> bool:
        """Whether it was not dealt with before: edges append again what they do not know to be there."""
        return number > self._marks.get(str(sender), 0)

    def mark(self, sender: EdgeRef, number: int) -> None:
        """It is being dealt with."""
        self._marks.pop(str(sender), None)
        if len(self._marks) >= MARKS_MAX:
            del self._marks[next(iter(self._marks))]
        self._marks[str(sender)] = number

    def pass_by(self, topic: str, position: int) -> None:
        """A record is somebody else's, or nobody's."""
        self.positions[topic] = position
        self._skipped += 1

    def add(self, topic: str, position: int, changes: dict[str, bytes | None], unsaid: Sequence[Entry]) -> None:
        """A request is dealt with: what it changed, what is to be said."""
        self.positions[topic] = position
        self.shelf.apply(changes)
        self._changes.update(changes)
        self._unsaid += unsaid
        self._requests += 1
        self._bytes += sum(len(entry.value or b"") + ROW_BYTES for entry in unsaid)
        self._bytes += sum(change_bytes(key, value) for key, value in changes.items())

    @property
    def is_full(self) -> bool:
        """Whether a note is due."""
        return self._requests >= BATCH_REQUESTS_MAX or self._bytes >= BATCH_BYTES_MAX or self._skipped >= SKIPPED_MAX

    @property
    def has_news(self) -> bool:
        """Whether something was dealt with that is not in the book yet, or the book was spoiled."""
        return bool(self._requests or self._book.spoiled or self._book.is_note_spoiled)

    @property
    def has_moved(self) -> bool:
        """Whether the book is behind in any way."""
        return self.has_news or self.positions != self._book.note.positions

    def commit(self) -> None:
        """Write what was dealt with into the book, then begin to say it; raises `CalledOff` if another has the part."""
        self._saying.finish()
        changes = self._mending() | self._changes
        turn = self._book.note.turn + 1
        unsaid = (*self._values(changes, turn), *self._unsaid)
        positions, marks = dict(self.positions), dict(self._marks)
        note = Note(self._book.era, turn, positions, marks, self.number, self.parked, self._parts, unsaid)
        self._writing.begin([Entry(self._topic, NOTE, note_to_bytes(note))])
        self._writing.finish()
        self._wait(lambda: self._book.note == note)
        taken_out = [Entry(self._topic, VALUE_MARK + key, None) for key in self._gone if key not in self.shelf.values]
        self._unsaid, self._changes, self._gone = [], {}, [key for key, value in changes.items() if value is None]
        self._requests = self._skipped = self._bytes = 0
        self._saying.begin([*taken_out, *unsaid])

    def settle(self) -> None:
        """Come back when all that is in the book was said."""
        self._saying.finish()

    def close(self) -> None:
        """Read the book no further."""
        if self._following is not None:
            self._following.close()

    def _mending(self) -> dict[str, bytes | None]:
        """What counts of keys that others have spoiled, as much as fits."""
        found: dict[str, bytes | None] = {}
        size = self._bytes
        with self._grown:
            spoiled = sorted(self._book.spoiled)
        for key in spoiled:
            size += change_bytes(key, self.shelf.values.get(key))
            if size > BATCH_BYTES_MAX and (found or self._bytes):  # a large one has to wait until nothing else is to be written
                break
            found[key] = self.shelf.values.get(key)
        return found

    def _values(self, changes: dict[str, bytes | None], turn: int) -> list[Entry]:
        kept = ((key, kept_to_bytes(Kept(turn, value))) for key, value in changes.items())
        return [Entry(self._topic, VALUE_MARK + key, value) for key, value in kept]

    def _take(self, records: Sequence[Record]) -> None:
        with self._grown:
            for record in records:
                with suppress(ValueError):  # not written by a handler
                    self._book.fold(record)
            self._grown.notify_all()
        if self._book.is_over:
            self._over.set()

    def _wait(self, condition: Callable[[], bool]) -> None:
        with self._grown:
            while not condition():
                if self._over.is_set():
                    raise CalledOff
                self._grown.wait(LOOK_S)


def _ignore_gap(gap: LogLost) -> None:
    """A compacted topic loses nothing that counts."""
    del gap
