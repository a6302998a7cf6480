"""Datagrams refused and accepted between two readings of an edge's metrics (M28)."""

from milepost_experiments.papers.load.edges import MetricsSnapshot
from milepost_experiments.papers.mercury.forgery import AttackResult, accepted_between, refused_between


def snapshot(**metrics: float) -> MetricsSnapshot:
    """Return a snapshot of metrics by name; the reason follows two underscores."""
    named = {}
    for name, value in metrics.items():
        metric, _, reason = name.partition("__")
        named[f'{metric}{{reason="{reason}"}}' if reason else metric] = value
    return MetricsSnapshot(0.0, 0.0, 0, named)


BEFORE = snapshot(milepost_refused_total__REPLAYED=3, milepost_refused_total__MALFORMED=1, milepost_reports_total=10)


def test_only_refusals_between_the_readings_count() -> None:
    after = snapshot(
        milepost_refused_total__REPLAYED=5, milepost_refused_total__MALFORMED=1, milepost_refused_total__DECRYPTION_FAILED=2
    )
    assert refused_between(BEFORE, after) == {"REPLAYED": 2, "DECRYPTION_FAILED": 2}


def test_reports_messages_sessions_and_alerts_count_as_accepted() -> None:
    after = snapshot(
        milepost_reports_total=11, milepost_messages_accepted_total=1, milepost_sessions_opened_total=1, milepost_alerts_total=1
    )
    assert accepted_between(BEFORE, after) == 4


def test_a_datagram_neither_refused_nor_accepted_is_unaccounted() -> None:
    assert AttackResult("x", 10, {"REPLAYED": 6, "MALFORMED": 1}, 1).unaccounted == 2
