"""The metrics of a run: for the table at its end, for report.json and for report.html."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.model.instants import SECOND_NS, Instant
from milepost_experiments.simulator.ledger import Books
from milepost_experiments.simulator.evaluation import AlertJudged, Judged, RecallJudged

ENOUGH_REPORTS: Final = 5
ENOUGH_WITNESSES: Final = 3
COUNTED_NS: Final = 12 * SECOND_NS
"""The rule of the demo's collisions (town.py): reports, witnesses and time window needed for an alert."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Percentiles of times, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    most: float

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return f"median {self.p50:,.0f} ms, 90 % {self.p90:,.0f}, 99 % {self.p99:,.0f}, most {self.most:,.0f} ({self.count:,})"


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and its results."""

    asked: Mapping[str, Any]
    started_s: float
    judged: Judged
    cpu_shares: Mapping[str, float]
    times_ms: Mapping[str, tuple[float, ...]]
    counts: Mapping[str, int]

    @property
    def held(self) -> bool:
        """Whether all guarantees held."""
        return not self.judged.faults


def times_of(judged: Judged, books: Books) -> dict[str, tuple[float, ...]]:
    """Return all measured times, by kind."""
    firsts = {one.alert.key.incident: one.alert.said_at for one in reversed(judged.alerts)}
    enough = (_maybe_enough(books, said_at) for said_at in firsts.values())
    seconds: dict[str, Iterable[float]] = {
        "report to alert": [(said_at - at) / SECOND_NS for said_at, at in zip(firsts.values(), enough, strict=True) if at],
        "alert to vehicle inside": (after for one in judged.alerts for after in one.inside.values() if after is not None),
        "driving in to alert": (after for one in judged.alerts for after in one.entered.values() if after is not None),
        "all-clear to vehicle": (after for one in judged.recalls for after in one.told.values() if after is not None),
        "control message": judged.control.waits_s,
        "move to another edge": (one.took_s for one in books.moves),
    }
    return {name: tuple(round(1_000 * max(0.0, one), 1) for one in some) for name, some in seconds.items()}


def _maybe_enough(books: Books, said_at: Instant) -> Instant | None:
    """Return when there were enough reports for an alert, of those within `COUNTED_NS` before it."""
    before = sorted((one for one in books.sightings if said_at - COUNTED_NS <= one.at <= said_at), key=lambda one: one.at)
    for count in range(ENOUGH_REPORTS, len(before) + 1):
        if len({one.vehicle for one in before[:count]}) >= ENOUGH_WITNESSES:
            return before[count - 1].at
    return None


def spread(times_ms: Iterable[float]) -> Spread:
    """Return the percentiles of times."""
    rows = np.array(list(times_ms), np.float64)
    if not rows.size:
        return Spread(0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (float(one) for one in np.percentile(rows, [50, 90, 99]))
    return Spread(rows.size, p50, p90, p99, float(rows.max()))


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return the results as values for JSON."""
    control = outcome.judged.control
    return {
        "held": outcome.held,
        "faults": outcome.judged.faults,
        "asked": dict(outcome.asked),
        "started_s": round(outcome.started_s, 1),
        "counts": dict(outcome.counts),
        "times_ms": {name: _spread_json(spread(some)) for name, some in outcome.times_ms.items()},
        "cpu_share": {name: round(share, 3) for name, share in outcome.cpu_shares.items()},
        "alerts": [_alert_json(one) for one in outcome.judged.alerts],
        "all_clears": [_recall_json(one) for one in outcome.judged.recalls],
        "control": {
            "said": control.said,
            "due": control.due,
            "lost": control.lost,
            "doubled": control.doubled,
            "again": control.again,
        },
    }


def _spread_json(one: Spread) -> dict[str, float]:
    return {"count": one.count, **{name: round(getattr(one, name), 1) for name in ("p50", "p90", "p99", "most")}}


def _alert_json(one: AlertJudged) -> dict[str, Any]:
    key = one.alert.key
    return {
        "incident": key.incident,
        "phase": key.phase,
        "said_at": one.alert.said_at,
        "place": [one.alert.place.latitude, one.alert.place.longitude],
        "inside_after_s": one.inside,
        "entered_after_s": one.entered,
        "border": sorted(one.border),
        "missed": sorted(one.missed),
        "entered_missed": sorted(one.entered_missed),
        "wrong": sorted(one.wrong),
        "doubled": sorted(one.doubled),
        "warned": len(one.warned),
        "truly_inside": len(one.truly_inside),
        "truly_inside_and_warned": len(one.truly_inside & one.warned),
    }


def _recall_json(one: RecallJudged) -> dict[str, Any]:
    return {
        "incident": one.alert.key.incident,
        "said_at": one.alert.said_at,
        "told_after_s": one.told,
        "missed": sorted(one.missed),
        "wrong": sorted(one.wrong),
    }
