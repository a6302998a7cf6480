"""Changing a text file that others may be reading: the change is whole or not at all, and one process at a time makes one."""

import fcntl
import os
from pathlib import Path
from typing import Final

from milepost.service.faults import UsageFault, cannot_read

FILE_BYTES_MAX: Final = 64_000_000


class Rewritten:
    """The lines of a file, to be changed; written back as a whole if nothing goes wrong, one process at a time."""

    def __init__(self, path: Path, *, is_made: bool) -> None:
        self._path = path.resolve()  # a link stays a link
        self._is_made = is_made
        self._folder = -1
        self._lines: list[str] = []

    def __enter__(self) -> list[str]:
        try:
            self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise cannot_read(self._path.parent, error) from None
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX)
            is_new = self._is_made and not self._path.exists()
            self._lines = [] if is_new else text_of(self._path).removesuffix("\n").split("\n")
        except BaseException:
            os.close(self._folder)
            raise
        return self._lines

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._write("".join(f"{line}\n" for line in self._lines).encode())
        except OSError as error:
            raise UsageFault(f"{self._path} cannot be written: {error.strerror}; nothing was changed") from None
        finally:
            os.close(self._folder)

    def _write(self, content: bytes) -> None:
        beside = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        file = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as stream:
                _keep_owner(stream.fileno(), self._path)
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            beside.replace(self._path)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        os.fsync(self._folder)


def _keep_owner(file: int, path: Path) -> None:
    """Root who changes a password does not take the file away from the service's user."""
    if os.geteuid() == 0 and path.exists():
        was = path.stat()
        os.fchown(file, was.st_uid, was.st_gid)


def text_of(path: Path) -> str:
    """The text of a small file; a `UsageFault` says why there is none."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageFault(f"{path} has more than {FILE_BYTES_MAX} bytes: it cannot be the right file; correct the name")
        return path.read_bytes().decode()  # line ends as they are
    except OSError as error:
        raise cannot_read(path, error) from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path} is not UTF-8 text: it cannot be the right file; correct the name") from None
