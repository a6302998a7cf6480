"""Properties that a checkpoint of Spark fixes: the format of its state, and the shuffle partitions."""

import json
from pathlib import Path

import pytest

from milepost.config.errors import StartFault
from milepost.pipelines.checkpoints import find_checkpoint
from milepost.pipelines.plan import Plan
from milepost.runtime.pipelines import checked_checkpoints

PLAN = Plan("hazards", ("a",), 1, lambda log: log)


def write(folder: Path, *, format_version: int, has_state: bool = True, partitions: int = 2) -> Path:
    """Write a checkpoint of eleven batches, as Spark does."""
    path = folder / "checkpoints" / "hazards-1"
    for name in ("offsets", "commits", *(["state"] if has_state else [])):
        (path / name).mkdir(parents=True)
    metadata = {"batchWatermarkMs": 0, "conf": {"spark.sql.shuffle.partitions": str(partitions)}}
    for number in (9, 10):
        (path / "offsets" / str(number)).write_text(f'v1\n{json.dumps(metadata)}\n{{"a": {{"0": 7}}}}')
        (path / "commits" / str(number)).write_text(f'v{format_version}\n{{"nextBatchWatermarkMs":0}}')
        (path / "offsets" / f".{number}.crc").write_bytes(b"\0")
    return path


def test_a_query_that_has_not_finished_a_batch_has_no_checkpoint(tmp_path: Path) -> None:
    assert find_checkpoint(tmp_path) is None
    for name in ("offsets", "commits"):
        (tmp_path / name).mkdir()
    assert find_checkpoint(tmp_path) is None


def test_partitions_and_format_are_read(tmp_path: Path) -> None:
    found = find_checkpoint(write(tmp_path, format_version=2, partitions=3))
    assert found is not None
    assert (found.format_version, found.has_state, found.partitions, found.find_fault()) == (2, True, 3, None)
    assert set(checked_checkpoints(str(tmp_path), [PLAN], ["hazards"])) == {"hazards"}


def test_real_time_mode_refuses_state_of_an_older_format_with_advice(tmp_path: Path) -> None:
    path = write(tmp_path, format_version=1)
    with pytest.raises(StartFault, match=f"query hazards cannot continue: the state in {path} .* or move the folder away"):
        checked_checkpoints(str(tmp_path), [PLAN], ["hazards"])
    assert set(checked_checkpoints(str(tmp_path), [PLAN], [])) == {"hazards"}, "micro-batches continue"


def test_a_query_without_state_continues_from_an_older_format(tmp_path: Path) -> None:
    write(tmp_path, format_version=1, has_state=False)
    assert set(checked_checkpoints(str(tmp_path), [PLAN], ["hazards"])) == {"hazards"}
