"""A service: one or several servers of a kind in one folder, started, checked, broken on purpose for tests, and stopped.

FOLDER/service.json     the ports, chosen at the first start
FOLDER/1, FOLDER/2 …    one for each server: its settings, data, log and process id
"""

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from milepost.config.errors import StartFault, UsageFault, cannot_read
from milepost.runtime.services import processes
from milepost.runtime.services.guard import guarded
from milepost.runtime.services.jars import Jars, Progress, class_path, find_java
from milepost.runtime.services.ports import LOOPBACK, free_ports, is_free

START_S_MAX: Final = 90.0
_POLL_S: Final = 0.1
_LINES_SHOWN: Final = 15
_STATE_FILE: Final = "service.json"

S = TypeVar("S", bound="LocalService")


class LocalService(ABC):
    """Servers of one kind, numbered from 1; a *number* of None means all of them."""

    NAME: ClassVar[str]
    JARS: ClassVar[Jars]
    PORTS_EACH: ClassVar[int]
    """Number of ports of a server; clients use the first."""

    def __init__(self, folder: Path, ports: Sequence[Sequence[int]]) -> None:
        self.folder = folder
        self.ports = [tuple(of_one) for of_one in ports]
        self.numbers = range(1, len(ports) + 1)

    @classmethod
    def find_in(cls, folder: Path) -> Self | None:
        """Return the service of a folder, running or not; None if there is none."""
        state_file = folder / _STATE_FILE
        try:
            state: dict[str, Any] = json.loads(state_file.read_text())
            return cls(folder, state["ports"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as fault:
            raise cannot_read(state_file, fault) from None
        except (ValueError, TypeError, KeyError):
            raise UsageFault(f"{state_file} is damaged: remove {folder} with all its data, or use another (--folder)") from None

    @classmethod
    def open_in(cls, folder: Path, *, servers: int | None, port: int | None) -> Self:
        """Return the service of a folder, or create it; by default with one server and free ports."""
        found = cls.find_in(folder)
        if found is not None:
            found._check_is(servers=servers, port=port)
            return found
        made = cls(folder, cls._new_ports(servers or 1, port))
        made._check_ports(made.numbers)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _STATE_FILE).write_text(json.dumps({"ports": made.ports}))
        except OSError as fault:
            raise StartFault(f"{folder} cannot be created: {fault.strerror}; use another (--folder)") from None
        return made

    @classmethod
    def _new_ports(cls, servers: int, port: int | None) -> list[list[int]]:
        free = iter(free_ports(cls.PORTS_EACH * servers))
        first = [next(free) if port is None else port + index for index in range(servers)]
        return [[of_one, *(next(free) for _ in range(cls.PORTS_EACH - 1))] for of_one in first]

    def _check_is(self, *, servers: int | None, port: int | None) -> None:
        """Refuse another number of servers or port than the data in the folder was created with."""
        existing = f"{self.folder} has a {self.NAME} with"
        remedy = "give the same, remove the folder with all its data, or use another (--folder)"
        if servers not in {None, len(self.ports)}:
            raise UsageFault(f"{existing} {len(self.ports)} server(s), not {servers}: {remedy}")
        if port not in {None, self.ports[0][0]}:
            raise UsageFault(f"{existing} port {self.ports[0][0]}, not {port}: {remedy}")

    @property
    def address(self) -> str:
        """Bootstrap address for clients: HOST:PORT, separated by commas."""
        return ",".join(f"{LOOPBACK}:{of_one[0]}" for of_one in self.ports)

    def running(self) -> list[int]:
        """Return the numbers of the running servers."""
        return [number for number in self.numbers if self.find_pid(number) is not None]

    def find_pid(self, number: int) -> int | None:
        """Return the process id of a server, if it runs."""
        return processes.find_pid(self._folder(number))

    def log_file(self, number: int) -> Path:
        """Return the log file of a server."""
        return processes.log_file(self._folder(number))

    def start(self, number: int | None = None, *, progress: Progress = lambda _: None) -> None:
        """Start the servers that do not run, and wait until they are ready; stop them again if one fails."""
        to_start = [one for one in self._selected(number) if self.find_pid(one) is None]
        self._check_ports(to_start)
        if to_start:
            java = find_java()
            jars = class_path(self.JARS, java, progress)
            self.prepare([(one, self._folder(one)) for one in to_start], [java, "-cp", jars])
            progress(f"starting {self.NAME} {self.JARS.version} ...")
            for one in to_start:
                processes.launch(self._folder(one), self.command(self._folder(one), java, jars))
        self._wait_ready(to_start)

    def stop(self) -> None:
        """Shut all servers down with SIGTERM, then SIGKILL."""
        processes.terminate([self._folder(number) for number in self.numbers])

    def kill(self, number: int | None = None) -> None:
        """Kill servers with SIGKILL, as a crash; `start` starts them again."""
        processes.kill([self._folder(one) for one in self._selected(number)])

    def pause(self, number: int | None = None) -> None:
        """Suspend servers with SIGSTOP; their connections stay open."""
        for one in self._selected(number):
            processes.send(self._folder(one), signal.SIGSTOP)

    def resume(self, number: int | None = None) -> None:
        """Resume paused servers."""
        for one in self._selected(number):
            processes.send(self._folder(one), signal.SIGCONT)

    @abstractmethod
    def prepare(self, servers: Sequence[tuple[int, Path]], java: Sequence[str]) -> None:
        """Write the configuration of servers; *java* is the beginning of a command with the class path."""

    @abstractmethod
    def command(self, folder: Path, java: str, jars: str) -> list[str]:
        """Return the command that runs the server of a folder."""

    @abstractmethod
    def is_ready(self, number: int) -> bool:
        """Return whether a server answers, and is a member of its cluster."""

    def _folder(self, number: int) -> Path:
        return self.folder / str(number)

    def _selected(self, number: int | None) -> Iterable[int]:
        return self.numbers if number is None else [number]

    def _check_ports(self, numbers: Iterable[int]) -> None:
        for port in (port for number in numbers for port in self.ports[number - 1]):
            if not is_free(port):
                raise StartFault(
                    f"{self.NAME} cannot listen at {LOOPBACK}:{port}, which is in use: stop that process, or use another port"
                )

    def _wait_ready(self, started: Sequence[int]) -> None:
        until = time.monotonic() + START_S_MAX
        while not all(self.is_ready(number) for number in self.running()) or not self.running():
            ended = [number for number in started if self.find_pid(number) is None]
            if ended or time.monotonic() > until:
                raise self._did_not_start(started, ended)
            time.sleep(_POLL_S)

    def _did_not_start(self, started: Sequence[int], ended: Sequence[int]) -> StartFault:
        shown = ended[0] if ended else self.numbers[0]
        folder = self._folder(shown)
        processes.terminate([self._folder(number) for number in started])
        what = "exited at once" if ended else f"is not ready after {START_S_MAX:g} s"
        lines = processes.last_lines(folder, _LINES_SHOWN)
        return StartFault(
            f"{self.NAME} {what}. If its data is not needed, remove {self.folder} and start again. "
            f"The end of {processes.log_file(folder)}:\n" + "\n".join(lines)
        )


@contextmanager
def running(service: S, progress: Progress) -> Iterator[S]:
    """Run a service for the duration of the block; stop it also if this process dies."""
    with guarded([service.folder / str(number) for number in service.numbers]):
        try:
            service.start(progress=progress)
            yield service
        finally:
            service.stop()
