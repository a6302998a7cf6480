import pytest

from milepost.dashboard import alerts
from milepost.dashboard.alerts import ALERTS_MAX, AlertTracker
from milepost.model.reasons import Reason
from udp_edge_in_memory import EDGE_SIGNING, EDGE_STATIC, certificate_of
from unit.dashboard.mirrors import START, alert, deliveries, later


def test_messages_and_deliveries_of_an_alert_count_in_any_order() -> None:
    first, second = AlertTracker(), AlertTracker()
    first.add_message(alert(1).message)
    first.add_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.02)))
    second.add_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.02)))
    second.add_message(alert(1).message)
    for one in (first, second):
        one.tick(START)
        assert dict(one.warned) == {"car": 1}
    assert first.table.whole() == second.table.whole()
    assert first.delays_ms(1) == second.delays_ms(1) == [20.0]


def test_the_proof_lists_receivers_with_delays_and_others_with_reasons() -> None:
    found = AlertTracker()
    found.add_message(alert(1).message)
    found.add_deliveries(deliveries(1, ("a", "matched"), ("b", "matched"), ("c", "matched")))
    found.add_deliveries(deliveries(1, ("a", "sent"), at=later(0.01)))
    found.add_deliveries(deliveries(1, ("a", "acknowledged"), at=later(0.03)))
    found.add_deliveries(deliveries(1, ("b", "dropped"), reason=Reason.EXPIRED))
    found.set_inside("@service/incidents:1", ["a", "d"])
    found.tick(START)
    proof = found.find_proof("@service/incidents:1")
    assert proof is not None
    rows = {row["endpoint"]: (row["inside"], row["state"], row["after_ms"], row["reason"]) for row in proof["endpoints"]}
    assert rows == {
        "a": (True, "acknowledged", 30.0, ""),
        "b": (False, "dropped", None, "EXPIRED"),
        "c": (False, "matched", None, ""),
        "d": (True, "missed", None, ""),
    }
    row = proof["alert"]
    assert (row["inside"], row["received"], row["acknowledged"], row["dropped"], row["pending"]) == (4, 1, 1, 1, 2)
    assert found.find_proof("@service/incidents:2") is None


def test_a_proof_lists_undelivered_endpoints_first_and_counts_omitted_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "PROOF_ROWS_MAX", 3)
    found = AlertTracker()
    found.add_message(alert(1).message)
    found.add_deliveries(deliveries(1, ("slow", "sent"), at=later(0.2)))
    found.add_deliveries(deliveries(1, ("quick", "sent"), at=later(0.1)))
    found.add_deliveries(deliveries(1, ("x", "matched"), ("late", "matched")))
    proof = found.find_proof("@service/incidents:1")
    assert proof is not None
    assert [row["endpoint"] for row in proof["endpoints"]] == ["late", "x", "quick"]
    assert proof["omitted"] == 1


def test_a_late_delivery_record_does_not_undo_an_acknowledgement() -> None:
    found = AlertTracker()
    found.add_message(alert(1).message)
    found.add_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.01)))
    found.add_deliveries(deliveries(1, ("car", "sent"), ("car", "matched"), at=later(5)))
    found.tick(START)
    assert found.delays_ms(1) == [10.0]
    assert dict(found.unconfirmed) == {}


def test_the_oldest_alerts_are_dropped_with_their_warnings() -> None:
    found = AlertTracker()
    found.add_message(alert(1, valid_s=1_000_000).message)
    found.add_deliveries(deliveries(1, ("car", "sent")))
    for number in range(2, ALERTS_MAX + 2):
        found.add_message(alert(number).message)
    found.tick(START)
    assert found.find_proof("@service/incidents:1") is None
    assert len(found.table) == ALERTS_MAX
    assert dict(found.warned) == {}


def test_deliveries_beyond_the_limit_are_counted_but_not_tracked(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alerts, "DELIVERIES_MAX", 2)
    found = AlertTracker()
    found.add_message(alert(1).message)
    found.add_deliveries(deliveries(1, ("a", "sent"), ("b", "sent"), ("c", "sent")))
    assert found.dropped == 1
    assert set(found.warned) == {"a", "b"}


def states_of(found: AlertTracker) -> dict[str, str]:
    found.tick(START)
    return {key: row["state"] for key, row in found.table.whole().items() if row is not None}


def test_an_alert_is_neither_replaced_nor_cleared_by_another_source() -> None:
    found = AlertTracker()
    found.add_message(alert(1, incident="I-1").message)
    found.add_deliveries(deliveries(1, ("car", "acknowledged")))
    found.add_message(alert(2, incident="I-1", service="other").message)
    found.add_message(alert(3, incident="I-1", phase="cleared", service="other").message)
    assert states_of(found)["@service/incidents:1"] == "active"
    assert dict(found.warned) == {"car": 1}
    found.add_message(alert(4, incident="I-1", phase="cleared").message)
    assert states_of(found)["@service/incidents:1"] == "cleared"
    assert not found.warned


def test_a_signed_alert_is_neither_replaced_nor_cleared_by_another_signer() -> None:
    found, other = AlertTracker(), certificate_of("other", EDGE_STATIC, "service", 3, signing=EDGE_SIGNING).data
    certificate = certificate_of("incidents", EDGE_STATIC, "service", 2, signing=EDGE_SIGNING).data
    found.add_message(alert(1, incident="I-1", certificate=certificate).message)
    found.add_message(alert(2, incident="I-1", phase="grown").message)
    found.add_message(alert(3, incident="I-1", phase="cleared", certificate=other).message)
    assert states_of(found) == {"@service/incidents:1": "active"}
    assert found.forged == 2
    found.add_message(alert(4, incident="I-1", phase="cleared", certificate=certificate).message)
    assert states_of(found)["@service/incidents:1"] == "cleared"
