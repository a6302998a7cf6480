"""The brokers of the edge benchmark: their configuration and start. Logging is off, and limits are raised as far as possible."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.edge_load.generator import CACHE, relay_program
from milepost.vetting import AccessAction, AccessRule

HELP_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Features:
    """The features of the broker that a workload needs."""

    is_tls: bool = False
    is_durable: bool = False
    validates_json: bool = False


@dataclass(frozen=True, slots=True)
class ServerFiles:
    """The port and the files of one broker."""

    folder: Path
    port: int
    certificate: Path
    key: Path
    schema: Path

    def write(self, name: str, text: str) -> str:
        """Write a configuration file; return its path."""
        path = self.folder / name
        path.write_text(text)
        return str(path)


class Broker(Protocol):
    """One entry of the benchmark."""

    @property
    def key(self) -> str:
        """Its name on the command line."""

    @property
    def name(self) -> str:
        """Its name in the table."""

    @property
    def start_factor(self) -> float:
        """Start of the search for its rate, relative to Mosquitto's: saves time and does not change the result."""

    @property
    def unsupported(self) -> dict[str, str]:
        """Workloads that it does not support, and why."""

    def missing_reason(self) -> str:
        """Return why it is not available; empty if it is."""

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        """Write its configuration; return the command that starts it."""


USER_RULES = 18


def access_rules() -> list[AccessRule]:
    """Return twenty rules, as an operator has them: the topics of some users, those of every user, and a denied one."""
    of_users = [
        AccessRule(True, AccessAction.BOTH, f"fleet/{number}/#", user=f"fleet-{number}") for number in range(1, USER_RULES + 1)
    ]
    return [
        *of_users,
        AccessRule(True, AccessAction.BOTH, "by/%u/#"),
        AccessRule(False, AccessAction.SUBSCRIBE, "secret/#"),
    ]


def _rule_lines(rule: AccessRule) -> list[str]:
    lines = ["[[access.rules]]", f"allow = {str(rule.allow).lower()}", f'action = "{rule.action.value}"']
    lines += [f'topics = "{rule.topics}"'] + ([f'user = "{rule.user}"'] if rule.user is not None else [])
    return lines


@dataclass(frozen=True)
class Milepost:
    """Milepost; the only one that validates JSON, and stores QoS 1 messages so that they survive a crash of the broker."""

    key: str = "milepost"
    name: str = "Milepost"
    start_factor: float = 1.0
    unsupported: dict[str, str] = field(default_factory=dict)
    has_rules: bool = False
    """With access rules: what each client may publish and read is checked."""

    def missing_reason(self) -> str:
        command = [sys.executable, "-m", "milepost", "edge", "run", "--help"]
        done = subprocess.run(command, capture_output=True, timeout=HELP_S_MAX, check=False)
        return "" if done.returncode == 0 else "not installed"

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        lines = [
            "[edge]",
            f'data = "{files.folder / "data"}"',
            "[storage]",
            f'durability = "{"process crash" if features.is_durable else "none"}"',
            "[[mqtt.listen]]",
            f'address = "127.0.0.1:{files.port}"',
            f'transport = "{"tls" if features.is_tls else "tcp"}"',
        ]
        if features.is_tls:
            lines += [f'certificate = "{files.certificate}"', f'key = "{files.key}"']
        if features.validates_json:
            lines += ["[[rules.payload]]", 'topic = "bench/json/#"', f'schema = "{files.schema}"']
        if self.has_rules:
            lines += [line for rule in access_rules() for line in _rule_lines(rule)]
        lines += ["[limits]", "queue_messages_max = 50_000", "in_flight_max = 15_000", "[http]", 'address = ""']
        return [sys.executable, "-m", "milepost", "edge", "run", "--config", files.write("edge.toml", "\n".join(lines) + "\n")]


@dataclass(frozen=True)
class Mosquitto:
    """Mosquitto, tuned for speed: no log, no $SYS, no Nagle, no limit on messages in flight or queued.

    Default persistence: a file is written on exit and every half hour, so a kill loses all later messages. With `plugin`: the
    SQLite store of version 2.1.
    """

    key: str
    name: str
    program: str | None
    plugin: Path | None = None
    start_factor: float = 1.0
    unsupported: dict[str, str] = field(default_factory=dict)

    def missing_reason(self) -> str:
        is_there = self.program is not None and Path(self.program).exists() and (self.plugin is None or self.plugin.exists())
        return "" if is_there else "not installed or built"

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        lines = [
            "user root",  # otherwise it drops root privileges and cannot write to its folder
            "log_dest none",
            "sys_interval 0",
            "set_tcp_nodelay true",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            f"listener {files.port} 127.0.0.1",
            "allow_anonymous true",
        ]
        if features.is_tls:
            lines += [f"certfile {files.certificate}", f"keyfile {files.key}", "tls_version tlsv1.3"]
        if features.is_durable and self.plugin is not None:
            lines += [
                f"plugin {self.plugin}",
                f"plugin_opt_db_file {files.folder / 'messages.sqlite3'}",
                "plugin_opt_flush_period 0",  # the default is five seconds
                "plugin_opt_sync off",
            ]
        elif features.is_durable:
            lines += ["persistence true", f"persistence_location {files.folder}/"]
        return [self.program or "", "-c", files.write("mosquitto.conf", "\n".join(lines) + "\n")]


