"""The status of pipelines: file, table, progress line and metrics."""

import json
import time
from dataclasses import replace
from pathlib import Path

import pytest

from milepost.config.errors import StartFault
from milepost.config.settings import PipelineProcessSettings, Settings
from milepost.pipelines.plan import Plan
from milepost.pipelines.progress import Progress, RunningBatch
from milepost.pipelines.runner import Restarts, RunningQuery
from milepost.runtime.metrics import exposition
from milepost.runtime.pipeline_status import (
    OLD_S,
    EndOffsets,
    PipelineMetrics,
    QueryStatus,
    progress_line,
    show_status,
    status_of,
    write_status,
)

PLAN = Plan("hazards", ("a", "b"), 1, lambda log: log)


def running(*, fault: str = "", most: int = 1) -> RunningQuery:
    found = RunningQuery(PLAN, Restarts(most), is_real_time=False)
    found.progress = Progress(3, 10, 1234.5, 0.5, 77, 1000, 2, {"a": 90, "b": 5})
    found.totals.add([found.progress])
    if fault:
        found.restarts.failed(fault, 0.0)
    return found


def ends(offsets: dict[str, int], at_s: float = 99.0) -> EndOffsets:
    found = EndOffsets()
    found.add(at_s, offsets)
    return found


def test_lag_is_the_number_of_records_after_the_position() -> None:
    assert status_of(running(), ends({"a": 100, "b": 5, "c": 900}), 100.0).lag == 10


def test_in_real_time_mode_lag_and_late_rows_include_the_batch_that_runs() -> None:
    query = running()
    query.running_batch = RunningBatch(4, 30, 5, {"a": 90, "b": 5}, changed_at_s=93.0, rows_per_s=3.0)
    offsets = ends({"a": 140, "b": 5}, at_s=92.5)
    offsets.add(93.5, {"a": 1_000, "b": 5})
    found = status_of(query, offsets, 100.0)
    assert (found.batch, found.rows, found.lag, found.late_rows, found.rows_per_s) == (4, 40, 20, 7, 3.0)
    assert found.counted_s_ago == 7.0, "the lag is that of the time of the counts"


def test_a_query_that_has_stopped_reading_lags() -> None:
    query = running()
    query.running_batch = RunningBatch(4, 30, 0, {"a": 90, "b": 5}, changed_at_s=10.0)
    offsets = ends({"a": 120, "b": 5}, at_s=10.0)
    offsets.add(80.0, {"a": 170, "b": 5})
    assert status_of(query, offsets, 100.0).lag == 50


def test_lag_is_unknown_while_the_log_is_unavailable() -> None:
    assert status_of(running(), ends({}), 100.0).lag is None


def test_the_progress_line_has_rates_lag_and_state_or_the_fault() -> None:
    fine = QueryStatus("hazards", "running", "real-time", 3, 1234.5, 0.5, 99, 10, 77, 0, 0, "")
    bad = status_of(running(fault="no", most=0), ends({}), 100.0)
    assert progress_line([fine, bad]) == "hazards 1,234/s lag 10 state 77 · hazards given up"


def test_metrics_show_the_state_of_each_query_and_a_failed_one_is_not_ready() -> None:
    metrics = PipelineMetrics()
    assert metrics.check() == "starting"
    metrics.latest = [status_of(running(fault="no"), ends({"a": 100, "b": 5}), 100.0)]
    assert metrics.check() == "hazards waiting"
    page = exposition(metrics.families()).decode()
    assert 'milepost_pipeline_lag_records{query="hazards"} 10.0' in page
    assert 'milepost_pipeline_up{query="hazards"} 0.0' in page
    assert 'milepost_pipeline_late_rows_total{query="hazards"} 2.0' in page
    metrics.latest = [replace(metrics.latest[0], state="running")]
    assert metrics.check() is None


def test_the_table_has_the_last_status_and_fails_if_a_query_is_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(pipelines=PipelineProcessSettings(folder=str(tmp_path)))
    status = [status_of(running(fault="it broke"), ends({"a": 100, "b": 5}), 100.0)]
    write_status(str(tmp_path), site="north", at_ns=time.time_ns(), queries=status)
    assert show_status(settings) == 1
    shown = capsys.readouterr().out.splitlines()
    assert shown[0] == "pipelines of site north, running"
    assert shown[2].split() == ["hazards", "waiting", "micro-batch", "3", "1,234", "10", "77", "2", "0"]
    assert shown[3] == "hazards: it broke"


def test_the_table_has_the_age_of_a_lag_and_the_number_of_dead_letters(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    query = replace(status_of(running(), ends({"a": 100}), 100.0), counted_s_ago=7.2)
    write_status(str(tmp_path), site="north", at_ns=time.time_ns(), queries=[query], dead_letters=1_234)
    show_status(Settings(pipelines=PipelineProcessSettings(folder=str(tmp_path))))
    shown = capsys.readouterr().out
    assert " 10 (7 s ago) " in shown
    assert "dead letters: 1,234" in shown


def test_a_process_with_an_old_status_counts_as_down(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    settings = Settings(pipelines=PipelineProcessSettings(folder=str(tmp_path)))
    write_status(str(tmp_path), site="north", at_ns=time.time_ns() - int((OLD_S + 5) * 1e9), queries=[])
    assert show_status(settings) == 1
    assert "not running" in capsys.readouterr().out


def test_a_status_that_cannot_be_read_is_one_line(tmp_path: Path) -> None:
    settings = Settings(pipelines=PipelineProcessSettings(folder=str(tmp_path)))
    with pytest.raises(StartFault, match="no pipelines have run"):
        show_status(settings)
    (tmp_path / "status.json").write_text(json.dumps({})[:-1])
    with pytest.raises(StartFault, match="cannot be read"):
        show_status(settings)
