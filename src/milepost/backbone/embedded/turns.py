"""Turns: a process that writes all the time lets another one in between, which SQLite alone would keep waiting.

Whoever finds the file locked says so by a shared lock on the file `turns`; whoever has just written looks whether somebody does,
and then waits a moment before it writes again. A process that dies takes its lock along; one that was stopped costs the others
no more than that moment.
"""

import fcntl
import os
from contextlib import suppress
from pathlib import Path
from time import monotonic, sleep
from typing import Final

NAME: Final = "turns"
YIELD_S: Final = 0.003
LOOK_S: Final = 0.0001


class Turns:
    """One writer's part in it."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._is_asking = False

    def ask(self) -> None:
        """Say that this writer waits."""
        if not self._is_asking:
            with suppress(BlockingIOError):  # somebody looks this very moment; it will be asked again
                fcntl.flock(self._file, fcntl.LOCK_SH | fcntl.LOCK_NB)
                self._is_asking = True

    def have(self) -> None:
        """This writer's turn has come."""
        if self._is_asking:
            fcntl.flock(self._file, fcntl.LOCK_UN)
            self._is_asking = False

    def let_others(self) -> None:
        """Wait for a moment, if another writer waits."""
        until = monotonic() + YIELD_S
        while self._do_others_wait() and monotonic() < until:
            sleep(LOOK_S)

    def close(self) -> None:
        """Take no more part."""
        os.close(self._file)

    def _do_others_wait(self) -> bool:
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        fcntl.flock(self._file, fcntl.LOCK_UN)
        return False
