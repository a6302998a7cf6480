"""Starting the writer, alone or under strace."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.model.durability import Durability
from parts import ROOT

TURNS_MAX = 1_000_000


@contextmanager
def writer(
    folder: Path, level: Durability, turns: int = TURNS_MAX, under: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """The writer at work; it is killed in the end, if it still is."""
    command = [*under, sys.executable, "-m", "live.storage.writer", str(folder), level.value, str(turns)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """What the writer says, until it is done or dead."""
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()
        if line == "done\n":
            return
