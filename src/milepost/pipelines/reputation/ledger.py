"""The ledger: recent evidence about the endpoints of one bucket, and their scores.

Invariants:
- the score is a function of the evidence of the last `MINUTES` minutes, regardless of the order of arrival;
- an endpoint is forgotten after these minutes, and the last record of a distrusted endpoint restores its full score;
- the scores of an endpoint are published in order of time.
"""

from dataclasses import dataclass, field
from typing import Final

import orjson

from milepost.pipelines.reputation.evidence import GROUNDS, MINUTE_US, MINUTES, WEIGHTS, What

STEP: Final = 0.05
"""Minimum change of a score that is published."""
REASONS_MAX: Final = 8

Counts = dict[What, float]


@dataclass(frozen=True, slots=True)
class Reputation:
    """The published score of an endpoint."""

    endpoint: str
    score: float
    at_us: int
    reasons: tuple[tuple[What, int], ...]


@dataclass(slots=True)
class Ledger:
    """Evidence by endpoint and minute."""

    minute: int = 0
    """The latest minute with evidence."""
    pages: dict[str, dict[int, Counts]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    """The last published scores below 1, by endpoint."""

    @classmethod
    def from_bytes(cls, kept: bytes | None) -> "Ledger":
        """Return the ledger in stored state; an empty one if there is no state."""
        if kept is None:
            return cls()
        form = orjson.loads(kept)
        pages = {
            endpoint: {int(minute): {What(what): count for what, count in counts.items()} for minute, counts in page.items()}
            for endpoint, page in form["pages"].items()
        }
        return cls(form["minute"], pages, form["told"])

    def to_bytes(self) -> bytes:
        """Return the ledger as state to be stored."""
        form = {"minute": self.minute, "pages": self.pages, "told": self.told}
        return orjson.dumps(form, option=orjson.OPT_NON_STR_KEYS)

    def take(self, evidence: list[tuple[int, str, What, float]]) -> list[Reputation]:
        """Add *evidence* minute by minute, and return the changed scores."""
        by_minute: dict[int, list[tuple[str, What, float]]] = {}
        for minute, endpoint, what, count in evidence:
            by_minute.setdefault(minute, []).append((endpoint, what, count))
        return [said for minute in sorted(by_minute) for said in self._turn(minute, by_minute[minute])]

    def _turn(self, minute: int, evidence: list[tuple[str, What, float]]) -> list[Reputation]:
        for endpoint, what, count in evidence:
            counts = self.pages.setdefault(endpoint, {}).setdefault(minute, {})
            counts[what] = counts.get(what, 0.0) + count
        self.minute = max(self.minute, minute)
        said = []
        for endpoint in sorted(self.pages):
            page = self.pages[endpoint]
            for old in [one for one in page if one <= self.minute - MINUTES]:
                del page[old]
            score, reasons = judged(_sum(page)) if endpoint in self.told or _has_charges(page) else (1.0, ())
            if abs(score - self.told.get(endpoint, 1.0)) >= STEP or (score == 1.0 and endpoint in self.told):
                self.told[endpoint] = score
                said.append(Reputation(endpoint, score, (self.minute + 1) * MINUTE_US, reasons))
            if score == 1.0:
                self.told.pop(endpoint, None)
            if not page:
                del self.pages[endpoint]
        return said


def judged(counts: Counts) -> tuple[float, tuple[tuple[What, int], ...]]:
    """Return the score for the summed evidence, and its reasons, the worst first."""
    taken = {what: _taken(what, counts) for what in WEIGHTS}
    # A crash stops a car at once, and a parked car is passed closely: each alone is weak evidence, both show an empty place.
    if taken[What.SUDDEN_STOP] and counts.get(What.DRIVEN_THROUGH, 0):
        taken[What.DRIVEN_THROUGH] = max(taken[What.DRIVEN_THROUGH], min(0.9, 0.3 + 0.2 * counts[What.DRIVEN_THROUGH]))
    score = 1.0
    for share in taken.values():
        score *= 1 - share
    worst = sorted((what for what in taken if taken[what] > 0), key=lambda what: (-taken[what], what))
    return round(score, 2), tuple((what, round(counts[what])) for what in worst[:REASONS_MAX])


def _taken(what: What, counts: Counts) -> float:
    weight = WEIGHTS[what]
    value = counts.get(what, 0.0)
    if what is What.CONTRADICTED:
        value -= counts.get(What.CONFIRMED, 0.0)
    if weight.per is not None:
        value /= max(counts.get(weight.per, 0.0), weight.per_min)
    return weight.most * min(max((value - weight.low) / (weight.high - weight.low), 0.0), 1.0)


def _has_charges(page: dict[int, Counts]) -> bool:
    return any(what not in GROUNDS for counts in page.values() for what in counts)


def _sum(page: dict[int, Counts]) -> Counts:
    total: Counts = {}
    for minute in sorted(page):
        for what, count in page[minute].items():
            total[what] = total.get(what, 0.0) + count
    return total
