"""Times as the generators tell them."""

from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Times:
    """What a kind of time was: in milliseconds."""

    count: int
    mean_ms: float
    p50_ms: float
    p99_ms: float
    max_ms: float

    @classmethod
    def of(cls, said: dict[str, Any]) -> "Times":
        """From the generator's words."""
        return cls(said["count"], said["mean_us"] / 1e3, said["p50_us"] / 1e3, said["p99_us"] / 1e3, said["max_us"] / 1e3)

    def __str__(self) -> str:
        return " / ".join(three_digits(value) for value in (self.mean_ms, self.p50_ms, self.p99_ms, self.max_ms))


def three_digits(value: float) -> str:
    """A figure with three digits that count."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"
