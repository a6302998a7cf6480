"""A condition that is false for the reports around a bin means that no part of them makes it hot (M24)."""

import sqlite3

from hypothesis import event, given
from hypothesis import strategies as st

from milepost.incidents.bins import LazyBin, totals_of
from milepost.model.incidents import TALLY_PARTS, EventKind, fields_of, holds, parse_predicate
from milepost.pipelines.hot_bounds import may_hold
from unit.incidents.events import HOME, NOON, Event, after, away, cells_of

FIELDS = ("v", "w")
numbers = st.integers(-6, 12).map(str) | st.sampled_from(["2.5", "-0.001", "1e1"])
aggregates = st.sampled_from(["reports", "witnesses", "weight", "radius_m", "age_s"]) | st.builds(
    "{}_{}".format, st.sampled_from(["mean", "min", "max", "sum", "count"]), st.sampled_from(FIELDS)
)
operands = aggregates | numbers
comparisons = st.builds("{} {} {}".format, operands, st.sampled_from(["<", "<=", ">", ">=", "==", "!="]), operands)
predicates = st.recursive(
    comparisons,
    lambda part: st.builds("({} {} {})".format, part, st.sampled_from(["and", "or"]), part) | part.map("not ({})".format),
    max_leaves=6,
)
values = st.dictionaries(st.sampled_from(FIELDS), st.integers(-3, 9).map(float) | st.sampled_from([0.0015, 3.14159]))
events = st.builds(
    lambda who, east, seconds, fields: Event(f"car-{who}", away(0.0, east), after(seconds), fields),
    st.integers(0, 4),
    st.sampled_from([0.0, 40.0]),
    st.floats(0, 5),
    values,
)


def is_hot(kind: EventKind, found: list[Event]) -> bool:
    totals = totals_of(kind.grid, cells_of(kind, found))
    return any(holds(kind.condition, LazyBin(kind, square, totals, {}, after(10)).value_of) for square in totals)


def may_be_hot(predicate: str, found: list[Event]) -> bool:
    """Evaluate the condition as SQL, over the totals of all reports."""
    names = {name: number for number, name in enumerate(FIELDS)}
    totals: dict[str, int | None] = {"reports": len(found)}
    for name, number in names.items():
        parts = [int(event.fields[name] * TALLY_PARTS) for event in found if name in event.fields]
        totals[f"count_{number}"] = len(parts)
        totals[f"least_{number}"], totals[f"greatest_{number}"] = (min(parts), max(parts)) if parts else (None, None)
    columns = ", ".join(f"? as {name}" for name in totals)
    condition = may_hold(parse_predicate(predicate), names)
    with sqlite3.connect(":memory:") as database:
        row = database.execute(f"select {condition} from (select {columns})", list(totals.values())).fetchone()
    return bool(row[0])


@given(predicates, st.lists(events, min_size=1, max_size=12), st.data())
def test_a_bin_that_cannot_be_hot_is_not_hot_with_any_part_of_its_reports(
    predicate: str, found: list[Event], data: st.DataObject
) -> None:
    kind = EventKind("Test", "t", predicate, "Alert/t")
    assert fields_of(kind.condition) <= set(FIELDS)
    some = data.draw(st.lists(st.sampled_from(found), min_size=1, max_size=len(found), unique_by=id))
    may = may_be_hot(predicate, found)
    event(f"may be hot: {may}")
    assert may or not is_hot(kind, some)


def test_slow_traffic_is_told_from_flowing_traffic() -> None:
    predicate = "weight >= 5 and reports >= 10 and (count_v == 0 or mean_v < 4)"
    flowing = [Event(f"car-{number}", HOME, NOON, {"v": 12.0}) for number in range(20)]
    assert not may_be_hot(predicate, flowing)
    assert may_be_hot(predicate, [*flowing, Event("car-20", HOME, NOON, {"v": 3.0})])
    assert may_be_hot(predicate, [*flowing, Event("car-20", HOME, NOON, {})]), "the reports without a speed may decide"
    assert not may_be_hot(predicate, flowing[:9])
