"""A process that is killed while it writes: all that was written is there, and of the turn in between all or nothing."""

import signal
from pathlib import Path
from random import Random

import pytest

from live.storage.processes import lines, writer
from live.storage.writer import last_turn
from milepost.model.durability import Durability
from milepost.storage import StorageInUse, open_storage

KILLS = 30
SEED = 20_260


def test_whatever_was_written_before_a_kill_is_there_after_it(tmp_path: Path) -> None:
    random = Random(SEED)
    total = 0
    for _ in range(KILLS):
        patience = random.randrange(1, 150)
        with writer(tmp_path / "kept", Durability.PROCESS_CRASH) as process:
            said = lines(process)
            assert next(said) == "ready"
            heard = [next(said) for _ in range(patience)]
            process.send_signal(signal.SIGKILL)
            heard += list(said)
        returned = int(heard[-1].removeprefix("kept "))
        storage = open_storage(tmp_path / "kept", Durability.PROCESS_CRASH)
        found = last_turn(storage.load())
        storage.close()
        assert returned <= found <= returned + 1  # killed between the commit and the word about it
        assert found >= total + patience
        total = found
    assert total > 900, "the log was never taken over"


def test_a_second_process_is_told_who_has_the_directory(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with writer(folder, Durability.PROCESS_CRASH, turns=1) as process:
        assert list(lines(process)) == ["ready", "kept 1", "done"]
        with pytest.raises(StorageInUse, match=rf"{folder} is in use by process {process.pid}: stop it, or give"):
            open_storage(folder, Durability.PROCESS_CRASH)
        process.kill()
        process.wait()
        storage = open_storage(folder, Durability.PROCESS_CRASH)
        assert last_turn(storage.load()) == 1
        with pytest.raises(StorageInUse):
            open_storage(folder, Durability.PROCESS_CRASH)
        storage.close()
