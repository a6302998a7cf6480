"""`milepost handler`: run a third party's service, list and retry its dead letters, remove it."""

import argparse
import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.command_parser import Commands
from milepost.config.errors import StartFault, UsageFault
from milepost.runtime.terminal import print_line

if TYPE_CHECKING:  # imports numpy
    from milepost.config.settings import Settings
    from milepost.eventlog.log import Log
    from milepost.handlers.administration import ListedDeadLetter
    from milepost.runtime.structured_log import StructuredLog

_RUN_EPILOG: Final = """\
examples:
  milepost handler run examples/handlers/parking.py --config milepost.toml
  milepost handler run parking.py --config milepost.toml --http 127.0.0.1:9470     with health checks and metrics

The Python file defines one Handler (docs/how-to/handlers.md). [site] in the settings names the log that it reads, and [storage]
its durability. Several processes of one handler share its partitions, and take over from one that fails. It runs until SIGINT
or SIGTERM. While it does not run, requests wait for it in the log.
"""

_DEAD_LETTERS_EPILOG: Final = """\
examples:
  milepost handler dead-letters list --config milepost.toml
  milepost handler dead-letters retry parking:0.17 --config milepost.toml
  milepost handler dead-letters retry --all --config milepost.toml

A request becomes a dead letter when its function has failed three times, or its answer is not valid under its schema.
"""

_FORGET_EPILOG: Final = """\
example, after all its processes were stopped:
  milepost handler forget parking --config milepost.toml
"""

_COLUMNS: Final = ("id", "at", "source", "topic", "attempts", "reason")


def add_to(commands: Commands) -> None:
    """Add `handler` and its subcommands."""
    handler = commands.add_parser(
        "handler",
        help="run a request/reply service, retry its failed requests",
        description="Request/reply services of third parties, behind validators.",
    )
    verbs: Commands = handler.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)

    run = verbs.add_parser("run", help="run a handler", description="Run the handler in a Python file.", epilog=_RUN_EPILOG)
    run.add_argument("file", metavar="FILE.py", type=Path, help="the Python file of the handler")
    _add_config(run)
    run.add_argument("--http", metavar="ADDR", help="HOST:PORT for /health, /ready and /metrics (default: not served)")
    run.set_defaults(run=_run)

    letters = verbs.add_parser(
        "dead-letters",
        help="list and retry failed requests",
        description="Requests that handlers could not serve.",
        epilog=_DEAD_LETTERS_EPILOG,
    )
    dealings: Commands = letters.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    listing = dealings.add_parser("list", help="list them", description="List the dead letters.", epilog=_DEAD_LETTERS_EPILOG)
    _add_config(listing)
    listing.add_argument("--json", action="store_true", help="print one JSON object per line, with the whole request")
    listing.set_defaults(run=_list)
    retry = dealings.add_parser(
        "retry", help="retry them", description="Send dead letters to their handlers again.", epilog=_DEAD_LETTERS_EPILOG
    )
    retry.add_argument("ids", metavar="ID", nargs="*", help="ids as printed by `list`")
    retry.add_argument("--all", action="store_true", help="retry all dead letters")
    _add_config(retry)
    retry.set_defaults(run=_retry)

    forget = verbs.add_parser(
        "forget",
        help="remove a handler for good",
        description="Remove the subscriptions of a handler, its store, its dead letters, and the requests that wait for it.",
        epilog=_FORGET_EPILOG,
    )
    forget.add_argument("name", metavar="NAME", help="the name of the handler")
    _add_config(forget)
    forget.set_defaults(run=_forget)


