"""Topic filters as sets of topics: does one hold another, what have two in common, do several together hold one?

Rules of this file:
- a filter is the tuple of its levels, and `#` alone is written `+/#`: at the top the two mean the same. A topic is a filter
  without wildcards, and the empty text counts as one, although nobody can publish to it;
- what two filters have in common is again one filter, or nothing;
- a wildcard at the first level stands for no level that begins with $ [MQTT-4.7.2-1];
- all answers are exact, not guesses on the safe side: there are always more names than filters can list, so what has a `+`
  is only ever held by what has a wildcard in the same place. Only the depth that # leaves open can be shared out among several
  filters (`a` and `a/+/#` together are `a/#`), and that is tried depth by depth.
"""

from collections.abc import Iterator, Sequence

Levels = tuple[str, ...]


def levels_of(topic_filter: str) -> Levels:
    """The levels of a filter or topic."""
    return ("+", "#") if topic_filter == "#" else tuple(topic_filter.split("/"))


def text_of(levels: Levels) -> str:
    """The filter as it is written."""
    return "#" if levels == ("+", "#") else "/".join(levels)


def covers(outer: Levels, inner: Levels) -> bool:
    """Whether every topic that passes `inner` passes `outer`; for a topic, whether it passes."""
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
    """The filter of all topics that pass both; nothing if there are none."""
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
    """Whether every topic that passes `inner` passes at least one of several filters."""
    if any(covers(outer, inner) for outer in outers):
        return True
    if inner[-1] != "#" or not outers:
        return False
    depth = max(map(len, outers))
    return all(any(covers(outer, piece) for outer in outers) for piece in _by_depth(inner[:-1], depth))


def _by_depth(stem: Levels, depth: int) -> Iterator[Levels]:
    """`stem/#` as the filters `stem`, `stem/+`, `stem/+/+` ... and all that is at least `depth` deep."""
    for length in range(len(stem), depth):
        yield (*stem, *"+" * (length - len(stem)))
    yield (*stem, *"+" * (depth - len(stem)), "#")
