"""What Spark says of a query's last batch, in a few figures."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Progress:
    """Of the last batch that was done."""

    batch: int
    rows: int
    rows_per_s: float
    """Read while it ran."""
    took_s: float
    state_rows: int
    """Remembered between batches."""
    state_bytes: int
    late_rows: int
    """Left out of this batch because they came too late."""
    positions: Mapping[str, int] = field(default_factory=dict)
    """The offset of the next record, by the name that the topic has in the log."""


def progress_from_json(text: str, *, prefix: str) -> Progress:
    """The figures in what `StreamingQueryProgress.json` gives; topics begin with a prefix there."""
    told: dict[str, Any] = json.loads(text)
    operators: list[dict[str, Any]] = told.get("stateOperators", [])
    return Progress(
        batch=told["batchId"],
        rows=told.get("numInputRows", 0),
        rows_per_s=told.get("processedRowsPerSecond", 0.0),
        took_s=told.get("batchDuration", 0) / 1000,
        state_rows=sum(one.get("numRowsTotal", 0) for one in operators),
        state_bytes=sum(one.get("memoryUsedBytes", 0) for one in operators),
        late_rows=sum(one.get("numRowsDroppedByWatermark", 0) for one in operators),
        positions=_furthest(told.get("sources", []), prefix),
    )


def _furthest(sources: list[dict[str, Any]], prefix: str) -> dict[str, int]:
    found: dict[str, int] = {}
    for source in sources:
        for topic, offset in _ends(source.get("endOffset")):
            name = topic.removeprefix(prefix)
            found[name] = max(found.get(name, 0), offset)
    return found


def _ends(told: object) -> Iterator[tuple[str, int]]:
    """Kafka's form has partitions below topics, ours has none; a source that has read nothing says nothing."""
    for topic, where in told.items() if isinstance(told, dict) else ():
        if isinstance(where, dict):
            yield topic, sum(int(offset) for offset in where.values())
        else:
            yield topic, int(where)
