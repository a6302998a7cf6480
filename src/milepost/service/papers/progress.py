"""Progress: what is being done, and for how long it has been going on; on standard error, so that tables can be kept."""

import sys
import time


class Progress:
    """Tells what is going on; on a terminal each line takes the place of the last."""

    def __init__(self) -> None:
        self._began = time.monotonic()
        self._is_terminal = sys.stderr.isatty()
        self._width = 0

    @property
    def took_s(self) -> float:
        """Seconds since it began."""
        return time.monotonic() - self._began

    def __call__(self, words: str) -> None:
        """Say what is being done now."""
        line = f"[{self.took_s:4.0f} s] {words}"
        if self._is_terminal:
            sys.stderr.write("\r" + line.ljust(self._width))
            self._width = len(line)
        else:
            sys.stderr.write(line + "\n")
        sys.stderr.flush()

    def clear(self) -> None:
        """Make room for a table."""
        if self._is_terminal and self._width:
            sys.stderr.write("\r" + " " * self._width + "\r")
            sys.stderr.flush()
            self._width = 0
