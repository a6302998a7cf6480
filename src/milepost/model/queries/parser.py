"""Parser of queries: one pass from left to right; errors carry the position of the fault.

    query       = conjunction { "|" conjunction }                  ! binds before &, & before |
    conjunction = part { "&" part }
    part        = "!" part | "(" query ")" | atom
    atom        = tag | quoted tag | topic:FILTER | topic:"FILTER"

    collision & (i80 | i15) & !cleared
    topic:city/+/parking/# & !topic:"city/old town/#"

A quoted tag or filter may have all characters that tags or filters may have; \\" and \\\\ are a quote and a backslash. A tag
that begins with `topic:` needs the quotes. The operators have no word forms: `and` is a tag.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final, NoReturn, TypeVar

from milepost.model.queries.formula import (
    BARE_FILTER,
    QUERY_CHARACTERS_MAX,
    QUERY_DEPTH_MAX,
    TOPIC_PREFIX,
    And,
    Atom,
    HasTag,
    Not,
    OnTopic,
    Or,
    Query,
)
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import TAG_PATTERN, Tag

POINT_AT_CHARACTERS: Final = 76
"""Maximum characters of the text that `point_at` shows."""

_SPACE: Final = re.compile(r"\s*")
_FOUND: Final = re.compile(r"[\w.:/@-]{1,20}|.", re.DOTALL)
_A_PART: Final = "a tag, topic:, ! or ("
_MARK_FOR_WORD: Final = {"and": "&", "or": "|", "not": "!"}

_Content = TypeVar("_Content")
_Formula = TypeVar("_Formula")


def parse_query(text: str) -> Query:
    """Return the formula of a text such as `collision & (i80 | i15) & !cleared`."""
    if len(text) > QUERY_CHARACTERS_MAX:
        detail = f"it has {len(text)} characters, {QUERY_CHARACTERS_MAX} are allowed"
        raise Malformed(Reason.QUERY_TOO_LONG, detail, at=QUERY_CHARACTERS_MAX)
    reader = _QueryParser(text)
    query = reader.disjunction(0)
    if reader.at < len(text):
        reader.refuse("&, | or the end")
    return query


def point_at(text: str, at: int) -> str:
    """Return two lines, the text and a caret below its character *at*; of a long text the part around it."""
    start = max(0, min(at - POINT_AT_CHARACTERS // 2, len(text) - POINT_AT_CHARACTERS))
    end = start + POINT_AT_CHARACTERS
    shown = "".join(character if character.isprintable() else " " for character in text[start:end])
    before, after = "..." if start else "", "..." if end < len(text) else ""
    return f"{before}{shown}{after}\n{' ' * (len(before) + at - start)}^"


@dataclass(slots=True)
class _QueryParser:
    """A text and the position in it; every method reads one rule of the grammar and the spaces after it."""

    text: str
    at: int = 0
    last_word: str = ""

    def __post_init__(self) -> None:
        self._skip(0)

    def disjunction(self, depth: int) -> Query:
        start, parts = self.at, [self._conjunction(depth)]
        while self._maybe_mark("|"):
            parts.append(self._conjunction(depth))
        return parts[0] if len(parts) == 1 else _built(Or, tuple(parts), [start])

    def refuse(self, expected: str) -> NoReturn:
        found = _FOUND.match(self.text, self.at)
        what = repr(found.group()) if found else "the end"
        words = [found.group() if found else "", self.last_word]
        hints = [f"; write {_MARK_FOR_WORD[word.lower()]} for {word}" for word in words if word.lower() in _MARK_FOR_WORD]
        detail = f"found {what} at {self.at}, expected {expected}{''.join(hints[:1])}"
        raise Malformed(Reason.QUERY_SYNTAX, detail, at=self.at)

    def _conjunction(self, depth: int) -> Query:
        start, parts = self.at, [self._part(depth)]
        while self._maybe_mark("&"):
            parts.append(self._part(depth))
        return parts[0] if len(parts) == 1 else _built(And, tuple(parts), [start])

    def _part(self, depth: int) -> Query:
        start = self.at
        if depth > QUERY_DEPTH_MAX:
            detail = f"parentheses and negations are nested over {QUERY_DEPTH_MAX} deep at {start}"
            raise Malformed(Reason.QUERY_TOO_DEEP, detail, at=start)
        if self._maybe_mark("!"):
            return _built(Not, self._part(depth + 1), [start])
        if not self._maybe_mark("("):
            return self._atom()
        query = self.disjunction(depth + 1)
        if not self._maybe_mark(")"):
            self.refuse(f"&, | or the ) of the ( at {start}")
        return query

    def _atom(self) -> Atom:
        start = self.at
        if self.text.startswith('"', start):
            name, places = self._quoted(start)
            return _built(HasTag, Tag(name), places)
        if self.text.startswith(TOPIC_PREFIX, start):
            return self._topic(start + len(TOPIC_PREFIX))
        found = TAG_PATTERN.match(self.text, start)
        if found is None:
            self.refuse(_A_PART)
        self._skip(found.end())
        self.last_word = found.group()
        return _built(HasTag, Tag(found.group()), range(start, found.end()))

    def _topic(self, start: int) -> Atom:
        if self.text.startswith('"', start):
            name, places = self._quoted(start)
            return _built(OnTopic, name, places)
        found = BARE_FILTER.match(self.text, start)
        if found is None:
            self.at = start
            self.refuse("a topic filter, in quotes if it holds spaces or any of & | ! ( )")
        self._skip(found.end())
        return _built(OnTopic, found.group(), range(start, found.end()))

    def _quoted(self, start: int) -> tuple[str, Sequence[int]]:
        """Return the quoted text, and the positions of each of its characters and the closing quote."""
        characters: list[str] = []
        places: list[int] = []
        self.at = start + 1
        while not self.text.startswith('"', self.at):
            places.append(self.at)
            if self.text.startswith("\\", self.at):
                self.at += 1
                if self.text[self.at : self.at + 1] not in ('"', "\\"):
                    self.refuse('\\ or " after a backslash')
            if self.at >= len(self.text):
                self.refuse(f"the closing quote of the one at {start}")
            characters.append(self.text[self.at])
            self.at += 1
        places.append(self.at)
        self._skip(self.at + 1)
        return "".join(characters), places

    def _maybe_mark(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self._skip(self.at + 1)
        self.last_word = ""
        return True

    def _skip(self, at: int) -> None:
        space = _SPACE.match(self.text, at)
        self.at = space.end() if space else at


def _built(kind: Callable[[_Content], _Formula], content: _Content, places: Sequence[int]) -> _Formula:
    """Return the formula, or raise its refusal with a position in the text; `places` has the position of each character."""
    try:
        return kind(content)
    except Malformed as fault:
        at = places[fault.at or 0]
        raise Malformed(fault.reason, f"{fault.detail or 'nothing'} at {at} of the query", at=at) from None
