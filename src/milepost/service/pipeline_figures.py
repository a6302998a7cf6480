"""What the pipelines of a process tell of themselves: a file that `pipeline status` reads, one line, and figures over HTTP."""

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from http import HTTPStatus
from pathlib import Path
from time import monotonic
from typing import Final

from milepost.pipelines.running import Running
from milepost.service.metrics import CONTENT_TYPE, Family, Kind, exposition, gauge, labelled
from milepost.service.pipeline_status import STATUS_FILE

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Figures:
    """Of one query, as of its last batch."""

    name: str
    state: str
    mode: str
    batch: int | None
    rows_per_s: float
    took_s: float
    lag: int | None
    """Records of its topics that it has not read; nothing: not known."""
    state_rows: int
    late_rows: int
    restarts: int
    fault: str


def figures_of(running: Running, ends: Mapping[str, int]) -> Figures:
    """The figures of a query, given where its topics end."""
    progress, restarts = running.progress, running.restarts
    known = None if progress is None else [ends[topic] - at for topic, at in progress.positions.items() if topic in ends]
    return Figures(
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


def write_status(folder: str, *, site: str, at_ns: int, figures: Sequence[Figures]) -> None:
    """Replace the file, whole."""
    path = Path(folder) / STATUS_FILE
    told = {"type": "pipelines", "site": site, "at_ns": at_ns, "queries": [asdict(one) for one in figures]}
    new = path.with_suffix(".new")
    new.write_text(json.dumps(told))
    new.replace(path)


def progress_line(figures: Iterable[Figures]) -> str:
    """All queries in one line."""
    return " · ".join(
        f"{one.name} {one.rows_per_s:,.0f}/s lag {'?' if one.lag is None else f'{one.lag:,}'} state {one.state_rows:,}"
        if one.state == "running"
        else f"{one.name} {one.state}"
        for one in figures
    )


class PipelineFigures:
    """Asked by whoever operates the pipelines."""

    def __init__(self) -> None:
        self._started_at = monotonic()
        self.latest: Sequence[Figures] = ()
        self.is_stopping = False

    def answer(self, method: str, path: str) -> tuple[int, str, bytes]:
        """What is asked for over HTTP."""
        del method
        match path:
            case "/metrics":
                return HTTPStatus.OK, CONTENT_TYPE, exposition(self._families())
            case "/health":
                return HTTPStatus.OK, _TEXT, b"alive\n"
            case "/ready" if self._why_not():
                return HTTPStatus.SERVICE_UNAVAILABLE, _TEXT, f"not ready: {self._why_not()}\n".encode()
            case "/ready":
                return HTTPStatus.OK, _TEXT, b"ready\n"
            case _:
                return HTTPStatus.NOT_FOUND, _TEXT, b"there are /metrics, /health and /ready\n"

    def _why_not(self) -> str:
        if self.is_stopping:
            return "stopping"
        if not self.latest:
            return "starting"
        return ", ".join(f"{one.name} {one.state}" for one in self.latest if one.state != "running")

    def _families(self) -> Iterator[Family]:
        yield gauge("milepost_up_seconds", "Seconds since the start.", monotonic() - self._started_at)
        yield self._by_query("up", "1 for queries that run.", [float(one.state == "running") for one in self.latest])
        yield self._by_query("rows_per_second", "Records a second, in the last batch.", [one.rows_per_s for one in self.latest])
        yield self._by_query("batch_seconds", "How long the last batch took.", [one.took_s for one in self.latest])
        lags = [float("nan") if one.lag is None else float(one.lag) for one in self.latest]
        yield self._by_query("lag_records", "Records not read when the last batch was done.", lags)
        yield self._by_query("state_rows", "Rows remembered between batches.", [float(one.state_rows) for one in self.latest])
        yield self._by_query("late_rows", "Rows too late for the last batch.", [float(one.late_rows) for one in self.latest])
        restarts = [(one.name, float(one.restarts)) for one in self.latest]
        yield labelled("milepost_pipeline_restarts_total", Kind.COUNTER, "Starts after a failure.", "query", restarts)

    def _by_query(self, name: str, what: str, values: Sequence[float]) -> Family:
        named = [(one.name, value) for one, value in zip(self.latest, values, strict=True)]
        return labelled(f"milepost_pipeline_{name}", Kind.GAUGE, what, "query", named)
