"""From the log's records to rows, and what is wrong with those that are none.

What must hold:
- a record is judged by itself: the same record is the same rows, or the same fault, wherever and whenever it is read;
- nothing here fails: what cannot be read is no row, and `faults` says why, once for each record, to who keeps dead letters.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model import telling
from milepost.model.sites import publish_to
from milepost.pipelines.records.schema import DELIVERIES, REPORTS, SAID

MESSAGES_TOPIC: Final = publish_to(telling.PIPELINES)
REPORTS_TOPIC: Final = telling.REPORTS
DELIVERIES_TOPIC: Final = telling.DELIVERIES
TOPICS: Final = (MESSAGES_TOPIC, REPORTS_TOPIC, DELIVERIES_TOPIC)

AHEAD_S: Final = 600
"""What was seen so much later than it was appended has a wrong time."""
BEHIND_S: Final = 7 * 86_400
"""And what was seen so much earlier."""

_FOREVER_US: Final = 2**63 - 1
_HOW: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
_REPORT_COLUMNS: Final = ("seen_at_us", "latitudes", "longitudes", "headings_deg", "speeds_mps", "verdicts", "covered")
_DELIVERY_COLUMNS: Final = ("states", "at_us", "reasons")


def messages(log: DataFrame) -> DataFrame:
    """The messages in log rows, as MESSAGE_ROW."""
    said = _messages_judged(log).where("fault is null")
    message = "said.message."
    return said.select(
        f.col("said.from").alias("edge"),
        f.expr("try_cast(said.number as bigint)").alias("number"),
        f.coalesce(f.col("said.qos"), f.lit(0)).alias("qos"),
        *(f.col(message + name) for name in ("id", "source", "topic")),
        "seen_at_us",
        f.coalesce(_micros(message + "valid_until"), f.lit(_FOREVER_US)).alias("valid_until_us"),
        f.col(message + "place.latitude").alias("latitude"),
        f.col(message + "place.longitude").alias("longitude"),
        *(f.col(message + name) for name in ("priority", "tags", "address", "fields")),
        f.unbase64(f.col(message + "body")).alias("body"),
        "offset",
        "appended_at",
    )


def reports(log: DataFrame) -> DataFrame:
    """The reports in log rows, as REPORT_ROW; single ones that cannot be, of a batch that can be read, are left out."""
    batches = _reports_judged(log).where("fault is null")
    zipped = f.arrays_zip(f.col("batch.endpoints"), *(f.col(f"batch.{name}") for name in _REPORT_COLUMNS))
    rows = batches.select(f.col("batch.edge").alias("edge"), f.explode(zipped).alias("one"), "offset", "appended_at")
    found = rows.select(
        "edge",
        f.col("one.endpoints").alias("endpoint"),
        f.col("one.seen_at_us").alias("seen_at_us"),
        f.col("one.latitudes").alias("latitude"),
        f.col("one.longitudes").alias("longitude"),
        f.col("one.headings_deg").alias("heading_deg"),
        f.col("one.speeds_mps").alias("speed_mps"),
        f.col("one.verdicts").alias("verdict"),
        f.col("one.covered").alias("covered"),
        "offset",
        "appended_at",
    )
    return found.where("endpoint is not null").where(_is_place(f.col("latitude"), f.col("longitude"))).where(_is_time())


def deliveries(log: DataFrame) -> DataFrame:
    """What became of area messages, as DELIVERY_ROW."""
    batches = _deliveries_judged(log).where("fault is null")
    zipped = f.arrays_zip(f.col("batch.endpoints"), *(f.col(f"batch.{name}") for name in _DELIVERY_COLUMNS))
    same = ("edge", "source", "id", "topic")
    rows = batches.select(*(f.col(f"batch.{name}") for name in same), f.explode(zipped).alias("one"), "offset", "appended_at")
    return rows.select(
        *same,
        f.col("one.endpoints").alias("endpoint"),
        f.col("one.states").alias("state"),
        f.col("one.at_us").alias("at_us"),
        f.col("one.reasons").alias("reason"),
        "offset",
        "appended_at",
    )


def faults(log: DataFrame) -> DataFrame:
    """The log rows of our topics that cannot be read, with a `fault`."""
    judged = (_messages_judged(log), _reports_judged(log), _deliveries_judged(log))
    first, *others = (one.where("fault is not null").select(*log.columns, "fault") for one in judged)
    found = first
    for other in others:
        found = found.unionAll(other)
    return found


def _messages_judged(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == MESSAGES_TOPIC).where("value is not null")
    read = _with_json(read, "said", SAID).withColumn("seen_at_us", _micros("said.message.seen_at"))
    place = f.col("said.message.place")
    return read.withColumn(
        "fault",
        f.when(f.col("said._corrupt").isNotNull() | f.col("said").isNull(), "no JSON, or a member has another type")
        .when(~_is(f.col("said.type"), "said"), "its type is not said")
        .when(_any_missing("said.message", ("id", "source", "topic")), "the message has no id, source or topic")
        .when(f.col("seen_at_us").isNull(), "seen_at is no instant")
        .when(~_is_time(), f"seen_at is over {AHEAD_S} s after it was appended, or over {BEHIND_S} s before")
        .when(place.isNotNull() & ~_is_place(place["latitude"], place["longitude"]), "the place is none on Earth"),
    )


def _reports_judged(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == REPORTS_TOPIC).where("value is not null")
    return _batches_judged(read, REPORTS, "reports", _REPORT_COLUMNS, ("edge",))


def _deliveries_judged(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == DELIVERIES_TOPIC).where("value is not null")
    return _batches_judged(read, DELIVERIES, "deliveries", _DELIVERY_COLUMNS, ("edge", "source", "id", "topic"))


def _batches_judged(read: DataFrame, schema: str, kind: str, columns: tuple[str, ...], needed: tuple[str, ...]) -> DataFrame:
    """Records of columns: all as long as `endpoints`."""
    batch = _with_json(read, "batch", schema)
    size = f.coalesce(f.array_size("batch.endpoints"), f.lit(-1))
    are_as_long = f.lit(True)
    for name in columns:
        are_as_long = are_as_long & (f.coalesce(f.array_size(f"batch.{name}"), f.lit(-2)) == size)
    return batch.withColumn(
        "fault",
        f.when(f.col("batch._corrupt").isNotNull() | f.col("batch").isNull(), "no JSON, or a member has another type")
        .when(~_is(f.col("batch.type"), kind), f"its type is not {kind}")
        .when(_any_missing("batch", needed), f"{', '.join(needed)}: one is missing")
        .when(~are_as_long, "its columns are not all as long as endpoints"),
    )


def _with_json(read: DataFrame, name: str, schema: str) -> DataFrame:
    """With the value, read once: Spark would read it again for each condition that asks about it, but not through an explode."""
    return read.select("*", f.explode(f.array(f.from_json("value", schema, _HOW))).alias(name))


def _micros(name: str) -> Column:
    return f.unix_micros(f.try_to_timestamp(f.col(name)))


def _is_time() -> Column:
    appended = f.unix_micros("appended_at")
    ahead, behind = AHEAD_S * 1_000_000, BEHIND_S * 1_000_000
    return f.coalesce(f.col("seen_at_us").between(appended - behind, appended + ahead), f.lit(False))


def _is_place(latitude: Column, longitude: Column) -> Column:
    on_earth = latitude.between(-90, 90) & longitude.between(-180, 180) & ~f.isnan(latitude) & ~f.isnan(longitude)
    return f.coalesce(on_earth, f.lit(False))


def _is(column: Column, text: str) -> Column:
    return f.coalesce(column == text, f.lit(False))


def _any_missing(parent: str, names: tuple[str, ...]) -> Column:
    missing = f.lit(False)
    for name in names:
        missing = missing | f.coalesce(f.col(f"{parent}.{name}") == "", f.lit(True))
    return missing
