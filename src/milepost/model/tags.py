"""Tags: the short words a message is found by."""

import re
from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final, NewType
from unicodedata import category

from milepost.model.reasons import Malformed, Reason

Tag = NewType("Tag", str)

TAG_CHARACTERS_MAX: Final = 64
TAGS_MAX: Final = 32
"""The most tags one message may carry."""

TAG_PATTERN: Final = re.compile(r"(?:[\w.:/@-]|[^\x00-\xff\s])+")
"""Where a tag in a longer text ends: ASCII letters, digits and _ - . : / @, and whatever other scripts write with."""


def tag(text: str) -> Tag:
    """The tag spelled by `text`; tags are compared letter by letter, capitals count."""
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
    """The tag set of one message."""
    found = frozenset(map(Tag, texts))
    check_tags(found)
    return found


def check_tags(found: AbstractSet[str]) -> None:
    """Refuse a set of tags that has too many, or one that is none."""
    if len(found) > TAGS_MAX:
        raise Malformed(Reason.TOO_MANY_TAGS, f"{len(found)} tags, {TAGS_MAX} are allowed")
    for text in found:
        tag(text)


def _is_written(character: str) -> bool:
    """Whether it is a letter, digit or combining mark of any script, or one of the marks that tags may have."""
    return character.isalnum() or character in "_-.:/@" or category(character).startswith("M")
