"""Early warnings: at once, once for each place, and resolved when the slot has ended (M24)."""

from itertools import pairwise

import pytest

from milepost.incidents.alerts import maybe_announced
from milepost.incidents.engine import ENGINE, STATE, IncidentEngine
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.areas import Circle
from milepost.model.incidents import EventKind, IncidentId, min_reports, parse_predicate
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place, distance_m
from milepost.model.site_records import CROSS_HUB, EdgeRef, ForwardedMessage, service_sender
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record, to_record
from unit.incidents.events import HOME, NOON, Event, after, away, cells_of, events

PLAIN = "reports >= 5"
SLOW = "reports >= 5 and mean_v < 4"


class EngineUnderTest:
    """An engine that gets reports as they are made, and its messages."""

    def __init__(self, predicate: str = PLAIN, *, since: Instant = NOON, slots: int = 2, alert: str | None = "Alert/C") -> None:
        self.kind = EventKind("C", "c", predicate, alert, slots=slots, clear_after_s=20, valid_s=600)
        self.engine = IncidentEngine("north", [self.kind], allowed_lateness_s=2.0, since=since)
        self.state: bytes | None = None
        self.numbers: list[int] = []
        self._found: list[Event] = []

    def add_reports(self, *found: Event, now: float | None = None) -> list[Message]:
        """Add reports one by one, each as the current state of its cell."""
        published = []
        for one in found:
            self._found.append(one)
            slot, square = one.seen_at // self.kind.interval_ns, self.kind.grid.locate(one.place).square
            cell = next(cell for cell in cells_of(self.kind, self._found) if (cell.slot, cell.square) == (slot, square))
            at = one.seen_at if now is None else after(now)
            self.engine.add_cells([cell_to_json(cell)], at)
            published += self.published()
            self.engine.save_if_due(at)
            assert self.published() == []
        return published

    def tick(self, seconds: float) -> list[Message]:
        self.engine.tick(after(seconds))
        return self.published()

    def published(self) -> list[Message]:
        appends = self.engine.take_appends()
        self.state = next((one.value for one in reversed(appends) if one.topic == STATE), self.state)
        published = [from_record(one.value) for one in appends if one.topic == CROSS_HUB]
        messages = []
        for one in published:
            assert isinstance(one, ForwardedMessage)
            self.numbers.append(one.number)
            messages.append(one.message)
        return messages

    def restart(self, since: float) -> None:
        self.engine = IncidentEngine("north", [self.kind], allowed_lateness_s=2.0, since=after(since), state=self.state)
        self.engine.add_cells([cell_to_json(cell) for cell in cells_of(self.kind, self._found)], after(since))


def phases(messages: list[Message]) -> list[object]:
    return [message.fields["phase"] for message in messages]


def circle_of(message: Message) -> Circle:
    assert isinstance(message.address, ToArea)
    assert isinstance(message.address.area, Circle)
    return message.address.area


def cleared_ids(message: Message) -> tuple[str, ...]:
    assert isinstance(message.address, ToNotified)
    return message.address.incidents


def holds_all(outer: Circle, inner: Circle) -> bool:
    return distance_m(outer.centre, inner.centre) + inner.radius_m <= outer.radius_m + 0.01


def at(place: Place, count: int, seconds: float, **fields: float) -> list[Event]:
    return [Event(f"car-{number}", place, after(seconds), fields) for number in range(count)]


def test_a_place_is_announced_with_the_report_that_makes_it_hot_and_only_once() -> None:
    engine = EngineUnderTest()
    assert engine.add_reports(*events(4)) == []
    (early,) = engine.add_reports(*events(1))
    assert phases([early]) == ["early"]
    assert early.topic == "Alert/C"
    assert holds_all(circle_of(early), Circle(HOME, 200))
    assert (early.seen_at, early.valid_until) == (after(1), after(601))
    assert engine.add_reports(*events(30)) == []


def test_an_early_warning_suffices_if_the_incident_is_in_its_circle() -> None:
    engine = EngineUnderTest()
    (early,) = engine.add_reports(*events(6))
    assert engine.tick(12) == []
    assert early.fields["incident"] == engine.engine.incidents.active[0].id
    assert phases(engine.tick(60)) == ["cleared"]


def test_an_incident_outside_the_early_warning_is_raised_under_its_id_though_another_bin_leads() -> None:
    engine = EngineUnderTest()
    (early,) = engine.add_reports(*at(HOME, 5, 1.0))
    engine.add_reports(*at(away(290.0, 0.0), 40, 2.0), *at(away(160.0, 0.0), 4, 2.0))
    (raised,) = engine.tick(12)
    assert raised.fields["incident"] == early.fields["incident"]
    assert holds_all(circle_of(raised), circle_of(early))
    (cleared,) = engine.tick(100)
    assert cleared_ids(cleared) == (early.fields["incident"],)


