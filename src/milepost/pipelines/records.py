"""Records of a site's log as rows, and the faults of unreadable ones.

    topic of the log             record of `wire.records`    rows
    reserved.publish-pipelines   ForwardedMessage            one MESSAGE_ROW
    reports                      Reports                     one REPORT_ROW for each report
    deliveries                   Deliveries                  one DELIVERY_ROW for each endpoint

The schemas of the rows are in `archive.schema`, which does not import Spark. Instants are microseconds since 1970 (`…_us`);
`timestamp_micros` converts them to Spark's timestamps.

*Invariants:*
- a record is checked by itself: the same record yields the same rows, or the same fault, wherever and whenever it is read;
- each function scans the log once. Rows of messages and of reports in one query are `observations`, not a union of both;
- nothing here raises: an unreadable record yields no row, and `faults` returns its reason once, for the dead letters.
"""

from collections.abc import Callable, Mapping
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


OBSERVATION_ROW: Final = """
    topic string, endpoint string, seen_at_us bigint, latitude double, longitude double, heading_deg double, speed_mps double,
    verdict int, fields map<string, string>, appended_at timestamp
"""
"""A message with a place, or a report: then `topic` and `fields` are null. Messages have verdict 0, no heading and no speed."""

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
    record = f.col("parsed.messages")
    message = record["message"]
    return _readable(log, MESSAGES_TOPIC).select(
        record["from"].alias("edge"),
        record["number"].try_cast("bigint").alias("number"),
        f.coalesce(record["qos"], f.lit(0)).alias("qos"),
        *(message[name].alias(name) for name in ("id", "source", "topic")),
        _micros(message["seen_at"]).alias("seen_at_us"),
        f.coalesce(_micros(message["valid_until"]), f.lit(_FOREVER_US)).alias("valid_until_us"),
        message["place"]["latitude"].alias("latitude"),
        message["place"]["longitude"].alias("longitude"),
        *(message[name].alias(name) for name in ("priority", "tags", "address", "fields")),
        f.unbase64(message["body"]).alias("body"),
        "offset",
        "appended_at",
    )


def reports(log: DataFrame) -> DataFrame:
    """Return the reports in log rows, as REPORT_ROW; an impossible report of a readable batch is left out."""
    batch = f.col("parsed.reports")
    zipped = _zipped(REPORTS_TOPIC, _REPORT_COLUMNS)
    batches = _readable(log, REPORTS_TOPIC)
    rows = batches.select(batch["edge"].alias("edge"), f.explode(zipped).alias("one"), "offset", "appended_at")
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
    return _plausible(found)


def deliveries(log: DataFrame) -> DataFrame:
    """Return the deliveries of area messages, as DELIVERY_ROW."""
    batch = f.col("parsed.deliveries")
    zipped = _zipped(DELIVERIES_TOPIC, _DELIVERY_COLUMNS)
    same = ("edge", "source", "id", "topic")
    batches = _readable(log, DELIVERIES_TOPIC)
    rows = batches.select(*(batch[name].alias(name) for name in same), f.explode(zipped).alias("one"), "offset", "appended_at")
    return rows.select(
        *same,
        f.col("one.endpoints").alias("endpoint"),
        f.col("one.states").alias("state"),
        f.col("one.at_us").alias("at_us"),
        f.col("one.reasons").alias("reason"),
        "offset",
        "appended_at",
    )


def observations(log: DataFrame) -> DataFrame:
    """Return the messages with a place, and the reports, as OBSERVATION_ROW; the log is scanned once for both."""
    message = f.col("parsed.messages.message")
    of_message = f.struct(
        message["topic"].alias("topic"),
        message["source"].alias("endpoint"),
        _micros(message["seen_at"]).alias("seen_at_us"),
        message["place"]["latitude"].alias("latitude"),
        message["place"]["longitude"].alias("longitude"),
        *(f.lit(None).cast("double").alias(name) for name in ("heading_deg", "speed_mps")),
        f.lit(0).alias("verdict"),
        message["fields"].alias("fields"),
    )
    of_reports = f.transform(_zipped(REPORTS_TOPIC, _REPORT_COLUMNS), _observation_of_report)
    is_message = f.col("topic") == MESSAGES_TOPIC
    found = f.when(is_message & message["place"].isNotNull(), f.array(of_message)).when(~is_message, of_reports)
    rows = _readable(log, MESSAGES_TOPIC, REPORTS_TOPIC).select(f.explode(found).alias("one"), "appended_at")
    return _plausible(rows.select("one.*", "appended_at"))


def faults(log: DataFrame) -> DataFrame:
    """Return the unreadable log rows of TOPICS, with a `fault`."""
    return _parsed(log, *TOPICS).withColumn("fault", _fault(*TOPICS)).where("fault is not null").select(*log.columns, "fault")


def _readable(log: DataFrame, *topics: str) -> DataFrame:
    return _parsed(log, *topics).where(_fault(*topics).isNull())


def _plausible(rows: DataFrame) -> DataFrame:
    """Leave out rows without an endpoint, and with an impossible place or time."""
    is_place, is_time = _is_place(f.col("latitude"), f.col("longitude")), _is_time(f.col("seen_at_us"))
    return rows.where("endpoint is not null").where(is_place).where(is_time)


def _zipped(topic: str, columns: tuple[str, ...]) -> Column:
    """Return the columns of a batch as one array of structs."""
    return f.arrays_zip(*(f.col(f"parsed.{_MEMBERS[topic]}.{name}") for name in ("endpoints", *columns)))


