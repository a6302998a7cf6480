"""Statistics of observations: percentiles, precision and recall, tracking delays, losses and duplicates."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of times."""

    count: int
    p50: float
    p99: float
    most: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Spread":
        """Return the percentiles of values; NaN if there are none."""
        found = sorted(values)
        if not found:
            return cls(0, *(float("nan"),) * 3)
        return cls(len(found), at_share(found, 0.5), at_share(found, 0.99), found[-1])


def at_share(values: Sequence[float], share: float) -> float:
    """Return the quantile *share* of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def share_within(values: Iterable[float], limit: float) -> float:
    """Return the share of values within a limit; NaN if there are none."""
    found = list(values)
    return sum(value <= limit for value in found) / len(found) if found else float("nan")


@dataclass(frozen=True, slots=True)
class Hits:
    """True positives, false positives and false negatives."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @classmethod
    def of(cls, found: set[T], true: set[T]) -> "Hits":
        """Return the counts of one question."""
        return cls(len(found & true), len(found - true), len(true - found))

    def __add__(self, other: "Hits") -> "Hits":
        return Hits(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """The share of found elements that are true; 1 if none was found."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The share of true elements that were found; 1 if there are none."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


@dataclass(frozen=True, slots=True)
class Steps(Generic[T]):
    """A step function of time: times in order, each with the value from then on."""

    times: tuple[float, ...]
    values: tuple[T, ...]

    def at(self, time: float) -> T | None:
        """Return the value at a time; `None` before the first."""
        row = bisect_right(self.times, time)
        return self.values[row - 1] if row else None


@dataclass(frozen=True, slots=True)
class Tracked:
    """One endpoint: the number of instants at which the registry was right, and its delay after each move."""

    instants: int
    right: int
    delays_s: tuple[float, ...]
    never: int
    """Moves unknown to the registry when the endpoint moved on or left."""


def tracked(true: Steps[T], told: Steps[T], *, until: float, each_s: float) -> Tracked:
    """Compare the registry with the true edge of an endpoint, from its first edge on."""
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
    """A numbered stream as received by one endpoint."""

    expected: int
    lost: int
    doubled: int
    repeated: int
    """Duplicates marked as such."""


def heard_stream(numbers: Sequence[tuple[int, bool]], *, last: int) -> Heard:
    """Count losses and duplicates from the first received number to `last`; *numbers* have a flag for marked duplicates."""
    if not numbers:
        return Heard(0, 0, 0, 0)
    first = min(number for number, _ in numbers)
    counted = Counter(number for number, _ in numbers)
    more = sum(count - 1 for count in counted.values())
    marked = sum(is_again for number, is_again in numbers if counted[number] > 1)
    repeated = min(more, marked)
    lost = sum(number not in counted for number in range(first, last + 1))
    return Heard(max(0, last + 1 - first), lost, more - repeated, repeated)
