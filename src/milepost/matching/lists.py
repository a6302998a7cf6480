"""Many short lists of numbers in one array.

    list 1  ->  start 8, length 3, room for 4          pool  . . . . . . . . a b c . d . . .
    list 2  ->  start 12, length 1, room for 1                               ^       ^

A list that outgrows its room moves to one twice as large, one that fills a quarter or less of it to one half as large; the
room it leaves is given to the next list of that size. Order is not kept: the last number fills the gap of one that is removed,
so appending and removing cost the same however long the list is. Numbers are held in 4 bytes, a list's head in 9.

A room is at least a quarter full, so all rooms of one size together take at most four times the numbers there are: that many
for each size is what the pool reserves, and it cannot run out, in whatever order lists grow and shrink.
"""

from typing import Final

import numpy as np
from numpy.typing import NDArray

from milepost.matching.columns import column, numbers_of

NO_LIST: Final = 0


class Lists:
    """At most `lists_max` lists that together hold at most `numbers_max` numbers."""

    def __init__(self, lists_max: int, numbers_max: int) -> None:
        sizes = max(1, numbers_max - 1).bit_length() + 1
        self._pool = column(4 * numbers_max * sizes, np.int32)
        self._heads = column(lists_max + 1, np.int32, 2)  # start and length, side by side in memory
        self._start, self._length = numbers_of(self._heads[:, 0]), numbers_of(self._heads[:, 1])
        self._room = numbers_of(column(lists_max + 1, np.uint8))
        self._free_lists: list[int] = []
        self._free_rooms: list[list[int]] = [[] for _ in range(sizes)]
        self._lists = 1
        self._end = 0

    def new(self) -> int:
        """A new empty list; never `NO_LIST`."""
        if self._free_lists:
            return self._free_lists.pop()
        assert self._lists < len(self._start), f"all {self._lists - 1} lists are taken"
        self._lists += 1
        return self._lists - 1

    def append(self, which: int, number: int) -> int:
        """Add a number; gives its position, which `remove` needs."""
        length = self._length[which]
        if not length:
            self._move(which, 0, 0)
        elif length == 1 << self._room[which]:
            self._move(which, length, self._room[which] + 1)
        self._pool[self._start[which] + length] = number
        self._length[which] = length + 1
        return length

    def remove(self, which: int, position: int) -> int:
        """Take the number at a position out; gives the number that now stands there, -1 if none. An empty list keeps its name."""
        last = self._length[which] - 1
        self._length[which] = last
        start, room = self._start[which], self._room[which]
        moved = -1
        if position != last:
            moved = int(self._pool[start + last])
            self._pool[start + position] = moved
        if not last:
            self._free_rooms[room].append(start)
        elif 4 * last <= 1 << room:
            self._move(which, last, room - 1)
        return moved

    def drop(self, which: int) -> None:
        """Give an empty list's name back."""
        assert not self._length[which], "only empty lists are dropped"
        self._free_lists.append(which)

    def length(self, which: int) -> int:
        """How many numbers are in a list."""
        return self._length[which]

    def view(self, which: int) -> NDArray[np.int32]:
        """The numbers of a list, in no order; valid until the next change."""
        start = self._start[which]
        return self._pool[start : start + self._length[which]]

    def gather(self, which: NDArray[np.int32]) -> NDArray[np.int32]:
        """The numbers of many lists, one after the other; `NO_LIST` has none."""
        starts, lengths = self._heads.take(which, axis=0).T
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if ends.size else 0
        found: NDArray[np.int32] = self._pool.take(np.repeat(starts - ends + lengths, lengths) + np.arange(total))
        return found

    def total(self, which: NDArray[np.int32]) -> int:
        """How many numbers many lists hold together."""
        return int(self._heads[which, 1].sum())

    def _move(self, which: int, length: int, room: int) -> None:
        """Give a list another room, for 2 to the power of `room` numbers."""
        old_room, old_start = self._room[which], self._start[which]
        free = self._free_rooms[room]
        if free:
            start = free.pop()
        else:
            start, self._end = self._end, self._end + (1 << room)
            assert self._end <= self._pool.size, "the pool has room for every size"
        if length:
            self._pool[start : start + length] = self._pool[old_start : old_start + length]
            self._free_rooms[old_room].append(old_start)
        self._start[which], self._room[which] = start, room
