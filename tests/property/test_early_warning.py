"""Early warnings do not change incidents, and each is followed by its outcome, also through a restart (M24)."""

from collections import Counter
from collections.abc import Sequence
from random import Random

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.incidents import Incidents, maybe_alert
from milepost.incidents.engine import STATE, Announcement, EarlyWarnings, EngineAppend, IncidentEngine
from milepost.incidents.tracker import is_within_alert_area
from milepost.model.addresses import ToNotified
from milepost.model.endpoints import service_source
from milepost.model.incidents import Cell, CellKey, EventKind, Incident, IncidentChange, IncidentPhase, Square
from milepost.model.instants import Instant
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record
from property.test_incidents import KINDS, LAST_S, all_changes, incidents_with, many_events
from unit.incidents.events import NOON, Event, after, cell_of, cells_of

LATE_S = 2.0
TICK_S = 2.5
kinds = st.sampled_from([kind for kind, _ in KINDS])


def cells_over_time(kind: EventKind, found: Sequence[Event]) -> list[Cell]:
    """Return the cells after each report, one by one."""
    gathered: dict[CellKey, list[Event]] = {}
    told = []
    for one in sorted(found, key=lambda one: one.seen_at):
        key = CellKey(kind.name, one.seen_at // kind.interval_ns, kind.grid.locate(one.place).square)
        some = gathered.setdefault(key, [])
        some.append(one)
        told.append(cell_of(kind, key, some))
    return told


class Live:
    """Incidents with early warnings, as in an engine."""

    def __init__(self, kind: EventKind) -> None:
        self.incidents = Incidents([kind])
        self.early = EarlyWarnings(self.incidents, lateness_ns=int(LATE_S * 1e9), since=NOON)
        self.changes: list[IncidentChange] = []
        self.announcements: list[Announcement] = []

    def add_cell(self, cell: Cell, now: Instant) -> None:
        self.advance(Instant(now - int(LATE_S * 1e9)))
        assert self.incidents.add(cell) is None
        self.announcements += [Announcement(change) for change in self.early.find_early([cell], now)]

    def advance(self, until: Instant) -> None:
        while True:
            ends = [end for end in (self.incidents.maybe_next_end(), self.early.maybe_next_end()) if end is not None]
            if not ends or min(ends) > until:
                break
            changes = self.incidents.advance(min(ends))
            self.changes += changes
            self.announcements += self.early.resolve(changes)
        self.changes += self.incidents.advance(until)


def run_live(kind: EventKind, found: Sequence[Event]) -> Live:
    live = Live(kind)
    for cell in cells_over_time(kind, found):
        live.add_cell(cell, cell.last_at)
    live.advance(after(2 * LAST_S))
    return live


def cleared_ids(announcement: Announcement, kind: EventKind) -> tuple[str, ...]:
    clear = maybe_alert(announcement.change, kind, service_source("hub"), announcement.early)
    assert clear is not None
    assert isinstance(clear.address, ToNotified)
    return clear.address.incidents


@given(kinds, many_events())
def test_changes_are_the_same_with_and_without_early_warnings(kind: EventKind, found: list[Event]) -> None:
    assert run_live(kind, found).changes == all_changes(incidents_with(kind, cells_of(kind, found), {}))


@given(kinds, many_events())
def test_every_early_warning_is_followed_by_an_all_clear_that_names_it(kind: EventKind, found: list[Event]) -> None:
    live = run_live(kind, found)
    for at, (change, _) in enumerate(live.announcements):
        if change.phase is not IncidentPhase.EARLY:
            continue
        place = change.incident
        later = [announcement for announcement in live.announcements[at:] if announcement.change.phase is IncidentPhase.CLEARED]
        assert any(place.id in cleared_ids(announcement, kind) for announcement in later)
        event(
            "stood" if any(one.id == place.id and one.raised_at != place.raised_at for one in ids(live)) else "other id or none"
        )
    assert live.early.warned == ()


def ids(live: Live) -> list[Incident]:
    return [change.incident for change in live.changes]


@given(kinds, many_events())
def test_every_incident_is_announced_when_raised_or_was_announced_early_at_its_place(kind: EventKind, found: list[Event]) -> None:
    live = run_live(kind, found)
    told = {
        announcement.change.incident.id
        for announcement in live.announcements
        if announcement.change.phase is IncidentPhase.RAISED
    }
    early = {
        announcement.change.incident.id: announcement.change.incident
        for announcement in live.announcements
        if announcement.change.phase is IncidentPhase.EARLY
    }
    for change in live.changes:
        incident = change.incident
        if change.phase is IncidentPhase.RAISED and incident.id not in told:
            event("an early warning stood")
            assert is_within_alert_area(kind, early[incident.id].alert_area, incident.circle)
    others = [
        announcement.change
        for announcement in live.announcements
        if announcement.change.phase not in (IncidentPhase.EARLY, IncidentPhase.RAISED, IncidentPhase.CLEARED)
    ]
    assert others == [one for one in live.changes if one.phase not in (IncidentPhase.RAISED, IncidentPhase.CLEARED)]


@given(kinds, many_events())
def test_an_incident_keeps_the_id_of_its_early_warning_unless_it_grew_to_an_older_report(
    kind: EventKind, found: list[Event]
) -> None:
    live = run_live(kind, found)
    raised = [change.incident for change in live.changes if change.phase is IncidentPhase.RAISED]
    slots = Counter(slot_of(incident) for incident in raised)
    for change in [one.change for one in live.announcements if one.change.phase is IncidentPhase.EARLY]:
        place = change.incident
        counted = {near for square in place.squares for near in kind.grid.block(square)}
        for incident in raised:
            # With several incidents in a slot, the square may belong to another of them.
            if slot_of(incident) == slot_of(place) and slots[slot_of(place)] == 1 and place.squares <= incident.squares:
                event("kept" if incident.id == place.id else "grew to an older report")
                assert incident.id == place.id or first_square(incident) not in counted


def slot_of(incident: Incident) -> str:
    return incident.id.split("-")[1]


def first_square(incident: Incident) -> Square:
    row, column = incident.id.split("-")[2:]
    return Square(int(row), int(column))


@given(kinds, many_events(), st.floats(0, LAST_S))
def test_an_engine_resumed_from_its_state_repeats_alerts_under_the_same_numbers(
    kind: EventKind, found: list[Event], stop: float
) -> None:
    first = IncidentEngine("north", [kind], allowed_lateness_s=LATE_S, since=NOON)
    appends = run(first, [cell for cell in cells_over_time(kind, found) if cell.last_at <= after(stop)], stop)
    states = [one.value for one in appends if one.topic == STATE]
    second = IncidentEngine("north", [kind], allowed_lateness_s=LATE_S, since=after(stop), state=states[-1] if states else None)
    known = [one for one in found if one.seen_at <= after(stop)]
    second.add_cells([cell_to_json(cell) for cell in cells_of(kind, known)], after(stop))
    numbers = [number_of(one) for one in appends if one.topic == CROSS_HUB]
    assert numbers == sorted(set(numbers))
    rest = [run(engine, [], 2 * LAST_S) for engine in (first, second)]
    assert alerts(rest[1]) == alerts(rest[0])


def run(engine: IncidentEngine, cells: Sequence[Cell], until: float) -> list[EngineAppend]:
    """Add cells with ticks in between and after; return all appends."""
    appends: list[EngineAppend] = []
    now = 0.0
    waiting = list(cells)
    while now <= until:
        while waiting and waiting[0].last_at <= after(now):
            cell = waiting.pop(0)
            engine.add_cells([cell_to_json(cell)], cell.last_at)
        engine.tick(after(now))
        appends += engine.take_appends()
        now += TICK_S
    engine.add_cells([cell_to_json(cell) for cell in waiting], after(until))
    engine.tick(after(until))
    return appends + engine.take_appends()


def number_of(append: EngineAppend) -> int:
    message = from_record(append.value)
    assert isinstance(message, ForwardedMessage)
    return message.number


def alerts(appends: Sequence[EngineAppend]) -> list[EngineAppend]:
    return [one for one in appends if one.topic == CROSS_HUB]


def add_one_by_one(engine: IncidentEngine, cells: Sequence[Cell], now: Instant) -> None:
    for cell in cells:
        engine.add_cells([cell_to_json(cell)], now)


@given(kinds, many_events(), st.randoms(use_true_random=False))
def test_cells_of_one_batch_have_the_effect_of_cells_added_one_by_one(
    kind: EventKind, found: list[Event], random: Random
) -> None:
    cells = cells_over_time(kind, found)
    random.shuffle(cells)
    batch, singly = (IncidentEngine("north", [kind], allowed_lateness_s=LATE_S, since=after(2 * LAST_S)) for _ in range(2))
    batch.add_cells([cell_to_json(cell) for cell in cells], NOON)
    add_one_by_one(singly, cells, NOON)
    for at in (after(LAST_S / 2), after(LAST_S), after(2 * LAST_S)):
        batch.tick(at)
        singly.tick(at)
        assert batch.take_appends() == singly.take_appends()
    event("some repeated" if len({cell.key for cell in cells}) < len(cells) else "none repeated")
