"""A process that is killed while it writes: every completed tick is stored, and the interrupted one entirely or not at all."""

import signal
from pathlib import Path
from random import Random

import pytest

from live.storage.writer import last_tick
from live.storage.writer_process import lines, writer
from milepost.model.durability import Durability
from milepost.storage import StorageInUse, open_storage

KILLS = 30
SEED = 20_260


def test_every_tick_written_before_a_kill_is_stored_after_it(tmp_path: Path) -> None:
    random = Random(SEED)
    total = 0
    for _ in range(KILLS):
        ticks_before_kill = random.randrange(1, 150)
        with writer(tmp_path / "state", Durability.PROCESS_CRASH) as process:
            output = lines(process)
            assert next(output) == "ready"
            received = [next(output) for _ in range(ticks_before_kill)]
            process.send_signal(signal.SIGKILL)
            received += list(output)
        returned = int(received[-1].removeprefix("stored "))
        storage = open_storage(tmp_path / "state", Durability.PROCESS_CRASH)
        found = last_tick(storage.load())
        storage.close()
        assert returned <= found <= returned + 1  # killed between the commit and the line that reports it
        assert found >= total + ticks_before_kill
        total = found
    assert total > 900, "the log was never checkpointed"


def test_a_second_process_is_refused_with_the_pid_of_the_first(tmp_path: Path) -> None:
    folder = tmp_path / "state"
    with writer(folder, Durability.PROCESS_CRASH, ticks=1) as process:
        assert list(lines(process)) == ["ready", "stored 1", "done"]
        with pytest.raises(StorageInUse, match=rf"{folder} is in use by process {process.pid}: stop that process, or give"):
            open_storage(folder, Durability.PROCESS_CRASH)
        process.kill()
        process.wait()
        storage = open_storage(folder, Durability.PROCESS_CRASH)
        assert last_tick(storage.load()) == 1
        with pytest.raises(StorageInUse):
            open_storage(folder, Durability.PROCESS_CRASH)
        storage.close()
