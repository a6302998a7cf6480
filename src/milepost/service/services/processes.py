"""Processes that outlive the command that started them: launched, looked up, signalled, ended.

What must hold: a process is ours if it was started on this boot, with this id, at this tick. An id that the system has given to
another process since is never signalled.
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
"""After so long, a process that was asked to end is killed."""

_KILL_S_MAX: Final = 10.0
_LOOK_S: Final = 0.05
_PID_FILE: Final = "process.json"
_LOG_FILE: Final = "log"
_LOG_TAIL_BYTES: Final = 20_000
# The shell ends at once, so that the server belongs to nobody who would have to wait for it.
_DETACH: Final = '"$@" </dev/null >>"$0" 2>&1 & echo $!'


def log_file(folder: Path) -> Path:
    """What the process in this folder has to say."""
    return folder / _LOG_FILE


def launch(folder: Path, command: Sequence[str]) -> None:
    """Start a process of its own, and note in the folder which it is."""
    folder.mkdir(parents=True, exist_ok=True)
    shell = ["/bin/sh", "-c", _DETACH, str(log_file(folder)), *command]
    pid = int(subprocess.run(shell, stdout=subprocess.PIPE, text=True, check=True, start_new_session=True).stdout)
    noted = folder / f"{_PID_FILE}.new"
    noted.write_text(json.dumps({"pid": pid, "tick": _maybe_tick(pid), "boot": _boot()}))
    noted.rename(folder / _PID_FILE)


def maybe_pid(folder: Path) -> int | None:
    """The process that was launched in this folder, if it still runs."""
    try:
        noted = json.loads((folder / _PID_FILE).read_text())
    except (FileNotFoundError, ValueError):
        return None
    pid: int = noted["pid"]
    tick = _maybe_tick(pid)
    return pid if tick is not None and (tick, _boot()) == (noted["tick"], noted["boot"]) else None


def send(folder: Path, what: signal.Signals) -> None:
    """Signal the process of this folder, if it runs."""
    pid = maybe_pid(folder)
    if pid is not None:
        with suppress(ProcessLookupError):  # it ended just now
            os.kill(pid, what)


def end(folders: Sequence[Path], *, patience_s: float = STOP_S_MAX) -> list[Path]:
    """Ask the processes of these folders to end, all at once, and kill those that do not; gives the folders of the killed."""
    for folder in folders:
        send(folder, signal.SIGTERM)
        send(folder, signal.SIGCONT)  # a paused one hears nothing else
    wait_gone(folders, patience_s)
    left = [folder for folder in folders if maybe_pid(folder) is not None]
    kill(left)
    return left


def kill(folders: Sequence[Path]) -> None:
    """End processes without asking; they are gone when it returns."""
    for folder in folders:
        send(folder, signal.SIGKILL)
    if not wait_gone(folders, _KILL_S_MAX):
        raise OSError(f"a process does not die: see {', '.join(str(folder / _PID_FILE) for folder in folders)}")


def wait_gone(folders: Sequence[Path], patience_s: float) -> bool:
    """Wait until none of them runs; whether that came true."""
    until = time.monotonic() + patience_s
    while any(maybe_pid(folder) is not None for folder in folders):
        if time.monotonic() > until:
            return False
        time.sleep(_LOOK_S)
    return True


def last_lines(folder: Path, count: int) -> list[str]:
    """The end of the log."""
    try:
        text = log_file(folder).read_bytes()[-_LOG_TAIL_BYTES:].decode(errors="replace")
    except FileNotFoundError:
        return []
    return text.splitlines()[-count:]


def _maybe_tick(pid: int) -> int | None:
    """When the process was started, in ticks since boot; nothing for one that has ended, waited for or not."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return None
    fields = text.rpartition(")")[2].split()  # the name before it may hold anything
    return None if fields[0] in "ZX" and not _has_threads(pid) else int(fields[19])


def _has_threads(pid: int) -> bool:
    """Whether others than the first thread are left: a process that is being killed holds its ports until they are gone."""
    try:
        return sum(1 for _ in Path(f"/proc/{pid}/task").iterdir()) > 1
    except (FileNotFoundError, ProcessLookupError):
        return False


def _boot() -> str:
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
