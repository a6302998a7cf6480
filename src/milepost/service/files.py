"""Files that somebody else replaces while the service runs."""

from pathlib import Path


class Changed:
    """Tells whether a file is another one than when it was last asked about; the first time it is, if it is there."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._seen: tuple[int, int, int] | None = None

    def has_changed(self) -> bool:
        """Whether it has."""
        if not self._path:
            return False
        try:
            found = Path(self._path).stat()
        except OSError:  # it is being replaced, or gone: what was read last counts
            return False
        now = (found.st_mtime_ns, found.st_size, found.st_ino)
        has_changed, self._seen = now != self._seen, now
        return has_changed
