"""ZooKeeper 3.9, one server, on loopback."""

import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from milepost.runtime.services.jars import Jars, Progress
from milepost.runtime.services.ports import LOOPBACK
from milepost.runtime.services.service import LocalService, running

_ANSWER_S_MAX: Final = 2.0
_SETTINGS: Final = "zoo.cfg"
_MAIN: Final = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
_SMALL: Final = ("-Xmx64m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)


class ZooKeeper(LocalService):
    """A standalone ZooKeeper server."""

    NAME: ClassVar[str] = "zookeeper"
    # The dependencies of ZooKeeper lack its metrics, compression and logging libraries: they are added here.
    JARS: ClassVar[Jars] = Jars(
        "zookeeper",
        "3.9.5",
        (
            "org.apache.zookeeper:zookeeper:3.9.5",
            "io.dropwizard.metrics:metrics-core:4.1.12.1",
            "org.xerial.snappy:snappy-java:1.1.10.5",
            "org.slf4j:slf4j-simple:2.0.13",
        ),
    )
    PORTS_EACH: ClassVar[int] = 1

    def prepare(self, servers: Sequence[tuple[int, Path]], java: Sequence[str]) -> None:  # noqa: ARG002  # needs no tool
        """Write the configuration."""
        for number, folder in servers:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _SETTINGS).write_text(self._configuration(number, folder))

    def command(self, folder: Path, java: str, jars: str) -> list[str]:
        """Return the command of a server with little memory and a quick start."""
        return [java, *_SMALL, *_LOGGING, "-cp", jars, _MAIN, str(folder / _SETTINGS)]

    def is_ready(self, number: int) -> bool:
        """Return whether the server answers `ruok` with `imok`."""
        try:
            with socket.create_connection((LOOPBACK, self.ports[number - 1][0]), timeout=_ANSWER_S_MAX) as stream:
                stream.sendall(b"ruok")
                return stream.recv(4) == b"imok"
        except OSError:
            return False

    def _configuration(self, number: int, folder: Path) -> str:
        settings = {
            "dataDir": folder / "data",
            "clientPort": self.ports[number - 1][0],
            "clientPortAddress": LOOPBACK,
            "tickTime": 200,
            "admin.enableServer": "false",
            "4lw.commands.whitelist": "*",
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def running_zookeeper(folder: Path, *, progress: Progress = lambda _: None) -> Iterator[ZooKeeper]:
    """Run a ZooKeeper for the duration of the block."""
    with running(ZooKeeper.open_in(folder, servers=1, port=None), progress) as zookeeper:
        yield zookeeper
