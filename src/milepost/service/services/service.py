"""A service: one or several servers of a kind in one folder, started, asked how they are, broken on purpose, stopped.

FOLDER/service.json     what was decided when it was first started: ports and the like, kept for the next start
FOLDER/1, FOLDER/2 …    one for each server: its settings, data, log and the note of its process
"""

import json
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, Final, Self, TypeVar

from milepost.service.faults import StartFault, UsageFault, cannot_read
from milepost.service.services import processes
from milepost.service.services.guard import guarded
from milepost.service.services.jars import Jars, Told, class_path
from milepost.service.services.java import find_java
from milepost.service.services.ports import LOOPBACK, free_ports, is_free

START_S_MAX: Final = 90.0
_LOOK_S: Final = 0.1
_LINES_SHOWN: Final = 15
_DECIDED: Final = "service.json"

S = TypeVar("S", bound="Service")


class Service(ABC):
    """Servers are numbered from 1; where a number may be given, none means all of them."""

    NAME: ClassVar[str]
    JARS: ClassVar[Jars]
    PORTS_EACH: ClassVar[int]
    """How many ports a server listens at; clients use the first."""

    def __init__(self, folder: Path, ports: Sequence[Sequence[int]]) -> None:
        self.folder = folder
        self.ports = [tuple(of_one) for of_one in ports]
        self.numbers = range(1, len(ports) + 1)

    @classmethod
    def maybe_in(cls, folder: Path) -> Self | None:
        """The service whose files are in this folder, running or not."""
        noted = folder / _DECIDED
        try:
            decided: dict[str, Any] = json.loads(noted.read_text())
            return cls(folder, decided["ports"])
        except (FileNotFoundError, NotADirectoryError):
            return None
        except OSError as fault:
            raise cannot_read(noted, fault) from None
        except (ValueError, TypeError, KeyError):
            raise UsageFault(f"{noted} is damaged: remove {folder} with all its data, or take another (--folder)") from None

    @classmethod
    def made_in(cls, folder: Path, *, servers: int | None, port: int | None) -> Self:
        """The service of this folder; a new one, unless told of one server and with ports that are free, if there is none."""
        found = cls.maybe_in(folder)
        if found is not None:
            found._check_is(servers=servers, port=port)
            return found
        made = cls(folder, cls._new_ports(servers or 1, port))
        made._check_ports(made.numbers)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _DECIDED).write_text(json.dumps({"ports": made.ports}))
        except OSError as fault:
            raise StartFault(f"{folder} cannot be made: {fault.strerror}; take another (--folder)") from None
        return made

    @classmethod
    def _new_ports(cls, servers: int, port: int | None) -> list[list[int]]:
        free = iter(free_ports(cls.PORTS_EACH * servers))
        first = [next(free) if port is None else port + index for index in range(servers)]
        return [[of_one, *(next(free) for _ in range(cls.PORTS_EACH - 1))] for of_one in first]

    def _check_is(self, *, servers: int | None, port: int | None) -> None:
        """Data of one layout cannot be served in another."""
        other = f"{self.folder} holds a {self.NAME} of"
        cure = "ask for that, remove the folder with all its data, or take another (--folder)"
        if servers not in {None, len(self.ports)}:
            raise UsageFault(f"{other} {len(self.ports)} server(s), not {servers}: {cure}")
        if port not in {None, self.ports[0][0]}:
            raise UsageFault(f"{other} port {self.ports[0][0]}, not {port}: {cure}")

    @property
    def address(self) -> str:
        """What clients connect to: HOST:PORT, several with commas between."""
        return ",".join(f"{LOOPBACK}:{of_one[0]}" for of_one in self.ports)

    def running(self) -> list[int]:
        """The numbers of the servers that run."""
        return [number for number in self.numbers if self.maybe_pid(number) is not None]

    def maybe_pid(self, number: int) -> int | None:
        """The process of a server, if it runs."""
        return processes.maybe_pid(self._folder(number))

    def log_file(self, number: int) -> Path:
        """The log of a server."""
        return processes.log_file(self._folder(number))

    def start(self, number: int | None = None, *, told: Told = lambda _: None) -> None:
        """Start what does not run, and wait until it serves; a start that fails leaves nothing running."""
        wanted = [one for one in self._those(number) if self.maybe_pid(one) is None]
        self._check_ports(wanted)
        if wanted:
            java = find_java()
            jars = class_path(self.JARS, java, told)
            self.prepare([(one, self._folder(one)) for one in wanted], [java, "-cp", jars])
            told(f"starting {self.NAME} {self.JARS.version} ...")
            for one in wanted:
                processes.launch(self._folder(one), self.command(self._folder(one), java, jars))
        self._wait_ready(wanted)

    def stop(self) -> None:
        """End all servers in good order."""
        processes.end([self._folder(number) for number in self.numbers])

    def kill(self, number: int | None = None) -> None:
        """End servers as a crash would; `start` brings them back."""
        processes.kill([self._folder(one) for one in self._those(number)])

    def pause(self, number: int | None = None) -> None:
        """Let servers do nothing, with all their connections open."""
        for one in self._those(number):
            processes.send(self._folder(one), signal.SIGSTOP)

    def resume(self, number: int | None = None) -> None:
        """Let paused servers go on."""
        for one in self._those(number):
            processes.send(self._folder(one), signal.SIGCONT)

    @abstractmethod
    def prepare(self, servers: Sequence[tuple[int, Path]], java: Sequence[str]) -> None:
        """Write what these servers read when they start; `java` is the beginning of a command with all the jars."""

    @abstractmethod
    def command(self, folder: Path, java: str, jars: str) -> list[str]:
        """What runs the server of a folder."""

    @abstractmethod
    def is_ready(self, number: int) -> bool:
        """Whether a server answers, and is part of the whole."""

    def _folder(self, number: int) -> Path:
        return self.folder / str(number)

    def _those(self, number: int | None) -> Iterable[int]:
        return self.numbers if number is None else [number]

    def _check_ports(self, numbers: Iterable[int]) -> None:
        for port in (port for number in numbers for port in self.ports[number - 1]):
            if not is_free(port):
                raise StartFault(
                    f"{self.NAME} cannot listen at {LOOPBACK}:{port}, which is taken: stop what is there, or take another port"
                )

    def _wait_ready(self, started: Sequence[int]) -> None:
        until = time.monotonic() + START_S_MAX
        while not all(self.is_ready(number) for number in self.running()) or not self.running():
            ended = [number for number in started if self.maybe_pid(number) is None]
            if ended or time.monotonic() > until:
                raise self._did_not_start(started, ended)
            time.sleep(_LOOK_S)

    def _did_not_start(self, started: Sequence[int], ended: Sequence[int]) -> StartFault:
        shown = ended[0] if ended else self.numbers[0]
        folder = self._folder(shown)
        processes.end([self._folder(number) for number in started])
        what = "ended at once" if ended else f"does not serve after {START_S_MAX:g} s"
        lines = processes.last_lines(folder, _LINES_SHOWN)
        return StartFault(
            f"{self.NAME} {what}. If its data is of no use, remove {self.folder} and start again. "
            f"The end of {processes.log_file(folder)}:\n" + "\n".join(lines)
        )


@contextmanager
def running(service: S, told: Told) -> Iterator[S]:
    """Start a service for as long as the block, and this process, last."""
    with guarded([service.folder / str(number) for number in service.numbers]):
        try:
            service.start(told=told)
            yield service
        finally:
            service.stop()
