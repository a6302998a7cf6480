"""From messages to events, from events to cells, from cells to records of the log.

What must hold:
- a cell is what docs/reference/incidents.md says, exactly: sums of whole numbers, sets and extremes, so that neither the order of
  reports nor how they fall into batches matters;
- one groupBy for all kinds, and nothing that real-time mode does not have;
- all state has an end: a cell is forgotten when no report of its slot may come any more. A clock that runs ahead brings that end
  nearer for everybody, so what was seen more than `AHEAD_S` after it was appended is no event.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.hub.incidents.desk import CELLS
from milepost.model.incidents import TALLY_PARTS, WITNESSES_MAX, EventKind
from milepost.model.incidents.predicates import fields_of
from milepost.pipelines.grid import with_square
from milepost.pipelines.hazards.schema import KEY

AHEAD_S: Final = 10
"""So far ahead the clock of a reporter may run; edges refuse reports of clocks that run ahead much less than that."""

FIELD_MAX: Final = 1_000_000
"""Greater values are left out of tallies."""


def events(messages: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """EVENT_ROW of those MESSAGE_ROW that are reports of these kinds and have a place."""
    is_in_time = f.col("seen_at_us") <= f.unix_micros("appended_at") + AHEAD_S * 1_000_000
    placed = messages.where(f.col("topic").isin([kind.topic for kind in kinds])).where("latitude is not null").where(is_in_time)
    numbers = f.transform_values("fields", lambda _, text: text.try_cast("double"))
    return placed.select(
        f.explode(_kinds_by_topic(kinds)[f.col("topic")]).alias("kind"),
        f.col("source").alias("endpoint"),
        "seen_at_us",
        "latitude",
        "longitude",
        numbers.alias("fields"),
    )


def cells(events: DataFrame, kinds: Sequence[EventKind], *, late_s: float) -> DataFrame:
    """CELL_ROW of EVENT_ROW; in a stream a cell is told again whenever it has changed, until `late_s` after its slot."""
    tallied = tallied_fields(kinds)
    spots = with_square(with_slot(events, kinds)).withColumns(
        {_parts_of(name): _in_parts(name, names) for name, names in tallied.items()}
    )
    # Slots of other kinds may end so much later, and clocks run ahead by so much: neither may end this slot.
    patience_s = late_s + max(kind.interval_s for kind in kinds) + AHEAD_S
    late = spots.withWatermark("slot_ends", f"{round(patience_s * 1000)} milliseconds")
    tallies = [aggregate for name in tallied for aggregate in _tally(name)]
    gathered = late.groupBy(*KEY).agg(
        f.count(f.lit(1)).alias("reports"),
        f.collect_set("endpoint").alias("names"),
        f.sum("north").alias("north_sum"),
        f.sum("east").alias("east_sum"),
        *(function(of).alias(f"{of}_{function.__name__}") for of in ("north", "east") for function in (f.min, f.max)),
        f.min("seen_at_us").alias("first_us"),
        f.max("seen_at_us").alias("last_us"),
        *tallies,
    )
    return gathered.select(
        *("kind", "slot", "row", "column", "reports"),
        f.slice(f.sort_array("names"), 1, WITNESSES_MAX).alias("witnesses"),
        f.size("names").alias("witness_count"),
        *("north_sum", "east_sum"),
        f.array("north_min", "east_min", "north_max", "east_max").alias("extent"),
        _spelled("first_us").alias("first_at"),
        _spelled("last_us").alias("last_at"),
        *([f.struct(*(_tally_told(name) for name in tallied)).alias("tallies")] if tallied else []),
    )


def cell_records(cells: DataFrame) -> DataFrame:
    """OUT_ROW of CELL_ROW: told again under the same key, and the one with more reports counts."""
    return cells.select(
        f.lit(CELLS).alias("topic"),
        f.concat_ws("/", "kind", "slot", "row", "column").alias("key"),
        f.to_json(f.struct(f.lit("cell").alias("type"), *cells.columns)).alias("value"),
    )


def tallied_fields(kinds: Iterable[EventKind]) -> dict[str, list[str]]:
    """The fields that predicates ask about, each with the names of the kinds whose predicates do."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        for name in fields_of(kind.condition):
            found[name].append(kind.name)
    return dict(sorted(found.items()))


def _kinds_by_topic(kinds: Sequence[EventKind]) -> Column:
    by_topic: defaultdict[str, list[Column]] = defaultdict(list)
    for kind in kinds:
        by_topic[kind.topic].append(f.lit(kind.name))
    return f.create_map(*(part for topic, names in by_topic.items() for part in (f.lit(topic), f.array(*names))))


def with_slot(events: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """With the slot, when it ends, and the height of the kind's squares; events of other kinds are left out."""
    known = events.where(f.col("kind").isin([kind.name for kind in kinds]))
    lengths_ns = _by_kind({kind.name: kind.interval_ns for kind in kinds})
    return (
        known.withColumn("height", _by_kind({kind.name: kind.grid.height for kind in kinds}))
        .withColumn("_length_ns", lengths_ns)
        .withColumn("slot", f.expr("seen_at_us * 1000 div _length_ns"))
        .withColumn("slot_ends", f.timestamp_micros(f.expr("(slot + 1) * _length_ns div 1000")))
        .drop("_length_ns")
    )


def _by_kind(values: Mapping[str, int]) -> Column:
    (first, value), *others = values.items()
    found = f.when(f.col("kind") == first, f.lit(value).cast("bigint"))
    for name, value in others:
        found = found.when(f.col("kind") == name, f.lit(value).cast("bigint"))
    return found


def _parts_of(name: str) -> str:
    return f"_parts_{name}"


def _in_parts(name: str, kinds: Sequence[str]) -> Column:
    """The value of a field in whole thousandths, for the kinds that ask about it."""
    value = f.col("fields")[name]
    return f.when(f.col("kind").isin(list(kinds)) & (f.abs(value) <= FIELD_MAX), (value * float(TALLY_PARTS)).cast("bigint"))


def _tally(name: str) -> list[Column]:
    how = {"count": f.count, "total": f.sum, "least": f.min, "greatest": f.max}
    return [function(_parts_of(name)).alias(f"_{what}_{name}") for what, function in how.items()]


def _tally_told(name: str) -> Column:
    members = [f.col(f"_{what}_{name}").alias(what) for what in ("count", "total", "least", "greatest")]
    return f.when(f.col(f"_count_{name}") > 0, f.struct(*members)).alias(name)


def _spelled(micros: str) -> Column:
    """An instant as ISO 8601, in the session's time, which is UTC."""
    return f.concat(f.translate(f.timestamp_micros(micros).cast("string"), " ", "T"), f.lit("Z"))
