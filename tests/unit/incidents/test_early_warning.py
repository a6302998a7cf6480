"""Early warnings: at once, once for each place, and made good when the slot has ended (M24)."""

from itertools import pairwise

import pytest

from milepost.incidents.engine import STATE, IncidentEngine
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.incidents import EventKind, parse_predicate, reports_at_least
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place, distance_m
from milepost.model.sites import CROSS_HUB, ForwardedMessage
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record
from unit.incidents.events import HOME, NOON, Event, after, away, cells_of, events

PLAIN = "reports >= 5"
SLOW = "reports >= 5 and mean_v < 4"


class EngineUnderTest:
    """A desk that hears of reports as they are made, and what it says."""

    def __init__(self, predicate: str = PLAIN, *, since: Instant = NOON, slots: int = 2, alert: str | None = "Alert/C") -> None:
        self.kind = EventKind("C", "c", predicate, alert, slots=slots, clear_after_s=20, valid_s=600)
        self.engine = IncidentEngine("north", [self.kind], late_s=2.0, since=since)
        self.state: bytes | None = None
        self.numbers: list[int] = []
        self._found: list[Event] = []

    def hear(self, *found: Event, now: float | None = None) -> list[Message]:
        """Reports, each as soon as it is made: its cell as it is then."""
        said = []
        for one in found:
            self._found.append(one)
            slot, square = one.seen_at // self.kind.interval_ns, self.kind.grid.spot(one.place).square
            cell = next(cell for cell in cells_of(self.kind, self._found) if (cell.slot, cell.square) == (slot, square))
            at = one.seen_at if now is None else after(now)
            self.engine.take_cells([cell_to_json(cell)], at)
            said += self.said()
            self.engine.keep(at)
            assert self.said() == []
        return said

    def tick(self, seconds: float) -> list[Message]:
        self.engine.tick(after(seconds))
        return self.said()

    def said(self) -> list[Message]:
        appends = self.engine.take_appends()
        self.state = next((one.value for one in reversed(appends) if one.topic == STATE), self.state)
        said = [from_record(one.value) for one in appends if one.topic == CROSS_HUB]
        messages = []
        for one in said:
            assert isinstance(one, ForwardedMessage)
            self.numbers.append(one.number)
            messages.append(one.message)
        return messages

    def restart(self, since: float) -> None:
        self.engine = IncidentEngine("north", [self.kind], late_s=2.0, since=after(since), state=self.state)
        self.engine.take_cells([cell_to_json(cell) for cell in cells_of(self.kind, self._found)], after(since))


def phases(messages: list[Message]) -> list[object]:
    return [message.fields["phase"] for message in messages]


def circle_of(message: Message) -> Circle:
    assert isinstance(message.address, ToArea)
    assert isinstance(message.address.area, Circle)
    return message.address.area


def called_off(message: Message) -> tuple[str, ...]:
    assert isinstance(message.address, ToNotified)
    return message.address.incidents


def holds_all(outer: Circle, inner: Circle) -> bool:
    return distance_m(outer.centre, inner.centre) + inner.radius_m <= outer.radius_m + 0.01


def at(place: Place, count: int, seconds: float, **fields: float) -> list[Event]:
    return [Event(f"car-{number}", place, after(seconds), fields) for number in range(count)]


def test_a_place_is_told_with_the_report_that_makes_it_hot_and_only_once() -> None:
    engine = EngineUnderTest()
    assert engine.hear(*events(4)) == []
    (early,) = engine.hear(*events(1))
    assert phases([early]) == ["early"]
    assert early.topic == "Alert/C"
    assert holds_all(circle_of(early), Circle(HOME, 200))
    assert (early.seen_at, early.valid_until) == (after(1), after(601))
    assert engine.hear(*events(30)) == []


def test_an_early_warning_stands_if_the_incident_is_where_it_said() -> None:
    engine = EngineUnderTest()
    (early,) = engine.hear(*events(6))
    assert engine.tick(12) == []
    assert early.fields["incident"] == engine.engine.incidents.living[0].id
    assert phases(engine.tick(60)) == ["cleared"]


