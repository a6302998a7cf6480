"""Columns, lists and rows: the memory of the matching engine.

Invariants: every table has a stated limit. Its columns reserve address space for that limit on creation, and the system
commits a page on the first write to it. So no table is ever resized or copied, and no reader waits for that.
"""

import mmap
from math import prod
from typing import Any, Final

import numpy as np
from numpy.typing import DTypeLike, NDArray

_NO_RESERVE: Final = getattr(mmap, "MAP_NORESERVE", 0x4000)  # Linux; Python names it only since 3.14


def column(limit: int, dtype: DTypeLike, *width: int) -> NDArray[Any]:
    """Return an array of `limit` rows of zeros that costs address space only."""
    shape = (limit, *width)
    size = max(1, prod(shape) * np.dtype(dtype).itemsize)
    memory = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _NO_RESERVE)
    return np.frombuffer(memory, dtype, prod(shape)).reshape(shape)


def element_view(rows: NDArray[Any]) -> memoryview:
    """Return a view for single elements: three times as fast to read and write as the array."""
    return rows.data


NO_LIST: Final = 0
_NO_ROW: Final = 0

Rows = NDArray[np.int32]


class ListPool:
    """Many short lists of numbers in one array: at most `lists_max` lists that together hold at most `numbers_max` numbers.

        list 1  ->  start 8, length 3, block of 4          pool  . . . . . . . . a b c . d . . .
        list 2  ->  start 12, length 1, block of 1                               ^       ^

    A list that outgrows its block moves to one twice as large; a list that fills a quarter of its block or less moves to
    one half as large. Free blocks of a size are reused. Order is not preserved: the last number fills the gap of a removed one,
    so append and remove are O(1). A number takes 4 bytes, a list's header 9.

    A block is at least a quarter full, so all blocks of one size take at most four times `numbers_max`. The pool reserves that
    for each size: it cannot run out, in whatever order lists grow and shrink.
    """

    def __init__(self, lists_max: int, numbers_max: int) -> None:
        sizes = max(1, numbers_max - 1).bit_length() + 1
        self._pool = column(4 * numbers_max * sizes, np.int32)
        self._heads = column(lists_max + 1, np.int32, 2)  # start and length, side by side in memory
        self._start, self._length = element_view(self._heads[:, 0]), element_view(self._heads[:, 1])
        self._block_bits = element_view(column(lists_max + 1, np.uint8))
        self._free_lists: list[int] = []
        self._free_blocks: list[list[int]] = [[] for _ in range(sizes)]
        self._lists = 1
        self._end = 0

    def new(self) -> int:
        """Return the id of a new empty list; never `NO_LIST`."""
        if self._free_lists:
            return self._free_lists.pop()
        assert self._lists < len(self._start), f"all {self._lists - 1} lists are in use"
        self._lists += 1
        return self._lists - 1

    def append(self, list_id: int, number: int) -> int:
        """Add a number; return its position, which `remove` needs."""
        length = self._length[list_id]
        if not length:
            self._move(list_id, 0, 0)
        elif length == 1 << self._block_bits[list_id]:
            self._move(list_id, length, self._block_bits[list_id] + 1)
        self._pool[self._start[list_id] + length] = number
        self._length[list_id] = length + 1
        return length

    def remove(self, list_id: int, position: int) -> int:
        """Remove the number at a position; return the number moved there, or -1. An empty list keeps its id until `drop`."""
        last = self._length[list_id] - 1
        self._length[list_id] = last
        start, block_bits = self._start[list_id], self._block_bits[list_id]
        moved = -1
        if position != last:
            moved = int(self._pool[start + last])
            self._pool[start + position] = moved
        if not last:
            self._free_blocks[block_bits].append(start)
        elif 4 * last <= 1 << block_bits:
            self._move(list_id, last, block_bits - 1)
        return moved

    def drop(self, list_id: int) -> None:
        """Free the id of an empty list."""
        assert not self._length[list_id], "only empty lists are dropped"
        self._free_lists.append(list_id)

    def length(self, list_id: int) -> int:
        """Return the length of a list."""
        return self._length[list_id]

    def view(self, list_id: int) -> NDArray[np.int32]:
        """Return the numbers of a list, unordered; valid until the next change."""
        start = self._start[list_id]
        return self._pool[start : start + self._length[list_id]]

    def gather(self, list_id: NDArray[np.int32]) -> NDArray[np.int32]:
        """Return the concatenated numbers of many lists; `NO_LIST` is empty."""
        starts, lengths = self._heads.take(list_id, axis=0).T
        ends = np.cumsum(lengths)
        total = int(ends[-1]) if ends.size else 0
        found: NDArray[np.int32] = self._pool.take(np.repeat(starts - ends + lengths, lengths) + np.arange(total))
        return found

    def total(self, list_id: NDArray[np.int32]) -> int:
        """Return the total length of many lists."""
        return int(self._heads[list_id, 1].sum())

    def _move(self, list_id: int, length: int, block_bits: int) -> None:
        """Move a list to a block of 2 to the power of `block_bits` numbers."""
        old_block_bits, old_start = self._block_bits[list_id], self._start[list_id]
        free = self._free_blocks[block_bits]
        if free:
            start = free.pop()
        else:
            start, self._end = self._end, self._end + (1 << block_bits)
            assert self._end <= self._pool.size, "the pool has room for every block size"
        if length:
            self._pool[start : start + length] = self._pool[old_start : old_start + length]
            self._free_blocks[old_block_bits].append(old_start)
        self._start[list_id], self._block_bits[list_id] = start, block_bits


