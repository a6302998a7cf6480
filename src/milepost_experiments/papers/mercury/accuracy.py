"""Statistics of observations: percentiles, precision and recall, tracking delays, losses and duplicates."""

from bisect import bisect_right
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Quantiles:
    """Percentiles of times."""

    count: int
    p50: float
    p99: float
    maximum: float

    @classmethod
    def of(cls, values: Iterable[float]) -> "Quantiles":
        """Return the percentiles of values; NaN if there are none."""
        found = sorted(values)
        if not found:
            return cls(0, *(float("nan"),) * 3)
        return cls(len(found), quantile(found, 0.5), quantile(found, 0.99), found[-1])


def quantile(values: Sequence[float], share: float) -> float:
    """Return the quantile *share* of sorted values."""
    return values[min(len(values) - 1, int(share * len(values)))]


def share_within(values: Iterable[float], limit: float) -> float:
    """Return the share of values within a limit; NaN if there are none."""
    found = list(values)
    return sum(value <= limit for value in found) / len(found) if found else float("nan")


@dataclass(frozen=True, slots=True)
class ConfusionCounts:
    """True positives, false positives and false negatives."""

    right: int = 0
    wrong: int = 0
    missed: int = 0

    @classmethod
    def of(cls, found: set[T], true: set[T]) -> "ConfusionCounts":
        """Return the counts of one question."""
        return cls(len(found & true), len(found - true), len(true - found))

    def __add__(self, other: "ConfusionCounts") -> "ConfusionCounts":
        return ConfusionCounts(self.right + other.right, self.wrong + other.wrong, self.missed + other.missed)

    @property
    def precision(self) -> float:
        """The share of found elements that are true; 1 if none was found."""
        return self.right / (self.right + self.wrong) if self.right + self.wrong else 1.0

    @property
    def recall(self) -> float:
        """The share of true elements that were found; 1 if there are none."""
        return self.right / (self.right + self.missed) if self.right + self.missed else 1.0


@dataclass(frozen=True, slots=True)
class StepFunction(Generic[T]):
    """A step function of time: times in order, each with the value from then on."""

    times: tuple[float, ...]
    values: tuple[T, ...]

    def at(self, time: float) -> T | None:
        """Return the value at a time; `None` before the first."""
        row = bisect_right(self.times, time)
        return self.values[row - 1] if row else None


@dataclass(frozen=True, slots=True)
class TrackingResult:
    """One endpoint: the number of instants at which the registry was right, and its delay after each move."""

    instants: int
    right: int
    delays_s: tuple[float, ...]
    never: int
    """Moves unknown to the registry when the endpoint moved on or left."""


def check_tracking(true: StepFunction[T], registered: StepFunction[T], *, until: float, interval_s: float) -> TrackingResult:
    """Compare the registry with the true edge of an endpoint, from its first edge on."""
    instants = right = never = 0
    delays: list[float] = []
    for row, (start, value) in enumerate(zip(true.times, true.values, strict=True)):
        end = true.times[row + 1] if row + 1 < len(true.times) else until
        steps = range(int((end - start) / interval_s + 1e-9))
        instants += len(steps)
        right += sum(registered.at(start + step * interval_s) == value for step in steps)
        if row:
            known_at = start if registered.at(start) == value else _first_after(registered, start, value)
            if known_at is None or known_at > end:
                never += 1
            else:
                delays.append(known_at - start)
    return TrackingResult(instants, right, tuple(delays), never)


def _first_after(registered: StepFunction[T], start: float, value: T) -> float | None:
    rows = range(bisect_right(registered.times, start), len(registered.times))
    return next((registered.times[row] for row in rows if registered.values[row] == value), None)


@dataclass(frozen=True, slots=True)
class StreamResult:
    """A numbered stream as received by one endpoint."""

    expected: int
    lost: int
    duplicated: int
    marked_duplicates: int
    """Duplicates marked as such."""


def check_stream(numbers: Sequence[tuple[int, bool]], *, last: int) -> StreamResult:
    """Count losses and duplicates from the first received number to `last`; *numbers* have a flag for marked duplicates."""
    if not numbers:
        return StreamResult(0, 0, 0, 0)
    first = min(number for number, _ in numbers)
    counts = Counter(number for number, _ in numbers)
    extra = sum(count - 1 for count in counts.values())
    marked = sum(is_duplicate for number, is_duplicate in numbers if counts[number] > 1)
    marked_duplicates = min(extra, marked)
    lost = sum(number not in counts for number in range(first, last + 1))
    return StreamResult(max(0, last + 1 - first), lost, extra - marked_duplicates, marked_duplicates)
