"""The pipeline `hazards`: messages on the topics of event kinds to the log's `cells`.

    messages ─▶ events: EVENT_ROW ─▶ cells: one groupBy, CELL_ROW ─▶ cell_records: JSON, read by `wire.incidents.cell_from_json`

*Invariants:*
- a cell is exactly what docs/reference/incidents.md defines: sums of integers, sets and extremes, so that neither the order of
  reports nor their batches matter;
- one groupBy for all kinds, and no operator that real-time mode lacks;
- all state expires: a cell is dropped once no report of its slot can arrive any more. A clock that runs ahead would advance the
  watermark for all, so a message with `seen_at` more than `CLOCK_AHEAD_S_MAX` after its append is no event.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final
from zlib import crc32

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.incidents.engine import CELLS
from milepost.model.incidents import TALLY_PARTS, EventKind
from milepost.model.incidents.predicates import fields_of
from milepost.model.incidents.witnesses import WITNESSES_MAX_LOG2
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import MESSAGES_TOPIC, messages
from milepost.pipelines.settings import PipelineSettings
from milepost.wire.json_form.codec import VERSION

EVENT_ROW: Final = """
    kind string, endpoint string, seen_at_us bigint, latitude double, longitude double, fields map<string, double>
"""
"""One report of an event. `kind` is the name of an `EventKind`, `fields` the numeric fields of the payload, or null."""

KEY: Final = ("kind", "slot", "slot_ends", "row", "column")
"""Key of cells."""

PACKED_KEY: Final = ("slot_ends", "kind_id", "square")
"""The same in three numbers, by which events are grouped: a third of the bytes to hash, shuffle and store."""

CELL_ROW: Final = """
    kind string, slot bigint, row bigint, column bigint, reports bigint, witnesses binary,
    north_sum bigint, east_sum bigint, extent array<bigint>, first_at string, last_at string
"""
"""One cell, with the members of its JSON except `type`; see docs/reference/incidents.md. Where predicates use fields there is
also `tallies`, a struct with a member for each field."""


WITNESS: Final = "unhex(left(sha2(endpoint, 256), 16))"
"""Entry of an endpoint in the sketch; see `milepost.model.incidents.witnesses`."""

CLOCK_AHEAD_S_MAX: Final = 10
"""Maximum time by which `seen_at` may be after the append; edges refuse reports of clocks that run ahead by much less."""

FIELD_MAX: Final = 1_000_000
"""Maximum absolute value of a field in tallies; greater ones are ignored."""

STATE_VERSION: Final = 2
"""Version of the state of the query."""

_COLUMN_BITS: Final = 32
_CIRCLE: Final = 3_600_000_000
_HALF_CIRCLE: Final = _CIRCLE // 2

_STEPS: Final = (
    ("_up", "cast((latitude + 90D) * 1e7D as bigint)"),
    ("_over", f"cast((longitude + 180D) * 1e7D as bigint) % {_CIRCLE}L"),
    ("row", f"least(_up div height, ({_HALF_CIRCLE}L + height - 1) div height - 1)"),
    ("_x", "(2L * row + 1L) * height / 2e7D - 90D"),
    (
        "_columns",
        f"greatest(1L, cast(({_CIRCLE}L div height) * ((32400D - 4D * _x * _x) / (32400D + _x * _x)) as bigint))",
    ),
    ("column", f"_over * _columns div {_CIRCLE}L"),
    ("north", "_up - row * height"),
    ("east", f"_over - column * {_CIRCLE}L div _columns"),
)


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return one query for all kinds counted by messages; `positions` handles kinds that count reports."""
    kinds = [kind for kind in settings.kinds if not kind.from_reports]

    def transform(log: DataFrame) -> DataFrame:
        return cell_records(cells(events(messages(log), kinds), kinds, allowed_lateness_s=settings.allowed_lateness_s))

    # The state has a column for each tallied field: other fields need new state.
    fields = ",".join(tallied_fields(kinds))
    state_version = crc32(fields.encode(), STATE_VERSION) if fields else STATE_VERSION
    return [Plan("hazards", (MESSAGES_TOPIC,), state_version, transform, is_urgent=True)] if kinds else []