class RowsByQuery:
    """At most `limit` rows, each under one query; queries are numbers below `limit`. The usual single row is stored in place."""

    def __init__(self, limit: int) -> None:
        self._lists = ListPool(limit // 2, limit)
        self._entries = column(limit, np.int32)  # 0: none; below 0: -1 - the row; above 0: the list of rows
        self._entry_of = element_view(self._entries)
        self._position = element_view(column(limit, np.int32))
        self.count = 0
        """Number of rows."""

    def add(self, query: int, row: int) -> None:
        """Add a row under a query."""
        self.count += 1
        entry = self._entry_of[query]
        if entry == _NO_ROW:
            self._entry_of[query] = ~row
            return
        if entry < 0:
            list_id = self._lists.new()
            self._position[~entry] = self._lists.append(list_id, ~entry)
            self._entry_of[query] = entry = list_id
        self._position[row] = self._lists.append(entry, row)

    def remove(self, query: int, row: int) -> None:
        """Remove a row from its query."""
        self.count -= 1
        entry = self._entry_of[query]
        if entry < 0:
            self._entry_of[query] = _NO_ROW
            return
        moved = self._lists.remove(entry, self._position[row])
        if moved >= 0:
            self._position[moved] = self._position[row]
        if self._lists.length(entry) == 1:
            self._entry_of[query] = ~int(self._lists.view(entry)[0])
            self._lists.remove(entry, 0)
            self._lists.drop(entry)

    def of(self, queries: list[int]) -> Rows:
        """Return the rows of a few queries."""
        single: list[int] = []
        lists: list[Rows] = []
        for query in queries:
            entry = self._entry_of[query]
            if entry < 0:
                single.append(~entry)
            elif entry > 0:
                lists.append(self._lists.view(entry))
        rows = np.array(single, np.int32)
        return np.concatenate((rows, *lists)) if lists else rows

    def of_many(self, queries: NDArray[np.int32]) -> Rows:
        """Return the rows of many queries; vectorized."""
        entries = self._entries.take(queries)
        rows: Rows = ~entries[entries < 0]
        lists = entries[entries > 0]
        return np.concatenate((rows, self._lists.gather(lists))) if lists.size else rows

    def total(self, queries: NDArray[np.int32]) -> int:
        """Return the total number of rows of many queries."""
        entries = self._entries.take(queries)
        return int(np.count_nonzero(entries < 0)) + self._lists.total(entries[entries > 0])
