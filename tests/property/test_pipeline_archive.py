"""The archive without Spark: cells of places, current files, replays and comparisons."""

from collections.abc import Callable, Iterable
from itertools import accumulate, cycle, islice
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
from hypothesis import event, example, given
from hypothesis import strategies as st

from milepost.incidents.engine import IncidentEngine
from milepost.model.areas import Area, Box, Circle
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place, vectors
from milepost.model.queries import holds, parse_query
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.model.time_windows import TimeWindow
from milepost.pipelines.archive.files import HourState, TableFolder, TableState
from milepost.pipelines.archive.schema import REPORTS, cell_name, cells_over
from milepost.pipelines.arrivals import Arrival, GrowingCells
from milepost.pipelines.backtest import Replay, incidents_of, pair_incidents
from milepost.pipelines.search import ArchiveQuery, ArchiveQueryIndex, RowColumns
from milepost.wire.incidents import cell_to_json
from milepost.wire.records import from_record
from strategies import areas, places
from unit.incidents.events import NOON, Event, after, away, cells_of

KIND = EventKind("Collision", "Collision", "witnesses >= 2", "Alert/Collision", slots=3, clear_after_s=30.0)
OTHER = EventKind("Obstacle", "Object_Hazard", "reports >= 2", "Alert/Obstacle", interval_s=7.0, slots=2, clear_after_s=14.0)

LATE_S = 2
END_S = 500

sightings = st.lists(
    st.builds(
        lambda car, north, east, seconds: Event(f"car-{car}", away(north, east), after(seconds)),
        st.integers(0, 3),
        st.sampled_from([0.0, 40.0, 400.0, 3_000.0]),
        st.sampled_from([0.0, 160.0]),
        st.integers(0, 400_000).map(lambda ms: ms / 1_000),
    ),
    max_size=25,
)


