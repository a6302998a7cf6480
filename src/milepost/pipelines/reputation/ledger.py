"""The ledger: evidence of the last minutes for a share of all endpoints, and the score that follows from it.

What must hold:
- the score is a function of the evidence of the last `MINUTES` minutes, in whatever order it came;
- nobody stays in it longer than the minutes that count, and the last thing said of who was not believed is that he is again;
- of one endpoint later scores are told later.
"""

from dataclasses import dataclass, field
from typing import Final

import orjson

from milepost.pipelines.reputation.limits import MINUTES, WEIGHTS
from milepost.pipelines.reputation.schema import GROUNDS, MINUTE_US, What

STEP: Final = 0.05
"""Scores are told in steps of this: a smaller change is worth no record."""
REASONS_MAX: Final = 8

Counts = dict[What, float]


@dataclass(frozen=True, slots=True)
class Reputation:
    """What is said of an endpoint."""

    endpoint: str
    score: float
    at_us: int
    reasons: tuple[tuple[What, int], ...]


@dataclass(slots=True)
class Ledger:
    """Evidence by endpoint and minute."""

    minute: int = 0
    """The latest that evidence came for."""
    pages: dict[str, dict[int, Counts]] = field(default_factory=dict)
    told: dict[str, float] = field(default_factory=dict)
    """The scores of those who are not fully believed, as they were last told."""

    @classmethod
    def from_bytes(cls, kept: bytes | None) -> "Ledger":
        """As it was kept; empty at first."""
        if kept is None:
            return cls()
        form = orjson.loads(kept)
        pages = {
            endpoint: {int(minute): {What(what): count for what, count in counts.items()} for minute, counts in page.items()}
            for endpoint, page in form["pages"].items()
        }
        return cls(form["minute"], pages, form["told"])

    def to_bytes(self) -> bytes:
        """To keep."""
        form = {"minute": self.minute, "pages": self.pages, "told": self.told}
        return orjson.dumps(form, option=orjson.OPT_NON_STR_KEYS)

    def take(self, evidence: list[tuple[int, str, What, float]]) -> list[Reputation]:
        """The scores that change by it, minute by minute."""
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
    """The score that counts of some minutes give, and what it is for, the worst first."""
    taken = {what: _taken(what, counts) for what in WEIGHTS}
    # A crash stops a car at once, and a parked car is passed closely: each alone says little, both that nobody is there.
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
