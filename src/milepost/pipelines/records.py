"""Records of a site's log as rows, and the faults of unreadable ones.

    topic of the log             record of `wire.records`    rows
    reserved.publish-pipelines   ForwardedMessage            one MESSAGE_ROW
    reports                      Reports                     one REPORT_ROW for each report
    deliveries                   Deliveries                  one DELIVERY_ROW for each endpoint

The schemas of the rows are in `archive.schema`, which does not import Spark. Instants are microseconds since 1970 (`…_us`);
`timestamp_micros` converts them to Spark's timestamps.

*Invariants:*
- a record is checked by itself: the same record yields the same rows, or the same fault, wherever and whenever it is read;
- nothing here raises: an unreadable record yields no row, and `faults` returns its reason once, for the dead letters.
"""

from typing import Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model import pipeline_records
from milepost.model.site_records import handler_topic
from milepost.wire.json_form.codec import VERSION

LOG_ROW: Final = "topic string, key string, value string, offset bigint, appended_at timestamp"
"""A record as every source returns it; a null value is a tombstone."""

MESSAGE_SCHEMA: Final = """
    v int, type string, `from` string, number string, qos int, message struct<
        id: string, source: string, topic: string, seen_at: string, valid_until: string, tags: array<string>, address: string,
        place: struct<latitude: double, longitude: double>, priority: string, fields: map<string, string>, body: string>,
    _corrupt string
"""
REPORTS_SCHEMA: Final = """
    v int, type string, edge string, endpoints array<string>, seen_at_us array<bigint>, latitudes array<double>,
    longitudes array<double>, headings_deg array<double>, speeds_mps array<double>, verdicts array<int>, covered array<int>,
    _corrupt string
"""
DELIVERIES_SCHEMA: Final = """
    v int, type string, edge string, source string, id string, topic string, endpoints array<string>, states array<string>,
    at_us array<bigint>, reasons array<int>, _corrupt string
"""


MESSAGES_TOPIC: Final = handler_topic(pipeline_records.PIPELINES)
REPORTS_TOPIC: Final = pipeline_records.REPORTS
DELIVERIES_TOPIC: Final = pipeline_records.DELIVERIES
TOPICS: Final = (MESSAGES_TOPIC, REPORTS_TOPIC, DELIVERIES_TOPIC)

AHEAD_S_MAX: Final = 600
"""Maximum time by which `seen_at` may be after the append."""
BEHIND_S_MAX: Final = 7 * 86_400
"""Maximum time by which `seen_at` may be before the append."""

_FOREVER_US: Final = 2**63 - 1
_JSON_OPTIONS: Final = {"mode": "PERMISSIVE", "columnNameOfCorruptRecord": "_corrupt"}
_REPORT_COLUMNS: Final = ("seen_at_us", "latitudes", "longitudes", "headings_deg", "speeds_mps", "verdicts", "covered")
_DELIVERY_COLUMNS: Final = ("states", "at_us", "reasons")


def messages(log: DataFrame) -> DataFrame:
    """Return the messages in log rows, as MESSAGE_ROW."""
    checked = _checked_messages(log).where("fault is null")
    message = "record.message."
    return checked.select(
        f.col("record.from").alias("edge"),
        f.expr("try_cast(record.number as bigint)").alias("number"),
        f.coalesce(f.col("record.qos"), f.lit(0)).alias("qos"),
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
    """Return the reports in log rows, as REPORT_ROW; an impossible report of a readable batch is left out."""
    batches = _checked_reports(log).where("fault is null")
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
    """Return the deliveries of area messages, as DELIVERY_ROW."""
    batches = _checked_deliveries(log).where("fault is null")
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
    """Return the unreadable log rows of TOPICS, with a `fault`."""
    checked = (_checked_messages(log), _checked_reports(log), _checked_deliveries(log))
    first, *others = (one.where("fault is not null").select(*log.columns, "fault") for one in checked)
    found = first
    for other in others:
        found = found.unionAll(other)
    return found


def _checked_messages(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == MESSAGES_TOPIC).where("value is not null")
    read = _with_json(read, "record", MESSAGE_SCHEMA).withColumn("seen_at_us", _micros("record.message.seen_at"))
    place = f.col("record.message.place")
    return read.withColumn(
        "fault",
        f.when(f.col("record._corrupt").isNotNull() | f.col("record").isNull(), "not JSON, or a member has the wrong type")
        .when(f.col("record.v") != VERSION, f"the version is not {VERSION}")
        .when(~_is(f.col("record.type"), "forwarded"), "the type is not forwarded")
        .when(_any_missing("record.message", ("id", "source", "topic")), "the message has no id, source or topic")
        .when(f.col("seen_at_us").isNull(), "seen_at is not an instant")
        .when(~_is_time(), f"seen_at is over {AHEAD_S_MAX} s after it was appended, or over {BEHIND_S_MAX} s before")
        .when(place.isNotNull() & ~_is_place(place["latitude"], place["longitude"]), "latitude or longitude is out of range"),
    )


def _checked_reports(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == REPORTS_TOPIC).where("value is not null")
    return _checked_batches(read, REPORTS_SCHEMA, "reports", _REPORT_COLUMNS, ("edge",))


def _checked_deliveries(log: DataFrame) -> DataFrame:
    read = log.where(f.col("topic") == DELIVERIES_TOPIC).where("value is not null")
    return _checked_batches(read, DELIVERIES_SCHEMA, "deliveries", _DELIVERY_COLUMNS, ("edge", "source", "id", "topic"))


def _checked_batches(read: DataFrame, schema: str, kind: str, columns: tuple[str, ...], needed: tuple[str, ...]) -> DataFrame:
    """Check records of columns: each must be as long as `endpoints`."""
    batch = _with_json(read, "batch", schema)
    size = f.coalesce(f.array_size("batch.endpoints"), f.lit(-1))
    are_as_long = f.lit(True)
    for name in columns:
        are_as_long = are_as_long & (f.coalesce(f.array_size(f"batch.{name}"), f.lit(-2)) == size)
    return batch.withColumn(
        "fault",
        f.when(f.col("batch._corrupt").isNotNull() | f.col("batch").isNull(), "not JSON, or a member has the wrong type")
        .when(f.col("batch.v") != VERSION, f"the version is not {VERSION}")
        .when(~_is(f.col("batch.type"), kind), f"the type is not {kind}")
        .when(_any_missing("batch", needed), f"a member is missing: {', '.join(needed)} are required")
        .when(~are_as_long, "the columns differ in length from endpoints"),
    )


def _with_json(read: DataFrame, name: str, schema: str) -> DataFrame:
    """Add the parsed value. The explode makes Spark parse it once, not again for each condition on it."""
    return read.select("*", f.explode(f.array(f.from_json("value", schema, _JSON_OPTIONS))).alias(name))


def _micros(name: str) -> Column:
    return f.unix_micros(f.try_to_timestamp(f.col(name)))


def _is_time() -> Column:
    appended = f.unix_micros("appended_at")
    ahead, behind = AHEAD_S_MAX * 1_000_000, BEHIND_S_MAX * 1_000_000
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


def names_of(row: str) -> list[str]:
    """Return the column names of a schema such as `source string, tags array<string>`; types must not contain commas."""
    return [column.split()[0] for column in row.split(",")]
