"""Early warnings change nothing in incidents, and whoever hears one hears what it came to, also through a restart (M24)."""

from collections.abc import Sequence

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.incidents import Incidents, maybe_alert
from milepost.incidents.engine import STATE, AlertAppend, Announcement, EarlyWarnings, IncidentEngine
from milepost.incidents.tracker import is_told
from milepost.model.addresses import ToNotified
from milepost.model.endpoints import EndpointId
from milepost.model.incidents import Cell, CellKey, Change, EventKind, Incident, Phase
from milepost.model.instants import Instant
from milepost.model.sites import CROSS_HUB, ForwardedMessage
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record
from property.test_incidents import KINDS, LAST_S, lived, many_events, taken
from unit.incidents.events import NOON, Event, after, cell_of, cells_of

LATE_S = 2.0
TICK_S = 2.5
kinds = st.sampled_from([kind for kind, _ in KINDS])


def as_they_come(kind: EventKind, found: Sequence[Event]) -> list[Cell]:
    """Each report as soon as it is made: its cell as it is then."""
    gathered: dict[CellKey, list[Event]] = {}
    told = []
    for one in sorted(found, key=lambda one: one.seen_at):
        key = CellKey(kind.name, one.seen_at // kind.interval_ns, kind.grid.spot(one.place).square)
        some = gathered.setdefault(key, [])
        some.append(one)
        told.append(cell_of(kind, key, some))
    return told


class Live:
    """Incidents as a desk lives through them, with early warnings."""

    def __init__(self, kind: EventKind) -> None:
        self.incidents = Incidents([kind])
        self.early = EarlyWarnings(self.incidents, late_ns=int(LATE_S * 1e9), since=NOON)
        self.changes: list[Change] = []
        self.tells: list[Announcement] = []

    def hear(self, cell: Cell, now: Instant) -> None:
        self.advance(Instant(now - int(LATE_S * 1e9)))
        assert self.incidents.take(cell) is None
        self.tells += [Announcement(change) for change in self.early.look([cell], now)]

    def advance(self, until: Instant) -> None:
        while True:
            ends = [end for end in (self.incidents.maybe_next_end(), self.early.maybe_next_end()) if end is not None]
            if not ends or min(ends) > until:
                break
            changes = self.incidents.advance(min(ends))
            self.changes += changes
            self.tells += self.early.settle(changes)
        self.changes += self.incidents.advance(until)


def lived_early(kind: EventKind, found: Sequence[Event]) -> Live:
    live = Live(kind)
    for cell in as_they_come(kind, found):
        live.hear(cell, cell.last_at)
    live.advance(after(2 * LAST_S))
    return live


def called_off(announcement: Announcement, kind: EventKind) -> tuple[str, ...]:
    clear = maybe_alert(announcement.change, kind, EndpointId("hub"), announcement.early)
    assert clear is not None
    assert isinstance(clear.address, ToNotified)
    return clear.address.incidents


@given(kinds, many_events())
def test_changes_are_the_same_with_and_without_early_warnings(kind: EventKind, found: list[Event]) -> None:
    assert lived_early(kind, found).changes == lived(taken(kind, cells_of(kind, found), {}))


@given(kinds, many_events())
def test_whoever_hears_an_early_warning_hears_an_all_clear_that_names_it(kind: EventKind, found: list[Event]) -> None:
    live = lived_early(kind, found)
    for at, (change, _) in enumerate(live.tells):
        if change.phase is not Phase.EARLY:
            continue
        place = change.incident
        later = [announcement for announcement in live.tells[at:] if announcement.change.phase is Phase.CLEARED]
        assert any(place.id in called_off(announcement, kind) for announcement in later)
        event(
            "stood" if any(one.id == place.id and one.raised_at != place.raised_at for one in ids(live)) else "other id or none"
        )
    assert live.early.warned == ()


def ids(live: Live) -> list[Incident]:
    return [change.incident for change in live.changes]


@given(kinds, many_events())
def test_every_incident_is_told_when_it_is_raised_or_was_told_early_where_it_is(kind: EventKind, found: list[Event]) -> None:
    live = lived_early(kind, found)
    told = {announcement.change.incident.id for announcement in live.tells if announcement.change.phase is Phase.RAISED}
    early = {
        announcement.change.incident.id: announcement.change.incident
        for announcement in live.tells
        if announcement.change.phase is Phase.EARLY
    }
    for change in live.changes:
        incident = change.incident
        if change.phase is Phase.RAISED and incident.id not in told:
            event("an early warning stood")
            assert is_told(kind, early[incident.id].told, incident.circle)
    others = [
        announcement.change
        for announcement in live.tells
        if announcement.change.phase not in (Phase.EARLY, Phase.RAISED, Phase.CLEARED)
    ]
    assert others == [one for one in live.changes if one.phase not in (Phase.RAISED, Phase.CLEARED)]


@given(kinds, many_events(), st.floats(0, LAST_S))
def test_a_desk_that_goes_on_from_the_state_says_the_same_under_the_same_numbers(
    kind: EventKind, found: list[Event], stop: float
) -> None:
    first = IncidentEngine("north", [kind], late_s=LATE_S, since=NOON)
    said = run(first, [cell for cell in as_they_come(kind, found) if cell.last_at <= after(stop)], stop)
    states = [one.value for one in said if one.topic == STATE]
    second = IncidentEngine("north", [kind], late_s=LATE_S, since=after(stop), state=states[-1] if states else None)
    known = [one for one in found if one.seen_at <= after(stop)]
    second.take_cells([cell_to_json(cell) for cell in cells_of(kind, known)], after(stop))
    numbers = [number_of(one) for one in said if one.topic == CROSS_HUB]
    assert numbers == sorted(set(numbers))
    rest = [run(engine, [], 2 * LAST_S) for engine in (first, second)]
    assert alerts(rest[1]) == alerts(rest[0])


def run(engine: IncidentEngine, cells: Sequence[Cell], until: float) -> list[AlertAppend]:
    """Cells as they come, ticks in between and after, and all that was said."""
    said: list[AlertAppend] = []
    now = 0.0
    waiting = list(cells)
    while now <= until:
        while waiting and waiting[0].last_at <= after(now):
            cell = waiting.pop(0)
            engine.take_cells([cell_to_json(cell)], cell.last_at)
        engine.tick(after(now))
        said += engine.take_appends()
        now += TICK_S
    engine.take_cells([cell_to_json(cell) for cell in waiting], after(until))
    engine.tick(after(until))
    return said + engine.take_appends()


def number_of(append: AlertAppend) -> int:
    said = from_record(append.value)
    assert isinstance(said, ForwardedMessage)
    return said.number


def alerts(appends: Sequence[AlertAppend]) -> list[AlertAppend]:
    return [one for one in appends if one.topic == CROSS_HUB]
