"""The book of a part: who has the part, how far it has come, its store; made of the records of its topic, in their order.

What must hold:
- of all that claim a part, the last in the log has it: notes that others write after that count for nobody (era);
- a note holds all that follows from it, values of the store and answers. They are written after it, by its writer or by whoever
  claims the part next. So what one call changed counts as a whole, whenever its writer dies;
- of the values of a key the one with the highest turn counts. What comes late, from a writer that had been stopped, spoils
  the key or the note: the claimant writes it again.

The group of processes only proposes who serves a part. This decides it, also against a process that was stopped for a minute
and goes on as if nothing had happened.
"""

from typing import NamedTuple

from milepost.backbone.log import Record
from milepost.handlers.notes import CLAIM, NOTE, VALUE_MARK, Kept, Note, kept_from_bytes, note_from_bytes


class _Standing(NamedTuple):
    """What counts of a key, without the value."""

    turn: int
    is_gone: bool


class Book:
    """The book as one claimant reads it."""

    def __init__(self, token: bytes) -> None:
        self._token = token
        self.era = -1
        self.is_mine = False
        """Whether the claimant has the part."""
        self.is_over = False
        """Whether the claimant had the part, and another has it now."""
        self.note = Note()
        """The last one that counts."""
        self.values: dict[str, bytes] = {}
        """The store, up to the claim."""
        self.spoiled: set[str] = set()
        """Keys whose last record does not say what counts."""
        self.is_note_spoiled = False
        self._standings: dict[str, _Standing] = {}

    @property
    def gone(self) -> list[str]:
        """Keys that stand in the log without a value: they can be taken out of it."""
        return [key for key, standing in self._standings.items() if standing.is_gone]

    def fold(self, record: Record) -> None:
        """Read the next record; raises ValueError about one that no handler has written."""
        key, value = record.key, record.value
        if key == CLAIM:
            self._on_claim(record)
        elif key == NOTE and value is not None:
            self._on_note(note_from_bytes(value), record.topic)
        elif key.startswith(VALUE_MARK):
            name = key.removeprefix(VALUE_MARK)
            if value is None:
                self._on_taken_out(name)
            else:
                self._on_value(name, kept_from_bytes(value))

    def _on_claim(self, record: Record) -> None:
        if self.is_mine:
            self.is_mine, self.is_over = False, True
        elif record.value == self._token and not self.is_over:
            self.is_mine = True
        self.era = record.offset

    def _on_note(self, note: Note, topic: str) -> None:
        if note.era < self.era:
            self.is_note_spoiled = True
            return
        self.era, self.note, self.is_note_spoiled = note.era, note, False
        for entry in note.unsaid:
            if entry.topic == topic and entry.value is not None:
                self._on_value(entry.key.removeprefix(VALUE_MARK), kept_from_bytes(entry.value))

    def _on_value(self, key: str, kept: Kept) -> None:
        standing = self._standings.get(key)
        # In their order, values of a turn stand behind its note and before the next one.
        if kept.turn < self.note.turn or (standing is not None and kept.turn < standing.turn):
            self.spoiled.add(key)
            return
        self._standings[key] = _Standing(kept.turn, kept.value is None)
        self.spoiled.discard(key)
        if self.is_mine:
            return
        self.values.pop(key, None)
        if kept.value is not None:
            self.values[key] = kept.value

    def _on_taken_out(self, key: str) -> None:
        standing = self._standings.get(key)
        if standing is not None and standing.is_gone:
            del self._standings[key]
        elif standing is not None:
            self.spoiled.add(key)
