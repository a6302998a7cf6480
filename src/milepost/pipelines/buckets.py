"""State in buckets: a stateful operator of Spark for logic that works on columns.

Spark calls a processor once for each key, and each look at its state is a question to another process. With endpoints as keys
that is 20,000 calls for 20,000 reports; with a few dozen buckets of endpoints it is a few dozen, each with columns to work on.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

BUCKETS: Final = 64

Step = Callable[[bytes | None, pd.DataFrame], tuple[bytes, pd.DataFrame]]
"""What is kept of a bucket (nothing at first) and new rows of it; what to keep then, and rows to tell."""


def bucket_of(*names: str) -> Column:
    """The same for the same values."""
    return f.pmod(f.xxhash64(*names), f.lit(BUCKETS)).cast("int")


def in_steps(rows: DataFrame, step: Step, told: str, *, output: Literal["Append", "Update"]) -> DataFrame:
    """What the steps tell, one step for each `bucket` and batch; the step sees to it that what is kept stays bounded."""
    # A Python processor and no expression: which of two reports comes later is not for a sum to say.
    # Time mode none: with timers, and so with a TTL, Spark runs batch after batch even when nothing comes.
    return rows.groupBy("bucket").transformWithStateInPandas(_Processor(step), told, output, "None")


class _Processor(StatefulProcessor):
    def __init__(self, step: Step) -> None:
        self._step = step

    def init(self, handle: StatefulProcessorHandle) -> None:
        self._kept = handle.getValueState("kept", "kept binary")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ARG002
        row = self._kept.get()
        kept, told = self._step(None if row is None else bytes(row[0]), pd.concat(list(rows), ignore_index=True))
        self._kept.update((kept,))
        yield told

    def close(self) -> None:
        """Nothing was opened."""
