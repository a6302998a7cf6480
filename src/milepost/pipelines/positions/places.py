"""Last places and handovers, kept for a share of all endpoints.

What must hold:
- the last place is the one of the latest `seen_at`, in whatever order and batches reports come; of two at the same instant the
  one with the greater edge, then latitude, longitude, heading, speed;
- a handover is told once. Reports of a batch are looked at in the order in which they were seen; one that was seen before what
  an earlier batch had is passed over: edges tell theirs within a second, and who hears late of a move hears of it once;
- who was not seen for `forget_s` is forgotten, so that there are no more places than endpoints in that time.

Columns and not objects, since 20,000 reports a second pass here.
"""

from dataclasses import dataclass
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from milepost.pipelines.positions.schema import HANDOVERS_TOPIC, LAST_TOPIC, REPORT_COLUMNS

FORGET_S: Final = 3_600.0
"""Who comes back after an hour has made a journey, not a handover."""

_SECOND_US: Final = 1_000_000
_COLUMNS: Final = list(REPORT_COLUMNS)
_TYPES: Final = pa.schema(
    [
        ("endpoint", pa.string()),
        ("seen_at_us", pa.int64()),
        ("edge", pa.string()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("heading_deg", pa.float64()),
        ("speed_mps", pa.float64()),
    ]
)


@dataclass(frozen=True, slots=True)
class Places:
    """The last place of each endpoint, one row each."""

    rows: pd.DataFrame

    @classmethod
    def empty(cls) -> "Places":
        """Before anybody was seen."""
        return cls(_TYPES.empty_table().to_pandas())

    @classmethod
    def from_bytes(cls, kept: bytes) -> "Places":
        """As they were kept."""
        return cls(pa.ipc.open_stream(kept).read_pandas())

    def to_bytes(self) -> bytes:
        """To keep."""
        sink = pa.BufferOutputStream()
        table = pa.Table.from_pandas(self.rows, _TYPES, preserve_index=False)
        with pa.ipc.new_stream(sink, _TYPES) as writer:
            writer.write_table(table)
        return bytes(sink.getvalue())


def take(before: Places, reports: pd.DataFrame, *, forget_s: float = FORGET_S) -> tuple[Places, pd.DataFrame]:
    """The places after a batch of reports, and what is to be told of it (PLACE_ROW)."""
    both = pd.concat([before.rows[_COLUMNS].assign(is_new=False), reports[_COLUMNS].assign(is_new=True)], ignore_index=True)
    both = both.sort_values([*_COLUMNS, "is_new"], ignore_index=True)
    both = both[_are_not_stale(both)]
    left = both.groupby("endpoint", sort=False)[["edge", "seen_at_us"]].shift()
    gap_s = (both["seen_at_us"] - left["seen_at_us"]) / _SECOND_US
    both = both.assign(left_edge=left["edge"], gap_s=gap_s)
    is_handover = both["left_edge"].notna() & (both["left_edge"] != both["edge"]) & (both["gap_s"] <= forget_s)
    last = both.drop_duplicates("endpoint", keep="last")
    told_last = last[last["is_new"]].assign(topic=LAST_TOPIC, left_edge=None, gap_s=np.nan)
    told = pd.concat([both[is_handover].assign(topic=HANDOVERS_TOPIC), told_last], ignore_index=True)
    oldest = last["seen_at_us"].max() - forget_s * _SECOND_US
    return Places(last.loc[last["seen_at_us"] >= oldest, _COLUMNS]), told[["topic", *_COLUMNS, "left_edge", "gap_s"]]


def _are_not_stale(both: pd.DataFrame) -> "pd.Series[bool]":
    """Which are known, or come after what is known of the endpoint, or are of one of whom nothing is."""
    known = both.loc[~both["is_new"], "endpoint"]
    starts = both["endpoint"].map(pd.Series(known.index, index=known.to_numpy()))
    return starts.isna() | (both.index >= starts)
