"""A guard process for servers that must not outlive the process that started them, even if it is killed.

The guard waits for the end of its standard input, which comes when the starting process closes the pipe or dies.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from milepost.runtime.services.processes import send


@contextmanager
def guarded(folders: Sequence[Path]) -> Iterator[None]:
    """Kill the servers of these folders at the end of the block, or of this process."""
    command = [sys.executable, "-m", __spec__.name, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
        assert guard.stdin is not None
        with guard.stdin:
            yield


def main(folders: Sequence[str]) -> None:
    """Wait for the end of standard input, then kill the servers."""
    sys.stdin.buffer.read()
    for folder in folders:
        send(Path(folder), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
