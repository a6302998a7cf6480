"""The query `reputation`: computes the scores of endpoints from reports and events, for the log's topic `reputation`."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any, Final

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from milepost.model.incidents import EventKind, Grid
from milepost.model.pipeline_records import REPUTATION
from milepost.pipelines.hazards import CLOCK_AHEAD_S_MAX, kinds_by_topic, with_square
from milepost.pipelines.plan import Plan
from milepost.pipelines.records import MESSAGES_TOPIC, REPORTS_TOPIC, observations
from milepost.pipelines.reputation.buffer import PART_ROW, MinuteBuffer, pack_parts, rows_from_parts
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
from milepost.pipelines.reputation.known_roads import RoadMap
from milepost.pipelines.reputation.ledger import EvidenceLedger
from milepost.pipelines.settings import PipelineSettings

# Invariants:
# - a minute is checked once, when all its rows have arrived or are too late: neither order nor batches matter;
# - a reputation is a record with the endpoint as its key; records of later minutes are published later.

PASSING: Final = ("Emergency", "Moving_Object")
"""Kinds of short-lived events: they are gone when the next vehicle passes, so that passing contradicts nothing."""

STATE_VERSION: Final = 3
"""Version of the state of the query."""

BUCKETS: Final = 64
"""Buckets of endpoints, and as many of squares. Spark calls a processor once for each key and batch, and each access to its state
is a call to another process: with endpoints as keys that is 20,000 calls for 20,000 reports."""

_COLUMNS: Final = ("endpoint", "seen_at_us", "latitude", "longitude", "heading_deg", "speed_mps", "verdict", "kind")
_EVIDENCE: Final = ["minute", "endpoint", "evidence", "count"]


def sightings(observations: DataFrame, kinds: Sequence[EventKind]) -> DataFrame:
    """Return the sightings, with schema SIGHTING_ROW, in observations (OBSERVATION_ROW)."""
    is_in_time = f.col("seen_at_us") <= f.unix_micros("appended_at") + CLOCK_AHEAD_S_MAX * 1_000_000
    of_message = kinds_by_topic([kind for kind in kinds if kind.name not in PASSING])[f.col("topic")]
    no_kind = f.array(f.lit(None).cast("string"))
    found = f.when(f.col("topic").isNull(), no_kind).otherwise(of_message)
    return observations.where(is_in_time).withColumn("kind", f.explode(found)).select(*_COLUMNS)


def evidence(
    sightings: DataFrame,
    *,
    allowed_lateness_s: float,
    thresholds: EvidenceThresholds | None = None,
    road_map: RoadMap | None = None,
) -> DataFrame:
    """Return the evidence, with schema EVIDENCE_ROW, in sightings (SIGHTING_ROW), minute by minute; streaming only."""
    used = thresholds or EvidenceThresholds()

    def check(state: bytes | None, parts: pd.DataFrame) -> tuple[bytes, pd.DataFrame]:
        found = []
        for minute in sorted(set(parts["minute"])):
            rows = rows_from_parts(parts.loc[parts["minute"] == minute, "part"])
            if parts["bucket"].iloc[0] < BUCKETS:
                found.append(check_endpoints(rows, minute, used))
            else:
                state, one = check_squares(state, rows, minute, used, road_map)
                found.append(one)
        return state or b"", pd.concat([one for one in found if len(one)] or found[:1])[_EVIDENCE]

    return apply_in_buckets(_minutes(sightings, allowed_lateness_s), check, EVIDENCE_ROW)


def reputations(evidence: DataFrame) -> DataFrame:
    """Return the reputations, with schema REPUTATION_ROW, that follow from evidence (EVIDENCE_ROW); streaming only."""
    rows = evidence.withColumn("bucket", bucket_of("endpoint"))
    return apply_in_buckets(rows, _update_scores, REPUTATION_ROW)


def reputation_records(reputations: DataFrame) -> DataFrame:
    """Return reputations (REPUTATION_ROW) as records for the log, with schema OUT_ROW."""
    value = f.struct(f.lit("reputation").alias("type"), "endpoint", "score", "at_us", "reasons")
    return reputations.select(f.lit(REPUTATION).alias("topic"), f.col("endpoint").alias("key"), f.to_json(value).alias("value"))


def _minutes(sightings: DataFrame, allowed_lateness_s: float) -> DataFrame:
    """Return the parts (PART_ROW) of each minute and its lead, once the minute is over."""
    parts = _bucketed(sightings).mapInArrow(pack_parts, PART_ROW)
    parts = parts.withColumn("ends_at", f.timestamp_micros((f.col("minute") + 1) * MINUTE_US))
    # The lead of a minute arrives before the minute begins: its `ends_at` must not advance the watermark.
    ahead_s = (MINUTE_US + LEAD_US) / 1_000_000 + CLOCK_AHEAD_S_MAX
    watermarked = parts.withWatermark("ends_at", f"{round((allowed_lateness_s + ahead_s) * 1000)} milliseconds")
    return watermarked.groupBy("bucket", "minute").transformWithStateInPandas(MinuteBuffer(), PART_ROW, "Append", "EventTime")


def _bucketed(sightings: DataFrame) -> DataFrame:
    """Return sightings with their minute, buckets and square; buckets of squares follow those of endpoints."""
    by_endpoint = f.when(f.col("kind").isNull(), bucket_of("endpoint"))
    by_square = f.when(f.col("verdict") == 0, bucket_of("row", "column") + BUCKETS)
    minute = f.expr(f"seen_at_us div {MINUTE_US}")
    is_lead = f.col("seen_at_us") % MINUTE_US >= MINUTE_US - LEAD_US
    placed = with_square(sightings.withColumn("height", f.lit(Grid(SIDE_M).height).cast("bigint")))
    return placed.select(
        minute.alias("minute"),
        f.coalesce(is_lead, f.lit(False)).alias("is_lead"),
        f.coalesce(by_endpoint, f.lit(-1)).alias("by_endpoint"),
        f.coalesce(by_square, f.lit(-1)).alias("by_square"),
        f.expr("shiftleft(row, 32) + column").alias("square"),
        *_COLUMNS,
    )


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
    road_map = None if settings.roads is None else RoadMap.of(settings.roads)

    def transform(log: DataFrame) -> DataFrame:
        seen = sightings(observations(log), settings.kinds)
        found = evidence(seen, allowed_lateness_s=settings.allowed_lateness_s, road_map=road_map)
        return reputation_records(reputations(found))

    return [Plan("reputation", (MESSAGES_TOPIC, REPORTS_TOPIC), STATE_VERSION, transform, output="append")]


Step = Callable[[bytes | None, pd.DataFrame], tuple[bytes, pd.DataFrame]]
"""From the state of a bucket (`None` at first) and its new rows to the next state and the output rows."""


def bucket_of(*names: str) -> Column:
    """Return the bucket of a row, by the hash of columns."""
    return f.pmod(f.xxhash64(*names), f.lit(BUCKETS)).cast("int")


def apply_in_buckets(rows: DataFrame, step: Step, schema: str) -> DataFrame:
    """Return the output of one step for each `bucket` and batch; the step must keep its state bounded."""
    # A Python processor, as an aggregate cannot express the order of two reports.
    return rows.groupBy("bucket").transformWithStateInPandas(_Processor(step), schema, "Append", "None")


class _Processor(StatefulProcessor):
    def __init__(self, step: Step) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._state = handle.getValueState("state", "state binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ARG002
        row = self._state.get()
        state, output = self._step(None if row is None else bytes(row[0]), pd.concat(list(rows), ignore_index=True))
        self._state.update((state,))
        yield output

    def close(self) -> None:
        """Do nothing: no resources are held."""
