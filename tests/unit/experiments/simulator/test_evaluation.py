"""Judging: each promise that is broken is found, by name, and what may be either way breaks none."""

from dataclasses import replace
from math import nan

import pytest
from milepost_experiments.simulator.ledger import Books, Heard, Stay
from milepost_experiments.simulator.evaluation import AlertJudged, judge, judge_alert
from unit.experiments.simulator.ledgers import (
    CLEARED_S,
    EVERYBODY,
    HERE,
    INSIDE,
    LASTS_S,
    OUTSIDE,
    RAISED_S,
    alert,
    all_clear,
    at,
    away,
    drive,
    fix,
    good_books,
)

from milepost.model.areas import Stretch, Union, Upstream
from milepost.model.instants import Instant

NOW = at(LASTS_S)


def faults(books: Books) -> list[str]:
    return judge(books, NOW).faults


def first(books: Books) -> AlertJudged:
    return judge(books, NOW).alerts[0]


def test_books_in_which_everything_held_have_no_faults() -> None:
    found = judge(good_books(), NOW)
    assert found.faults == []
    assert set(found.alerts[0].inside) == set(INSIDE)
    assert found.alerts[0].inside["car-1"] == pytest.approx(0.05)
    assert set(found.recalls[0].told) == set(INSIDE)
    assert found.alerts[0].truly_inside == set(INSIDE)


def test_who_was_inside_and_was_not_warned_is_named() -> None:
    books = good_books()
    del books.heard[alert().key]["car-2"]
    assert first(books).missed == {"car-2"}
    assert "Collision-1 raised: inside and not warned: car-2" in faults(books)


def test_who_was_warned_and_never_inside_is_named() -> None:
    books = good_books()
    books.hear_alert(OUTSIDE, alert().key, Heard(at(RAISED_S + 0.1), is_again=False))
    books.hear_alert(OUTSIDE, all_clear().key, Heard(at(CLEARED_S + 0.1), is_again=False))
    assert faults(books) == [f"Collision-1 raised: warned and never inside: {OUTSIDE}"]


def test_who_comes_inside_only_after_it_was_warned_was_warned_wrongly() -> None:
    books = good_books()
    drive(books, OUTSIDE, 100.0, since=30)
    books.hear_alert(OUTSIDE, alert().key, Heard(at(RAISED_S + 1), is_again=False))
    assert first(books).wrong == {OUTSIDE}


def test_who_drove_in_while_the_alert_stood_must_be_warned() -> None:
    books = good_books()
    drive(books, OUTSIDE, 100.0, since=30)
    assert faults(books) == [f"Collision-1 raised: drove in and was not warned: {OUTSIDE}"]
    books.hear_alert(OUTSIDE, alert().key, Heard(at(30.4), is_again=False))
    books.hear_alert(OUTSIDE, all_clear().key, Heard(at(CLEARED_S + 0.1), is_again=False))
    assert faults(books) == []
    assert first(books).entered[OUTSIDE] == pytest.approx(0.1)


def test_who_drove_in_when_all_was_over_need_not_be_warned() -> None:
    books = good_books()
    drive(books, OUTSIDE, 100.0, since=CLEARED_S + 1)
    assert faults(books) == []


def test_an_alert_that_was_called_off_under_another_name_stands_no_longer() -> None:
    books = good_books()
    over = all_clear()
    del books.alerts[over.key]
    other = replace(over, key=over.key._replace(incident="Collision-2"), calls_off=("Collision-2", "Collision-1"))
    books.alerts[other.key] = other
    books.heard[other.key] = books.heard.pop(over.key)
    drive(books, OUTSIDE, 100.0, since=CLEARED_S + 1)
    assert faults(books) == []


@pytest.mark.parametrize("is_warned", [True, False])
def test_who_was_on_the_border_when_it_was_said_may_be_warned_or_not(is_warned: bool) -> None:
    books = good_books()
    drive(books, OUTSIDE, 100.0, since=RAISED_S, until=RAISED_S + 1)
    if is_warned:
        books.hear_alert(OUTSIDE, alert().key, Heard(at(RAISED_S + 0.5), is_again=False))
        books.hear_alert(OUTSIDE, all_clear().key, Heard(at(CLEARED_S + 0.5), is_again=False))
    assert first(books).border == {OUTSIDE}
    assert faults(books) == []


@pytest.mark.parametrize(("joined_s", "left_s"), [(RAISED_S - 1, None), (0, RAISED_S + 1)])
def test_who_came_or_left_at_that_moment_need_not_be_warned(joined_s: float, left_s: float | None) -> None:
    books = good_books()
    books.stays["car-2"] = Stay("mqtt", at(joined_s), None if left_s is None else at(left_s))
    for key in (alert().key, all_clear().key):
        del books.heard[key]["car-2"]
    assert first(books).missed == set()


