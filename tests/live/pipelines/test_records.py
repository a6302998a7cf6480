"""Records of the log as Spark rows: records of edges are decoded completely, and invalid ones are faults."""

from datetime import UTC, datetime, timedelta
from typing import Any

import orjson
import pytest
from pyspark.sql import DataFrame, SparkSession

from milepost.model.addresses import ToArea
from milepost.model.areas import Circle
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.site_records import EdgeRef, ForwardedMessage
from milepost.model.tags import Tag
from milepost.pipelines.archive.schema import MESSAGE_ROW, REPORT_ROW
from milepost.pipelines.records import (
    DELIVERIES_TOPIC,
    LOG_ROW,
    MESSAGES_TOPIC,
    REPORTS_TOPIC,
    deliveries,
    faults,
    messages,
    reports,
)
from milepost.wire.records import to_record

APPENDED = datetime(2030, 1, 1, 12, 0, 30, tzinfo=UTC)
SEEN_US = int((APPENDED - timedelta(seconds=3)).timestamp()) * 1_000_000 + 921_754
CAR = EndpointId("car-1")


def message(**changed: Any) -> Message:
    given: dict[str, Any] = {
        "id": MessageId(12345678901234567890),
        "source": CAR,
        "topic": "Collision",
        "seen_at": Instant(SEEN_US * 1000 + 615),
        "place": Place(52.1, 13.2),
        "fields": {"speed_mps": 3.5, "lanes": 2},
        "body": b'{"a": 1}',
    }
    return Message(**(given | changed))


def forwarded(one: Message) -> dict[str, Any]:
    found: dict[str, Any] = orjson.loads(to_record(ForwardedMessage(EdgeRef("north", "e1"), 5, one, qos=1)))
    return found


def batch(**changed: Any) -> dict[str, Any]:
    columns: dict[str, Any] = {
        "type": "reports",
        "edge": "north/e1",
        "endpoints": ["car-1", "car-2"],
        "seen_at_us": [SEEN_US, SEEN_US + 1],
        "latitudes": [52.1, 52.2],
        "longitudes": [13.2, 13.3],
        "headings_deg": [None, 90.0],
        "speeds_mps": [1.5, None],
        "verdicts": [0, 205],
        "covered": [0, 2],
    }
    return columns | changed


def log_rows(spark: SparkSession, *values: tuple[str, Any]) -> DataFrame:
    rows = [
        (topic, "", value if isinstance(value, str) else orjson.dumps(value).decode(), at, APPENDED.replace(tzinfo=None))
        for at, (topic, value) in enumerate(values)
    ]
    return spark.createDataFrame(rows, LOG_ROW)


def test_a_message_is_a_complete_row(spark: SparkSession) -> None:
    whole = message(tags=frozenset({Tag("b"), Tag("a")}), address=ToArea(Circle(Place(52.1, 13.2), 500.0)))
    found = messages(log_rows(spark, (MESSAGES_TOPIC, forwarded(whole)), (MESSAGES_TOPIC, forwarded(message(place=None)))))
    assert found.schema.simpleString() == spark.createDataFrame([], MESSAGE_ROW).schema.simpleString()
    first, second = found.collect()
    assert (first["id"], first["source"], first["edge"], first["qos"]) == ("12345678901234567890", "car-1", "north/e1", 1)
    assert first["seen_at_us"] == SEEN_US
    assert first["tags"] == ["a", "b"]
    assert first["fields"] == {"speed_mps": "3.5", "lanes": "2"}
    assert bytes(first["body"]) == b'{"a": 1}'
    assert orjson.loads(first["address"])["area"]["radius_m"] == 500.0
    assert (second["latitude"], second["address"]) == (None, None)


def test_columns_of_reports_become_rows(spark: SparkSession) -> None:
    found = reports(log_rows(spark, (REPORTS_TOPIC, batch())))
    assert found.schema.simpleString() == spark.createDataFrame([], REPORT_ROW).schema.simpleString()
    rows = [tuple(row)[:9] for row in found.collect()]
    assert rows == [
        ("north/e1", "car-1", SEEN_US, 52.1, 13.2, None, 1.5, 0, 0),
        ("north/e1", "car-2", SEEN_US + 1, 52.2, 13.3, 90.0, None, 205, 2),
    ]


