"""Runs a plan's query over batches of records, without a log: files in, rows out."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import orjson
from pyspark.sql import SparkSession

from milepost.pipelines.plan import Plan
from milepost.pipelines.records import LOG_ROW, REPORTS_TOPIC

OutputRecord = tuple[str, str, dict[str, Any]]
"""Topic, key and decoded value of an output record."""

ReportTuple = tuple[str, str, int, float, float, float | None, float | None, int, int]
"""A report: edge, endpoint, seen_at_us, latitude, longitude, heading_deg, speed_mps, verdict, covered."""


def reports_record(reports: Sequence[ReportTuple]) -> dict[str, Any]:
    """Build a row of the log with the reports of one edge, appended when the last of them was seen."""
    edges, endpoints, seen_at_us, latitudes, longitudes, headings, speeds, verdicts, covered = zip(*reports, strict=True)
    assert len(set(edges)) == 1
    value = {
        "type": "reports",
        "edge": edges[0],
        "endpoints": endpoints,
        "seen_at_us": seen_at_us,
        "latitudes": latitudes,
        "longitudes": longitudes,
        "headings_deg": headings,
        "speeds_mps": speeds,
        "verdicts": verdicts,
        "covered": covered,
    }
    return {"topic": REPORTS_TOPIC, "value": orjson.dumps(value).decode(), "offset": 0, "appended_at": max(seen_at_us)}


def by_edge(reports: Iterable[ReportTuple]) -> list[dict[str, Any]]:
    """Build rows of the log with reports of several edges."""
    rows = list(reports)
    return [reports_record([one for one in rows if one[0] == edge]) for edge in sorted({one[0] for one in rows})]


def output_of(
    plan: Plan, batches: Sequence[Sequence[dict[str, Any]]], spark: SparkSession, folder: Path
) -> list[list[OutputRecord]]:
    """Return the output of a plan for rows of the log, batch by batch, including a last batch without input."""
    inbox, output = folder / "in", list[list[OutputRecord]]()
    inbox.mkdir(parents=True)
    for number, rows in enumerate(batches):
        lines = [{**row, "appended_at": row["appended_at"] / 1e6} for row in rows]
        path = inbox / f"{number:03}.json"
        path.write_bytes(b"\n".join(map(orjson.dumps, lines)))
        os.utime(path, (number, number))
    schema = LOG_ROW.replace("appended_at timestamp", "appended_at double")
    files = spark.readStream.schema(schema).option("maxFilesPerTrigger", 1).json(str(inbox))
    log = files.selectExpr(
        "topic", "key", "value", "offset", "timestamp_micros(cast(appended_at * 1e6 as bigint)) as appended_at"
    )
    stream = plan.transform(log).writeStream.outputMode(plan.output).option("checkpointLocation", str(folder / "checkpoint"))
    query = stream.foreachBatch(
        lambda rows, _: output.append([(*row[:2], orjson.loads(row[2])) for row in rows.collect()])
    ).start()
    try:
        query.processAllAvailable()
    finally:
        query.stop()
    return output