def events(messages: DataFrame, kinds: Sequence[EventKind], *others: str) -> DataFrame:
    """Return the events of these kinds that messages (MESSAGE_ROW) with a place report: EVENT_ROW and columns *others*."""
    is_in_time = f.col("seen_at_us") <= f.unix_micros("appended_at") + CLOCK_AHEAD_S_MAX * 1_000_000
    placed = messages.where(f.col("topic").isin([kind.topic for kind in kinds])).where("latitude is not null").where(is_in_time)
    return placed.select(
        f.explode(kinds_by_topic(kinds)[f.col("topic")]).alias("kind"),
        f.col("source").alias("endpoint"),
        "seen_at_us",
        "latitude",
        "longitude",
        numbers_in("fields").alias("fields"),
        *others,
    )


def cells(events: DataFrame, kinds: Sequence[EventKind], *, allowed_lateness_s: float) -> DataFrame:
    """Return the cells of events (EVENT_ROW), with schema CELL_ROW.

    A stream emits a cell again at each change, until `allowed_lateness_s` after its slot.
    """
    tallied = tallied_fields(kinds)
    spots = with_square(with_slot(events, kinds)).select(
        *_packed_key(kinds),
        *("north", "east", "seen_at_us"),
        f.expr(WITNESS).alias("witness"),
        *(in_parts(name, names).alias(_parts_of(name)) for name, names in tallied.items()),
    )
    # All kinds share the watermark: neither longer slots of other kinds nor clocks that run ahead may end this slot.
    watermark_delay_s = allowed_lateness_s + max(kind.interval_s for kind in kinds) + CLOCK_AHEAD_S_MAX
    watermarked = spots.withWatermark("slot_ends", f"{round(watermark_delay_s * 1000)} milliseconds")
    # Sketches of parts of a cell would cost more to write, shuffle and merge than the events themselves.
    together = watermarked.repartition(*PACKED_KEY)
    tallies = [aggregate for name in tallied for aggregate in _tally(name)]
    aggregated = together.groupBy(*PACKED_KEY).agg(
        f.count(f.lit(1)).alias("reports"),
        f.theta_sketch_agg("witness", WITNESSES_MAX_LOG2).alias("sketch"),
        f.sum("north").alias("north_sum"),
        f.sum("east").alias("east_sum"),
        *(function(of).alias(f"{of}_{function.__name__}") for of in ("north", "east") for function in (f.min, f.max)),
        f.min("seen_at_us").alias("first_us"),
        f.max("seen_at_us").alias("last_us"),
        *tallies,
    )
    return aggregated.select(
        *_unpacked_key(kinds),
        "reports",
        f.col("sketch").alias("witnesses"),
        *("north_sum", "east_sum"),
        f.array("north_min", "east_min", "north_max", "east_max").alias("extent"),
        _iso_text("first_us").alias("first_at"),
        _iso_text("last_us").alias("last_at"),
        *([f.struct(*(_tally_struct(name) for name in tallied)).alias("tallies")] if tallied else []),
    )


def cell_records(cells: DataFrame) -> DataFrame:
    """Return cells (CELL_ROW) as records for the log, with schema OUT_ROW; JSON has the sketch in base64.

    Of several records with one key the one with most reports is valid.
    """
    return cells.select(
        f.lit(CELLS).alias("topic"),
        f.concat_ws("/", "kind", "slot", "row", "column").alias("key"),
        f.to_json(f.struct(f.lit(VERSION).alias("v"), f.lit("cell").alias("type"), *cells.columns)).alias("value"),
    )


def kinds_by_topic(kinds: Sequence[EventKind]) -> Column:
    """Return a map from topics to the names of their kinds."""
    by_topic: defaultdict[str, list[Column]] = defaultdict(list)
    for kind in kinds:
        by_topic[kind.topic].append(f.lit(kind.name))
    return f.create_map(*(part for topic, names in by_topic.items() for part in (f.lit(topic), f.array(*names))))


def numbers_in(fields: str) -> Column:
    """Return the numeric fields of a payload."""
    return f.transform_values(fields, lambda _, text: text.try_cast("double"))


def tallied_fields(kinds: Iterable[EventKind]) -> dict[str, list[str]]:
    """Return the fields used by predicates, each with the names of the kinds that use it."""
    found: defaultdict[str, list[str]] = defaultdict(list)
    for kind in kinds:
        for name in fields_of(kind.condition):
            found[name].append(kind.name)
    return dict(sorted(found.items()))