def _observation_of_report(one: Column) -> Column:
    return f.struct(
        f.lit(None).cast("string").alias("topic"),
        one["endpoints"].alias("endpoint"),
        one["seen_at_us"].alias("seen_at_us"),
        one["latitudes"].alias("latitude"),
        one["longitudes"].alias("longitude"),
        one["headings_deg"].alias("heading_deg"),
        one["speeds_mps"].alias("speed_mps"),
        one["verdicts"].alias("verdict"),
        f.lit(None).cast("map<string, string>").alias("fields"),
    )


def _parsed(log: DataFrame, *topics: str) -> DataFrame:
    """Add the parsed value as a member of `parsed`. The explode makes Spark parse it once, not again for each use of it."""
    read = log.where(f.col("topic").isin(*topics)).where("value is not null")
    records = [
        f.when(f.col("topic") == topic, f.from_json("value", _SCHEMAS[topic], _JSON_OPTIONS)).alias(_MEMBERS[topic])
        for topic in topics
    ]
    return read.select("*", f.explode(f.array(f.struct(*records))).alias("parsed"))


def _fault(*topics: str) -> Column:
    """Return the fault of a parsed record of these topics; null: it has none."""
    found = f.lit(None).cast("string")
    for topic in topics:
        found = f.when(f.col("topic") == topic, _FAULTS[topic](f.col("parsed." + _MEMBERS[topic]))).otherwise(found)
    return found


def _message_fault(record: Column) -> Column:
    message = record["message"]
    seen_at_us = _micros(message["seen_at"])
    return (
        f.when(record["_corrupt"].isNotNull() | record.isNull(), "not JSON, or a member has the wrong type")
        .when(record["v"] != VERSION, f"the version is not {VERSION}")
        .when(~_is(record["type"], "forwarded"), "the type is not forwarded")
        .when(_any_missing(message, ("id", "source", "topic")), "the message has no id, source or topic")
        .when(seen_at_us.isNull(), "seen_at is not an instant")
        .when(~_is_time(seen_at_us), f"seen_at is over {AHEAD_S_MAX} s after it was appended, or over {BEHIND_S_MAX} s before")
        .when(
            message["place"].isNotNull() & ~_is_place(message["place"]["latitude"], message["place"]["longitude"]),
            "latitude or longitude is out of range",
        )
    )


def _batch_fault(kind: str, columns: tuple[str, ...], needed: tuple[str, ...]) -> Callable[[Column], Column]:
    """Return the check of records of columns: each must be as long as `endpoints`."""

    def fault_of(batch: Column) -> Column:
        size = f.coalesce(f.array_size(batch["endpoints"]), f.lit(-1))
        are_as_long = f.lit(True)
        for name in columns:
            are_as_long = are_as_long & (f.coalesce(f.array_size(batch[name]), f.lit(-2)) == size)
        return (
            f.when(batch["_corrupt"].isNotNull() | batch.isNull(), "not JSON, or a member has the wrong type")
            .when(batch["v"] != VERSION, f"the version is not {VERSION}")
            .when(~_is(batch["type"], kind), f"the type is not {kind}")
            .when(_any_missing(batch, needed), f"a member is missing: {', '.join(needed)} are required")
            .when(~are_as_long, "the columns differ in length from endpoints")
        )

    return fault_of


_MEMBERS: Final = {MESSAGES_TOPIC: "messages", REPORTS_TOPIC: "reports", DELIVERIES_TOPIC: "deliveries"}
"""Members of `parsed`, by topic."""
_SCHEMAS: Final = {MESSAGES_TOPIC: MESSAGE_SCHEMA, REPORTS_TOPIC: REPORTS_SCHEMA, DELIVERIES_TOPIC: DELIVERIES_SCHEMA}
_FAULTS: Final[Mapping[str, Callable[[Column], Column]]] = {
    MESSAGES_TOPIC: _message_fault,
    REPORTS_TOPIC: _batch_fault("reports", _REPORT_COLUMNS, ("edge",)),
    DELIVERIES_TOPIC: _batch_fault("deliveries", _DELIVERY_COLUMNS, ("edge", "source", "id", "topic")),
}


def _micros(instant: Column) -> Column:
    return f.unix_micros(f.try_to_timestamp(instant))


def _is_time(seen_at_us: Column) -> Column:
    appended = f.unix_micros("appended_at")
    ahead, behind = AHEAD_S_MAX * 1_000_000, BEHIND_S_MAX * 1_000_000
    return f.coalesce(seen_at_us.between(appended - behind, appended + ahead), f.lit(False))


def _is_place(latitude: Column, longitude: Column) -> Column:
    on_earth = latitude.between(-90, 90) & longitude.between(-180, 180) & ~f.isnan(latitude) & ~f.isnan(longitude)
    return f.coalesce(on_earth, f.lit(False))


def _is(column: Column, text: str) -> Column:
    return f.coalesce(column == text, f.lit(False))


def _any_missing(parent: Column, names: tuple[str, ...]) -> Column:
    missing = f.lit(False)
    for name in names:
        missing = missing | f.coalesce(parent[name] == "", f.lit(True))
    return missing


def names_of(row: str) -> list[str]:
    """Return the column names of a schema such as `source string, tags array<string>`; types must not contain commas."""
    return [column.split()[0] for column in row.split(",")]
