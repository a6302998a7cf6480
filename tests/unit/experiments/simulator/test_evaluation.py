"""Evaluation: each violated guarantee is found and names its vehicles; border cases violate none."""

from dataclasses import replace
from math import nan

import pytest

from milepost.model.areas import Stretch, Union, Upstream
from milepost.model.instants import Instant
from milepost_experiments.simulator.evaluation import AlertResult, evaluate, evaluate_alert
from milepost_experiments.simulator.ledger import ClientPeriod, Receipt, RunLedger
from unit.experiments.simulator.ledgers import (
    ALL_VEHICLES,
    CLEARED_S,
    HERE,
    INSIDE,
    OUTSIDE,
    RAISED_S,
    RUN_S,
    alert,
    all_clear,
    at,
    drive,
    fix,
    place_at,
    valid_ledger,
)

NOW = at(RUN_S)


def faults(ledger: RunLedger) -> list[str]:
    return evaluate(ledger, NOW).faults


def first(ledger: RunLedger) -> AlertResult:
    return evaluate(ledger, NOW).alerts[0]


def test_a_ledger_without_violations_has_no_faults() -> None:
    found = evaluate(valid_ledger(), NOW)
    assert found.faults == []
    assert set(found.alerts[0].inside) == set(INSIDE)
    assert found.alerts[0].inside["car-1"] == pytest.approx(0.05)
    assert set(found.all_clears[0].notified) == set(INSIDE)
    assert found.alerts[0].truly_inside == set(INSIDE)


def test_a_vehicle_inside_that_was_not_warned_is_named() -> None:
    ledger = valid_ledger()
    del ledger.receipts[alert().key]["car-2"]
    assert first(ledger).missed == {"car-2"}
    assert "Collision-1 raised: inside and not warned: car-2" in faults(ledger)


def test_a_vehicle_warned_but_never_inside_is_named() -> None:
    ledger = valid_ledger()
    ledger.record_receipt(OUTSIDE, alert().key, Receipt(at(RAISED_S + 0.1), is_duplicate=False))
    ledger.record_receipt(OUTSIDE, all_clear().key, Receipt(at(CLEARED_S + 0.1), is_duplicate=False))
    assert faults(ledger) == [f"Collision-1 raised: warned and never inside: {OUTSIDE}"]


def test_a_vehicle_that_enters_only_after_its_warning_was_warned_wrongly() -> None:
    ledger = valid_ledger()
    drive(ledger, OUTSIDE, 100.0, since=30)
    ledger.record_receipt(OUTSIDE, alert().key, Receipt(at(RAISED_S + 1), is_duplicate=False))
    assert first(ledger).wrong == {OUTSIDE}


def test_a_vehicle_that_enters_while_the_alert_is_active_must_be_warned() -> None:
    ledger = valid_ledger()
    drive(ledger, OUTSIDE, 100.0, since=30)
    assert faults(ledger) == [f"Collision-1 raised: drove in and was not warned: {OUTSIDE}"]
    ledger.record_receipt(OUTSIDE, alert().key, Receipt(at(30.4), is_duplicate=False))
    ledger.record_receipt(OUTSIDE, all_clear().key, Receipt(at(CLEARED_S + 0.1), is_duplicate=False))
    assert faults(ledger) == []
    assert first(ledger).entered[OUTSIDE] == pytest.approx(0.1)


def test_a_vehicle_that_enters_after_the_all_clear_need_not_be_warned() -> None:
    ledger = valid_ledger()
    drive(ledger, OUTSIDE, 100.0, since=CLEARED_S + 1)
    assert faults(ledger) == []


def test_an_alert_cancelled_by_the_all_clear_of_another_incident_is_no_longer_active() -> None:
    ledger = valid_ledger()
    over = all_clear()
    del ledger.alerts[over.key]
    other = replace(over, key=over.key._replace(incident="Collision-2"), cancels=("Collision-2", "Collision-1"))
    ledger.alerts[other.key] = other
    ledger.receipts[other.key] = ledger.receipts.pop(over.key)
    drive(ledger, OUTSIDE, 100.0, since=CLEARED_S + 1)
    assert faults(ledger) == []


@pytest.mark.parametrize("is_warned", [True, False])
def test_a_vehicle_on_the_border_at_publication_may_be_warned_or_not(is_warned: bool) -> None:
    ledger = valid_ledger()
    drive(ledger, OUTSIDE, 100.0, since=RAISED_S, until=RAISED_S + 1)
    if is_warned:
        ledger.record_receipt(OUTSIDE, alert().key, Receipt(at(RAISED_S + 0.5), is_duplicate=False))
        ledger.record_receipt(OUTSIDE, all_clear().key, Receipt(at(CLEARED_S + 0.5), is_duplicate=False))
    assert first(ledger).border == {OUTSIDE}
    assert faults(ledger) == []


@pytest.mark.parametrize(("joined_s", "left_s"), [(RAISED_S - 1, None), (0, RAISED_S + 1)])
def test_a_vehicle_that_connects_or_leaves_at_publication_need_not_be_warned(joined_s: float, left_s: float | None) -> None:
    ledger = valid_ledger()
    ledger.clients["car-2"] = ClientPeriod("mqtt", at(joined_s), None if left_s is None else at(left_s))
    for key in (alert().key, all_clear().key):
        del ledger.receipts[key]["car-2"]
    assert first(ledger).missed == set()


