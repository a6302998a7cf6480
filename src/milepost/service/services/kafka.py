"""Kafka 4 without ZooKeeper: each server is broker and controller at once, on loopback.

The settings are for development: short patience with servers that are gone, and cleaning that can be watched.
"""

import base64
import subprocess
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar, Final

from milepost.service.faults import StartFault, UsageFault
from milepost.service.services.jars import Jars, Told
from milepost.service.services.kafka_metadata import live_brokers
from milepost.service.services.ports import LOOPBACK
from milepost.service.services.service import Service, running

BROKERS: Final = (1, 3)
"""How many there may be: with two, losing one would stop both."""

_FORMAT_S_MAX: Final = 60
_SETTINGS: Final = "server.properties"
_QUICK_START: Final = ("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto")
_MEMORY: Final = ("-Xms128m", "-Xmx512m")
_LOGGING: Final = (
    "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    "-Dorg.slf4j.simpleLogger.showDateTime=true",
    "-Dorg.slf4j.simpleLogger.dateTimeFormat=yyyy-MM-dd'T'HH:mm:ss.SSSXXX",
)


class Kafka(Service):
    """One broker or three."""

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
        tool = [*java[:1], *_QUICK_START, *java[1:], "kafka.tools.StorageTool", "format", "--cluster-id", cluster, "--config"]
        started = [_started([*tool, str(folder / _SETTINGS)]) for folder in new]
        for process in started:
            _wait_formatted(process)

    def command(self, folder: Path, java: str, jars: str) -> list[str]:
        """A small and quickly started broker."""
        return [java, *_MEMORY, *_QUICK_START, *_LOGGING, "-cp", jars, "kafka.Kafka", str(folder / _SETTINGS)]

    def is_ready(self, number: int) -> bool:
        """Whether the broker knows of all brokers that run."""
        try:
            return live_brokers(LOOPBACK, self.ports[number - 1][0]) >= set(self.running())
        except OSError:
            return False

    def _cluster(self) -> str:
        """The cluster's id, drawn the first time."""
        noted = self.folder / "cluster"
        if not noted.exists():
            noted.write_text(base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("="))
        return noted.read_text()

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
def running_kafka(folder: Path, *, brokers: int = 1, told: Told = lambda _: None) -> Iterator[Kafka]:
    """A Kafka that runs as long as the block does."""
    with running(Kafka.made_in(folder, servers=checked(brokers), port=None), told) as kafka:
        yield kafka


def checked(brokers: int) -> int:
    """A number of brokers that makes sense."""
    if brokers not in BROKERS:
        raise UsageFault(f"{brokers} brokers: take {' or '.join(map(str, BROKERS))}")
    return brokers


def _started(command: Sequence[str]) -> "subprocess.Popen[str]":
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def _wait_formatted(process: "subprocess.Popen[str]") -> None:
    try:
        said, _ = process.communicate(timeout=_FORMAT_S_MAX)
    except subprocess.TimeoutExpired:
        process.kill()
        said, _ = process.communicate()
    if process.returncode != 0:
        raise StartFault(f"Kafka's storage tool failed: is the disk full, or the folder not yours? It said:\n{said.strip()}")
