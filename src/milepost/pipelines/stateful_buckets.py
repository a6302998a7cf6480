"""State in buckets: a stateful Spark operator for vectorised logic.

Spark calls a processor once for each key, and each access to its state is a call to another process. With endpoints as keys
that is 20,000 calls for 20,000 reports; with a few dozen buckets of endpoints it is a few dozen, each with whole columns.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, Literal

import pandas as pd
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

BUCKETS: Final = 64

Step = Callable[[bytes | None, pd.DataFrame], tuple[bytes, pd.DataFrame]]
"""From the state of a bucket (`None` at first) and its new rows to the next state and the output rows."""


def bucket_of(*names: str) -> Column:
    """Return the bucket of a row, by the hash of columns."""
    return f.pmod(f.xxhash64(*names), f.lit(BUCKETS)).cast("int")


def apply_in_buckets(rows: DataFrame, step: Step, schema: str, *, output: Literal["Append", "Update"]) -> DataFrame:
    """Return the output of one step for each `bucket` and batch; the step must keep its state bounded."""
    # A Python processor, as an aggregate cannot express the order of two reports.
    # Time mode none: with timers, and so with a TTL, Spark runs batch after batch even without input.
    return rows.groupBy("bucket").transformWithStateInPandas(_Processor(step), schema, output, "None")


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
