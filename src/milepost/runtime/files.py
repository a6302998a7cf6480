"""Text files that other processes read: detection of replaced files, and atomic changes by one process at a time."""

import fcntl
import os
from pathlib import Path
from typing import Final

from milepost.config.errors import UsageFault, cannot_read

# Files that are replaced from outside while the service runs.


class FileWatch:
    """Detects whether a file has changed since the last call; an existing file counts as changed the first time."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self) -> bool:
        """Return whether the file has changed since the last call."""
        if not self._path:
            return False
        try:
            found = Path(self._path).stat()
        except OSError:  # being replaced, or removed: the last content stays in use
            return False
        now = (found.st_mtime_ns, found.st_size, found.st_ino)
        has_changed, self._seen = now != self._seen, now
        return has_changed


FILE_BYTES_MAX: Final = 64_000_000


class FileRewrite:
    """The lines of a file as a list to change; replaces the file atomically, unless the block fails, under a lock."""

    def __init__(self, path: Path, *, may_create: bool) -> None:
        self._path = path.resolve()  # a symbolic link stays one
        self._may_create = may_create
        self._folder = -1
        self._lines: list[str] = []

    def __enter__(self) -> list[str]:
        try:
            self._folder = os.open(self._path.parent, os.O_RDONLY | os.O_DIRECTORY)
        except OSError as error:
            raise cannot_read(self._path.parent, error) from None
        try:
            fcntl.flock(self._folder, fcntl.LOCK_EX)
            is_new = self._may_create and not self._path.exists()
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
        new_file = self._path.with_name(f".{self._path.name}.{os.getpid()}")
        file = os.open(new_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(file, "wb") as stream:
                _keep_owner(stream.fileno(), self._path)
                stream.write(content)
                stream.flush()
                os.fsync(stream.fileno())
            new_file.replace(self._path)
        except BaseException:
            new_file.unlink(missing_ok=True)
            raise
        os.fsync(self._folder)


def _keep_owner(file: int, path: Path) -> None:
    """Keep the owner of the file if root changes it: the user of the service must still read it."""
    if os.geteuid() == 0 and path.exists():
        was = path.stat()
        os.fchown(file, was.st_uid, was.st_gid)


def text_of(path: Path) -> str:
    """Return the text of a small file; raise a `UsageFault` with the reason if it cannot be read."""
    try:
        if path.stat().st_size > FILE_BYTES_MAX:
            raise UsageFault(f"{path} has more than {FILE_BYTES_MAX} bytes, too many for such a file: correct the path")
        return path.read_bytes().decode()  # keeps line ends
    except OSError as error:
        raise cannot_read(path, error) from None
    except UnicodeDecodeError:
        raise UsageFault(f"{path} is not UTF-8 text: correct the path") from None
