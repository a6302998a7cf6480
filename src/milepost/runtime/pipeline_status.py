"""The status of a site's pipelines: a file in their folder, a table for the terminal, and metrics.

    Runner's queries ─▶ QueryStatus ─▶ status.json ─▶ `milepost pipeline status`, the dashboard
                                  └──▶ PipelineMetrics ─▶ /ready, /metrics

Importing this module does not import Spark: the status can be read without it.
"""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from time import time_ns
from typing import TYPE_CHECKING, Any, Final

from milepost.config.errors import StartFault
from milepost.config.settings import Settings
from milepost.runtime.metrics import Family, MetricType, labelled
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:
    from milepost.pipelines.runner import RunningQuery

STATUS_FILE: Final = "status.json"
OLD_S: Final = 15.0
"""Age of a status file above which its process counts as not running."""

_HEADS: Final = ("query", "state", "mode", "batch", "rows/s", "lag", "state rows", "late", "restarts")


@dataclass(frozen=True, slots=True)
class QueryStatus:
    """One query, as of its last batch."""

    name: str
    state: str
    mode: str
    batch: int | None
    rows_per_s: float
    took_s: float
    lag: int | None
    """Records of its topics that it has not read; None if not known."""
    state_rows: int
    late_rows: int
    restarts: int
    fault: str


def status_of(running: "RunningQuery", ends: Mapping[str, int]) -> QueryStatus:
    """Return the status of a query, given the end offsets of its topics."""
    progress, restarts = running.progress, running.restarts
    known = None if progress is None else [ends[topic] - at for topic, at in progress.positions.items() if topic in ends]
    return QueryStatus(
        name=running.plan.name,
        state=running.state,
        mode="real-time" if running.is_real_time else "micro-batch",
        batch=None if progress is None else progress.batch,
        rows_per_s=0.0 if progress is None else progress.rows_per_s,
        took_s=0.0 if progress is None else progress.took_s,
        lag=None if not known else max(0, sum(known)),
        state_rows=0 if progress is None else progress.state_rows,
        late_rows=0 if progress is None else progress.late_rows,
        restarts=restarts.total,
        fault=restarts.fault,
    )


def write_status(folder: str, *, site: str, at_ns: int, queries: Sequence[QueryStatus]) -> None:
    """Replace the status file, atomically."""
    path = Path(folder) / STATUS_FILE
    written = {"type": "pipelines", "site": site, "at_ns": at_ns, "queries": [asdict(one) for one in queries]}
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
    return (one["name"], one["state"], one["mode"], *("?" if count is None else f"{count:,}" for count in counts))


def _padded(cell: str, width: int, at: int) -> str:
    return f"{cell:<{width}}" if at < 3 else f"{cell:>{width}}"


class PipelineMetrics:
    """The latest status of every query, as metrics and as a health check."""

    def __init__(self) -> None:
        self.latest: Sequence[QueryStatus] = ()

    def check(self) -> str | None:
        """Return the queries that do not run, or None."""
        if not self.latest:
            return "starting"
        return ", ".join(f"{one.name} {one.state}" for one in self.latest if one.state != "running") or None

    def families(self) -> Iterator[Family]:
        """Return the metrics of every query."""
        yield self._by_query("up", "1 for queries that are running.", [float(one.state == "running") for one in self.latest])
        yield self._by_query("rows_per_second", "Records per second in the last batch.", [one.rows_per_s for one in self.latest])
        yield self._by_query("batch_seconds", "Duration of the last batch.", [one.took_s for one in self.latest])
        lags = [float("nan") if one.lag is None else float(one.lag) for one in self.latest]
        yield self._by_query("lag_records", "Records not read at the end of the last batch.", lags)
        yield self._by_query("state_rows", "Rows of state between batches.", [float(one.state_rows) for one in self.latest])
        yield self._by_query(
            "late_rows", "Rows dropped as too late in the last batch.", [float(one.late_rows) for one in self.latest]
        )
        restarts = [(one.name, float(one.restarts)) for one in self.latest]
        yield labelled("milepost_pipeline_restarts_total", MetricType.COUNTER, "Restarts after a failure.", "query", restarts)

    def _by_query(self, name: str, what: str, values: Sequence[float]) -> Family:
        named = [(one.name, value) for one, value in zip(self.latest, values, strict=True)]
        return labelled(f"milepost_pipeline_{name}", MetricType.GAUGE, what, "query", named)
