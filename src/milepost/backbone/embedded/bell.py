"""The bell: a file that is written to after each commit, so that readers in other processes wake at once.

The kernel tells of it by inotify. It is a file of its own: writes to SQLite's write-ahead log are seen before the commit they
belong to, and a reader that woke then would find nothing. A bell that is not heard, because a writer was killed or the
kernel has no watches left, is made up for by looking every `LOOK_S`.
"""

import ctypes
import os
import select
from contextlib import suppress
from pathlib import Path
from typing import Final

NAME: Final = "bell"
LOOK_S: Final = 0.05
_IN_MODIFY: Final = 0x2
_EVENTS_BYTES: Final = 4096


class Bell:
    """Rung by the one who writes, heard by the one who waits."""

    def __init__(self, folder: Path) -> None:
        self._file = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        self._ear = _watch(folder / NAME)
        self._nudge = os.eventfd(0, os.EFD_NONBLOCK | os.EFD_CLOEXEC)
        self._poll = select.poll()
        for descriptor in (self._ear, self._nudge):
            if descriptor is not None:
                self._poll.register(descriptor, select.POLLIN)

    def ring(self) -> None:
        """Wake everybody who waits, in every process."""
        with suppress(OSError):  # a disk that is full or gone; who waits looks now and then anyway
            os.pwrite(self._file, b"\0", 0)

    def wait(self) -> None:
        """Until it rings, somebody nudges, or it is time to look anyway."""
        for descriptor, _ in self._poll.poll(LOOK_S * 1000):
            with suppress(BlockingIOError):
                os.read(descriptor, _EVENTS_BYTES)

    def nudge(self) -> None:
        """Wake the one who waits on this very object."""
        os.eventfd_write(self._nudge, 1)

    def close(self) -> None:
        """No more ringing."""
        for descriptor in (self._file, self._ear, self._nudge):
            if descriptor is not None:
                os.close(descriptor)


def _watch(file: Path) -> int | None:
    """A descriptor that can be read when the file was written to; nothing if the kernel has none to give."""
    libc = ctypes.CDLL(None, use_errno=True)
    descriptor: int = libc.inotify_init1(os.O_NONBLOCK | os.O_CLOEXEC)
    if descriptor < 0:
        return None
    if libc.inotify_add_watch(descriptor, os.fsencode(file), _IN_MODIFY) < 0:
        os.close(descriptor)
        return None
    return descriptor
