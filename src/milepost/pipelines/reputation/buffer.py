"""The buffer of a minute: parts of sightings are appended to state batch by batch, and leave it once, when the minute is over.

    sightings ─▶ pack_parts: columns by bucket and minute, as bytes ─▶ MinuteBuffer: list state, event-time timer ─▶ parts

*Invariants:*
- a batch costs what it brings: the state of earlier batches is neither read nor rewritten;
- the rows of a minute are emitted together, in any order, when its timer fires; rows that arrive later are dropped;
- a bucket and minute has at most `BYTES_MAX` bytes: the rest is dropped.
"""

from collections.abc import Iterable, Iterator
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa
from pyspark.sql.streaming.stateful_processor import StatefulProcessor, StatefulProcessorHandle

from milepost.pipelines.reputation.evidence import MINUTE_US

PART_ROW: Final = "bucket int, minute bigint, part binary"
"""Some sightings of a minute and its lead, in one bucket: Arrow columns as bytes."""

BYTES_MAX: Final = 32_000_000
"""Maximum state of a bucket and minute, not compressed: some twenty times that of 20,000 reports a second."""

_PARTS: Final = pa.schema([("bucket", pa.int32()), ("minute", pa.int64()), ("part", pa.binary())])
_ROWS: Final = pa.schema(
    [
        ("square", pa.int64()),
        ("endpoint", pa.string()),
        ("seen_at_us", pa.int64()),
        ("latitude", pa.float64()),
        ("longitude", pa.float64()),
        ("heading_deg", pa.float64()),
        ("speed_mps", pa.float64()),
        ("verdict", pa.int32()),
        ("kind", pa.string()),
    ]
)


def pack_parts(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the parts (PART_ROW) of sightings with their minute, lead and buckets."""
    for batch in batches:
        yield pa.RecordBatch.from_pylist(list(_parts_of(batch)), _PARTS)


def _parts_of(batch: pa.RecordBatch) -> Iterator[dict[str, object]]:
    """Yield a part for each bucket and minute; the last half minute is also the lead of the next."""
    minute, is_lead, by_endpoint, by_square = (
        batch.column(name).to_numpy(zero_copy_only=False) for name in ("minute", "is_lead", "by_endpoint", "by_square")
    )
    rows = np.tile(np.arange(batch.num_rows), 4)
    buckets = np.concatenate((by_endpoint, by_square, by_endpoint, by_square))
    minutes = np.concatenate((minute, minute, minute + 1, minute + 1))
    is_used = (buckets >= 0) & np.concatenate((np.ones(2 * len(minute), np.bool_), is_lead, is_lead))
    rows, buckets, minutes = rows[is_used], buckets[is_used], minutes[is_used]
    order = np.lexsort((minutes, buckets))
    rows, buckets, minutes = rows[order], buckets[order], minutes[order]
    sorted_rows = batch.select(_ROWS.names).cast(_ROWS).take(pa.array(rows))
    starts = np.flatnonzero(np.append(True, (np.diff(buckets) != 0) | (np.diff(minutes) != 0))) if rows.size else rows
    for start, end in zip(starts, np.append(starts[1:], rows.size), strict=True):
        part = sorted_rows.slice(start, end - start)
        yield {"bucket": int(buckets[start]), "minute": int(minutes[start]), "part": _to_bytes(part)}


def _to_bytes(rows: pa.RecordBatch) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _ROWS) as writer:
        writer.write_batch(rows)
    return bytes(sink.getvalue())


def rows_from_parts(parts: Iterable[bytes]) -> pd.DataFrame:
    """Return the sightings of some parts, with schema SQUARE_ROW."""
    found: pd.DataFrame = pa.concat_tables(pa.ipc.open_stream(part).read_all() for part in parts).to_pandas()
    return found


class MinuteBuffer(StatefulProcessor):
    """The parts of one bucket and minute."""

    def init(self, handle: StatefulProcessorHandle) -> None:
        """Open the state."""
        self._handle = handle
        self._parts = handle.getListState("parts", "part binary")
        self._bytes = handle.getValueState("bytes", "bytes bigint")

    def handleInputRows(self, key: Any, rows: Iterator[Any], timerValues: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803
        """Append the parts of a batch; the first one sets the timer of the minute."""
        expires_at_ms = (int(key[1]) + 1) * MINUTE_US // 1_000
        if expires_at_ms <= timerValues.getCurrentWatermarkInMs():
            return
        stored = self._bytes.get()
        total = 0 if stored is None else int(stored[0])
        for frame in rows:
            parts = [bytes(part) for part in frame["part"]]
            kept = [
                part
                for part, size in zip(parts, np.cumsum([len(one) for one in parts]), strict=True)
                if total + size <= BYTES_MAX
            ]
            self._parts.appendList([(part,) for part in kept])
            total += sum(map(len, kept))
        if stored is None:
            self._handle.registerTimer(expires_at_ms)
        self._bytes.update((total,))
        yield from ()

    def handleExpiredTimer(self, key: Any, timerValues: Any, expiredTimerInfo: Any) -> Iterator[pd.DataFrame]:  # noqa: N802, N803, ARG002
        """Emit the minute and forget it."""
        parts = [bytes(row[0]) for row in self._parts.get()]
        self._parts.clear()
        self._bytes.clear()
        if parts:
            yield pd.DataFrame({"bucket": np.int32(key[0]), "minute": int(key[1]), "part": parts})

    def close(self) -> None:
        """Do nothing: no resources are held."""