def with_slot(events: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Add `slot`, `slot_ends` and the `height` of the kind's squares; drop events of other kinds."""
    known = events.where(f.col("kind").isin([kind.name for kind in kinds]))
    lengths_ns = _by_kind({kind.name: kind.interval_ns for kind in kinds})
    return (
        known.withColumn("height", _by_kind({kind.name: kind.grid.height for kind in kinds}))
        .withColumn("_length_ns", lengths_ns)
        .withColumn("slot", f.expr("seen_at_us * 1000 div _length_ns"))
        .withColumn("slot_ends", f.timestamp_micros(f.expr("(slot + 1) * _length_ns div 1000")))
        .drop("_length_ns")
    )


def with_square(places: DataFrame) -> DataFrame:
    """Add `row`, `column`, `north` and `east` to rows with `latitude`, `longitude` and the grid's `height` (`Grid.height`).

    The squares are bit-identical to those of `milepost.model.incidents.grid`: only integers and + - × ÷ of doubles, in the
    model's order of evaluation.
    """
    found = places
    for name, expression in _STEPS:
        found = found.withColumn(name, f.expr(expression))
    return found.drop("_up", "_over", "_x", "_columns")


def _packed_key(kinds: Sequence[EventKind]) -> list[Column]:
    square = f.shiftleft("row", _COLUMN_BITS).bitwiseOR(f.col("column"))
    return [
        f.col("slot_ends"),
        _by_kind({name: one for one, name in kind_ids(kinds).items()}).alias("kind_id"),
        square.alias("square"),
    ]


def _unpacked_key(kinds: Sequence[EventKind]) -> list[Column]:
    ids = kind_ids(kinds)
    lengths = {kind.name: kind.interval_ns for kind in kinds}
    length_ns = _by({one: f.lit(lengths[name]).cast("bigint") for one, name in ids.items()}, "kind_id")
    # `slot_ends` is in whole microseconds, up to 999 ns before the end of the slot.
    ends_ns = f.unix_micros("slot_ends") * 1000 + 999
    return [
        _by({one: f.lit(name) for one, name in ids.items()}, "kind_id").alias("kind"),
        (f.call_function("div", ends_ns, length_ns) - 1).alias("slot"),
        f.shiftright("square", _COLUMN_BITS).alias("row"),
        f.col("square").bitwiseAND(f.lit(2**_COLUMN_BITS - 1)).alias("column"),
    ]


def kind_ids(kinds: Iterable[EventKind]) -> dict[int, str]:
    """Return the names of kinds by a number that does not depend on the other kinds, as stored keys have it."""
    found: dict[int, str] = {}
    for kind in kinds:
        other = found.setdefault(crc32(kind.name.encode()), kind.name)
        if other != kind.name:
            raise ValueError(f"the kinds {other} and {kind.name} have the same CRC-32: rename one of them")
    return found


def _by_kind(values: Mapping[str, int]) -> Column:
    return _by({name: f.lit(value).cast("bigint") for name, value in values.items()}, "kind")


def _by(values: Mapping[Any, Column], name: str) -> Column:
    """Return the value for that of the column *name*."""
    (first, value), *others = values.items()
    found = f.when(f.col(name) == first, value)
    for key, value in others:
        found = found.when(f.col(name) == key, value)
    return found


def _parts_of(name: str) -> str:
    return f"_parts_{name}"


def in_parts(name: str, kinds: Sequence[str]) -> Column:
    """Return the value of a field in whole thousandths, for the kinds that use it."""
    value = f.col("fields")[name]
    return f.when(f.col("kind").isin(list(kinds)) & (f.abs(value) <= FIELD_MAX), (value * float(TALLY_PARTS)).cast("bigint"))


def _tally(name: str) -> list[Column]:
    aggregates = {"count": f.count, "total": f.sum, "least": f.min, "greatest": f.max}
    return [function(_parts_of(name)).alias(f"_{what}_{name}") for what, function in aggregates.items()]


def _tally_struct(name: str) -> Column:
    members = [f.col(f"_{what}_{name}").alias(what) for what in ("count", "total", "least", "greatest")]
    return f.when(f.col(f"_count_{name}") > 0, f.struct(*members)).alias(name)


def _iso_text(micros: str) -> Column:
    """Return an instant as ISO 8601, in the session's time zone, which is UTC."""
    return f.concat(f.translate(f.timestamp_micros(micros).cast("string"), " ", "T"), f.lit("Z"))
