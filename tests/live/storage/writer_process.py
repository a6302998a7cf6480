"""Starts the writer process, alone or under strace."""

import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from milepost.model.durability import Durability
from parts import ROOT

TICKS_MAX = 1_000_000


@contextmanager
def writer(
    folder: Path, level: Durability, ticks: int = TICKS_MAX, under: tuple[str, ...] = ()
) -> Iterator[subprocess.Popen[str]]:
    """Run the writer; it is killed at the end if it is still running."""
    command = [*under, sys.executable, "-m", "live.storage.writer", str(folder), level.value, str(ticks)]
    environment = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT / 'tests'}", "PYTHONDONTWRITEBYTECODE": "1"}
    with subprocess.Popen(command, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


def lines(process: subprocess.Popen[str]) -> Iterator[str]:
    """Iterate over the output lines of the writer, until it is done or dead."""
    assert process.stdout is not None
    for line in process.stdout:
        yield line.strip()
        if line == "done\n":
            return