def test_an_incident_that_grew_to_an_older_report_is_raised_for_all_and_names_the_early_warning() -> None:
    engine = EngineUnderTest()
    engine.add_reports(*at(away(440.0, 0.0), 1, 0.5))
    (early,) = engine.add_reports(*at(HOME, 5, 1.0))
    engine.add_reports(*at(away(290.0, 0.0), 40, 2.0), *at(away(160.0, 0.0), 4, 2.0))
    (raised,) = engine.tick(12)
    assert raised.fields["incident"] != early.fields["incident"]
    assert raised.fields["early"] == early.fields["incident"]
    assert holds_all(circle_of(raised), circle_of(early))
    (cleared,) = engine.tick(100)
    assert cleared.fields["incident"] == raised.fields["incident"]
    assert set(cleared_ids(cleared)) == {raised.fields["incident"], early.fields["incident"]}


def test_an_incident_that_outgrew_its_early_warning_is_raised_under_the_same_id() -> None:
    engine = EngineUnderTest()
    (early,) = engine.add_reports(*at(HOME, 5, 1.0))
    corners = [away(north, east) for north in (-145.0, 145.0) for east in (-145.0, 145.0)]
    engine.add_reports(*at(HOME, 50, 2.0), *(one for corner in corners for one in at(corner, 1, 2.0)))
    (raised,) = engine.tick(12)
    assert raised.fields["incident"] == early.fields["incident"]
    assert phases([raised]) == ["raised"]


def test_a_false_early_warning_is_cleared_for_the_warned_endpoints_at_the_end_of_the_slot() -> None:
    engine = EngineUnderTest(SLOW)
    (early,) = engine.add_reports(*at(HOME, 5, 1.0, v=1.0))
    engine.add_reports(*at(HOME, 20, 5.0, v=30.0))
    (cleared,) = engine.tick(12)
    assert phases([cleared]) == ["cleared"]
    assert cleared.fields["incident"] == early.fields["incident"]
    assert cleared_ids(cleared) == (early.fields["incident"],)
    assert engine.tick(200) == []


def test_after_a_false_early_warning_the_place_gets_none_for_a_while() -> None:
    engine = EngineUnderTest(SLOW, slots=1)
    engine.add_reports(*at(HOME, 5, 1.0, v=1.0), *at(HOME, 20, 5.0, v=30.0))
    engine.tick(12)
    assert engine.add_reports(*at(HOME, 5, 13.0, v=1.0)) == [], "otherwise it would be announced every ten seconds"
    assert phases(engine.tick(22)) == ["raised"]
    engine.tick(50)
    assert phases(engine.add_reports(*at(HOME, 5, 51.0, v=1.0))) == ["early"]


def test_a_place_that_touches_an_active_incident_is_not_announced_early() -> None:
    engine = EngineUnderTest()
    engine.add_reports(*events(6))
    engine.tick(12)
    assert engine.add_reports(*at(away(300.0, 0.0), 6, 13.0)) == []
    assert phases(engine.add_reports(*at(away(3_000.0, 0.0), 6, 13.0))) == ["early"]


def test_an_incident_that_moved_to_the_place_covers_its_early_warning() -> None:
    engine = EngineUnderTest()
    west, east = HOME, away(0.0, 900.0)
    engine.add_reports(*at(west, 6, 1.0))
    engine.tick(12)
    (early,) = engine.add_reports(*at(east, 6, 13.0))
    joined = [one for step in range(8) for one in at(away(0.0, 50.0 + 110.0 * step), 6, 15.0 + step / 10)]
    engine.add_reports(*joined)
    published = engine.tick(22)
    assert "cleared" not in phases(published), "it is still hot"
    cleared = [one for one in engine.tick(200) if one.fields["phase"] == "cleared"]
    assert any(early.fields["incident"] in cleared_ids(one) for one in cleared)


def test_late_cells_warn_of_the_slot_in_which_they_count() -> None:
    engine = EngineUnderTest()
    engine.tick(12)
    (early,) = engine.add_reports(*events(6, seconds=9.0), now=13.0)
    assert early.fields["incident"] == f"C-{after(10) // engine.kind.interval_ns}-{'-'.join(map(str, square_of(engine)))}"
    assert engine.tick(22) == []
    assert len(engine.engine.incidents.active) == 1


def square_of(engine: EngineUnderTest) -> tuple[int, int]:
    return engine.kind.grid.locate(HOME).square


def test_cells_of_slots_due_for_evaluation_are_not_announced_early() -> None:
    engine = EngineUnderTest()
    assert engine.add_reports(*events(6), now=12.0) == []
    assert phases(engine.tick(12)) == ["raised"]


def test_a_kind_without_alerts_has_no_early_warnings() -> None:
    engine = EngineUnderTest(alert=None)
    assert engine.add_reports(*events(6)) == []
    assert engine.engine.counts.early == 0


