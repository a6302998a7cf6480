"""The ledger: recent evidence about the endpoints of one bucket, and their scores.

Invariants:
- the score is a function of the evidence of the last `MINUTES` minutes, regardless of the order of arrival, and of a sudden
  stop after which the endpoint has reported, but not driven;
- an endpoint is forgotten after these minutes, and the last record of a distrusted endpoint restores its full score;
- the scores of an endpoint are published in order of time.
"""

from dataclasses import dataclass, field
from typing import Final

import orjson

from milepost.pipelines.reputation.evidence import BASE_COUNTS, MINUTE_US, MINUTES, WEIGHTS, EvidenceKind

STEP: Final = 0.05
"""Minimum change of a score that is published."""
REASONS_MAX: Final = 8
_STOP: Final = (EvidenceKind.SUDDEN_STOP, EvidenceKind.DRIVEN_THROUGH, EvidenceKind.PASSED)

Counts = dict[EvidenceKind, float]


@dataclass(frozen=True, slots=True)
class EndpointScore:
    """The published score of an endpoint."""

    endpoint: str
    score: float
    at_us: int
    reasons: tuple[tuple[EvidenceKind, int], ...]


@dataclass(slots=True)
class EvidenceLedger:
    """Evidence by endpoint and minute."""

    minute: int = 0
    """The latest minute with evidence."""
    evidence: dict[str, dict[int, Counts]] = field(default_factory=dict)
    published: dict[str, float] = field(default_factory=dict)
    """The last published scores below 1, by endpoint."""

    @classmethod
    def from_bytes(cls, state: bytes | None) -> "EvidenceLedger":
        """Return the ledger in stored state; an empty one if there is no state."""
        if state is None:
            return cls()
        form = orjson.loads(state)
        evidence = {
            endpoint: {
                int(minute): {EvidenceKind(kind): count for kind, count in counts.items()} for minute, counts in minutes.items()
            }
            for endpoint, minutes in form["evidence"].items()
        }
        return cls(form["minute"], evidence, form["published"])

    def to_bytes(self) -> bytes:
        """Return the ledger as state to be stored."""
        form = {"minute": self.minute, "evidence": self.evidence, "published": self.published}
        return orjson.dumps(form, option=orjson.OPT_NON_STR_KEYS)

    def take(self, entries: list[tuple[int, str, EvidenceKind, float]]) -> list[EndpointScore]:
        """Add evidence minute by minute, and return the changed scores."""
        by_minute: dict[int, list[tuple[str, EvidenceKind, float]]] = {}
        for minute, endpoint, kind, count in entries:
            by_minute.setdefault(minute, []).append((endpoint, kind, count))
        return [score for minute in sorted(by_minute) for score in self._add_minute(minute, by_minute[minute])]

    def _add_minute(self, minute: int, entries: list[tuple[str, EvidenceKind, float]]) -> list[EndpointScore]:
        for endpoint, kind, count in entries:
            counts = self.evidence.setdefault(endpoint, {}).setdefault(minute, {})
            counts[kind] = counts.get(kind, 0.0) + count
        self.minute = max(self.minute, minute)
        changed = []
        for endpoint in sorted(self.evidence):
            minutes = self.evidence[endpoint]
            for old in sorted(one for one in minutes if one <= self.minute - MINUTES):
                _forget(minutes, old)
            score, reasons = score_of(_sum_minutes(minutes)) if endpoint in self.published or _has_charges(minutes) else (1.0, ())
            if abs(score - self.published.get(endpoint, 1.0)) >= STEP or (score == 1.0 and endpoint in self.published):
                self.published[endpoint] = score
                changed.append(EndpointScore(endpoint, score, (self.minute + 1) * MINUTE_US, reasons))
            if score == 1.0:
                self.published.pop(endpoint, None)
            if not minutes:
                del self.evidence[endpoint]
        return changed


def score_of(counts: Counts) -> tuple[float, tuple[tuple[EvidenceKind, int], ...]]:
    """Return the score for the summed evidence, and its reasons, the worst first."""
    reductions = {kind: _reduction(kind, counts) for kind in WEIGHTS}
    # A crash stops a car at once, and a parked car is passed closely: each alone is weak evidence, both show an empty place.
    if reductions[EvidenceKind.SUDDEN_STOP]:
        for kind in (EvidenceKind.DRIVEN_THROUGH, EvidenceKind.PASSED):
            if passers := counts.get(kind, 0):
                reductions[kind] = max(reductions.get(kind, 0), min(0.9, 0.3 + 0.2 * passers))
    score = 1.0
    for share in reductions.values():
        score *= 1 - share
    worst = sorted((kind for kind in reductions if reductions[kind] > 0), key=lambda kind: (-reductions[kind], kind))
    return round(score, 2), tuple((kind, round(counts[kind])) for kind in worst[:REASONS_MAX])


def _reduction(kind: EvidenceKind, counts: Counts) -> float:
    weight = WEIGHTS[kind]
    value = counts.get(kind, 0.0)
    if kind is EvidenceKind.CONTRADICTED:
        value -= counts.get(EvidenceKind.CONFIRMED, 0.0)
    if weight.relative_to is not None:
        value /= max(counts.get(weight.relative_to, 0.0), weight.min_divisor)
    return weight.max_penalty * min(max((value - weight.low) / (weight.high - weight.low), 0.0), 1.0)


def _forget(minutes: dict[int, Counts], old: int) -> None:
    """Drop a minute; a sudden stop and the passers since stay with the next minute until the endpoint drives."""
    counts = minutes.pop(old)
    if EvidenceKind.SUDDEN_STOP not in counts or not minutes or any(EvidenceKind.DRIVEN in one for one in minutes.values()):
        return
    following = minutes[min(minutes)]
    for kind in _STOP:
        if kind in counts:
            following[kind] = following.get(kind, 0.0) + counts[kind]


def _has_charges(minutes: dict[int, Counts]) -> bool:
    return any(kind not in BASE_COUNTS for counts in minutes.values() for kind in counts)


def _sum_minutes(minutes: dict[int, Counts]) -> Counts:
    total: Counts = {}
    for minute in sorted(minutes):
        for kind, count in minutes[minute].items():
            total[kind] = total.get(kind, 0.0) + count
    return total
