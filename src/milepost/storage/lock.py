"""The lock of a directory: one process at a time, and whoever comes second is told who is first."""

import fcntl
import os
from contextlib import suppress
from pathlib import Path

from milepost.edge.keeping import StorageUnavailable
from milepost.storage.faults import StorageInUse

NAME = "lock"
PID_BYTES_MAX = 20


class Lock:
    """Held from its making to `release`; the operating system releases it when the process dies."""

    def __init__(self, folder: Path) -> None:
        try:
            descriptor = os.open(folder / NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        except OSError as error:
            raise StorageUnavailable(f"cannot lock {folder}: {error.strerror}") from error
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            holder = os.pread(descriptor, PID_BYTES_MAX, 0).decode(errors="replace").strip()
            os.close(descriptor)
            if isinstance(error, BlockingIOError):
                raise StorageInUse(folder, holder) from None
            raise StorageUnavailable(f"cannot lock {folder}: {error.strerror}") from error
        self._descriptor: int | None = descriptor
        with suppress(OSError):  # on a full disk the lock holds without a name on it
            os.ftruncate(descriptor, 0)
            os.pwrite(descriptor, f"{os.getpid()}\n".encode(), 0)

    def release(self) -> None:
        """Let others have the directory. The file stays: who removed it could remove the lock of the next."""
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None
