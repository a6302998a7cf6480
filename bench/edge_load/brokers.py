"""The brokers of the edge benchmark: how each is configured and started. None logs, none has a limit that could be raised."""

import shutil
import subprocess
import sys
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bench.edge_load.generator import CACHE, relay_program

HELP_S_MAX = 30.0


@dataclass(frozen=True, slots=True)
class Setting:
    """What the work asks of the broker."""

    is_tls: bool = False
    keeps: bool = False
    checks_json: bool = False


@dataclass(frozen=True, slots=True)
class Site:
    """Where one broker runs: its port and its files."""

    folder: Path
    port: int
    certificate: Path
    key: Path
    schema: Path

    def write(self, name: str, text: str) -> str:
        """A configuration file's path, the file written."""
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
    def pace(self) -> float:
        """Where the search for its rate starts, beside Mosquitto's: it saves time and changes no result."""

    @property
    def cannot(self) -> dict[str, str]:
        """Works it cannot do, and why."""

    def absence(self) -> str:
        """Why it is not there; nothing when it is."""

    def command(self, site: Site, setting: Setting) -> list[str]:
        """What starts it, its configuration written."""


@dataclass(frozen=True)
class Milepost:
    """Ours. It alone checks JSON, and keeps QoS 1 messages so that they survive its own death."""

    key: str = "milepost"
    name: str = "Milepost"
    pace: float = 1.0
    cannot: dict[str, str] = field(default_factory=dict)

    def absence(self) -> str:
        command = [sys.executable, "-m", "milepost", "edge", "run", "--help"]
        done = subprocess.run(command, capture_output=True, timeout=HELP_S_MAX, check=False)
        return "" if done.returncode == 0 else "not there"

    def command(self, site: Site, setting: Setting) -> list[str]:
        lines = [
            "[edge]",
            f'data = "{site.folder / "data"}"',
            "[storage]",
            f'durability = "{"process crash" if setting.keeps else "nothing"}"',
            "[[mqtt.listen]]",
            f'address = "127.0.0.1:{site.port}"',
            f'transport = "{"tls" if setting.is_tls else "tcp"}"',
        ]
        if setting.is_tls:
            lines += [f'certificate = "{site.certificate}"', f'key = "{site.key}"']
        if setting.checks_json:
            lines += ["[[rules.payload]]", 'topic = "bench/json/#"', f'schema = "{site.schema}"']
        lines += ["[limits]", "queue_messages_max = 50_000", "in_flight_max = 15_000", "[http]", 'address = ""']
        return [sys.executable, "-m", "milepost", "edge", "run", "--config", site.write("edge.toml", "\n".join(lines) + "\n")]


@dataclass(frozen=True)
class Mosquitto:
    """Mosquitto with what would hold it back switched off: no log, no $SYS, no Nagle, no limit on messages in flight or queued.

    Persistence as it comes: a file is written on exit and every half hour, so a kill loses what came since. With `plugin` it is
    version 2.1's SQLite store instead.
    """

    key: str
    name: str
    program: str | None
    plugin: Path | None = None
    pace: float = 1.0
    cannot: dict[str, str] = field(default_factory=dict)

    def absence(self) -> str:
        is_there = self.program is not None and Path(self.program).exists() and (self.plugin is None or self.plugin.exists())
        return "" if is_there else "not installed or built here"

    def command(self, site: Site, setting: Setting) -> list[str]:
        lines = [
            "user root",  # otherwise it gives up root and cannot write its folder
            "log_dest none",
            "sys_interval 0",
            "set_tcp_nodelay true",
            "max_inflight_messages 0",
            "max_queued_messages 0",
            f"listener {site.port} 127.0.0.1",
            "allow_anonymous true",
        ]
        if setting.is_tls:
            lines += [f"certfile {site.certificate}", f"keyfile {site.key}", "tls_version tlsv1.3"]
        if setting.keeps and self.plugin is not None:
            lines += [
                f"plugin {self.plugin}",
                f"plugin_opt_db_file {site.folder / 'kept.sqlite3'}",
                "plugin_opt_flush_period 0",  # otherwise every five seconds
                "plugin_opt_sync off",
            ]
        elif setting.keeps:
            lines += ["persistence true", f"persistence_location {site.folder}/"]
        return [self.program or "", "-c", site.write("mosquitto.conf", "\n".join(lines) + "\n")]


