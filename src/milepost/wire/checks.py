"""Checks of every encoding, beyond those of the model's constructors."""

from collections import Counter
from collections.abc import Sequence
from typing import Final

from milepost.model.instants import FOREVER, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import Tag

INSTANT_MAX: Final = FOREVER - 1
"""The last instant that can be encoded; `FOREVER` is encoded as an absent field, never as a number."""


def encodable_instant(name: str, instant: int) -> Instant:
    """Return the instant; raises `Malformed` for one that could be mistaken for an open end."""
    if instant > INSTANT_MAX:
        raise Malformed(Reason.TIME_RANGE, f"{name} is {instant} ns, the last instant is {INSTANT_MAX}")
    return Instant(instant)


def unique_tags(texts: Sequence[str]) -> frozenset[Tag]:
    """Return the set of tags; raises `Malformed` for duplicates. The model checks their characters."""
    found = frozenset(map(Tag, texts))
    if len(found) != len(texts):
        twice = Counter(texts).most_common(1)[0][0]
        raise Malformed(Reason.FIELD_RANGE, f"tag {twice[:64]!r} occurs twice")
    return found
