"""The query `reputation`: computes the scores of endpoints from reports and events, for the log's topic `reputation`."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f

from milepost.model.incidents import EventKind, Grid
from milepost.model.pipeline_records import REPUTATION
from milepost.pipelines.hazards import CLOCK_AHEAD_S_MAX, kinds_by_topic, with_square
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import MESSAGES_TOPIC, REPORTS_TOPIC, observations
from milepost.pipelines.reputation.detectors import check_endpoints, check_squares
from milepost.pipelines.reputation.evidence import (
    EVIDENCE_ROW,
    LEAD_US,
    MINUTE_US,
    REPUTATION_ROW,
    SIDE_M,
    EvidenceKind,
    EvidenceThresholds,
)
from milepost.pipelines.reputation.ledger import EvidenceLedger
from milepost.pipelines.settings import PipelineSettings
from milepost.pipelines.stateful_buckets import BUCKETS, apply_in_buckets, bucket_of

# Invariants:
# - a minute is checked once, when all its rows have arrived or are too late: neither order nor batches matter;
# - a reputation is a record with the endpoint as its key; records of later minutes are published later.

PASSING: Final = ("Emergency", "Moving_Object")
"""Kinds of short-lived events: they are gone when the next vehicle passes, so that passing contradicts nothing."""

_COLUMNS: Final = ("endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "verdict", "kind")
_FLOATS: Final = ("latitude", "longitude", "heading_deg", "speed_mps")
_EVIDENCE: Final = ["minute", "endpoint", "evidence", "count"]


def sightings(observations: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the sightings, with schema SIGHTING_ROW, in observations (OBSERVATION_ROW)."""
    is_in_time = f.col("seen_at_us") <= f.unix_micros("appended_at") + CLOCK_AHEAD_S_MAX * 1_000_000
    of_message = kinds_by_topic([kind for kind in kinds if kind.name not in PASSING])[f.col("topic")]
    no_kind = f.array(f.lit(None).cast("string"))
    found = f.when(f.col("topic").isNull(), no_kind).otherwise(of_message)
    return observations.where(is_in_time).withColumn("kind", f.explode(found)).select(*_COLUMNS)


def evidence(sightings: DataFrame, *, allowed_lateness_s: float, thresholds: EvidenceThresholds | None = None) -> DataFrame:
    """Return the evidence, with schema EVIDENCE_ROW, in sightings (SIGHTING_ROW), minute by minute; streaming only."""
    used = thresholds or EvidenceThresholds()

    def check(state: bytes | None, parts: pd.DataFrame) -> tuple[bytes, pd.DataFrame]:
        found = []
        for minute in sorted(set(parts["minute"])):
            rows = [_part_rows(part) for part in parts[parts["minute"] == minute].to_dict("records")]
            if parts["bucket"].iloc[0] < BUCKETS:
                found.append(check_endpoints(pd.concat(rows), minute, used))
            else:
                state, one = check_squares(state, rows, minute, used)
                found.append(one)
        return state or b"", pd.concat([one for one in found if len(one)] or found[:1])[_EVIDENCE]

    return apply_in_buckets(_parts(sightings, allowed_lateness_s), check, EVIDENCE_ROW, output="Append")


def reputations(evidence: DataFrame) -> DataFrame:
    """Return the reputations, with schema REPUTATION_ROW, that follow from evidence (EVIDENCE_ROW); streaming only."""
    rows = evidence.withColumn("bucket", bucket_of("endpoint"))
    return apply_in_buckets(rows, _update_scores, REPUTATION_ROW, output="Append")


def reputation_records(reputations: DataFrame) -> DataFrame:
    """Return reputations (REPUTATION_ROW) as records for the log, with schema OUT_ROW."""
    value = f.struct(f.lit("reputation").alias("type"), "endpoint", "score", "at_us", "reasons")
    return reputations.select(f.lit(REPUTATION).alias("topic"), f.col("endpoint").alias("key"), f.to_json(value).alias("value"))


def _parts(sightings: DataFrame, allowed_lateness_s: float) -> DataFrame:
    """Return all rows of a minute and its lead, by endpoint and by square, once it is over, as columns of lists.

    Buckets of squares follow those of endpoints.
    """
    by_endpoint = f.when(f.col("kind").isNull(), _part(bucket_of("endpoint"), f.lit("")))
    square = _part(bucket_of("row", "column") + BUCKETS, f.concat_ws("/", "row", "column"))
    by_square = f.when(f.col("verdict") == 0, square)
    minute = f.expr(f"seen_at_us div {MINUTE_US}")
    is_lead = f.col("seen_at_us") % MINUTE_US >= MINUTE_US - LEAD_US
    placed = with_square(sightings.withColumn("height", f.lit(Grid(SIDE_M).height).cast("bigint")))
    rows = placed.select(
        *_COLUMNS,
        f.array_compact(f.array(minute, f.when(is_lead, minute + 1))).alias("minutes"),
        f.explode(f.array_compact(f.array(by_endpoint, by_square))).alias("part"),
    )
    rows = rows.select(*_COLUMNS, "part", f.explode("minutes").alias("minute"))
    rows = rows.withColumn("ends_at", f.timestamp_micros((f.col("minute") + 1) * MINUTE_US))
    # The lead of a minute arrives before the minute begins: its `ends_at` must not advance the watermark.
    ahead_s = (MINUTE_US + LEAD_US) / 1_000_000 + CLOCK_AHEAD_S_MAX
    watermarked = rows.withWatermark("ends_at", f"{round((allowed_lateness_s + ahead_s) * 1000)} milliseconds")
    collected = watermarked.groupBy("ends_at", "minute", "part.bucket", "part.square").agg(
        f.collect_list(f.struct(*_COLUMNS)).alias("rows")
    )
    # Lists of one type become arrays in Python; a list of rows would become an object per row.
    return collected.select("bucket", "square", "minute", *(f.col(f"rows.{name}").alias(name) for name in _COLUMNS))


def _part(bucket: Column, square: Column) -> Column:
    return f.struct(bucket.alias("bucket"), square.alias("square"))


def _part_rows(part: Mapping[Hashable, Any]) -> pd.DataFrame:
    rows = pd.DataFrame({name: part[name] for name in _COLUMNS})
    return rows.astype(dict.fromkeys(_FLOATS, np.float64))


def _update_scores(state: bytes | None, evidence: pd.DataFrame) -> tuple[bytes, pd.DataFrame]:
    ledger = EvidenceLedger.from_bytes(state)
    columns = (evidence[name].tolist() for name in _EVIDENCE)
    scores = ledger.take(
        [(minute, endpoint, EvidenceKind(kind), count) for minute, endpoint, kind, count in zip(*columns, strict=True)]
    )
    rows = [
        (one.endpoint, one.score, one.at_us, [{"evidence": str(kind), "count": n} for kind, n in one.reasons]) for one in scores
    ]
    return ledger.to_bytes(), pd.DataFrame(rows, columns=["endpoint", "score", "at_us", "reasons"])


def plans(settings: PipelineSettings) -> list[Plan]:
    """Return one query for all endpoints."""

    def transform(log: DataFrame) -> DataFrame:
        seen = sightings(observations(log), settings.kinds)
        return reputation_records(reputations(evidence(seen, allowed_lateness_s=settings.allowed_lateness_s)))

    return [Plan("reputation", (MESSAGES_TOPIC, REPORTS_TOPIC), 2, transform, output="append")]