@dataclass(frozen=True)
class Nats:
    """The NATS server's MQTT, which needs JetStream; as many messages unacknowledged as it allows where a filter ends in #."""

    key: str = "nats"
    name: str = "NATS"
    pace: float = 0.5
    cannot: dict[str, str] = field(default_factory=lambda: {"bursts": "left out, to save time"})
    program: Path = CACHE / "bin" / "nats-server"

    def absence(self) -> str:
        return "" if self.program.exists() else "not built here"

    def command(self, site: Site, setting: Setting) -> list[str]:
        tls = f'tls {{ cert_file: "{site.certificate}", key_file: "{site.key}" }}' if setting.is_tls else ""
        text = (
            'server_name: bench\nlisten: "127.0.0.1:-1"\nlogfile: "/dev/null"\n'
            f'jetstream {{ store_dir: "{site.folder / "jetstream"}" }}\n'
            f'mqtt {{\n listen: "127.0.0.1:{site.port}"\n max_ack_pending: 32767\n {tls}\n}}\n'
        )
        return [str(self.program), "-c", site.write("nats.conf", text)]


@dataclass(frozen=True)
class Amqtt:
    """amqtt, the other broker in Python; it keeps no messages over a restart."""

    key: str = "amqtt"
    name: str = "amqtt"
    pace: float = 0.1
    cannot: dict[str, str] = field(
        default_factory=lambda: {
            **dict.fromkeys(("bursts", "groups", "tls"), "left out, to save time"),
            "idle": "10,000 connections take it over a minute",
            "storm": "5,000 connections take it half a minute",
        }
    )
    python: Path = CACHE / "amqtt" / "bin" / "python"

    def absence(self) -> str:
        return "" if self.python.exists() else "not installed"

    def command(self, site: Site, setting: Setting) -> list[str]:
        tls = f"    ssl: true\n    certfile: {site.certificate}\n    keyfile: {site.key}\n" if setting.is_tls else ""
        text = (
            f"listeners:\n  default:\n    type: tcp\n    bind: 127.0.0.1:{site.port}\n{tls}"
            "plugins:\n  amqtt.plugins.authentication.AnonymousAuthPlugin:\n    allow_anonymous: true\n"
        )
        quiet = "import logging; logging.basicConfig(level=logging.ERROR); from amqtt.scripts.broker_script import app; app()"
        return [str(self.python), "-c", quiet, "-c", site.write("amqtt.yaml", text)]


@dataclass(frozen=True)
class Relay:
    """A relay in C that does no work: what it reaches shows what the machine and the generator can do at least."""

    key: str = "relay"
    name: str = "relay without work (C)"
    pace: float = 16.0
    cannot: dict[str, str] = field(
        default_factory=lambda: {
            "groups": "knows no topics",
            "qos1": "forwards QoS 0 only",
            "tls": "no TLS",
            "kept": "keeps nothing",
            "idle": "keeps no sessions",
        }
    )

    def absence(self) -> str:
        return ""

    def command(self, site: Site, setting: Setting) -> list[str]:
        del setting
        return [str(relay_program()), str(site.port)]


def all_brokers() -> list[Broker]:
    """Every broker there could be, ours first."""
    own = CACHE / "mosquitto21"
    plugin = own / "mosquitto_persist_sqlite.so"
    only_keeps = dict.fromkeys(
        ("fanout", "bursts", "groups", "qos1", "tls", "json", "latency", "idle", "storm"), "as without SQLite"
    )
    debian = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
    return [
        Milepost(),
        Mosquitto("mosquitto20", "Mosquitto 2.0", debian),
        Mosquitto("mosquitto21", "Mosquitto 2.1", str(own / "mosquitto")),
        Mosquitto("mosquitto21-sqlite", "Mosquitto 2.1, SQLite", str(own / "mosquitto"), plugin, cannot=only_keeps),
        Nats(),
        Amqtt(),
        Relay(),
    ]
