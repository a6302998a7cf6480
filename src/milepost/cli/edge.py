"""`milepost edge`: run a broker, or check a settings file."""

import argparse
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:  # imports numpy
    from milepost.config.settings import Settings

_RUN_EPILOG: Final = """\
examples:
  milepost edge run                                     127.0.0.1:1883, state in data/edge
  milepost edge run --listen 127.0.0.1:2883 --data /var/lib/milepost
  milepost edge run --config milepost.toml              TLS, WebSocket, UDP, users, rules, limits: see milepost.example.toml

A listener beyond loopback needs users, client certificates, or anonymous = true in [access]: else the edge does not start.

It runs in the foreground until SIGINT or SIGTERM, and logs to standard error. Try it from another terminal:
  mosquitto_sub -t 'fleet/#' -v &
  mosquitto_pub -t fleet/truck-17 -m hello
"""

_CHECK_EPILOG: Final = """\
example:
  milepost edge check --config milepost.toml

It reads the settings and all files that they name, and prints a summary. The exit status is 0 if everything is valid, else 2; the
error names the line.
"""


def add_to(commands: Commands) -> None:
    """Add `edge` and its two subcommands."""
    edge = commands.add_parser(
        "edge",
        help="run a broker, or check its configuration",
        description="Run a broker, or check its configuration; see docs/how-to/run-an-edge.md.",
    )
    verbs: Commands = edge.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    run = verbs.add_parser(
        "run",
        help="run a broker",
        description="Run a broker for MQTT 3.1.1 and 5 and, if it is configured, for encrypted sessions over UDP.",
        epilog=_RUN_EPILOG,
    )
    run.add_argument("--config", metavar="FILE", type=Path, help="the TOML file of settings (default: the default settings)")
    run.add_argument("--listen", metavar="ADDR", help="HOST:PORT for MQTT over TCP, instead of the listeners in the file")
    run.add_argument("--data", metavar="DIR", help="the data folder, instead of the one in the file")
    run.set_defaults(run=_run)

    check = verbs.add_parser(
        "check", help="check a settings file", description="Check a settings file, and print a summary.", epilog=_CHECK_EPILOG
    )
    check.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    check.set_defaults(run=_check)


def _run(typed: argparse.Namespace) -> int:
    settings = _settings(typed.config, listen=typed.listen, data=typed.data)
    from milepost.runtime.edge import run  # noqa: PLC0415  # slow import, after the settings are checked

    return run(settings, lambda: _settings(typed.config, listen=typed.listen, data=typed.data))


def _check(typed: argparse.Namespace) -> int:
    from milepost.cli.edge_summary import summary_of  # noqa: PLC0415  # imports numpy
    from milepost.runtime.tls_contexts import read_certificates  # noqa: PLC0415

    settings = _settings(typed.config)
    for listener in settings.mqtt.listen:
        read_certificates(listener)
    print_line(summary_of(settings))
    return 0


def _settings(config: Path | None, *, listen: str | None = None, data: str | None = None) -> "Settings":
    """Return the settings of the file or the defaults, overridden by the command line."""
    from milepost.config.settings import Settings, check_files, check_open_listeners, read_settings  # noqa: PLC0415  # imports numpy

    settings = read_settings(config) if config else Settings()
    if listen is not None:
        settings = _with_listener(settings, listen)
    if data is not None:
        settings = _with_data_folder(settings, data)
    check_files(settings)
    check_open_listeners(settings)
    return settings


def _with_listener(settings: "Settings", address: str) -> "Settings":
    from milepost.config.settings import ListenerSettings  # noqa: PLC0415  # imports numpy

    try:
        return replace(settings, mqtt=replace(settings.mqtt, listen=(ListenerSettings(address),)))
    except ValueError as fault:
        raise UsageFault(f"--listen: {fault}") from None


def _with_data_folder(settings: "Settings", data: str) -> "Settings":
    try:
        return replace(settings, edge=replace(settings.edge, data=data))
    except ValueError as fault:
        raise UsageFault(f"--data: {fault}") from None
