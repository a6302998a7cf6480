"""From rows of the archive to answers: each batch of rows is held against all questions at once."""

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pandas as pd
from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from milepost.pipelines.columns import names_of
from milepost.pipelines.lookback.asks import Past
from milepost.pipelines.lookback.frames import Content, Frames, Numbers, Pairs, Rows
from milepost.pipelines.lookback.schema import ANSWER_ROW, FOUND_ROW, WHO_ROW

_CONTENT: Final = "content"
_BETWEEN: Final = "\n"
"""Neither topics nor tags have it."""


def found(messages: DataFrame, pasts: Sequence[Past]) -> DataFrame:
    """FOUND_ROW: the messages that answer questions; those that were for somebody in particular answer none."""
    columns = names_of(FOUND_ROW)[1:]

    def answers(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        frames = Frames(pasts)
        for batch in batches:
            labels, contents = pd.factorize(batch[_CONTENT])
            names = [(topic, frozenset(tags)) for topic, *tags in (content.split(_BETWEEN) for content in contents)]
            pairs = frames.answered_by(_rows(batch, labels.astype(np.int64), names))
            yield _answered(batch[columns], pairs)

    public = messages.where("address is null").withColumn(_CONTENT, f.concat_ws(_BETWEEN, "topic", "tags"))
    # In Python, because what matches is decided by one piece of code; a batch at a time.
    return public.select(*columns, _CONTENT).mapInPandas(answers, FOUND_ROW)


def answered(found: DataFrame, pasts: Sequence[Past], *, count: int) -> DataFrame:
    """ANSWER_ROW: of each question the first so many, in order of time, after where it wants to go on (T17)."""
    session = found.sparkSession
    after = session.createDataFrame(
        [(number, past.after.seen_at_us, past.after.offset) for number, past in enumerate(pasts)],
        "frame int, after_us bigint, after_offset bigint",
    )
    place = f.struct("seen_at_us", "offset")
    is_next = place > f.struct(f.col("after_us").alias("seen_at_us"), f.col("after_offset").alias("offset"))
    by_frame = Window.partitionBy("frame")
    in_order = by_frame.orderBy(~f.col("is_next"), "seen_at_us", "offset")
    ranked = (
        found.join(f.broadcast(after), on="frame", how="inner")
        .withColumn("is_next", is_next)
        .withColumn("found", f.count("*").over(by_frame))
        .withColumn("rank", f.row_number().over(in_order))
        .withColumn("left", f.count_if("is_next").over(by_frame) - f.col("rank"))
    )
    return ranked.where(f.col("is_next") & (f.col("rank") <= count)).select(*names_of(ANSWER_ROW))


def who(reports: DataFrame, pasts: Sequence[Past]) -> DataFrame:
    """WHO_ROW: the endpoints that were in the areas of questions, by reports that an edge let in."""

    def seen(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        frames = Frames(pasts)
        for batch in batches:
            pairs = frames.answered_by(_rows(batch, np.zeros(len(batch), np.int64), [("", frozenset())]))
            there = _answered(batch[["endpoint", "seen_at_us"]], pairs).groupby(["frame", "endpoint"], sort=False)["seen_at_us"]
            yield there.agg(first_us="min", last_us="max", reports="count").reset_index()

    accepted = reports.where("verdict = 0").select("endpoint", "seen_at_us", "latitude", "longitude")
    parts = accepted.mapInPandas(seen, WHO_ROW)
    summed = parts.groupBy("frame", "endpoint").agg(
        f.min("first_us").alias("first_us"), f.max("last_us").alias("last_us"), f.sum("reports").alias("reports")
    )
    return summed.select(*names_of(WHO_ROW))


def _rows(batch: pd.DataFrame, labels: Numbers, contents: Sequence[Content]) -> Rows:
    latitudes, longitudes = (batch[name].to_numpy(np.float64) for name in ("latitude", "longitude"))
    return Rows(batch["seen_at_us"].to_numpy(np.int64), latitudes, longitudes, labels, contents)


def _answered(batch: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    there = batch.iloc[pairs.rows].reset_index(drop=True)
    there.insert(0, "frame", pairs.frames.astype(np.int32))
    return there
