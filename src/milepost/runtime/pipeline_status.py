"""The status of a site's pipelines: a file in their folder, a table for the terminal, and metrics.

    Runner's queries ─▶ QueryStatus ─▶ status.json ─▶ `milepost pipeline status`, the dashboard
                                  └──▶ PipelineMetrics ─▶ /ready, /metrics

Importing this module does not import Spark: the status can be read without it.
"""

import json
from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from milepost.config.errors import StartFault
from milepost.config.settings import Settings
from milepost.runtime.metrics import Family, MetricType, counter, labelled
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:
    from milepost.pipelines.runner import RunningQuery

STATUS_FILE: Final = "status.json"
OLD_S: Final = 15.0
"""Age of a status file above which its process counts as not running."""

COUNTED_S_MAX: Final = 12.0
"""Maximum age of the counts of a running batch: Spark's heartbeat, every 10 s, and two ticks."""

_HISTORY: Final = 32
"""End offsets kept, one for each tick of a second."""
_HEADS: Final = ("query", "state", "mode", "batch", "rows/s", "lag", "state rows", "late", "restarts")


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query. State, and the duration of a batch, are those of the last finished batch; the rest is current."""

    name: str
    state: str
    mode: str
    batch: int | None
    rows_per_s: float
    took_s: float
    rows: int
    """Records read since the process has started."""
    lag: int | None
    """Records of its topics that it had not read, `counted_s_ago`; None if not known."""
    state_rows: int
    late_rows: int
    """Rows dropped by the watermark since the process has started."""
    restarts: int
    fault: str
    counted_s_ago: float | None = None
    """In real-time mode: the age of the counts of the running batch; None: they are current."""


class EndOffsets:
    """The end offsets of topics in the last seconds: a count is compared with the end of the log at the time of the count."""

    def __init__(self) -> None:
        self._history: deque[tuple[float, Mapping[str, int]]] = deque(maxlen=_HISTORY)

    def add(self, now_s: float, ends: Mapping[str, int]) -> None:
        """Add the current ends."""
        self._history.append((now_s, ends))

    def at(self, then_s: float) -> Mapping[str, int]:
        """Return the ends at a time, or the oldest known."""
        past = (ends for at_s, ends in reversed(self._history) if at_s <= then_s)
        return next(past, self._history[0][1] if self._history else {})


def status_of(running: "RunningQuery", ends: EndOffsets, now_s: float) -> QueryStatus:
    """Return the status of a query, given the end offsets of its topics and the time of the runner's clock."""
    progress, restarts, batch = running.progress, running.restarts, running.running_batch
    rows_per_s = 0.0 if progress is None else progress.rows_per_s
    # Unchanged counts are confirmed by each heartbeat.
    counted_s_ago = None if batch is None else min(now_s - batch.changed_at_s, COUNTED_S_MAX)
    return QueryStatus(
        name=running.plan.name,
        state=running.state,
        mode="real-time" if running.is_real_time else "micro-batch",
        batch=batch.number if batch is not None else None if progress is None else progress.batch,
        rows_per_s=rows_per_s if batch is None else batch.rows_per_s,
        took_s=0.0 if progress is None else progress.took_s,
        rows=running.totals.rows + (0 if batch is None else batch.rows),
        lag=_find_lag(running, ends.at(now_s - (counted_s_ago or 0.0))),
        state_rows=0 if progress is None else progress.state_rows,
        late_rows=running.totals.late_rows + (0 if batch is None else batch.late_rows),
        restarts=restarts.total,
        fault=restarts.fault,
        counted_s_ago=None if counted_s_ago is None else round(counted_s_ago, 1),
    )


def _find_lag(running: "RunningQuery", ends: Mapping[str, int]) -> int | None:
    """Return the records after the last finished batch, less those that the running one has read."""
    progress, batch = running.progress, running.running_batch
    read = 0 if batch is None else batch.rows
    positions = batch.started_at if batch is not None else progress.positions if progress is not None else {}
    waiting = [ends[topic] - at for topic, at in positions.items() if topic in ends]
    return max(0, sum(waiting) - read) if waiting else None


def write_status(folder: str, *, site: str, at_ns: int, queries: Sequence[QueryStatus], dead_letters: int | None = None) -> None:
    """Replace the status file, atomically; *dead_letters* is their number in the log, None if not known."""
    path = Path(folder) / STATUS_FILE
    listed = [asdict(one) for one in queries]
    written = {"type": "pipelines", "site": site, "at_ns": at_ns, "dead_letters": dead_letters, "queries": listed}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(written))
    new.replace(path)