@dataclass(frozen=True)
class Nats:
    """MQTT of the NATS server, which needs JetStream; the maximum of unacknowledged messages for filters that end in #."""

    key: str = "nats"
    name: str = "NATS"
    start_factor: float = 0.5
    unsupported: dict[str, str] = field(default_factory=lambda: {"bursts": "omitted, to save time"})
    program: Path = CACHE / "bin" / "nats-server"

    def missing_reason(self) -> str:
        return "" if self.program.exists() else "not built"

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        tls = f'tls {{ cert_file: "{files.certificate}", key_file: "{files.key}" }}' if features.is_tls else ""
        text = (
            'server_name: bench\nlisten: "127.0.0.1:-1"\nlogfile: "/dev/null"\n'
            f'jetstream {{ store_dir: "{files.folder / "jetstream"}" }}\n'
            f'mqtt {{\n listen: "127.0.0.1:{files.port}"\n max_ack_pending: 32767\n {tls}\n}}\n'
        )
        return [str(self.program), "-c", files.write("nats.conf", text)]


@dataclass(frozen=True)
class Amqtt:
    """amqtt, another broker in Python; it does not store messages over a restart."""

    key: str = "amqtt"
    name: str = "amqtt"
    start_factor: float = 0.1
    unsupported: dict[str, str] = field(
        default_factory=lambda: {
            **dict.fromkeys(("bursts", "groups", "tls"), "omitted, to save time"),
            "idle": "10,000 connections take over a minute",
            "storm": "5,000 connections take half a minute",
        }
    )
    python: Path = CACHE / "amqtt" / "bin" / "python"

    def missing_reason(self) -> str:
        return "" if self.python.exists() else "not installed"

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        tls = f"    ssl: true\n    certfile: {files.certificate}\n    keyfile: {files.key}\n" if features.is_tls else ""
        text = (
            f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{files.port}\n{tls}"
            "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
        )
        quiet = "import logging; logging.basicConfig(level=logging.ERROR); from amqtt.scripts.broker_script import app; app()"
        return [str(self.python), "-c", quiet, "-c", files.write("amqtt.yaml", text)]


@dataclass(frozen=True)
class Relay:
    """A minimal relay in C: its rate is a lower bound of what the machine and the generator can do."""

    key: str = "relay"
    name: str = "minimal relay (C)"
    start_factor: float = 16.0
    unsupported: dict[str, str] = field(
        default_factory=lambda: {
            "groups": "has no topics",
            "qos1": "forwards QoS 0 only",
            "tls": "no TLS",
            "stored": "stores nothing",
            "idle": "has no sessions",
        }
    )

    def missing_reason(self) -> str:
        return ""

    def command(self, files: ServerFiles, features: Features) -> list[str]:
        del features
        return [str(relay_program()), str(files.port)]


def all_brokers() -> list[Broker]:
    """Return all brokers, Milepost first."""
    own = CACHE / "mosquitto21"
    plugin = own / "mosquitto_persist_sqlite.so"
    only_durable = dict.fromkeys(
        ("fanout", "bursts", "groups", "qos1", "tls", "json", "latency", "idle", "storm"), "same as without SQLite"
    )
    without_rules = dict.fromkeys(("bursts", "tls", "json", "stored", "latency", "idle", "storm"), "measured without rules")
    debian = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    return [
        Milepost(),
        Milepost("milepost-rules", "Milepost, 20 access rules", unsupported=without_rules, has_rules=True),
        Mosquitto("mosquitto20", "Mosquitto 2.0", debian),
        Mosquitto("mosquitto21", "Mosquitto 2.1", str(own / "mosquitto")),
        Mosquitto("mosquitto21-sqlite", "Mosquitto 2.1, SQLite", str(own / "mosquitto"), plugin, unsupported=only_durable),
        Nats(),
        Amqtt(),
        Relay(),
    ]
