"""The physical plans of all pipelines: one scan, the expected exchanges and aggregates, and Python only where it is known.

A change of a plan is a change of one line of the tables. Object aggregates are justified in docs/decisions/0034.
"""

import re
from collections import Counter
from contextlib import redirect_stdout
from dataclasses import dataclass
from io import StringIO
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from milepost.model.incidents import EVENT_KINDS
from milepost.pipelines.arrivals import arrivals
from milepost.pipelines.catalogue import PIPELINE_PLANS, plans_of
from milepost.pipelines.hazards import EVENT_ROW
from milepost.pipelines.hot_bounds import span_of, spans_needed
from milepost.pipelines.records import LOG_ROW
from milepost.pipelines.settings import PipelineSettings

SCANS = r"StreamingRelation|(?:File|Batch)?Scan"
PYTHON = r"Pandas|Python|PySpark|Arrow"


@dataclass(frozen=True)
class Expected:
    """Operators of a physical plan."""

    exchanges: int = 0
    compiled: int = 0
    """Hash aggregates, all of them inside whole-stage code generation."""
    objects: int = 0
    """Object aggregates."""
    python: int = 0
    scans: int = 1


STREAMS = {
    "hazards": Expected(exchanges=1, objects=4),
    "positions-places": Expected(),
    "positions-slots": Expected(exchanges=1, compiled=4),
    "positions-congestion": Expected(exchanges=1, objects=4),
    "reputation": Expected(exchanges=3, python=4),
    "archive-messages": Expected(),
    "archive-reports": Expected(),
    "archive-deliveries": Expected(),
    "dead-letters": Expected(),
}


def operators(rows: DataFrame) -> Expected:
    """Count the operators in the physical plan of *rows*."""
    text = StringIO()
    with redirect_stdout(text):
        rows.explain()
    lines = [re.sub(r"^[\s:+\-|]*", "", line) for line in text.getvalue().splitlines()[1:]]
    found = Counter(re.sub(r"^\*\s?\(\d+\)\s", "*", line).split("(")[0].split()[0] for line in lines if line)
    assert not [name for name in found if name.endswith("SortAggregate")], text.getvalue()
    assert not found["HashAggregate"], f"an aggregate is not compiled: {text.getvalue()}"
    return Expected(
        exchanges=found["Exchange"],
        compiled=found["*HashAggregate"],
        objects=found["ObjectHashAggregate"],
        python=sum(count for name, count in found.items() if re.search(PYTHON, name)),
        scans=sum(count for name, count in found.items() if re.fullmatch(SCANS, name.lstrip("*"))),
    )


def test_every_plan_has_an_expectation() -> None:
    assert {plan.name for plan in plans_of(list(PIPELINE_PLANS), PipelineSettings())} == set(STREAMS)


@pytest.mark.parametrize("name", STREAMS)
def test_the_plan_of_a_stream_is_the_expected_one(spark: SparkSession, tmp_path: Path, name: str) -> None:
    (plan,) = [plan for plan in plans_of(list(PIPELINE_PLANS), PipelineSettings(folder=str(tmp_path))) if plan.name == name]
    log = spark.readStream.schema(LOG_ROW).parquet(str(tmp_path))
    assert operators(plan.transform(log)) == STREAMS[name]


def test_squares_of_the_past_are_excluded_by_compiled_aggregates(spark: SparkSession, tmp_path: Path) -> None:
    spark.createDataFrame([], f"{EVENT_ROW}, appended_at timestamp").write.parquet(str(tmp_path / "events"))
    spots = arrivals(spark.read.parquet(str(tmp_path / "events")), EVENT_KINDS).withColumn("span", span_of(EVENT_KINDS))
    spark.conf.set("spark.sql.adaptive.enabled", "false")  # its first plan does not show what will be compiled
    try:
        found = operators(spans_needed(spots, EVENT_KINDS, allowed_lateness_s=60.0))
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert found == Expected(exchanges=4, compiled=8)