def test_an_impossible_report_is_left_out_of_its_batch(spark: SparkSession) -> None:
    odd = batch(latitudes=[91.0, 52.2]), batch(seen_at_us=[0, SEEN_US]), batch(longitudes=[None, 13.2])
    found = reports(log_rows(spark, *((REPORTS_TOPIC, one) for one in odd)))
    assert [row["endpoint"] for row in found.collect()] == ["car-2"] * 3


def test_a_delivery_record_becomes_a_row_per_endpoint(spark: SparkSession) -> None:
    delivered: dict[str, Any] = {"type": "deliveries", "edge": "n/e", "source": "@service/incidents", "id": "7", "topic": "Alert"}
    delivered |= {"endpoints": ["a", "b"], "states": ["sent", "dropped"], "at_us": [1, 2], "reasons": [0, 230]}
    rows = deliveries(log_rows(spark, (DELIVERIES_TOPIC, delivered))).collect()
    assert [(row["endpoint"], row["state"], row["at_us"], row["reason"]) for row in rows] == [
        ("a", "sent", 1, 0),
        ("b", "dropped", 2, 230),
    ]


NAN_PLACE = orjson.dumps(forwarded(message())).decode().replace('"latitude":52.1', '"latitude":NaN')
INVALID = {
    "half": (MESSAGES_TOPIC, '{"type":"forwarded",'),
    "array": (MESSAGES_TOPIC, "[]"),
    "text": (MESSAGES_TOPIC, '"text"'),
    "nul": (MESSAGES_TOPIC, "\x00"),
    "other type": (MESSAGES_TOPIC, {**forwarded(message()), "type": "claim"}),
    "newer message": (MESSAGES_TOPIC, {**forwarded(message()), "v": 2}),
    "wrong member": (MESSAGES_TOPIC, {**forwarded(message()), "qos": "one"}),
    "no message": (MESSAGES_TOPIC, {"type": "forwarded", "from": "n/e"}),
    "nan": (MESSAGES_TOPIC, NAN_PLACE),
    "1970": (MESSAGES_TOPIC, forwarded(message(seen_at=Instant(1)))),
    "2100": (MESSAGES_TOPIC, forwarded(message(seen_at=Instant(4_102_444_800 * 10**9)))),
    "newer batch": (REPORTS_TOPIC, {**batch(), "v": 2}),
    "no batch": (REPORTS_TOPIC, {}),
    "short column": (REPORTS_TOPIC, batch(covered=[0])),
    "no column": (REPORTS_TOPIC, {name: column for name, column in batch().items() if name != "verdicts"}),
    "text for number": (REPORTS_TOPIC, batch(latitudes=["north", 52.0])),
    "no deliveries": (DELIVERIES_TOPIC, {"type": "deliveries"}),
}


def test_an_invalid_record_is_one_fault_and_no_row(spark: SparkSession) -> None:
    log = log_rows(spark, *INVALID.values(), (MESSAGES_TOPIC, forwarded(message())), (REPORTS_TOPIC, batch()))
    found = {row["offset"]: row["fault"] for row in faults(log).collect()}
    assert sorted(found) == list(range(len(INVALID)))
    assert faults(log).count() == len(INVALID)
    assert {row["offset"] for row in messages(log).collect()} == {len(INVALID)}
    assert {row["offset"] for row in reports(log).collect()} == {len(INVALID) + 1}
    assert deliveries(log).count() == 0


@pytest.mark.parametrize("topic", [MESSAGES_TOPIC, REPORTS_TOPIC, DELIVERIES_TOPIC])
def test_a_removed_key_is_neither_row_nor_fault(spark: SparkSession, topic: str) -> None:
    log = spark.createDataFrame([(topic, "k", None, 0, APPENDED.replace(tzinfo=None))], LOG_ROW)
    assert faults(log).count() + messages(log).count() + reports(log).count() + deliveries(log).count() == 0