def _add_config(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--config", metavar="FILE", type=Path, required=True, help="the TOML file of settings, with a [site]")


def _run(typed: argparse.Namespace) -> int:
    from milepost.config.addresses import host_and_port  # noqa: PLC0415
    from milepost.handlers.handler import UnusableHandlerFile, load  # noqa: PLC0415  # slow import
    from milepost.runtime.handler import HandlerService  # noqa: PLC0415
    from milepost.runtime.structured_log import StructuredLog  # noqa: PLC0415

    settings = _settings(typed.config)
    try:
        if typed.http:
            host_and_port(typed.http)
        handler = load(typed.file)
    except UnusableHandlerFile as fault:
        raise UsageFault(str(fault)) from None
    except ValueError as fault:
        raise UsageFault(f"--http: {fault}") from None
    lines = StructuredLog(settings.log.level, settings.log.line_format)
    with _open_log(settings, f"handler-{handler.name}", lines) as log:
        return HandlerService(handler, settings.site.log.name, log, lines).run(typed.http or "")


def _list(typed: argparse.Namespace) -> int:
    from milepost.handlers.administration import all_dead_letters  # noqa: PLC0415

    with _open_log(_settings(typed.config), "handler-dead-letters") as log:
        found = list(all_dead_letters(log))
    if typed.json:
        for one in found:
            print_line(json.dumps(_row(one) | {"request": json.loads(one.letter.record)}))
        return 0
    rows = [_COLUMNS, *(tuple(str(value) for value in _row(one).values()) for one in found)]
    widths = [max(len(row[at]) for row in rows) for at in range(len(_COLUMNS))]
    for row in rows if found else ():
        print_line("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
    if not found:
        print_line("there are no dead letters")
    return 0


def _retry(typed: argparse.Namespace) -> int:
    from milepost.handlers.administration import all_dead_letters, retry_dead_letter  # noqa: PLC0415

    if bool(typed.ids) == typed.all:
        raise UsageFault("give the ids of dead letters, or --all; `milepost handler dead-letters list` prints them")
    with _open_log(_settings(typed.config), "handler-dead-letters") as log:
        found = {one.id: one for one in all_dead_letters(log)}
        if unknown := [name for name in typed.ids if name not in found]:
            raise UsageFault(f"there is no dead letter {unknown[0]}; `milepost handler dead-letters list` prints all")
        chosen = list(found) if typed.all else list(dict.fromkeys(typed.ids))
        for name in chosen:
            retry_dead_letter(log, found[name])
            print_line(f"{name} will be retried")
    if not chosen:
        print_line("there are no dead letters")
    return 0


def _forget(typed: argparse.Namespace) -> int:
    from milepost.handlers.administration import forget  # noqa: PLC0415
    from milepost.model.site_records import check_site_name  # noqa: PLC0415

    try:
        check_site_name(typed.name)
    except ValueError as fault:
        raise UsageFault(str(fault)) from None
    settings = _settings(typed.config)
    with _open_log(settings, "handler-forget") as log:
        filters, values, letters = forget(log, settings.site.log.name, typed.name)
    print_line(f"{typed.name} is removed: {filters} topic filters, {values} values of its store, {letters} dead letters")
    return 0


def _row(one: "ListedDeadLetter") -> dict[str, object]:
    from milepost.wire.times import instant_to_text  # noqa: PLC0415  # imports numpy

    at = instant_to_text(one.letter.at)
    return dict(
        zip(_COLUMNS, (one.id, at, one.message.source, one.message.topic, one.letter.attempts, one.letter.reason), strict=True)
    )


def _settings(config: Path) -> "Settings":
    from milepost.config.settings import read_settings  # noqa: PLC0415  # imports numpy

    settings = read_settings(config)
    if not settings.site.log.name:
        raise UsageFault(f"{config}: [site] has no name: a handler needs the log of a site")
    return settings


@contextmanager
def _open_log(settings: "Settings", client_id: str, logger: "StructuredLog | None" = None) -> "Iterator[Log]":
    from milepost.eventlog.log import LogRefused, LogUnavailable  # noqa: PLC0415
    from milepost.runtime.site_logs import RefusedRecords, open_log  # noqa: PLC0415

    log = open_log(settings.site.log, settings.storage.durability, client_id, RefusedRecords(logger))
    try:
        yield log
    except (LogUnavailable, LogRefused) as fault:
        raise StartFault(f"the log of site {settings.site.log.name}: {fault}") from None
    finally:
        log.close()
