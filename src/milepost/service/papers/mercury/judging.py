"""Judging: from what was seen to shares and counts, with nothing but numbers."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """How times lie."""

    count: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Of some values; of none all are NaN."""
        found = sorted(values)
        if not found:
            return cls(0, *(float("nan"),) * 3)
        return cls(len(found), at_share(found, 0.5), at_share(found, 0.99), found[-1])


def at_share(values: Sequence[float], share: float) -> float:
    """Of sorted values the one that so many are not above."""
    return values[min(len(values) - 1, int(share * len(values)))]


def share_within(values: Iterable[float], limit: float) -> float:
    """How many of the values are within a limit, as a share; of none NaN."""
    found = list(values)
    return sum(value <= limit for value in found) / len(found) if found else float("nan")


@dataclass(frozen=True, slots=True)
class Hits:
    """Who was found and is there, was found and is not, is there and was not found."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @classmethod
    def of(cls, found: set[T], true: set[T]) -> "Hits":
        """Of one question."""
        return cls(len(found & true), len(found - true), len(true - found))

    def __add__(self, other: "Hits") -> "Hits":
        return Hits(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """Of those found, how many are there; nobody found: none of them wrong."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """Of those there, how many were found."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


@dataclass(frozen=True, slots=True)
class Steps(Generic[T]):
    """What is so from which time on: times in order, each with what is so from then."""

    times: tuple[float, ...]
    values: tuple[T, ...]

    def at(self, time: float) -> T | None:
        """What is so at a time; nothing before the first."""
        row = bisect_right(self.times, time)
        return self.values[row - 1] if row else None


@dataclass(frozen=True, slots=True)
class Tracked:
    """One endpoint: at how many instants the register was right, and how long after each move it was."""

    instants: int
    right: int
    delays_s: tuple[float, ...]
    never: int
    """Moves that the register had not heard of when the endpoint moved on or left."""


def tracked(true: Steps[T], told: Steps[T], *, until: float, each_s: float) -> Tracked:
    """Hold what the register said against where the endpoint was, from its first edge on."""
    instants = right = never = 0
    delays: list[float] = []
    for row, (start, value) in enumerate(zip(true.times, true.values, strict=True)):
        end = true.times[row + 1] if row + 1 < len(true.times) else until
        steps = range(int((end - start) / each_s + 1e-9))
        instants += len(steps)
        right += sum(told.at(start + step * each_s) == value for step in steps)
        if row:
            heard = start if told.at(start) == value else _first_after(told, start, value)
            if heard is None or heard > end:
                never += 1
            else:
                delays.append(heard - start)
    return Tracked(instants, right, tuple(delays), never)


def _first_after(told: Steps[T], start: float, value: T) -> float | None:
    rows = range(bisect_right(told.times, start), len(told.times))
    return next((told.times[row] for row in rows if told.values[row] == value), None)


@dataclass(frozen=True, slots=True)
class Heard:
    """A numbered stream as one endpoint heard it."""

    expected: int
    lost: int
    doubled: int
    repeated: int
    """Second copies that were marked as such."""


def heard_stream(numbers: Sequence[tuple[int, bool]], *, last: int) -> Heard:
    """From the first number that came to `last`; each with whether it was marked as a repetition."""
    if not numbers:
        return Heard(0, 0, 0, 0)
    first = min(number for number, _ in numbers)
    counted = Counter(number for number, _ in numbers)
    more = sum(count - 1 for count in counted.values())
    marked = sum(is_again for number, is_again in numbers if counted[number] > 1)
    repeated = min(more, marked)
    lost = sum(number not in counted for number in range(first, last + 1))
    return Heard(max(0, last + 1 - first), lost, more - repeated, repeated)
