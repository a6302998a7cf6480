"""Formulas over tags and topic filters: syntax tree, printed form and meaning of a query (T4).

Invariants:
- every formula is within the limits: the constructor refuses formulas nested deeper than `QUERY_DEPTH_MAX` or printed longer
  than `QUERY_CHARACTERS_MAX`, so no traversal runs out of stack or time, also where parts are shared;
- structure is preserved: `a & (b & c)` and `a & b & c` are two formulas (with one normal form), each prints as itself;
- `parse_query(str(query)) == query` for every formula.
"""

import re
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final, TypeAlias, assert_never

from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import Tag
from milepost.model.tags import tag as checked_tag
from milepost.model.topics import SHARE_PREFIX, check_filter, filter_matches

QUERY_CHARACTERS_MAX: Final = 4096
"""Maximum characters of a query, both as written and as printed."""

QUERY_DEPTH_MAX: Final = 32
"""Maximum operators above a tag or filter, and maximum nested parentheses and negations in a text."""

TOPIC_PREFIX: Final = "topic:"
BARE_FILTER: Final = re.compile(r'[^\s&|!()"]+')
"""A topic filter that needs no quotes."""


@dataclass(frozen=True, slots=True)
class HasTag:
    """True for messages with the tag."""

    tag: Tag

    def __post_init__(self) -> None:
        checked_tag(self.tag)

    def __str__(self) -> str:
        return _quoted(self.tag) if self.tag.startswith(TOPIC_PREFIX) else self.tag


@dataclass(frozen=True, slots=True)
class OnTopic:
    """True for messages whose topic matches the filter."""

    filter: str

    def __post_init__(self) -> None:
        check_filter(self.filter)
        if self.filter.startswith(SHARE_PREFIX):
            raise Malformed(
                Reason.QUERY_SYNTAX, f"{SHARE_PREFIX} is not allowed inside a query: share the whole subscription instead", at=0
            )

    def __str__(self) -> str:
        return TOPIC_PREFIX + (self.filter if BARE_FILTER.fullmatch(self.filter) else _quoted(self.filter))


@dataclass(frozen=True, slots=True)
class Not:
    """True where the part is false."""

    part: "Query"
    _depth: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _measure(self, (self.part,), marks=1)

    def __str__(self) -> str:
        return "!" + _inside(self, self.part)


@dataclass(frozen=True, slots=True)
class And:
    """True where all parts are true; there are at least two."""

    parts: tuple["Query", ...]
    _depth: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_parts("&", self.parts)
        _measure(self, self.parts, marks=len(" & ") * (len(self.parts) - 1))

    def __str__(self) -> str:
        return " & ".join(_inside(self, part) for part in self.parts)


@dataclass(frozen=True, slots=True)
class Or:
    """True where any part is true; there are at least two."""

    parts: tuple["Query", ...]
    _depth: int = field(init=False, repr=False, compare=False)
    _width: int = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        _check_parts("|", self.parts)
        _measure(self, self.parts, marks=len(" | ") * (len(self.parts) - 1))

    def __str__(self) -> str:
        return " | ".join(_inside(self, part) for part in self.parts)


Atom: TypeAlias = HasTag | OnTopic
Query: TypeAlias = HasTag | OnTopic | Not | And | Or


def holds(query: Query, topic: str, tags: AbstractSet[str]) -> bool:
    """Return whether a message on *topic* with *tags* matches: the reference definition for the matching engine."""
    match query:
        case HasTag(tag):
            return tag in tags
        case OnTopic(topic_filter):
            return filter_matches(topic_filter, topic)
        case Not(part):
            return not holds(part, topic, tags)
        case And(parts):
            return all(holds(part, topic, tags) for part in parts)
        case Or(parts):
            return any(holds(part, topic, tags) for part in parts)
        case _:
            assert_never(query)


def _inside(outer: Not | And | Or, part: Query) -> str:
    return f"({part})" if _needs_parentheses(outer, part) else str(part)


def _needs_parentheses(outer: Not | And | Or, part: Query) -> bool:
    # ! binds before &, & before |; an & directly inside an & gets parentheses to preserve the structure, likewise | in |.
    return isinstance(part, Or) or (isinstance(part, And) and not isinstance(outer, Or))


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _check_parts(mark: str, parts: tuple[Query, ...]) -> None:
    if len(parts) < 2:
        raise Malformed(Reason.QUERY_SYNTAX, f"{mark} joins at least 2 parts, found {len(parts)}")


def _measure(query: Not | And | Or, parts: tuple[Query, ...], *, marks: int) -> None:
    """Set the formula's depth and printed width from those of its parts; raises `Malformed` over the limits."""
    depth = 1 + max(_depth_of(part) for part in parts)
    if depth > QUERY_DEPTH_MAX:
        raise Malformed(Reason.QUERY_TOO_DEEP, f"operators are nested {depth} deep, {QUERY_DEPTH_MAX} are allowed")
    width = marks + sum(_width_of(part) + 2 * _needs_parentheses(query, part) for part in parts)
    if width > QUERY_CHARACTERS_MAX:
        raise Malformed(Reason.QUERY_TOO_LONG, f"printed it has {width} characters, {QUERY_CHARACTERS_MAX} are allowed")
    object.__setattr__(query, "_depth", depth)
    object.__setattr__(query, "_width", width)


def _depth_of(query: Query) -> int:
    return 0 if isinstance(query, HasTag | OnTopic) else query._depth


def _width_of(query: Query) -> int:
    return len(str(query)) if isinstance(query, HasTag | OnTopic) else query._width
