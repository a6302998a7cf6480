"""A guard for servers that must not outlive the process that started them, however that ends.

It is a process of its own that waits for the end of its input, which comes when whoever holds the other end closes it or dies.
"""

import signal
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from milepost.service.services.processes import send


@contextmanager
def guarded(folders: Sequence[Path]) -> Iterator[None]:
    """What runs in these folders is killed at the end of the block, or of this process."""
    command = [sys.executable, "-m", __spec__.name, *map(str, folders)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, start_new_session=True) as guard:
        assert guard.stdin is not None
        with guard.stdin:
            yield


def main(folders: Sequence[str]) -> None:
    """Wait for the end of standard input, then kill."""
    sys.stdin.buffer.read()
    for folder in folders:
        send(Path(folder), signal.SIGKILL)


if __name__ == "__main__":
    main(sys.argv[1:])