def test_an_incident_that_is_elsewhere_than_was_told_early_is_raised_for_all_and_says_so() -> None:
    engine = EngineUnderTest()
    (early,) = engine.hear(*at(HOME, 5, 1.0))
    engine.hear(*at(away(290.0, 0.0), 40, 2.0), *at(away(160.0, 0.0), 4, 2.0))
    (raised,) = engine.tick(12)
    assert raised.fields["incident"] != early.fields["incident"]
    assert raised.fields["early"] == early.fields["incident"]
    assert holds_all(circle_of(raised), circle_of(early))
    (cleared,) = engine.tick(100)
    assert cleared.fields["incident"] == raised.fields["incident"]
    assert set(called_off(cleared)) == {raised.fields["incident"], early.fields["incident"]}


def test_an_incident_that_has_grown_out_of_what_was_told_early_is_raised_though_it_has_the_same_id() -> None:
    engine = EngineUnderTest()
    (early,) = engine.hear(*at(HOME, 5, 1.0))
    corners = [away(north, east) for north in (-145.0, 145.0) for east in (-145.0, 145.0)]
    engine.hear(*at(HOME, 50, 2.0), *(one for corner in corners for one in at(corner, 1, 2.0)))
    (raised,) = engine.tick(12)
    assert raised.fields["incident"] == early.fields["incident"]
    assert phases([raised]) == ["raised"]


def test_a_place_that_is_hot_no_longer_when_the_slot_has_ended_is_cleared_for_those_who_were_warned() -> None:
    engine = EngineUnderTest(SLOW)
    (early,) = engine.hear(*at(HOME, 5, 1.0, v=1.0))
    engine.hear(*at(HOME, 20, 5.0, v=30.0))
    (cleared,) = engine.tick(12)
    assert phases([cleared]) == ["cleared"]
    assert cleared.fields["incident"] == early.fields["incident"]
    assert called_off(cleared) == (early.fields["incident"],)
    assert engine.tick(200) == []


def test_what_came_to_nothing_is_left_to_the_ends_of_slots_for_a_while() -> None:
    engine = EngineUnderTest(SLOW, slots=1)
    engine.hear(*at(HOME, 5, 1.0, v=1.0), *at(HOME, 20, 5.0, v=30.0))
    engine.tick(12)
    assert engine.hear(*at(HOME, 5, 13.0, v=1.0)) == [], "it would be told every ten seconds"
    assert phases(engine.tick(22)) == ["raised"]
    engine.tick(50)
    assert phases(engine.hear(*at(HOME, 5, 51.0, v=1.0))) == ["early"]


def test_what_touches_a_living_incident_is_not_told_early() -> None:
    engine = EngineUnderTest()
    engine.hear(*events(6))
    engine.tick(12)
    assert engine.hear(*at(away(300.0, 0.0), 6, 13.0)) == []
    assert phases(engine.hear(*at(away(3_000.0, 0.0), 6, 13.0))) == ["early"]


def test_an_incident_that_has_come_to_the_place_speaks_for_it() -> None:
    engine = EngineUnderTest()
    west, east = HOME, away(0.0, 900.0)
    engine.hear(*at(west, 6, 1.0))
    engine.tick(12)
    (early,) = engine.hear(*at(east, 6, 13.0))
    joined = [one for step in range(8) for one in at(away(0.0, 50.0 + 110.0 * step), 6, 15.0 + step / 10)]
    engine.hear(*joined)
    said = engine.tick(22)
    assert "cleared" not in phases(said), "it is still hot"
    cleared = [one for one in engine.tick(200) if one.fields["phase"] == "cleared"]
    assert any(early.fields["incident"] in called_off(one) for one in cleared)


def test_late_cells_warn_of_the_slot_in_which_they_count() -> None:
    engine = EngineUnderTest()
    engine.tick(12)
    (early,) = engine.hear(*events(6, seconds=9.0), now=13.0)
    assert early.fields["incident"] == f"C-{after(10) // engine.kind.interval_ns}-{'-'.join(map(str, square_of(engine)))}"
    assert engine.tick(22) == []
    assert len(engine.engine.incidents.living) == 1


