"""The results of a run: for the table at its end, for report.json and for report.html."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from milepost.model.instants import SECOND_NS, Instant
from milepost_experiments.simulator.evaluation import AlertResult, AllClearResult, Evaluation
from milepost_experiments.simulator.ledger import RunLedger

REPORTS_MIN: Final = 5
WITNESSES_MIN: Final = 3
WINDOW_NS: Final = 12 * SECOND_NS
"""The rule of the demo's collisions (city_config.py): reports, witnesses and time window needed for an alert."""


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Percentiles of times, in milliseconds."""

    count: int
    p50: float
    p90: float
    p99: float
    maximum: float

    def __str__(self) -> str:
        if not self.count:
            return "none"
        return (
            f"median {self.p50:,.0f} ms, 90 % {self.p90:,.0f}, 99 % {self.p99:,.0f}, maximum {self.maximum:,.0f} ({self.count:,})"
        )


@dataclass(frozen=True, slots=True)
class Outcome:
    """A run and its results."""

    options: Mapping[str, Any]
    started_s: float
    evaluation: Evaluation
    cpu_shares: Mapping[str, float]
    times_ms: Mapping[str, tuple[float, ...]]
    counts: Mapping[str, int]

    @property
    def has_passed(self) -> bool:
        """Whether all guarantees held."""
        return not self.evaluation.faults


def latencies(evaluation: Evaluation, ledger: RunLedger) -> dict[str, tuple[float, ...]]:
    """Return all measured times, by kind."""
    first_alerts = {one.alert.key.incident: one.alert.published_at for one in reversed(evaluation.alerts)}
    enough_at = (_find_enough_reports_at(ledger, published_at) for published_at in first_alerts.values())
    seconds: dict[str, Iterable[float]] = {
        "report to alert": [
            (published_at - at) / SECOND_NS for published_at, at in zip(first_alerts.values(), enough_at, strict=True) if at
        ],
        "alert to vehicle inside": (after for one in evaluation.alerts for after in one.inside.values() if after is not None),
        "entering the area to alert": (after for one in evaluation.alerts for after in one.entered.values() if after is not None),
        "all-clear to vehicle": (after for one in evaluation.all_clears for after in one.notified.values() if after is not None),
        "control message": evaluation.control.latencies_s,
        "move to another edge": (one.took_s for one in ledger.moves),
    }
    return {name: tuple(round(1_000 * max(0.0, one), 1) for one in some) for name, some in seconds.items()}


def _find_enough_reports_at(ledger: RunLedger, published_at: Instant) -> Instant | None:
    """Return when there were enough reports for an alert, of those within `WINDOW_NS` before it."""
    before = sorted(
        (one for one in ledger.sightings if published_at - WINDOW_NS <= one.at <= published_at), key=lambda one: one.at
    )
    for count in range(REPORTS_MIN, len(before) + 1):
        if len({one.vehicle for one in before[:count]}) >= WITNESSES_MIN:
            return before[count - 1].at
    return None


def percentiles(times_ms: Iterable[float]) -> Percentiles:
    """Return the percentiles of times."""
    rows = np.array(list(times_ms), np.float64)
    if not rows.size:
        return Percentiles(0, 0.0, 0.0, 0.0, 0.0)
    p50, p90, p99 = (float(one) for one in np.percentile(rows, [50, 90, 99]))
    return Percentiles(rows.size, p50, p90, p99, float(rows.max()))


def to_json(outcome: Outcome) -> dict[str, Any]:
    """Return the results as values for JSON."""
    control = outcome.evaluation.control
    return {
        "passed": outcome.has_passed,
        "faults": outcome.evaluation.faults,
        "options": dict(outcome.options),
        "started_s": round(outcome.started_s, 1),
        "counts": dict(outcome.counts),
        "times_ms": {name: _percentiles_json(percentiles(some)) for name, some in outcome.times_ms.items()},
        "cpu_share": {name: round(share, 3) for name, share in outcome.cpu_shares.items()},
        "alerts": [_alert_json(one) for one in outcome.evaluation.alerts],
        "all_clears": [_all_clear_json(one) for one in outcome.evaluation.all_clears],
        "control": {
            "published": control.published,
            "expected": control.expected,
            "lost": control.lost,
            "duplicated": control.duplicated,
            "marked_duplicates": control.marked_duplicates,
        },
    }


def _percentiles_json(one: Percentiles) -> dict[str, float]:
    return {"count": one.count, **{name: round(getattr(one, name), 1) for name in ("p50", "p90", "p99", "maximum")}}


def _alert_json(one: AlertResult) -> dict[str, Any]:
    key = one.alert.key
    return {
        "incident": key.incident,
        "phase": key.phase,
        "published_at": one.alert.published_at,
        "place": [one.alert.place.latitude, one.alert.place.longitude],
        "inside_after_s": one.inside,
        "entered_after_s": one.entered,
        "border": sorted(one.border),
        "missed": sorted(one.missed),
        "entered_missed": sorted(one.entered_missed),
        "wrong": sorted(one.wrong),
        "duplicated": sorted(one.duplicated),
        "warned": len(one.warned),
        "truly_inside": len(one.truly_inside),
        "truly_inside_and_warned": len(one.truly_inside & one.warned),
    }


def _all_clear_json(one: AllClearResult) -> dict[str, Any]:
    return {
        "incident": one.alert.key.incident,
        "published_at": one.alert.published_at,
        "notified_after_s": one.notified,
        "missed": sorted(one.missed),
        "wrong": sorted(one.wrong),
    }