def test_an_unmarked_duplicate_alert_is_a_fault_and_a_marked_one_is_not() -> None:
    ledger = valid_ledger()
    ledger.record_receipt("car-1", alert().key, Receipt(at(RAISED_S + 2), is_duplicate=True))
    assert faults(ledger) == []
    ledger.record_receipt("car-1", alert().key, Receipt(at(RAISED_S + 3), is_duplicate=False))
    assert faults(ledger) == ["Collision-1 raised: warned twice: car-1"]


def test_a_vehicle_driving_away_is_not_inside_an_upstream_area() -> None:
    road = Upstream.of((Stretch((place_at(400, 180), HERE), 15.0, 40.0, 0.0, 400.0, 0.0),))
    ledger = RunLedger()
    for name, heading in (("towards", 0.0), ("away", 180.0)):
        ledger.clients[name] = ClientPeriod("udp", at(0))
        ledger.reports[name] = [fix(second, place_at(200, 180), heading_deg=heading) for second in range(40)]
    published = alert(area=Union((road,)))
    ledger.alerts[published.key] = published
    found = evaluate_alert(published, ledger, NOW)
    assert (set(found.inside), found.border) == ({"towards"}, set())


def test_a_vehicle_without_heading_may_be_warned_for_its_position() -> None:
    road = Upstream.of((Stretch((place_at(400, 180), HERE), 15.0, 40.0, 0.0, 400.0, 0.0),))
    ledger = RunLedger()
    ledger.clients["away"] = ClientPeriod("udp", at(0))
    ledger.reports["away"] = [fix(second, place_at(200, 180), heading_deg=180.0) for second in range(40)]
    published = alert(area=Union((road,)))
    ledger.alerts[published.key] = published
    ledger.record_receipt("away", published.key, Receipt(at(31), is_duplicate=False))
    assert evaluate_alert(published, ledger, NOW).wrong == {"away"}
    ledger.reports["away"].insert(31, fix(30.5, place_at(200, 180), heading_deg=nan, speed_mps=nan))
    assert evaluate_alert(published, ledger, NOW).wrong == set()


def test_a_warned_vehicle_must_receive_the_all_clear() -> None:
    ledger = valid_ledger()
    del ledger.receipts[all_clear().key]["car-3"]
    assert faults(ledger) == ["Collision-1 is over: warned and no all-clear received: car-3"]


def test_a_vehicle_never_warned_must_not_receive_the_all_clear() -> None:
    ledger = valid_ledger()
    ledger.record_receipt(OUTSIDE, all_clear().key, Receipt(at(CLEARED_S + 0.1), is_duplicate=False))
    assert faults(ledger) == [f"Collision-1 is over: all-clear received and never warned: {OUTSIDE}"]


def test_a_missing_control_message_is_lost() -> None:
    ledger = valid_ledger()
    del ledger.received_numbers["car-4"][33]
    assert faults(ledger) == ["control messages lost: car-4 [33]"]


def test_a_repeated_control_message_is_a_duplicate_unless_it_is_marked() -> None:
    ledger = valid_ledger()
    ledger.received_numbers["car-4"][33].append(Receipt(at(35), is_duplicate=True))
    assert faults(ledger) == []
    ledger.received_numbers["car-4"][34].append(Receipt(at(36), is_duplicate=False))
    assert faults(ledger) == ["control messages duplicated: car-4 [34 after 2.0 s]"]


def test_a_vehicle_without_any_control_message_has_lost_them() -> None:
    ledger = valid_ledger()
    ledger.received_numbers["car-4"].clear()
    assert faults(ledger)[0].startswith("control messages lost: car-4 [5, 6,")


def test_messages_published_after_a_vehicle_left_are_not_expected() -> None:
    ledger = valid_ledger()
    ledger.clients["car-4"].left_at = at(30)
    for number in range(26, RUN_S):
        ledger.received_numbers["car-4"].pop(number, None)
    assert faults(ledger) == []
    del ledger.received_numbers["car-4"][24]
    assert faults(ledger) == ["control messages lost: car-4 [24]"]


def test_a_run_that_verified_nothing_has_faults() -> None:
    found = faults(RunLedger())
    assert len(found) == 2
    assert all(line.endswith("nothing was verified") for line in found)


def test_pruning_retains_what_the_rest_of_the_evaluation_needs() -> None:
    ledger = valid_ledger()
    ledger.clients["car-4"].left_at = at(5)
    ledger.prune(at(10))
    assert set(ledger.clients) == set(ALL_VEHICLES) - {"car-4"}
    assert ledger.reports["car-1"][0].at <= at(10) < ledger.reports["car-1"][1].at
    assert min(ledger.published_numbers) == 10
    assert faults(ledger) == []
    ledger.prune(Instant(at(RAISED_S) + 1))
    assert [one.key.phase for one in ledger.alerts.values()] == ["cleared"]