def progress_line(queries: Iterable[QueryStatus]) -> str:
    """Return all queries in one line."""
    return " · ".join(
        f"{one.name} {one.rows_per_s:,.0f}/s lag {'?' if one.lag is None else f'{one.lag:,}'} state {one.state_rows:,}"
        if one.state == "running"
        else f"{one.name} {one.state}"
        for one in queries
    )


def show_status(settings: Settings) -> int:
    """Print the status file as a table; return the exit status, 0 if all queries run."""
    path = Path(settings.pipelines.folder) / STATUS_FILE
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        raise StartFault(
            f"no pipelines have run in {settings.pipelines.folder}: start them, `milepost pipeline run all`"
        ) from None
    except (OSError, ValueError) as fault:
        raise StartFault(f"{path} cannot be read: {fault}") from None
    age_s = (time_ns() - found["at_ns"]) / 1e9
    is_old = age_s > OLD_S
    print_line(f"pipelines of site {found['site']}, " + (f"not running: last status {age_s:,.0f} s ago" if is_old else "running"))
    for line in _table(found["queries"]):
        print_line(line)
    if found.get("dead_letters"):
        print_line(f"dead letters: {found['dead_letters']:,}; `milepost log tail dead-letters` shows them")
    return 1 if is_old or any(one["state"] != "running" for one in found["queries"]) else 0


def _table(queries: list[dict[str, Any]]) -> list[str]:
    """Return one line for each query, and one for each fault."""
    rows = [_HEADS, *(_row(one) for one in queries)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_HEADS))]
    lines = [
        "  ".join(_padded(cell, width, at) for at, (cell, width) in enumerate(zip(row, widths, strict=True))) for row in rows
    ]
    return [line.rstrip() for line in lines] + [f"{one['name']}: {one['fault']}" for one in queries if one["fault"]]


def _row(one: dict[str, Any]) -> tuple[str, ...]:
    counts = (one["batch"], round(one["rows_per_s"]), one["lag"], one["state_rows"], one["late_rows"], one["restarts"])
    batch, rows, lag, *others = ("?" if count is None else f"{count:,}" for count in counts)
    if one["lag"] is not None and one.get("counted_s_ago") is not None:
        lag += f" ({one['counted_s_ago']:.0f} s ago)"
    return (one["name"], one["state"], one["mode"], batch, rows, lag, *others)


def _padded(cell: str, width: int, at: int) -> str:
    return f"{cell:<{width}}" if at < 3 else f"{cell:>{width}}"


class PipelineMetrics:
    """The latest status of every query, as metrics and as a health check."""

    def __init__(self) -> None:
        self.latest: Sequence[QueryStatus] = ()
        self.dead_letters: int | None = None

    def check(self) -> str | None:
        """Return the queries that do not run, or None."""
        if not self.latest:
            return "starting"
        return ", ".join(f"{one.name} {one.state}" for one in self.latest if one.state != "running") or None

    def families(self) -> Iterator[Family]:
        """Return the metrics of every query."""
        yield self._by_query("up", "1 for queries that are running.", [float(one.state == "running") for one in self.latest])
        yield self._by_query("rows_per_second", "Records per second.", [one.rows_per_s for one in self.latest])
        yield self._by_query("batch_seconds", "Duration of the last batch.", [one.took_s for one in self.latest])
        lags = [float("nan") if one.lag is None else float(one.lag) for one in self.latest]
        yield self._by_query("lag_records", "Records not read.", lags)
        yield self._by_query("state_rows", "Rows of state between batches.", [float(one.state_rows) for one in self.latest])
        rows = [(one.name, float(one.rows)) for one in self.latest]
        yield labelled("milepost_pipeline_rows_total", MetricType.COUNTER, "Records read.", "query", rows)
        late_rows = [(one.name, float(one.late_rows)) for one in self.latest]
        yield labelled("milepost_pipeline_late_rows_total", MetricType.COUNTER, "Rows dropped as too late.", "query", late_rows)
        if self.dead_letters is not None:
            yield counter("milepost_pipeline_dead_letters_total", "Unreadable records of the site's log.", self.dead_letters)
        restarts = [(one.name, float(one.restarts)) for one in self.latest]
        yield labelled("milepost_pipeline_restarts_total", MetricType.COUNTER, "Restarts after a failure.", "query", restarts)

    def _by_query(self, name: str, what: str, values: Sequence[float]) -> Family:
        named = [(one.name, value) for one, value in zip(self.latest, values, strict=True)]
        return labelled(f"milepost_pipeline_{name}", MetricType.GAUGE, what, "query", named)
