import pytest

from milepost.dashboard import alerts as room
from milepost.dashboard.alerts import ALERTS_MAX, Alerts
from milepost.model.reasons import Reason
from unit.dashboard.mirrors import START, alert, deliveries, later


def test_what_is_told_of_an_alert_counts_in_whatever_order_it_comes() -> None:
    first, second = Alerts(), Alerts()
    first.take_message(alert(1).message)
    first.take_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.02)))
    second.take_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.02)))
    second.take_message(alert(1).message)
    for one in (first, second):
        one.tick(START)
        assert dict(one.warned) == {"car": 1}
    assert first.table.whole() == second.table.whole()
    assert first.delays_ms(1) == second.delays_ms(1) == [20.0]


def test_the_proof_says_who_got_it_when_and_why_not() -> None:
    found = Alerts()
    found.take_message(alert(1).message)
    found.take_deliveries(deliveries(1, ("a", "matched"), ("b", "matched"), ("c", "matched")))
    found.take_deliveries(deliveries(1, ("a", "sent"), at=later(0.01)))
    found.take_deliveries(deliveries(1, ("a", "acknowledged"), at=later(0.03)))
    found.take_deliveries(deliveries(1, ("b", "dropped"), reason=Reason.EXPIRED))
    found.note_inside("desk:1", ["a", "d"])
    found.tick(START)
    proof = found.maybe_proof("desk:1")
    assert proof is not None
    rows = {row["endpoint"]: (row["inside"], row["state"], row["after_ms"], row["reason"]) for row in proof["endpoints"]}
    assert rows == {
        "a": (True, "acknowledged", 30.0, ""),
        "b": (False, "dropped", None, "EXPIRED"),
        "c": (False, "matched", None, ""),
        "d": (True, "missed", None, ""),
    }
    row = proof["alert"]
    assert (row["inside"], row["got"], row["acknowledged"], row["dropped"], row["waiting"]) == (4, 1, 1, 1, 2)
    assert found.maybe_proof("desk:2") is None


def test_a_proof_shows_first_who_did_not_get_it_and_counts_whom_it_leaves_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "PROOF_ROWS_MAX", 3)
    found = Alerts()
    found.take_message(alert(1).message)
    found.take_deliveries(deliveries(1, ("slow", "sent"), at=later(0.2)))
    found.take_deliveries(deliveries(1, ("quick", "sent"), at=later(0.1)))
    found.take_deliveries(deliveries(1, ("x", "matched"), ("late", "matched")))
    proof = found.maybe_proof("desk:1")
    assert proof is not None
    assert [row["endpoint"] for row in proof["endpoints"]] == ["late", "x", "quick"]
    assert proof["left_out"] == 1


def test_what_an_edge_says_late_takes_nothing_back() -> None:
    found = Alerts()
    found.take_message(alert(1).message)
    found.take_deliveries(deliveries(1, ("car", "acknowledged"), at=later(0.01)))
    found.take_deliveries(deliveries(1, ("car", "sent"), ("car", "matched"), at=later(5)))
    found.tick(START)
    assert found.delays_ms(1) == [10.0]
    assert dict(found.concerned) == {}


def test_the_oldest_alerts_are_forgotten_and_nobody_stays_warned_by_them() -> None:
    found = Alerts()
    found.take_message(alert(1, valid_s=1_000_000).message)
    found.take_deliveries(deliveries(1, ("car", "sent")))
    for number in range(2, ALERTS_MAX + 2):
        found.take_message(alert(number).message)
    found.tick(START)
    assert found.maybe_proof("desk:1") is None
    assert len(found.table) == ALERTS_MAX
    assert dict(found.warned) == {}


def test_there_is_room_for_so_many_endpoints_and_the_rest_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "FATES_MAX", 2)
    found = Alerts()
    found.take_message(alert(1).message)
    found.take_deliveries(deliveries(1, ("a", "sent"), ("b", "sent"), ("c", "sent")))
    assert found.dropped == 1
    assert set(found.warned) == {"a", "b"}
