"""`milepost log`: print records of the log of a site."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import UsageFault
from milepost.runtime.terminal import print_error, print_line

if TYPE_CHECKING:  # imports threads and databases
    from milepost.eventlog.log import Log, Record, Start

_RESERVED: Final = "reserved."

_TAIL_EPILOG: Final = """\
examples:
  milepost log tail cross-hub --config milepost.toml --site north
  milepost log tail subscription-info --config milepost.toml --from beginning --count 100
  milepost log tail subscription-north-edge-1 --config milepost.toml --json | jq .value

TOPIC is the name of a topic; the prefix "reserved." may be left out. It runs until Ctrl-C, or until --count records are printed.
--from takes beginning, end, an offset, or a time such as 2026-11-16T12:00:00Z or "10 minutes ago".
"""


def add_to(commands: Commands) -> None:
    """Add `log` and its subcommand."""
    log = commands.add_parser(
        "log", help="inspect the log of a site", description="Print records of a site's log; see docs/how-to/sites.md."
    )
    verbs: Commands = log.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    tail = verbs.add_parser(
        "tail", help="print new records", description="Print records of a topic as they are appended.", epilog=_TAIL_EPILOG
    )
    tail.add_argument("topic", metavar="TOPIC", help="the topic of the log")
    tail.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings")
    tail.add_argument("--site", metavar="NAME", help="the site; required if the file has several")
    tail.add_argument("--from", metavar="START", dest="start", default="end", help="where to start (default: end)")
    tail.add_argument("--count", metavar="N", type=int, help="stop after N records")
    tail.add_argument("--json", action="store_true", help="print each whole record as one line of JSON")
    tail.set_defaults(run=_tail)


def _tail(typed: argparse.Namespace) -> int:
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy
    from milepost.runtime.site_logs import RefusedRecords  # noqa: PLC0415
    from milepost.runtime.site_view import open_site_logs  # noqa: PLC0415
    from milepost.runtime.structured_log import StructuredLog  # noqa: PLC0415

    start = _start(typed.start)
    with open_site_logs(read_settings(typed.config), RefusedRecords(StructuredLog())) as logs:
        site = typed.site or next(iter(logs))
        if site not in logs or (typed.site is None and len(logs) > 1):
            raise UsageFault(f"--site: give one of the sites in the file: {', '.join(logs)}")
        _show(site, logs[site], _topic(logs[site], typed.topic), start, count=typed.count, is_raw=typed.json)
    return 0


def _show(site: str, log: "Log", topic: str, start: "Start", *, count: int | None, is_raw: bool) -> None:
    from queue import SimpleQueue  # noqa: PLC0415

    from milepost.cli.record_output import as_json, as_line  # noqa: PLC0415
    from milepost.eventlog.log import LogLost  # noqa: PLC0415

    arrived: SimpleQueue[Sequence[Record] | LogLost] = SimpleQueue()
    following = log.follow({topic: start}, arrived.put, arrived.put)
    shown = 0
    try:
        while count is None or shown < count:
            found = arrived.get()
            if isinstance(found, LogLost):
                print_error(f"milepost: {found}")
                continue
            for record in found[: None if count is None else count - shown]:
                print_line(as_json(site, record) if is_raw else as_line(site, record))
                shown += 1
    finally:
        following.close()


def _topic(log: "Log", name: str) -> str:
    """Return the full name of a topic; refuse one that does not exist, because reading creates no topics."""
    topics = log.topics()
    for topic in (name, _RESERVED + name):
        if topic in topics:
            return topic
    raise UsageFault(f"there is no topic {name!r}; the log has {', '.join(topics) or 'none'}")


def _start(text: str) -> "Start":
    from time import time_ns  # noqa: PLC0415

    from milepost.eventlog.log import Since, TopicEnd  # noqa: PLC0415
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415
    from milepost.wire.times import instant_from_text  # noqa: PLC0415

    if text in ("beginning", "end"):
        return TopicEnd(text)
    if text.isdecimal():
        return int(text)
    try:
        return Since(instant_from_text(text, Instant(time_ns())))
    except Malformed as fault:
        raise UsageFault(f"--from: {fault.detail}; give beginning, end, an offset or a time") from None
