"""Tags: the keywords of messages; and the characters that names may have."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NewType
from unicodedata import category

from milepost.model.reasons import Malformed, Reason


def maybe_bad_character(text: str) -> int | None:
    """Return the position of the first control character or lone surrogate, which no name may have, or `None`."""
    if text.isascii() and text.isprintable():
        return None
    for at, character in enumerate(text):
        if character < " " or "\x7f" <= character <= "\x9f" or "\ud800" <= character <= "\udfff":
            return at
    return None


Tag = NewType("Tag", str)

TAG_CHARACTERS_MAX: Final = 64
TAGS_MAX: Final = 32
"""Maximum tags of a message."""

TAG_PATTERN: Final = re.compile(r"(?:[\w.:/@-]|[^\x00-\xff\s])+")
"""A tag in a longer text: ASCII letters, digits and _ - . : / @, and the characters of other scripts."""


def tag(text: str) -> Tag:
    """Return *text* as a tag; tags are case-sensitive."""
    if not isinstance(text, str) or not text:
        raise Malformed(Reason.TAG_EMPTY)
    if len(text) > TAG_CHARACTERS_MAX:
        raise Malformed(Reason.TAG_TOO_LONG, f"{text[:20]!r}... has {len(text)} characters, {TAG_CHARACTERS_MAX} are allowed")
    at = 0 if (good := TAG_PATTERN.match(text)) is None else good.end()
    if not text.isascii():
        at = next((i for i, character in enumerate(text) if not _is_written(character)), len(text))
    if at < len(text):
        raise Malformed(Reason.TAG_CHARACTER, f"{text!r} has {text[at]!r} at {at}", at=at)
    return Tag(text)


def tags(texts: Iterable[str]) -> frozenset[Tag]:
    """Return the tag set of one message."""
    found = frozenset(map(Tag, texts))
    check_tags(found)
    return found


def check_tags(found: AbstractSet[str]) -> None:
    """Raise `Malformed` if there are too many tags, or one is invalid."""
    if len(found) > TAGS_MAX:
        raise Malformed(Reason.TOO_MANY_TAGS, f"{len(found)} tags, {TAGS_MAX} are allowed")
    for text in found:
        tag(text)


def _is_written(character: str) -> bool:
    """Return whether *character* is a letter, digit or combining mark of any script, or punctuation that tags may have."""
    return character.isalnum() or character in "_-.:/@" or category(character).startswith("M")
