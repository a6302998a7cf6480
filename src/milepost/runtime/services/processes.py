"""Daemon processes that outlive the command that started them: launched, looked up, signalled, ended.

Invariant: a process is identified by boot id, process id and start time. A process id that the system has reused is never
signalled.
"""

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

STOP_S_MAX: Final = 15.0
"""Time from SIGTERM to SIGKILL."""

_KILL_S_MAX: Final = 10.0
_POLL_S: Final = 0.05
_PID_FILE: Final = "process.json"
_LOG_FILE: Final = "log"
_LOG_TAIL_BYTES: Final = 20_000
# The shell exits at once, so that the server is no child that a process of ours has to reap.
_DETACH: Final = '"$@" </dev/null >>"$0" 2>&1 & echo $!'


def log_file(folder: Path) -> Path:
    """Return the log file of the process of a folder."""
    return folder / _LOG_FILE


def launch(folder: Path, command: Sequence[str]) -> None:
    """Start a detached process, and write its identity to the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = ["/bin/sh", "-c", _DETACH, str(log_file(folder)), *command]
    pid = int(subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True).stdout)
    new = folder / f"{_PID_FILE}.new"
    new.write_text(json.dumps({"pid": pid, "tick": _maybe_tick(pid), "boot": _boot()}))
    new.rename(folder / _PID_FILE)


def find_pid(folder: Path) -> int | None:
    """Return the id of the process launched in a folder, if it still runs."""
    try:
        identity = json.loads((folder / _PID_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    pid: int = identity["pid"]
    tick = _maybe_tick(pid)
    return pid if tick is not None and (tick, _boot()) == (identity["tick"], identity["boot"]) else None


def send(folder: Path, what: signal.Signals) -> None:
    """Signal the process of a folder, if it runs."""
    pid = find_pid(folder)
    if pid is not None:
        with suppress(ProcessLookupError):  # ended meanwhile
            os.kill(pid, what)


def terminate(folders: Sequence[Path], *, timeout_s: float = STOP_S_MAX) -> list[Path]:
    """Send SIGTERM to the processes of all folders, and kill those that do not end; return the folders of the killed."""
    for folder in folders:
        send(folder, signal.SIGTERM)
        send(folder, signal.SIGCONT)  # a paused process handles SIGTERM only after SIGCONT
    wait_until_ended(folders, timeout_s)
    left = [folder for folder in folders if find_pid(folder) is not None]
    kill(left)
    return left


def kill(folders: Sequence[Path]) -> None:
    """Send SIGKILL, and wait until the processes are gone."""
    for folder in folders:
        send(folder, signal.SIGKILL)
    if not wait_until_ended(folders, _KILL_S_MAX):
        raise OSError(f"a process does not die: see {', '.join(str(folder / _PID_FILE) for folder in folders)}")


def wait_until_ended(folders: Sequence[Path], timeout_s: float) -> bool:
    """Wait until none of the processes runs; return False on timeout."""
    until = time.monotonic() + timeout_s
    while any(find_pid(folder) is not None for folder in folders):
        if time.monotonic() > until:
            return False
        time.sleep(_POLL_S)
    return True


def last_lines(folder: Path, count: int) -> list[str]:
    """Return the last lines of the log."""
    try:
        text = log_file(folder).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:]


def _maybe_tick(pid: int) -> int | None:
    """Return the start time of a process, in clock ticks since boot; None if it has ended, reaped or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the process name may contain any character
    return None if fields[0] in "ZX" and not _has_threads(pid) else int(fields[19])


def _has_threads(pid: int) -> bool:
    """Return whether threads besides the first are left: a killed process holds its ports until they have ended."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
