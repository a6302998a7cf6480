"""A backtest produces the alerts of the live stream, byte for byte, early alerts included (M24)."""

import json
import os
import random
from bisect import bisect
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.types import StructType

from live.pipelines.archives import NOON_US, Row, append_batch, instant, message, report
from milepost.incidents.engine import IncidentEngine
from milepost.model.incidents import EVENT_KINDS, EventKind
from milepost.model.places import Place, moved
from milepost.model.site_records import CROSS_HUB, ForwardedMessage
from milepost.pipelines.archive.compaction import compact
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, ArchiveTable
from milepost.pipelines.backtest import Replay, alerts, all_events, incidents_of, pair_incidents
from milepost.pipelines.hazards import cell_records, cells
from milepost.wire.records import from_record

HOME: Final = Place(40.7608, -111.891)
KINDS: Final = tuple(kind for kind in EVENT_KINDS if kind.name in ("Collision", "Obstacle", "Congestion"))
TOPICS: Final = [kind.topic for kind in KINDS]
MINUTES: Final = 60
LATE_S: Final = 2
END_US: Final = NOON_US + MINUTES * 60_000_000


def somewhere(chance: random.Random) -> tuple[float, float]:
    place = moved(HOME, chance.choice((0, 120, 240)), chance.choice((0, 60, 1500, 5000)))
    return place.latitude, place.longitude


def batch_ends(chance: random.Random) -> list[int]:
    """Return the ends of batches over the hour, long and short ones."""
    ends, at_us = [], NOON_US
    while at_us < END_US + LATE_S * 1_000_000:
        at_us += chance.choice((2, 4, 200, 300)) * 1_000_000
        ends.append(at_us)
    return ends


def recorded(chance: random.Random, ends: list[int]) -> tuple[list[Row], list[Row]]:
    """Return an hour of messages and reports, each appended at the end of the batch in which it was seen, or of the next one."""
    times = sorted(NOON_US + chance.randrange(MINUTES * 60_000_000 - LATE_S * 1_000_000) for _ in range(2_400))
    rows: tuple[list[Row], list[Row]] = ([], [])
    for offset, at_us in enumerate(times):
        appended_us = ends[min(bisect(ends, at_us) + (chance.random() < 0.1), len(ends) - 1)]
        source, place = f"car-{chance.randrange(30)}", somewhere(chance)
        one = message(offset, at_us, source=source, topic=chance.choice(TOPICS), place=place)
        other = report(offset, at_us, endpoint=source, place=place, speed_mps=chance.uniform(0, 6))
        for some, row in zip(rows, (one, other), strict=True):
            some.append((*row[:-1], as_time(appended_us)))
    return rows


def live(spark: SparkSession, folder: Path, messages: list[Row], reports: list[Row], ends: list[int]) -> list[bytes]:
    """Return the alerts of the incident engine behind a stream whose batches end at *ends*."""
    streams = [stream(spark, folder, table, rows, ends) for table, rows in ((MESSAGES, messages), (REPORTS, reports))]
    engine = IncidentEngine("north", KINDS, allowed_lateness_s=LATE_S, since=instant(NOON_US))
    appended: list[bytes] = []

    def take_batch(batch: DataFrame, number: int) -> None:
        values = [row.value.encode() for row in batch.collect()]
        if values and ends[number] <= END_US + LATE_S * 1_000_000:
            engine.tick(instant(ends[number]))
            engine.add_cells(values, instant(ends[number]))
            appended.extend(append.value for append in engine.take_appends() if append.topic == CROSS_HUB)

    found = cell_records(cells(all_events(streams[0], streams[1], KINDS), KINDS, allowed_lateness_s=600.0))
    writer = found.writeStream.foreachBatch(take_batch).outputMode("update")
    writer.option("checkpointLocation", str(folder / "checkpoint")).trigger(availableNow=True).start().awaitTermination()
    engine.tick(instant(END_US + LATE_S * 1_000_000))
    return appended + [append.value for append in engine.take_appends() if append.topic == CROSS_HUB]


def stream(spark: SparkSession, folder: Path, table: ArchiveTable, rows: list[Row], ends: list[int]) -> DataFrame:
    """Return rows as a stream with one file for each batch; Spark reads files in the order of their times."""
    schema = StructType.fromDDL(table.row)
    assert isinstance(schema, StructType)
    path = folder / table.name
    path.mkdir()
    for number, end_us in enumerate(ends):
        batch = [dict(zip(schema.names, row, strict=True)) for row in rows if row[-1] == as_time(end_us)]
        file = path / f"{number:04}.json"
        file.write_text("".join(json.dumps(row, default=as_text) + "\n" for row in batch))
        os.utime(file, (number + 1, number + 1))
    return spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(path))


def as_text(value: datetime | bytes) -> str:
    return value.isoformat() if isinstance(value, datetime) else value.decode()


def as_time(micros: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(microseconds=micros)


def backtest(spark: SparkSession, archive: Path, kinds: Sequence[EventKind]) -> list[bytes]:
    start, end = instant(NOON_US), instant(END_US)
    replay = Replay("north", kinds, allowed_lateness_s=LATE_S, since=start)
    return list(alerts(spark, archive, replay, start=start, end=end))


def test_a_backtest_of_an_hour_produces_the_alerts_of_the_live_stream_byte_for_byte(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(7)
    ends = batch_ends(chance)
    messages, reports = recorded(chance, ends)
    (tmp_path / "stream").mkdir()
    expected = live(spark, tmp_path / "stream", messages, reports, ends)
    archive = tmp_path / "archive"
    append_batch(spark, archive, MESSAGES, messages[:900])
    append_batch(spark, archive, MESSAGES, messages[900:])
    append_batch(spark, archive, REPORTS, reports)
    compact(spark, archive, now=instant(END_US + 2 * 3_600_000_000))
    assert backtest(spark, archive, KINDS) == expected
    assert {one.kind for one in incidents_of(expected)} == {kind.name for kind in KINDS}
    assert phases(expected) >= {"early", "raised", "cleared"}
    stricter = [replace(kind, predicate="weight >= 6 and reports >= 8") for kind in KINDS]
    found = incidents_of(backtest(spark, archive, stricter))
    assert 0 < len(found) < len(incidents_of(expected))
    assert "A" in {pair.raised_by for pair in pair_incidents(incidents_of(expected), found)}


def phases(records: list[bytes]) -> set[object]:
    found = [from_record(record) for record in records]
    return {one.message.fields["phase"] for one in found if isinstance(one, ForwardedMessage)}
