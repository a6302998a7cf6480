"""The vocabulary: numbers for the tags and topic filters that subscriptions name, and which of them a message makes true.

A tag or filter gets a number when the first query names it and loses it with the last. Filters without wildcards are
found by the topic itself. For those with wildcards the topic is read level by level, keeping every beginning of a filter that
still may fit:

    topic city/7/parking      ""  ->  "city/"  "+/"  ->  "city/7/"  "city/+/"  ->  is "city/+/parking" a filter? "city/+/#"? ...

A cell, addressed by a hash of the beginning, says whether filters go on from it with a name (1), with + (2) or with # (4), so
only what some filter goes on with is looked at. Two beginnings that share a cell cost a look in vain, never a wrong answer.
How many filters go on so is counted beside it, up to 255; a count that has reached that stays there.

Names are spread over many small dictionaries, because a dictionary that grows copies itself while everyone waits.
"""

from collections.abc import Iterable
from collections.abc import Set as AbstractSet
from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of
from milepost.model.queries import Atom, HasTag

ALWAYS_TRUE: Final = 0
"""The number that every message makes true."""

_SHARDS: Final = 128
_SHARD_MASK: Final = _SHARDS - 1
_PIECE_BITS: Final = 12
_PIECE: Final = 1 << _PIECE_BITS
_NAME, _PLUS, _HASH = 1, 2, 4
_STUCK: Final = 255


class Vocabulary:
    """Names and numbers of at most `limit` tags and filters."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._tags: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self._filters: list[dict[str, int]] = [{} for _ in range(_SHARDS)]
        self._uses = numbers_of(column(limit + 1, np.int32))
        self._is_filter = numbers_of(column(limit + 1, np.uint8))
        self._names: list[NDArray[np.object_]] = []  # in pieces, which the garbage collector does not walk through
        self._free: list[int] = []
        self._made = 1
        self._wildcards = 0
        cells = 1 << (2 * limit).bit_length()
        self._cell_mask = cells - 1
        self._cells = numbers_of(column(cells, np.uint8))
        self._counts = {kind: numbers_of(column(cells, np.uint8)) for kind in (_NAME, _PLUS, _HASH)}

    def __len__(self) -> int:
        return self._made - 1 - len(self._free)

    def take(self, atom: Atom) -> int:
        """The number of a tag or filter that one more clause names."""
        name, shards = self._name_of(atom)
        shard = shards[hash(name) & _SHARD_MASK]
        number = shard.get(name)
        if number is None:
            number = shard[name] = self._new(name, is_filter=shards is self._filters)
        self._uses[number] += 1
        return number

    def release(self, number: int) -> None:
        """One clause less names it; with the last the name is forgotten."""
        self._uses[number] -= 1
        if self._uses[number]:
            return
        names, at = self._names[number >> _PIECE_BITS], number & (_PIECE - 1)
        name, names[at] = names[at], None
        self._free.append(number)
        shards = self._filters if self._is_filter[number] else self._tags
        del shards[hash(name) & _SHARD_MASK][name]
        if self._is_filter[number] and _has_wildcard(name):
            self._wildcards -= 1
            self._count_beginnings(name, -1)

    def has_room_for(self, atoms: Iterable[Atom]) -> bool:
        """Whether all of these can be taken, those known already and those that are new."""
        new = 0
        for atom in atoms:
            name, shards = self._name_of(atom)
            new += name not in shards[hash(name) & _SHARD_MASK]
        return len(self) + new <= self._limit

    def uses(self, number: int) -> int:
        """How many clauses name it."""
        return self._uses[number]

    def true_for(self, topic: str, tags: AbstractSet[str]) -> list[int]:
        """The numbers of all named tags and filters that a message with this topic and these tags makes true."""
        found = self._filters_passing(topic)
        for tag in tags:
            number = self._tags[hash(tag) & _SHARD_MASK].get(tag)
            if number is not None:
                found.append(number)
        return found

    def _filters_passing(self, topic: str) -> list[int]:
        if not self._wildcards:
            return self._numbers_of([topic])
        cells, mask = self._cells, self._cell_mask
        *levels, last = topic.split("/")
        names = [topic]
        if topic[0] != "$":
            beginnings = [("", cells[hash("") & mask])]
        elif levels:  # [MQTT-4.7.2-1]: no wildcard at the first level
            first = levels.pop(0) + "/"
            beginnings = [(first, cells[hash(first) & mask])]
        else:
            return self._numbers_of([topic, topic + "/#"])
        for level in levels:
            shorter, beginnings = beginnings, []
            for beginning, cell in shorter:
                if cell & _HASH:
                    names.append(beginning + "#")
                if cell & _NAME:
                    one = f"{beginning}{level}/"
                    if cell_after := cells[hash(one) & mask]:
                        beginnings.append((one, cell_after))
                if cell & _PLUS:
                    one = beginning + "+/"
                    if cell_after := cells[hash(one) & mask]:
                        beginnings.append((one, cell_after))
        for beginning, cell in beginnings:  # a filter may end with the last level, with + or # in its place, or with # after it
            if cell & _HASH:
                names.append(beginning + "#")
            if cell & _NAME:
                one = beginning + last
                if one != topic:
                    names.append(one)
                if cells[hash(one + "/") & mask] & _HASH:
                    names.append(one + "/#")
            if cell & _PLUS:
                one = beginning + "+"
                names.append(one)
                if cells[hash(one + "/") & mask] & _HASH:
                    names.append(one + "/#")
        return self._numbers_of(names)

    def _numbers_of(self, names: list[str]) -> list[int]:
        shards = self._filters
        found = []
        for name in names:
            number = shards[hash(name) & _SHARD_MASK].get(name)
            if number is not None:
                found.append(number)
        return found

    def _name_of(self, atom: Atom) -> tuple[str, list[dict[str, int]]]:
        """A tag's or filter's name, and the dictionaries in which it stands."""
        return (atom.tag, self._tags) if isinstance(atom, HasTag) else (atom.filter, self._filters)

    def _new(self, name: str, *, is_filter: bool) -> int:
        if self._free:
            number = self._free.pop()
        else:
            assert self._made <= self._limit, "who takes a name has asked whether there is room"
            number = self._made
            self._made += 1
            if number >> _PIECE_BITS == len(self._names):
                self._names.append(np.empty(_PIECE, object))
        self._names[number >> _PIECE_BITS][number & (_PIECE - 1)] = name
        self._is_filter[number] = is_filter
        if is_filter and _has_wildcard(name):
            self._wildcards += 1
            self._count_beginnings(name, 1)
        return number

    def _count_beginnings(self, name: str, step: int) -> None:
        """Count, for each beginning of a filter, what the filter goes on with."""
        beginning = ""
        for level in name.split("/"):
            cell = hash(beginning) & self._cell_mask
            kind = _PLUS if level == "+" else _HASH if level == "#" else _NAME
            counts = self._counts[kind]
            if counts[cell] != _STUCK:
                counts[cell] += step
                self._cells[cell] = self._cells[cell] | kind if counts[cell] else self._cells[cell] & ~kind
            beginning += level + "/"


def _has_wildcard(name: str) -> bool:
    return "+" in name or name.endswith("#")