def test_a_second_copy_that_was_not_marked_is_a_fault_and_one_that_was_is_none() -> None:
    books = good_books()
    books.hear_alert("car-1", alert().key, Heard(at(RAISED_S + 2), is_again=True))
    assert faults(books) == []
    books.hear_alert("car-1", alert().key, Heard(at(RAISED_S + 3), is_again=False))
    assert faults(books) == ["Collision-1 raised: warned twice: car-1"]


def test_who_goes_the_other_way_on_a_road_is_not_inside_of_an_area_upstream() -> None:
    road = Upstream((Stretch((away(400, 180), HERE), 15.0, 40.0, 0.0, 400.0, 0.0),))
    books = Books()
    for name, heading in (("towards", 0.0), ("away", 180.0)):
        books.stays[name] = Stay("udp", at(0))
        books.reports[name] = [fix(second, away(200, 180), heading_deg=heading) for second in range(40)]
    said = alert(area=Union((road,)))
    books.alerts[said.key] = said
    found = judge_alert(said, books, NOW)
    assert (set(found.inside), found.border) == ({"towards"}, set())


def test_who_does_not_say_which_way_it_goes_may_be_warned_for_where_it_is() -> None:
    road = Upstream((Stretch((away(400, 180), HERE), 15.0, 40.0, 0.0, 400.0, 0.0),))
    books = Books()
    books.stays["away"] = Stay("udp", at(0))
    books.reports["away"] = [fix(second, away(200, 180), heading_deg=180.0) for second in range(40)]
    said = alert(area=Union((road,)))
    books.alerts[said.key] = said
    books.hear_alert("away", said.key, Heard(at(31), is_again=False))
    assert judge_alert(said, books, NOW).wrong == {"away"}
    books.reports["away"].insert(31, fix(30.5, away(200, 180), heading_deg=nan, speed_mps=nan))
    assert judge_alert(said, books, NOW).wrong == set()


def test_who_was_warned_must_hear_that_it_is_over() -> None:
    books = good_books()
    del books.heard[all_clear().key]["car-3"]
    assert faults(books) == ["Collision-1 is over: warned and not told: car-3"]


def test_who_was_never_warned_must_not_hear_that_it_is_over() -> None:
    books = good_books()
    books.hear_alert(OUTSIDE, all_clear().key, Heard(at(CLEARED_S + 0.1), is_again=False))
    assert faults(books) == [f"Collision-1 is over: told and never warned: {OUTSIDE}"]


def test_a_control_message_that_is_missing_between_others_is_lost() -> None:
    books = good_books()
    del books.numbers["car-4"][33]
    assert faults(books) == ["control messages lost: car-4 [33]"]


def test_a_control_message_that_comes_twice_is_doubled_unless_it_is_marked() -> None:
    books = good_books()
    books.numbers["car-4"][33].append(Heard(at(35), is_again=True))
    assert faults(books) == []
    books.numbers["car-4"][34].append(Heard(at(36), is_again=False))
    assert faults(books) == ["control messages doubled: car-4 [34 after 2.0 s]"]


def test_who_gets_no_control_message_at_all_has_lost_them() -> None:
    books = good_books()
    books.numbers["car-4"].clear()
    assert faults(books)[0].startswith("control messages lost: car-4 [5, 6,")


def test_who_left_is_not_asked_about_what_was_said_later() -> None:
    books = good_books()
    books.stays["car-4"].left_at = at(30)
    for number in range(26, LASTS_S):
        books.numbers["car-4"].pop(number, None)
    assert faults(books) == []
    del books.numbers["car-4"][24]
    assert faults(books) == ["control messages lost: car-4 [24]"]


def test_where_nothing_was_shown_nothing_held() -> None:
    found = faults(Books())
    assert len(found) == 2
    assert all(line.endswith("nothing was shown") for line in found)


def test_what_is_forgotten_leaves_what_is_needed_to_judge_the_rest() -> None:
    books = good_books()
    books.stays["car-4"].left_at = at(5)
    books.forget(at(10))
    assert set(books.stays) == set(EVERYBODY) - {"car-4"}
    assert books.reports["car-1"][0].at <= at(10) < books.reports["car-1"][1].at
    assert min(books.said) == 10
    assert faults(books) == []
    books.forget(Instant(at(RAISED_S) + 1))
    assert [one.key.phase for one in books.alerts.values()] == ["cleared"]
