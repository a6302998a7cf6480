"""Names and sizes that every log takes, so that what works on one works on all; others are `LogRefused` before anything else."""

import re
from collections.abc import Sequence
from functools import lru_cache
from typing import Final

from milepost.backbone.log import RECORD_BYTES_MAX, TOPIC_CHARACTERS_MAX, Entry, LogRefused

NAMES_REMEMBERED: Final = 4_096
"""Names that were found good are not looked at again."""

_NAME = re.compile(rf"[A-Za-z0-9._-]{{1,{TOPIC_CHARACTERS_MAX}}}")
_TAKEN = (".", "..")  # no log on files, ours or another's, could have a folder of that name


@lru_cache(maxsize=NAMES_REMEMBERED)
def check_topic_name(name: str) -> None:
    """Refuse a name that not every log can have."""
    _check("topic", name)


def check_group_name(name: str) -> None:
    """Refuse the name of a group that not every log can have."""
    _check("group", name)


def check_entries(entries: Sequence[Entry]) -> int:
    """Refuse what no log takes; how many bytes of keys and values there are."""
    total = 0
    for topic, key, value in entries:
        check_topic_name(topic)
        size = key_bytes(key) + (0 if value is None else len(value))
        if size > RECORD_BYTES_MAX:
            raise LogRefused(f"a record of {size} bytes for {topic}: at most {RECORD_BYTES_MAX} fit; send it in parts")
        total += size
    return total


def key_bytes(key: str) -> int:
    """How long a key is in UTF-8."""
    if key.isascii():
        return len(key)
    try:
        return len(key.encode())
    except UnicodeEncodeError:
        raise LogRefused(f"the key {key!r} is no text that UTF-8 can say") from None


def _check(kind: str, name: str) -> None:
    if not _NAME.fullmatch(name) or name in _TAKEN:
        shown = name if len(name) <= TOPIC_CHARACTERS_MAX else f"{name[:TOPIC_CHARACTERS_MAX]}…"
        raise LogRefused(f"{shown!r} is no name for a {kind}: 1 to {TOPIC_CHARACTERS_MAX} of A-Z a-z 0-9 . _ -")