def test_a_process_announces_nothing_early_in_a_slot_that_began_before_it() -> None:
    engine = EngineUnderTest(since=after(0.5))
    assert engine.add_reports(*events(6)) == []
    assert phases(engine.tick(12)) == ["raised"]
    assert phases(engine.add_reports(*at(away(3_000.0, 0.0), 6, 13.0))) == ["early"]


def test_after_a_restart_an_early_warning_is_resolved_as_without_it() -> None:
    engine = EngineUnderTest()
    engine.add_reports(*events(6))
    engine.restart(5.0)
    assert engine.tick(12) == []
    assert phases(engine.tick(60)) == ["cleared"]
    vain = EngineUnderTest(SLOW)
    vain.add_reports(*at(HOME, 5, 1.0, v=1.0), *at(HOME, 20, 5.0, v=30.0))
    vain.restart(6.0)
    assert phases(vain.tick(12)) == ["cleared"]


def test_early_warnings_have_lower_numbers_than_later_ends_of_slots() -> None:
    engine = EngineUnderTest()
    engine.tick(3)
    engine.add_reports(*events(6))
    engine.add_reports(*at(away(3_000.0, 0.0), 6, 4.0))
    assert all(number < after(10) for number in engine.numbers)
    engine.tick(60)
    assert all(one < other for one, other in pairwise(engine.numbers))
    assert len(engine.numbers) == 4


def test_the_state_is_saved_after_early_warnings_at_most_five_times_a_second() -> None:
    engine = EngineUnderTest()
    topics = []
    for number in range(40):
        place = away(3_000.0 * number, 0.0)
        cells = [cell_to_json(cell) for cell in cells_of(engine.kind, at(place, 5, 1.0 + number / 40))]
        engine.engine.add_cells(cells, after(1.0 + number / 40))
        engine.engine.save_if_due(after(1.0 + number / 40))
        topics += [append.topic for append in engine.engine.take_appends()]
    assert topics[:3] == [CROSS_HUB, "reserved.publish-pipelines", STATE]
    assert topics.count(CROSS_HUB) == 40
    assert topics.count(STATE) == 5
    engine.engine.tick(after(2.2))
    assert [append.topic for append in engine.engine.take_appends()] == [STATE]


def test_early_warnings_are_counted() -> None:
    engine = EngineUnderTest()
    engine.add_reports(*events(6))
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
    assert min_reports(parse_predicate(text)) == least


def test_an_early_alert_before_the_first_tick_after_a_crash_is_not_mistaken_for_one_of_the_previous_process() -> None:
    one = EngineUnderTest()
    one.add_reports(*events(5, seconds=1.0))
    saved, one.state = one.state, None
    one.tick(8.0)
    lost = [Event(f"lost-{number}", away(5_000.0), after(9.0)) for number in range(5)]
    assert phases(one.add_reports(*lost)) == ["early"]
    one.state = saved  # the previous process died before it saved the state with the second alert
    one.restart(since=9.5)
    new = [Event(f"new-{number}", away(0.0, 5_000.0), after(10.1)) for number in range(5)]
    assert phases(one.add_reports(*new)) == ["early"]
    assert one.numbers == sorted(set(one.numbers))


def test_after_a_crash_a_place_that_no_process_has_announced_is_announced_at_once() -> None:
    one = EngineUnderTest()
    one.add_reports(*events(4))
    one.restart(since=5.0)
    one.engine.add_cells([cell_to_json(cell) for cell in cells_of(one.kind, events(6))], after(5.0))  # reported meanwhile
    assert one.published() == []
    one.engine.go_live([], after(5.0))
    assert phases(one.published()) == ["early"]
    assert one.tick(12) == []
    assert phases(one.tick(60)) == ["cleared"]


def test_after_a_crash_a_place_that_is_announced_in_the_log_is_not_announced_again() -> None:
    one = EngineUnderTest()
    (early,) = one.add_reports(*events(6))
    record = to_record(ForwardedMessage(EdgeRef("north", service_sender(ENGINE)), 1, early))
    assert maybe_announced(record, EdgeRef("north", service_sender(ENGINE))) == early.fields["incident"]
    assert maybe_announced(record, EdgeRef("south", service_sender(ENGINE))) is None
    one.state = None  # the process died before it saved its state
    one.restart(since=5.0)
    one.engine.go_live([IncidentId(str(early.fields["incident"]))], after(5.0))
    assert one.published() == []
    assert one.tick(12) == []
    (cleared,) = one.tick(60)
    assert cleared_ids(cleared) == (early.fields["incident"],)


@pytest.mark.parametrize("record", [None, b"", b"{}", b'{"phase":"early"}', b"early \xff"])
def test_a_record_that_is_no_alert_announces_nothing(record: bytes | None) -> None:
    assert maybe_announced(record, EdgeRef("north", service_sender(ENGINE))) is None
