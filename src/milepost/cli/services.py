"""`milepost services`: a real Kafka and ZooKeeper on loopback, for development and tests."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_error, print_line

if TYPE_CHECKING:  # imports sockets and processes
    from milepost.runtime.services.service import LocalService

_FOLDER: Final = Path("data/services")
_NAMES: Final = ("kafka", "zookeeper")
_PORT_MAX: Final = 65_535

_EPILOG: Final = """\
They are for development: on loopback, without passwords, for this user. They need Java 17, and PySpark (pip install
'.[spark]') or Maven for the download, which happens once.
"""

_START_EPILOG: Final = """\
examples:
  milepost services start kafka                      Kafka 4, one broker, at a free port
  milepost services start kafka=9092 zookeeper=2181  at the given ports
  milepost services start kafka --brokers 3          three brokers: one may fail

The servers keep running when the command has ended. Data, logs and ports are in the folder, and stay there when a service is
stopped: the next start uses them again. To start afresh, stop the service and remove the folder.
"""

_STATUS_EPILOG: Final = """\
examples:
  milepost services status
  milepost services status --json | jq -r .kafka.address

The exit status is 1 if a service was started but does not answer.
"""

_STOP_EPILOG: Final = """\
examples:
  milepost services stop                 all of them
  milepost services stop zookeeper       only that

Each gets SIGTERM, and SIGKILL if it still runs after 15 s.
"""


def add_to(commands: Commands) -> None:
    """Add `services` and its subcommands."""
    services = commands.add_parser(
        "services",
        help="start and stop Kafka and ZooKeeper for development",
        description="Start and stop Kafka and ZooKeeper on loopback; see docs/how-to/kafka.md.",
        epilog=_EPILOG,
    )
    verbs: Commands = services.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    start = verbs.add_parser("start", help="start services", description="Start services.", epilog=_START_EPILOG)
    start.add_argument("services", metavar="NAME[=PORT]", nargs="+", help=f"{' or '.join(_NAMES)} (default port: a free one)")
    start.add_argument("--brokers", metavar="N", type=int, help="number of brokers of a new Kafka: 1 or 3 (default: 1)")
    _add_folder(start)
    _add_json(start)
    start.set_defaults(run=_start)

    status = verbs.add_parser(
        "status", help="show their status", description="Show the status of the services.", epilog=_STATUS_EPILOG
    )
    _add_folder(status)
    _add_json(status)
    status.set_defaults(run=_status)

    stop = verbs.add_parser("stop", help="stop services", description="Stop services.", epilog=_STOP_EPILOG)
    stop.add_argument("names", metavar="NAME", nargs="*", help="services to stop (default: all)")
    _add_folder(stop)
    stop.set_defaults(run=_stop)


def _add_folder(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--folder", metavar="DIR", type=Path, default=_FOLDER, help=f"folder of their data and logs (default: {_FOLDER})"
    )


def _add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON instead of a table")


def _start(typed: argparse.Namespace) -> int:
    from milepost.runtime.services.kafka import checked  # noqa: PLC0415  # slow import

    requested = [_name_and_port(text) for text in typed.services]
    brokers = None if typed.brokers is None else checked(typed.brokers)
    for name, port in requested:
        service = _kinds()[name].open_in(_folder(typed, name), servers=brokers if name == "kafka" else None, port=port)
        if len(service.running()) == len(service.numbers):
            print_error(f"{name} is running already: {service.address}")
        service.start(progress=print_error)
    return _status(typed)


def _stop(typed: argparse.Namespace) -> int:
    for name in typed.names:
        _check_name(name)
    for name in typed.names or _NAMES:
        service = _kinds()[name].find_in(_folder(typed, name))
        if service is None or not service.running():
            if name in typed.names:
                print_line(f"{name} is not running")
            continue
        service.stop()
        print_line(f"{name} is stopped")
    return 0


def _status(typed: argparse.Namespace) -> int:
    found = [kind.find_in(_folder(typed, name)) for name, kind in _kinds().items()]
    rows = {service.NAME: _row(service) for service in found if service is not None}
    if typed.json:
        print_line(json.dumps(rows, indent=2))
    elif not rows:
        print_line(f"no services have been started in {typed.folder}")
    else:
        print_line(_table(rows))
    return 1 if any(row["state"] == "not serving" for row in rows.values()) else 0


def _row(service: "LocalService") -> dict[str, Any]:
    running = service.running()
    is_serving = len(running) == len(service.numbers) and all(service.is_ready(number) for number in running)
    return {
        "version": service.JARS.version,
        "state": "serving" if is_serving else "not serving" if running else "stopped",
        "address": service.address,
        "pids": {str(number): service.find_pid(number) for number in service.numbers},
        "logs": [str(service.log_file(number)) for number in service.numbers],
    }


def _table(rows: dict[str, dict[str, Any]]) -> str:
    lines = [("service", "version", "state", "address", "logs")]
    for name, row in rows.items():
        for index, (address, log) in enumerate(zip(row["address"].split(","), row["logs"], strict=True)):
            shown = (name, row["version"], row["state"]) if index == 0 else ("", "", "")
            lines.append((*shown, address, log))
    widths = [max(len(line[column]) for line in lines) for column in range(len(lines[0]))]
    return "\n".join("  ".join(text.ljust(width) for text, width in zip(line, widths, strict=True)).rstrip() for line in lines)


def _kinds() -> "dict[str, type[LocalService]]":
    from milepost.runtime.services.kafka import Kafka  # noqa: PLC0415  # slow import
    from milepost.runtime.services.zookeeper import ZooKeeper  # noqa: PLC0415

    return {"kafka": Kafka, "zookeeper": ZooKeeper}


def _folder(typed: argparse.Namespace, name: str) -> Path:
    return typed.folder.resolve() / name  # type: ignore[no-any-return]


def _name_and_port(text: str) -> tuple[str, int | None]:
    name, is_given, port = text.partition("=")
    _check_name(name)
    if not is_given:
        return name, None
    if not port.isdecimal() or not 0 < int(port) <= _PORT_MAX:
        raise UsageFault(f"{text}: {port!r} is not a port; write it such as {name}=9092")
    return name, int(port)


def _check_name(name: str) -> None:
    if name not in _NAMES:
        raise UsageFault(f"there is no service {name!r}: choose {' or '.join(_NAMES)}")
