"""True and false alerts, counted by hand (M27, M34)."""

import pandas as pd
from milepost_experiments.papers.mercury.collusion import COLLISION, COUNTED, Outcome, Told, are_near, cells_of, judged, weights_at
from milepost_experiments.papers.mercury.collusion import told as told_of
from milepost_experiments.papers.mercury.false_reports import Crash

from milepost.model.endpoints import EndpointId
from milepost.model.places import Place
from milepost_experiments.papers.mercury.attack_traffic import HOME, START_US

CRASH = Crash(100, 500.0, 500.0)


def told(second: float, east_m: float, north_m: float, *, is_alert: bool = True) -> Told:
    return Told(second, east_m, north_m, is_alert)


def test_an_incident_at_a_collision_soon_after_it_is_true() -> None:
    assert judged([told(120.0, 520.0, 500.0)], [CRASH], 600.0) == Outcome(1, 1, 0, 0)


def test_an_incident_before_its_collision_or_long_after_it_is_false() -> None:
    outcome = judged([told(99.0, 500.0, 500.0), told(221.0, 500.0, 500.0)], [CRASH], 200.0)
    assert outcome == Outcome(0, 1, 2, 1)


def test_an_incident_elsewhere_is_false_while_a_collision_is_going_on() -> None:
    assert judged([told(120.0, 751.0, 500.0)], [CRASH], 600.0) == Outcome(0, 1, 1, 0)
    assert judged([told(120.0, 750.0, 500.0)], [CRASH], 600.0) == Outcome(1, 1, 0, 0)


def test_an_incident_that_moves_to_where_nothing_is_raises_another_false_alert() -> None:
    moving = [told(110.0, 500.0, 500.0), told(120.0, 900.0, 800.0), told(130.0, 900.0, 800.0, is_alert=False)]
    assert judged(moving, [CRASH], 600.0) == Outcome(1, 1, 1, 0)


def test_an_incident_that_goes_on_in_silence_is_counted_as_false_once() -> None:
    lasting = [told(10.0, 0.0, 0.0), told(20.0, 0.0, 0.0, is_alert=False), told(30.0, 0.0, 0.0, is_alert=False)]
    assert judged(lasting, [CRASH], 600.0).false_raised == 1


def test_ten_lies_at_one_spot_make_a_false_alert_of_every_bin_that_only_counts() -> None:
    events = pd.DataFrame(
        [(f"car-{number}", HOME.latitude, HOME.longitude, START_US + 1_000_000) for number in range(10)],
        columns=["endpoint", "latitude", "longitude", "seen_at_us"],
    )
    alerts = told_of(events, COUNTED, {})
    assert judged(alerts, [CRASH], 600.0).false_raised == 1
    doubted = {f"car-{number}": [(START_US, 0.1)] for number in range(10)}
    assert told_of(events, COLLISION, doubted) == []


def test_who_must_be_near_is_held_to_its_last_report_before() -> None:
    columns = ["endpoint", "seen_at_us", "latitude", "longitude"]
    here, far = (HOME.latitude, HOME.longitude), (HOME.latitude + 0.01, HOME.longitude)
    reports = pd.DataFrame(
        [("near", START_US, *here), ("far", START_US, *far), ("far", START_US + 9_000_000, *here)], columns=columns
    )
    events = pd.DataFrame([(name, START_US + 1_000_000, *here) for name in ("near", "far", "unheard")], columns=columns)
    assert are_near(events, reports) == [True, False, False]


def test_a_score_counts_from_when_it_is_there() -> None:
    scores = {"car": [(100, 0.5), (200, 0.1)], "late": [(300, 0.0)]}
    assert weights_at(scores, 99) == {}
    assert weights_at(scores, 150) == {EndpointId("car"): 0.5}
    assert weights_at(scores, 300) == {EndpointId("car"): 0.1, EndpointId("late"): 0.0}


def test_reports_of_one_square_and_slot_are_one_cell() -> None:
    here, slot_us = Place(52.5, 13.4), int(COLLISION.interval_s * 1_000_000)
    events = [("a", here.latitude, here.longitude, second) for second in (0, 1, slot_us - 1)]
    events.append(("b", here.latitude, here.longitude, slot_us))
    cells = cells_of(COLLISION, events)
    first, second = cells[0][0], cells[1][0]
    assert (first.reports, first.witness_count, first.witnesses) == (3, 1, frozenset({EndpointId("a")}))
    assert (second.reports, second.witnesses) == (1, frozenset({EndpointId("b")}))
    spot = COLLISION.grid.spot(here)
    assert (first.square, first.north_sum, first.east_sum) == (spot.square, 3 * spot.north, 3 * spot.east)


def test_a_bin_that_only_counts_has_the_rules_of_ours_but_for_the_predicate() -> None:
    assert COUNTED.predicate == "reports >= 5"
    assert (COUNTED.side_m, COUNTED.slots, COUNTED.interval_s) == (COLLISION.side_m, COLLISION.slots, COLLISION.interval_s)
