"""True and false alerts, counted by hand (M27, M34)."""

import pandas as pd

from milepost.model.incidents.witnesses import witness_hash, witnesses_of
from milepost.model.places import Place
from milepost_experiments.papers.mercury.attack_traffic import HOME, START_US
from milepost_experiments.papers.mercury.collusion import (
    COLLISION,
    COUNT_ONLY,
    DefenceResult,
    IncidentState,
    are_near,
    cells_of,
    count_alerts,
    incident_states,
    weights_at,
)
from milepost_experiments.papers.mercury.false_reports import RealCollision

REAL_COLLISION = RealCollision(100, 500.0, 500.0)


def state(second: float, east_m: float, north_m: float, *, is_alert: bool = True) -> IncidentState:
    return IncidentState(second, east_m, north_m, is_alert)


def test_an_incident_at_a_collision_soon_after_it_is_true() -> None:
    assert count_alerts([state(120.0, 520.0, 500.0)], [REAL_COLLISION], 600.0) == DefenceResult(1, 1, 0, 0)


def test_an_incident_before_its_collision_or_long_after_it_is_false() -> None:
    result = count_alerts([state(99.0, 500.0, 500.0), state(221.0, 500.0, 500.0)], [REAL_COLLISION], 200.0)
    assert result == DefenceResult(0, 1, 2, 1)


def test_an_incident_elsewhere_during_a_collision_is_false() -> None:
    assert count_alerts([state(120.0, 751.0, 500.0)], [REAL_COLLISION], 600.0) == DefenceResult(0, 1, 1, 0)
    assert count_alerts([state(120.0, 750.0, 500.0)], [REAL_COLLISION], 600.0) == DefenceResult(1, 1, 0, 0)


def test_an_incident_that_moves_away_from_the_collision_raises_another_false_alert() -> None:
    moving = [state(110.0, 500.0, 500.0), state(120.0, 900.0, 800.0), state(130.0, 900.0, 800.0, is_alert=False)]
    assert count_alerts(moving, [REAL_COLLISION], 600.0) == DefenceResult(1, 1, 1, 0)


def test_a_false_incident_without_further_alerts_is_counted_once() -> None:
    lasting = [state(10.0, 0.0, 0.0), state(20.0, 0.0, 0.0, is_alert=False), state(30.0, 0.0, 0.0, is_alert=False)]
    assert count_alerts(lasting, [REAL_COLLISION], 600.0).false_raised == 1


def test_ten_false_reports_at_one_place_cause_a_false_alert_if_reports_are_only_counted() -> None:
    events = pd.DataFrame(
        [(f"car-{number}", HOME.latitude, HOME.longitude, START_US + 1_000_000) for number in range(10)],
        columns=["endpoint", "latitude", "longitude", "seen_at_us"],
    )
    alerts = incident_states(events, COUNT_ONLY, {})
    assert count_alerts(alerts, [REAL_COLLISION], 600.0).false_raised == 1
    doubted = {f"car-{number}": [(START_US, 0.1)] for number in range(10)}
    assert incident_states(events, COLLISION, doubted) == []


def test_nearness_is_decided_by_the_last_report_before_the_event() -> None:
    columns = ["endpoint", "seen_at_us", "latitude", "longitude"]
    here, far = (HOME.latitude, HOME.longitude), (HOME.latitude + 0.01, HOME.longitude)
    reports = pd.DataFrame(
        [("near", START_US, *here), ("far", START_US, *far), ("far", START_US + 9_000_000, *here)], columns=columns
    )
    events = pd.DataFrame([(name, START_US + 1_000_000, *here) for name in ("near", "far", "unknown")], columns=columns)
    assert are_near(events, reports) == [True, False, False]


def test_a_score_counts_from_the_time_when_it_is_available() -> None:
    scores = {"car": [(100, 0.5), (200, 0.1)], "late": [(300, 0.0)]}
    assert weights_at(scores, 99) == {}
    assert weights_at(scores, 150) == {witness_hash("car"): 0.5}
    assert weights_at(scores, 300) == {witness_hash("car"): 0.1, witness_hash("late"): 0.0}


def test_reports_of_one_square_and_slot_are_one_cell() -> None:
    here, slot_us = Place(52.5, 13.4), int(COLLISION.interval_s * 1_000_000)
    events = [("a", here.latitude, here.longitude, second) for second in (0, 1, slot_us - 1)]
    events.append(("b", here.latitude, here.longitude, slot_us))
    cells = cells_of(COLLISION, events)
    first, second = cells[0][0], cells[1][0]
    assert (first.reports, first.witnesses) == (3, witnesses_of("a"))
    assert (second.reports, second.witnesses) == (1, witnesses_of("b"))
    spot = COLLISION.grid.locate(here)
    assert (first.square, first.north_sum, first.east_sum) == (spot.square, 3 * spot.north, 3 * spot.east)


def test_the_count_only_rule_differs_only_in_its_predicate() -> None:
    assert COUNT_ONLY.predicate == "reports >= 5"
    assert (COUNT_ONLY.side_m, COUNT_ONLY.slots, COUNT_ONLY.interval_s) == (
        COLLISION.side_m,
        COLLISION.slots,
        COLLISION.interval_s,
    )