def arrivals_of(found: list[Event], came_at: Callable[[Event], Instant]) -> list[Arrival]:
    """Return events of both kinds in the order in which they came."""
    rows = []
    for kind in (KIND, OTHER):
        for one in found:
            (row, column), north, east = kind.grid.locate(one.place)
            slot, seen_at_us = one.seen_at // kind.interval_ns, one.seen_at // 1_000
            rows.append((came_at(one) // 1_000, kind.name, slot, row, column, one.endpoint, seen_at_us, north, east, ()))
    return sorted(rows)


def replay() -> Replay:
    return Replay("north", (KIND, OTHER), allowed_lateness_s=LATE_S, since=NOON)


@given(areas, places)
def test_a_place_in_an_area_is_in_a_cell_over_the_area(area: Area, place: Place) -> None:
    may_hold = cells_over(area)
    corners = [place, *(Place(max(-90.0, min(90.0, box.south)), box.west) for box in area.boxes)]
    inside = area.contains(vectors([one.latitude for one in corners], [one.longitude for one in corners]))
    for one, is_inside in zip(corners, inside.tolist(), strict=True):
        assert may_hold(cell_name(one.latitude, one.longitude)) or not is_inside


@given(sightings)
def test_growing_cells_are_the_cells_of_the_events_so_far(found: list[Event]) -> None:
    growing = GrowingCells((KIND, OTHER))
    ordered = sorted(found, key=lambda one: one.seen_at)
    for number, one in enumerate(ordered):
        changed = growing.add(arrivals_of([one], lambda event: event.seen_at))
        so_far = {cell.key: cell for kind in (KIND, OTHER) for cell in cells_of(kind, ordered[: number + 1])}
        assert changed == [so_far[cell.key] for cell in changed]
        assert {cell.kind for cell in changed} == {KIND.name, OTHER.name}


@given(sightings, st.lists(st.integers(1, 40), min_size=1, max_size=20), st.lists(st.integers(0, 500), max_size=20))
def test_a_replay_equals_the_live_engine_that_received_the_same_batches(
    found: list[Event], steps: list[int], ticks: list[int]
) -> None:
    starts = [second for second in accumulate(islice(cycle(steps), END_S)) if second <= END_S]
    batches: dict[int, list[Event]] = {start: [one for one in found if came_in(one, starts) == start] for start in starts}
    engine = IncidentEngine("north", (KIND, OTHER), allowed_lateness_s=LATE_S, since=NOON)
    live: list[bytes] = []
    so_far: list[Event] = []
    for seconds in sorted({*starts, *ticks}):
        engine.tick(after(seconds))
        so_far += batches.get(seconds, [])
        keys = {cell.key for kind in (KIND, OTHER) for cell in cells_of(kind, batches.get(seconds, []))}
        cells = [cell for kind in (KIND, OTHER) for cell in cells_of(kind, so_far) if cell.key in keys]
        engine.add_cells([cell_to_json(cell) for cell in cells], after(seconds))
        live += [append.value for append in engine.take_appends() if append.topic == CROSS_HUB]
    engine.tick(after(END_S + LATE_S))
    live += [append.value for append in engine.take_appends() if append.topic == CROSS_HUB]
    arrivals = arrivals_of(found, lambda one: after(came_in(one, starts)))
    assert messages_of(replay().alerts(arrivals, after(END_S))) == messages_of(live)
    for one in messages_of(live):
        event(str(one.fields["phase"]))


def came_in(one: Event, starts: list[int]) -> int:
    """Return the first batch after an event."""
    return next(start for start in starts if after(start) > one.seen_at)


def messages_of(records: Iterable[bytes]) -> list[Message]:
    """Return the messages of alerts, without their numbers: those depend on when the engine ticks."""
    found = [from_record(record) for record in records]
    return [one.message for one in found if isinstance(one, ForwardedMessage)]


@given(sightings, sightings)
def test_each_incident_of_two_rules_is_in_exactly_one_pair(found: list[Event], others: list[Event]) -> None:
    a, b = (
        incidents_of(replay().alerts(arrivals_of(some, lambda event: event.seen_at), after(END_S))) for some in (found, others)
    )
    lines = pair_incidents(a, b)
    assert sorted(pair.a.id for pair in lines if pair.a) == sorted(one.id for one in a)
    assert sorted(pair.b.id for pair in lines if pair.b) == sorted(one.id for one in b)
    assert all(pair.a.may_equal(pair.b) for pair in lines if pair.a and pair.b)
    assert {pair.raised_by for pair in pair_incidents(a, a)} <= {"both"}


batches = st.lists(st.integers(0, 30), unique=True, max_size=12).map(sorted)


@given(
    batches, st.integers(-1, 30), st.integers(-1, 30), st.integers(0, 3), st.lists(st.integers(0, 12), max_size=4), st.booleans()
)
def test_current_files_of_an_hour_are_its_generation_and_each_later_finished_batch_once(
    offsets: list[int], sorted_upto: int, finished_upto: int, generation: int, cuts: list[int], is_all_gathered: bool
) -> None:
    later = [offset for offset in offsets if sorted_upto < offset <= finished_upto]
    ends = sorted({0, len(later), *(cut for cut in cuts if cut < len(later))})
    gathered = [(later[start], later[end - 1]) for start, end in zip(ends[:-1:2], ends[1::2], strict=False) if end - start > 1]
    if is_all_gathered and len(later) > 1:
        gathered.append((later[0], later[-1]))
    with TemporaryDirectory() as folder:
        table_folder = TableFolder(Path(folder), REPORTS)
        hour = table_folder.hour_of(Path("date=2030-01-01/hour=07"))
        paths = [hour.batch(offset) for offset in offsets] + [hour.batch(last, first) for first, last in gathered]
        for path in [*paths, *(hour.path / "cell=r1c2" / f"g{number}.parquet" for number in range(1, 5))]:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
        hour.write_state(HourState(generation, sorted_upto))
        table_folder.write_state(TableState(finished_upto))
        counted = table_folder.current()
        assert {path.name for path in counted if path.parent.name == "cell=r1c2"} == ({f"g{generation}.parquet"} - {"g0.parquet"})
        spans = [(batch.first, batch.upto) for batch in hour.unsorted(finished_upto)]
        assert [offset for first, last in spans for offset in later if first <= offset <= last] == later
        assert all(sorted_upto < first <= last <= finished_upto for first, last in spans)
        assert not set(counted) & set(hour.outdated())
        assert not any(int(path.stem[-19:]) > max(sorted_upto, -1) for path in hour.outdated() if path.stem[0] != "g")


spots = st.none() | st.tuples(st.sampled_from([40.0, 40.7, 41.0]), st.sampled_from([-112.0, -111.9, 180.0, -180.0]))
nearby: st.SearchStrategy[Area | None] = st.none() | st.sampled_from(
    [Circle(Place(40.7, -111.9), 50_000.0), Circle(Place(40.7, 179.9), 50_000.0), Box(40.0, -180.0, 40.7, -112.0)]
)
contents = st.tuples(st.sampled_from(["road/a", "road/b", "air"]), st.frozensets(st.sampled_from(["x", "y"])))
some_messages = st.lists(st.tuples(st.integers(0, 50), spots, contents), max_size=15)
some_formulas = st.none() | st.sampled_from(["x & !y", "topic:road/# & (x | y)", "topic:air", "!x", "x"]).map(parse_query)
queries = st.lists(
    st.builds(
        lambda query, area, start, length: ArchiveQuery(
            query, area, TimeWindow(Instant(start * 1_000), Instant((start + length) * 1_000))
        ),
        some_formulas,
        nearby,
        st.integers(0, 50),
        st.integers(0, 30),
    )
    | st.builds(ArchiveQuery, some_formulas, nearby),
    max_size=8,
)


@given(some_messages, queries)
@example([(0, (40.5, 180.0), ("air", frozenset()))], [ArchiveQuery(area=Box(40.0, -180.0, 41.0, -179.0))])
@example([(0, (40.5, -180.0), ("air", frozenset()))], [ArchiveQuery(area=Box(40.0, 179.0, 41.0, 180.0))])
def test_many_queries_at_once_are_answered_like_each_by_itself(
    messages: list[tuple[int, tuple[float, float] | None, tuple[str, frozenset[str]]]], queries: list[ArchiveQuery]
) -> None:
    labels = sorted({content for _, _, content in messages}, key=str)
    rows = RowColumns(
        np.array([at_us for at_us, _, _ in messages], np.int64),
        np.array([np.nan if spot is None else spot[0] for _, spot, _ in messages]),
        np.array([np.nan if spot is None else spot[1] for _, spot, _ in messages]),
        np.array([labels.index(content) for _, _, content in messages], np.int64),
        labels,
    )
    found = ArchiveQueryIndex(queries).answered_by(rows)
    expected = {
        (index, row)
        for index, query in enumerate(queries)
        for row, (at_us, spot, (topic, tags)) in enumerate(messages)
        if query.time_window.holds(Instant(at_us * 1_000))
        and (query.formula is None or holds(query.formula, topic, tags))
        and (query.area is None or (spot is not None and query.area.contains(vectors([spot[0]], [spot[1]]))[0]))
    }
    answers = list(zip(found.queries.tolist(), found.rows.tolist(), strict=True))
    assert len(answers) == len(set(answers))
    assert set(answers) == expected