def square_of(engine: EngineUnderTest) -> tuple[int, int]:
    return engine.kind.grid.spot(HOME).square


def test_cells_of_slots_that_are_due_are_not_told_early() -> None:
    engine = EngineUnderTest()
    assert engine.hear(*events(6), now=12.0) == []
    assert phases(engine.tick(12)) == ["raised"]


def test_a_kind_without_alerts_has_no_early_ones() -> None:
    engine = EngineUnderTest(alert=None)
    assert engine.hear(*events(6)) == []
    assert engine.engine.counts.early == 0


def test_a_process_tells_nothing_early_in_a_slot_that_began_before_it_did() -> None:
    engine = EngineUnderTest(since=after(0.5))
    assert engine.hear(*events(6)) == []
    assert phases(engine.tick(12)) == ["raised"]
    assert phases(engine.hear(*at(away(3_000.0, 0.0), 6, 13.0))) == ["early"]


def test_after_a_restart_an_early_warning_stands_or_is_cleared_as_it_would_have_been() -> None:
    stands = EngineUnderTest()
    stands.hear(*events(6))
    stands.restart(5.0)
    assert stands.tick(12) == []
    assert phases(stands.tick(60)) == ["cleared"]
    vain = EngineUnderTest(SLOW)
    vain.hear(*at(HOME, 5, 1.0, v=1.0), *at(HOME, 20, 5.0, v=30.0))
    vain.restart(6.0)
    assert phases(vain.tick(12)) == ["cleared"]


def test_numbers_of_early_warnings_are_below_those_of_what_ends_of_slots_say() -> None:
    engine = EngineUnderTest()
    engine.tick(3)
    engine.hear(*events(6))
    engine.hear(*at(away(3_000.0, 0.0), 6, 4.0))
    assert all(number < after(10) for number in engine.numbers)
    engine.tick(60)
    assert all(one < other for one, other in pairwise(engine.numbers))
    assert len(engine.numbers) == 4


def test_the_state_follows_what_was_told_early_and_in_a_storm_at_most_five_times_a_second() -> None:
    engine = EngineUnderTest()
    topics = []
    for number in range(40):
        place = away(3_000.0 * number, 0.0)
        cells = [cell_to_json(cell) for cell in cells_of(engine.kind, at(place, 5, 1.0 + number / 40))]
        engine.engine.take_cells(cells, after(1.0 + number / 40))
        engine.engine.keep(after(1.0 + number / 40))
        topics += [append.topic for append in engine.engine.take_appends()]
    assert topics[:3] == [CROSS_HUB, "reserved.publish-pipelines", STATE]
    assert topics.count(CROSS_HUB) == 40
    assert topics.count(STATE) == 5
    engine.engine.tick(after(2.2))
    assert [append.topic for append in engine.engine.take_appends()] == [STATE]


def test_early_warnings_are_counted() -> None:
    engine = EngineUnderTest()
    engine.hear(*events(6))
    assert (engine.engine.counts.early, engine.engine.counts.alerts) == (1, 1)


@pytest.mark.parametrize(
    ("text", "least"),
    [
        ("reports >= 5", 5),
        ("weight >= 3 and reports >= 5", 5),
        ("witnesses > 7 or reports == 2", 2),
        ("4 <= count_v and mean_v < 3", 4),
        ("3 < reports", 3),
        ("not (reports < 9)", 0),
        ("radius_m > 100", 0),
        ("reports <= 5", 0),
        ("reports != 5", 0),
        ("sum_v >= 100", 0),
        ("age_s >= 9 and (weight >= 2 or witnesses >= 3)", 2),
        ("reports >= witnesses", 0),
        ("1 < 2", 0),
    ],
)
def test_a_predicate_says_how_many_reports_it_needs(text: str, least: float) -> None:
    assert reports_at_least(parse_predicate(text)) == least
