"""Kafka 4 in KRaft mode: each server is broker and controller at once, on loopback.

The settings are for development: short session timeouts, and log cleaning at short intervals.
"""

import base64
import socket
import struct
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from milepost.config.errors import StartFault, UsageFault
from milepost.runtime.services.jars import Jars, Progress
from milepost.runtime.services.ports import LOOPBACK
from milepost.runtime.services.service import LocalService, running

# Kafka's metadata request over a plain socket: the live brokers that a broker knows.
#
# request   length i32 · api key i16 = 3 · version i16 = 4 · correlation i32 · client · topics i32 = 0 · create u8
# response  length i32 · correlation i32 · throttle i32 · brokers i32 × (node i32 · host · port i32 · rack) …
#
# A string is its length, an i16, and its bytes; a length of -1 is null.

_ANSWER_S_MAX: Final = 2.0
_ANSWER_BYTES_MAX: Final = 1_000_000
_CLIENT: Final = b"milepost"
_REQUEST: Final = struct.pack(f">hhih{len(_CLIENT)}siB", 3, 4, 1, len(_CLIENT), _CLIENT, 0, 0)


def live_brokers(host: str, port: int) -> set[int]:
    """Return the ids of the live brokers; raise an OSError without a valid answer."""
    with socket.create_connection((host, port), timeout=_ANSWER_S_MAX) as stream:
        stream.sendall(struct.pack(">i", len(_REQUEST)) + _REQUEST)
        (size,) = struct.unpack(">i", _read(stream, 4))
        if not 0 < size <= _ANSWER_BYTES_MAX:
            raise OSError(f"a response of {size} bytes is not from Kafka")
        return brokers_in(_read(stream, size))


def brokers_in(answer: bytes) -> set[int]:
    """Parse the ids of the brokers in a metadata response."""
    try:
        (count,) = struct.unpack_from(">i", answer, 8)
        at = 12
        found = set()
        for _ in range(count):
            (node,) = struct.unpack_from(">i", answer, at)
            at = _after_text(answer, _after_text(answer, at + 4) + 4)
            found.add(node)
    except struct.error:
        raise OSError("the response is not from Kafka: it ends too early") from None
    return found


def _after_text(answer: bytes, at: int) -> int:
    length: int = struct.unpack_from(">h", answer, at)[0]
    return at + 2 + max(length, 0)


def _read(stream: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        part = stream.recv(size - len(parts))
        if not part:
            raise OSError("the connection ended in the middle of a response")
        parts += part
    return bytes(parts)


BROKERS: Final = (1, 3)
"""Allowed numbers of brokers: of two, the loss of one would stop both."""

_FORMAT_S_MAX: Final = 60
_SETTINGS: Final = "server.properties"
_QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MEMORY: Final = ("-Xms128m", "-Xmx512m")
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)


class Kafka(LocalService):
    """A Kafka cluster of one or three brokers."""

    NAME: ClassVar[str] = "kafka"
    JARS: ClassVar[Jars] = Jars("kafka", "4.3.1", ("org.apache.kafka:kafka_2.13:4.3.1", "org.slf4j:slf4j-simple:1.7.36"))
    PORTS_EACH: ClassVar[int] = 2

    def prepare(self, servers: Sequence[tuple[int, Path]], java: Sequence[str]) -> None:
        """Write the properties of brokers and, the first time, format their folders."""
        new = []
        for number, folder in servers:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / _SETTINGS).write_text(self._properties(number, folder))
            if not (folder / "data" / "meta.properties").exists():
                new.append(folder)
        cluster = self._cluster()
        tool = [
            *java[:1],
            *_QUICK_START,
            *java[1:],
            "kafka.tools.StorageTool",
            "format",
            f"--cluster-id={cluster}",
            "--config",
        ]  # an id may begin with a hyphen
        started = [_started([*tool, str(folder / _SETTINGS)]) for folder in new]
        for process in started:
            _wait_formatted(process)

    def command(self, folder: Path, java: str, jars: str) -> list[str]:
        """Return the command of a broker with little memory and a quick start."""
        return [java, *_MEMORY, *_QUICK_START, *_LOGGING, "-cp", jars, "kafka.Kafka", str(folder / _SETTINGS)]

    def is_ready(self, number: int) -> bool:
        """Return whether the broker knows all running brokers."""
        try:
            return live_brokers(LOOPBACK, self.ports[number - 1][0]) >= set(self.running())
        except OSError:
            return False

    def _cluster(self) -> str:
        """Return the cluster id, drawn at the first start."""
        id_file = self.folder / "cluster"
        if not id_file.exists():
            id_file.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return id_file.read_text()

    def _properties(self, number: int, folder: Path) -> str:
        port, controller_port = self.ports[number - 1]
        brokers = len(self.ports)
        voters = ",".join(f"{one}@{LOOPBACK}:{self.ports[one - 1][1]}" for one in self.numbers)
        settings = {
            "process.roles": "broker,controller",
            "node.id": number,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://{LOOPBACK}:{port},CONTROLLER://{LOOPBACK}:{controller_port}",
            "advertised.listeners": f"PLAINTEXT://{LOOPBACK}:{port}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
            "log.dirs": folder / "data",
            "auto.create.topics.enable": "false",
            "default.replication.factor": brokers,
            "min.insync.replicas": (brokers + 1) // 2,
            "offsets.topic.replication.factor": brokers,
            "offsets.topic.num.partitions": 4,
            "transaction.state.log.replication.factor": brokers,
            "transaction.state.log.min.isr": (brokers + 1) // 2,
            "transaction.state.log.num.partitions": 4,
            "share.coordinator.state.topic.replication.factor": brokers,
            "share.coordinator.state.topic.min.isr": (brokers + 1) // 2,
            "group.initial.rebalance.delay.ms": 0,
            "broker.heartbeat.interval.ms": 500,
            "broker.session.timeout.ms": 3_000,
            "log.cleaner.backoff.ms": 500,
            "log.cleaner.dedupe.buffer.size": 16 * 2**20,
            "log.retention.check.interval.ms": 1_000,
            "log.segment.delete.delay.ms": 1_000,
            "num.network.threads": 2,
            "num.io.threads": 4,
        }
        return "".join(f"{name}={value}\n" for name, value in settings.items())


@contextmanager
def running_kafka(folder: Path, *, brokers: int = 1, progress: Progress = lambda _: None) -> Iterator[Kafka]:
    """Run a Kafka cluster for the duration of the block."""
    with running(Kafka.open_in(folder, servers=checked(brokers), port=None), progress) as kafka:
        yield kafka


def checked(brokers: int) -> int:
    """Refuse a number of brokers that is not in `BROKERS`."""
    if brokers not in BROKERS:
        raise UsageFault(f"{brokers} brokers: choose {' or '.join(map(str, BROKERS))}")
    return brokers


def _started(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait_formatted(process: "subprocess.Popen[str]") -> None:
    try:
        output, _ = process.communicate(timeout=_FORMAT_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        output, _ = process.communicate()
    if process.returncode != 0:
        raise StartFault(
            f"Kafka's storage tool failed: is the disk full, or the folder owned by another user? Its output:\n{output.strip()}"
        )
