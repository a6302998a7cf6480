"""Topics and topic filters as MQTT defines them, and filters as sets of topics: inclusion, intersection, cover.

*Invariants* of the set operations:
- a filter is the tuple of its levels, and `#` alone is written `+/#`: at the first level the two are equivalent. A topic is a
  filter without wildcards; the empty text counts as one, although it cannot be published to;
- the intersection of two filters is one filter, or empty;
- a wildcard at the first level does not match a level that begins with $ [MQTT-4.7.2-1];
- all results are exact: there are always more names than filters can list, so a filter with a `+` is only covered by a wildcard
  in the same place. Only the depth that # leaves open can be split among several filters (`a` and `a/+/#` together are
  `a/#`), and that is tested depth by depth.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from milepost.model.reasons import Malformed, Reason
from milepost.model.tags import maybe_bad_character

TOPIC_BYTES_MAX: Final = 1024
TOPIC_LEVELS_MAX: Final = 32

SHARE_PREFIX: Final = "$share/"

Levels = tuple[str, ...]
"""A topic filter, level by level."""


@dataclass(frozen=True, slots=True)
class SharedFilter:
    """A filter whose subscribers form a group: each message goes to one of them."""

    group: str
    filter: str


def check_topic(topic: str) -> None:
    """Raise `Malformed` unless *topic* can be published to."""
    _check_text(topic)
    for mark in "+#":
        if mark in topic:  # [MQTT-3.3.2-2]
            raise Malformed(Reason.TOPIC_CHARACTER, f"{mark!r} in the topic {_short(topic)}", at=topic.index(mark))


def check_filter(topic_filter: str) -> None:
    """Raise `Malformed` unless wildcards are whole levels and # is only the last one."""
    _check_text(topic_filter)
    if "+" not in topic_filter and "#" not in topic_filter:
        return
    levels = topic_filter.split("/")
    at = 0
    for number, level in enumerate(levels):
        is_mixed = len(level) > 1 and ("+" in level or "#" in level)  # [MQTT-4.7.1-1], [MQTT-4.7.1-2]
        if is_mixed or (level == "#" and number < len(levels) - 1):
            raise Malformed(Reason.TOPIC_WILDCARD, f"level {number + 1} of {_short(topic_filter)} is {level!r}", at=at)
        at += len(level) + 1


def maybe_shared(topic_filter: str) -> SharedFilter | None:
    """Return the group and the filter of `$share/group/filter`; None for an ordinary filter."""
    if not topic_filter.startswith(SHARE_PREFIX):
        return None
    group, slash, inner = topic_filter.removeprefix(SHARE_PREFIX).partition("/")
    if not group or not slash or "+" in group or "#" in group:  # [MQTT-4.8.2-1], [MQTT-4.8.2-2]
        raise Malformed(Reason.SHARE_NAME, f"in {_short(topic_filter)}", at=len(SHARE_PREFIX))
    try:
        check_filter(inner)
    except Malformed as fault:
        at = None if fault.at is None else fault.at + len(topic_filter) - len(inner)
        raise Malformed(fault.reason, fault.detail, at=at) from None
    return SharedFilter(group, inner)


def filter_matches(topic_filter: str, topic: str) -> bool:
    """Return whether *topic* matches *topic_filter*: the reference definition for the topic index."""
    if topic.startswith("$") and topic_filter[0] in "+#":  # [MQTT-4.7.2-1]
        return False
    pattern, levels = topic_filter.split("/"), topic.split("/")
    for number, level in enumerate(pattern):
        if level == "#":  # also the parent level itself
            return True
        if number >= len(levels) or level not in ("+", levels[number]):
            return False
    return len(pattern) == len(levels)


def levels_of(topic_filter: str) -> Levels:
    """Return the levels of a filter or topic."""
    return ("+", "#") if topic_filter == "#" else tuple(topic_filter.split("/"))


def text_of(levels: Levels) -> str:
    """Return the filter as text."""
    return "#" if levels == ("+", "#") else "/".join(levels)


def covers(outer: Levels, inner: Levels) -> bool:
    """Return whether *outer* matches every topic that *inner* matches; *inner* may be a topic."""
    if outer[0] == "+" and inner[0].startswith("$"):  # [MQTT-4.7.2-1]
        return False
    depth = len(inner)
    for at, level in enumerate(outer):
        if level == "#":  # also the parent level itself
            return True
        if at == depth or (inner[at] != level and (level != "+" or inner[at] == "#")):
            return False
    return len(outer) == depth


def maybe_overlap(one: Levels, other: Levels) -> Levels | None:
    """Return the filter of all topics that match both, or `None`."""
    if (one[0] == "+" and other[0].startswith("$")) or (other[0] == "+" and one[0].startswith("$")):  # [MQTT-4.7.2-1]
        return None
    found: list[str] = []
    for at in range(max(len(one), len(other))):
        if one[at : at + 1] == ("#",):
            return (*found, *other[at:])
        if other[at : at + 1] == ("#",):
            return (*found, *one[at:])
        if at == len(one) or at == len(other):
            return None
        mine, theirs = one[at], other[at]
        if mine != theirs and "+" not in (mine, theirs):
            return None
        found.append(theirs if mine == "+" else mine)
    return tuple(found)


def are_covering(outers: Sequence[Levels], inner: Levels) -> bool:
    """Return whether every topic that matches *inner* matches at least one of *outers*."""
    if any(covers(outer, inner) for outer in outers):
        return True
    if inner[-1] != "#" or not outers:
        return False
    depth = max(map(len, outers))
    return all(any(covers(outer, piece) for outer in outers) for piece in _by_depth(inner[:-1], depth))


def _by_depth(stem: Levels, depth: int) -> Iterator[Levels]:
    """Yield `stem/#` as the filters `stem`, `stem/+`, `stem/+/+` ... and one for all topics at least *depth* deep."""
    for length in range(len(stem), depth):
        yield (*stem, *"+" * (length - len(stem)))
    yield (*stem, *"+" * (depth - len(stem)), "#")


def _check_text(text: str) -> None:
    if not isinstance(text, str) or not text:  # [MQTT-4.7.3-1]
        raise Malformed(Reason.TOPIC_EMPTY)
    if (at := maybe_bad_character(text)) is not None:  # [MQTT-1.5.4-1], [MQTT-1.5.4-2] and the discouraged control characters
        raise Malformed(Reason.TOPIC_CHARACTER, f"{text[at]!r} at {at}", at=at)
    if (size := len(text.encode())) > TOPIC_BYTES_MAX:
        raise Malformed(Reason.TOPIC_TOO_LONG, f"{_short(text)} has {size} bytes, {TOPIC_BYTES_MAX} are allowed")
    levels = text.count("/") + 1
    if levels > TOPIC_LEVELS_MAX:
        raise Malformed(Reason.TOPIC_TOO_DEEP, f"{levels} levels, {TOPIC_LEVELS_MAX} are allowed")


def _short(text: str) -> str:
    return repr(text if len(text) <= 40 else text[:37] + "...")
