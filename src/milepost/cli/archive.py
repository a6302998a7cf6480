"""`milepost pipeline archive | search | coverage | backtest`: commands over the archive of a site.

Importing this module imports neither numpy nor Spark, so that `milepost --help` stays fast.
"""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.cli.command_parser import Commands
from milepost.cli.spark_options import add_conf, conf_in
from milepost.config.errors import StartFault, UsageFault, cannot_read, require_module
from milepost.runtime.terminal import print_error, print_line

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milepost.config.settings import Settings
    from milepost.model.time_windows import TimeWindow
    from milepost.pipelines.search import ArchiveQuery

ARCHIVE: Final = Path("data/pipelines/archive")
_TABLES: Final = ("messages", "reports", "deliveries", "unpublished")
_BACKTEST_SITE: Final = "backtest"
"""Default site name of a backtest, if the rule file has none."""

_COMPACT_EPILOG: Final = """\
examples:
  milepost pipeline archive compact
  milepost pipeline archive compact --keep '90 days'

Run it once an hour. Past hours get one file for each cell, unpublished messages are removed, and with --keep older hours are
deleted; the minimum is 8 days. Replaced files are deleted by the next run, at least ten minutes later, so that running queries
can finish.
"""
_FILES_EPILOG: Final = """\
example:
  milepost pipeline archive files reports --from '2 hours ago' --area 'circle 40.7608,-111.891 500'

It prints one path per line, for any reader of Parquet. The files may have further rows, outside the time window and the area.
"""
_SEARCH_EPILOG: Final = """\
examples:
  milepost pipeline search --query 'collision & i80' --from '2 hours ago'
  milepost pipeline search --endpoints --area 'circle 40.7608,-111.891 500' --from 2026-11-10T08:00Z --to 2026-11-10T09:00Z
  milepost pipeline search queries.json --count 20

queries.json is an array of queries, each an object with any of query, area, time_window and after; thousands of them are
answered in one pass over the archive. Each answer has the number of messages, the first --count of them, and under `more` the
value of `after` (or --after) for the next page.
"""
_COVERAGE_EPILOG: Final = """\
examples:
  milepost pipeline coverage 1900000000000000017 --source @service/incidents
  milepost pipeline coverage 17 --from '2 hours ago' --page proof.html

It reads the deliveries that edges recorded, and the positions of all endpoints. --from and --to limit when the message was
published, so that not all of the archive is read.
"""
_BACKTEST_EPILOG: Final = """\
examples:
  milepost pipeline backtest rule.toml --from 2026-11-16T07:00Z --to 2026-11-16T09:00Z
  milepost pipeline backtest rule.toml --from ... --to ... --json > alerts.jsonl
  milepost pipeline backtest old.toml new.toml --from ... --to ... --page both.html

A rule file has [[incidents.kinds]] as in milepost.example.toml; the settings file of a site can be used as well. With --json the
alerts are printed as records of the site's log. Two files are compared: incidents that only A (the first) raises, only B, both.
"""


def add_to(verbs: Commands) -> None:
    """Add the subcommands to `pipeline`."""
    archive = verbs.add_parser("archive", help="maintain the archive", description="The archive of a site.")
    inner: Commands = archive.add_subparsers(title="subcommands", metavar="SUBCOMMAND", required=True)
    _add_compact(inner)
    _add_files(inner)
    _add_search(verbs)
    _add_coverage(verbs)
    _add_backtest(verbs)


def _add_archive(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--archive", metavar="FOLDER", type=Path, default=ARCHIVE, help=f"the folder of the archive (default: {ARCHIVE})"
    )


def _add_times(parser: argparse.ArgumentParser, *, are_needed: bool = False) -> None:
    parser.add_argument(
        "--from", metavar="TIME", dest="start", required=are_needed, help="start of the time window, such as 2026-11-16T12:00Z"
    )
    parser.add_argument("--to", metavar="TIME", dest="end", required=are_needed, help="end of the time window, exclusive")


def _add_area(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--area", metavar="AREA", help="`circle LATITUDE,LONGITUDE METRES`, WKT or GeoJSON")


# archive compact


def _add_compact(verbs: Commands) -> None:
    compact = verbs.add_parser("compact", help="compact the archive", description="Compact the archive.", epilog=_COMPACT_EPILOG)
    _add_archive(compact)
    add_conf(compact)
    compact.add_argument("--keep", metavar="TIME", help="delete rows older than this, such as `90 days` (default: keep all)")
    compact.set_defaults(run=_compact)


def _compact(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.runtime.archive_options import archive_in, spark_session  # noqa: PLC0415

    folder, keep_s = archive_in(typed), _keep_s(typed.keep)
    with spark_session("archive compact", conf_in(typed)) as session:
        from milepost.pipelines.archive.compaction import ArchiveBusy, compact  # noqa: PLC0415

        try:
            done = compact(session, folder, now=Instant(time_ns()), retention_s=keep_s)
        except ArchiveBusy as fault:
            raise StartFault(f"{fault}: wait until it has ended") from None
    print_line(f"{done.hours_sorted} hours sorted, {done.hours_expired} hours expired, {done.files_removed} files removed")
    return 0


def _keep_s(text: str | None) -> float | None:
    from milepost.model.instants import SECOND_NS  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415
    from milepost.pipelines.archive.files import RETENTION_S_MIN  # noqa: PLC0415
    from milepost.wire.times import duration_from_text  # noqa: PLC0415

    if text is None:
        return None
    try:
        keep_s = duration_from_text(text) / SECOND_NS
    except Malformed as fault:
        raise UsageFault(f"--keep: {fault.detail}; give a time such as `90 days`") from None
    if keep_s < RETENTION_S_MIN:
        raise UsageFault(f"--keep is {text}: give at least {RETENTION_S_MIN // 86_400} days, the maximum delay of rows")
    return keep_s


# archive files


def _add_files(verbs: Commands) -> None:
    files = verbs.add_parser(
        "files", help="list its files", description="List the current files of a table.", epilog=_FILES_EPILOG
    )
    files.add_argument("table", metavar="TABLE", choices=_TABLES, help=", ".join(_TABLES))
    _add_archive(files)
    _add_times(files)
    _add_area(files)
    files.set_defaults(run=_files)


def _files(typed: argparse.Namespace) -> int:
    from milepost.pipelines.archive.files import files_of  # noqa: PLC0415
    from milepost.pipelines.archive.schema import TABLES  # noqa: PLC0415
    from milepost.runtime.archive_options import archive_in, area_in, time_window_in  # noqa: PLC0415

    table = next(table for table in TABLES if table.name == typed.table)
    area = None if typed.area is None else area_in(typed.area)
    for path in files_of(archive_in(typed), table, time_window=time_window_in(typed), area=area):
        print_line(path)
    return 0


# search


def _add_search(verbs: Commands) -> None:
    search = verbs.add_parser("search", help="query the past", description="Query messages of the past.", epilog=_SEARCH_EPILOG)
    search.add_argument("queries", metavar="QUERIES.json", type=Path, nargs="?", help="many queries at once")
    _add_archive(search)
    add_conf(search)
    _add_times(search)
    _add_area(search)
    search.add_argument("--query", metavar="QUERY", help="a formula over tags and topics")
    search.add_argument("--after", metavar="TOKEN", help="continue after an earlier answer")
    search.add_argument("--count", metavar="N", type=int, default=100, help="messages for each query (default: 100)")
    search.add_argument("--endpoints", action="store_true", help="print the endpoints that were there instead of messages")
    search.set_defaults(run=_search)


def _search(typed: argparse.Namespace) -> int:
    from milepost.runtime.archive_options import archive_in, spark_session  # noqa: PLC0415

    require_module("pyspark", "this command", "spark")
    folder, queries = archive_in(typed), _queries(typed)
    if typed.count < 1:
        raise UsageFault(f"--count is {typed.count}: give at least 1")
    with spark_session("search", conf_in(typed)) as session:
        from milepost.pipelines.search import find_endpoints, search_messages  # noqa: PLC0415

        if typed.endpoints:
            lines = [json.dumps(row.asDict()) for row in find_endpoints(session, folder, queries)]
        else:
            lines = [json.dumps(answer) for answer in search_messages(session, folder, queries, count=typed.count)]
    for line in lines:
        print_line(line)
    return 0


def _queries(typed: argparse.Namespace) -> "list[ArchiveQuery]":
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.model.queries import parse_query  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415
    from milepost.pipelines.search import FIRST_PAGE, ArchiveQuery, archive_query_from_json, cursor_from_text  # noqa: PLC0415
    from milepost.runtime.archive_options import area_in, time_window_in  # noqa: PLC0415

    if typed.queries is not None and any((typed.area, typed.query, typed.start, typed.end, typed.after)):
        raise UsageFault("give a file of queries or options, not both")
    try:
        if typed.queries is not None:
            now = Instant(time_ns())
            return [
                archive_query_from_json(one, f"query {number}", now) for number, one in enumerate(_read_queries(typed.queries))
            ]
        query = None if typed.query is None else parse_query(typed.query)
        after = FIRST_PAGE if typed.after is None else cursor_from_text(typed.after)
    except Malformed as fault:
        raise UsageFault(str(fault)) from None
    return [ArchiveQuery(query, None if typed.area is None else area_in(typed.area), time_window_in(typed), after)]


def _read_queries(path: Path) -> list[object]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except ValueError as fault:
        raise UsageFault(f"{path} is not JSON: {fault}") from None
    if not isinstance(found, list):
        raise UsageFault(f"{path} is not an array of queries")
    return found


# coverage


def _add_coverage(verbs: Commands) -> None:
    coverage = verbs.add_parser(
        "coverage",
        help="prove which endpoints received a message",
        description="Print which endpoints were in a message's area, and which of them received it.",
        epilog=_COVERAGE_EPILOG,
    )
    coverage.add_argument("message", metavar="MESSAGE_ID", help="the message's id")
    coverage.add_argument("--source", metavar="SOURCE", help="the publisher; needed if several used the id")
    _add_archive(coverage)
    add_conf(coverage)
    _add_times(coverage)
    coverage.add_argument("--page", metavar="FILE.html", type=Path, help="write a page with a picture")
    coverage.set_defaults(run=_coverage)


def _coverage(typed: argparse.Namespace) -> int:
    from milepost.cli.site_tables import table  # noqa: PLC0415
    from milepost.runtime.archive_options import archive_in, spark_session, time_window_in  # noqa: PLC0415

    folder, time_window = archive_in(typed), time_window_in(typed)
    with spark_session("coverage", conf_in(typed)) as session:
        from milepost.pipelines.coverage import HEAD, NoCoverageProof, prove_coverage  # noqa: PLC0415

        try:
            found = prove_coverage(session, folder, typed.message, source=typed.source, time_window=time_window)
        except NoCoverageProof as fault:
            raise StartFault(str(fault)) from None
    for line in (*table(HEAD, found.rows()), found.summary):
        print_line(line)
    if typed.page:
        typed.page.write_text(found.page())
    return 0


# backtest


def _add_backtest(verbs: Commands) -> None:
    backtest = verbs.add_parser(
        "backtest",
        help="run rules on past traffic",
        description="Print the alerts that rules would have raised.",
        epilog=_BACKTEST_EPILOG,
    )
    backtest.add_argument("rules", metavar="RULE.toml", type=Path, nargs="+", help="one rule file, or two to compare")
    _add_archive(backtest)
    add_conf(backtest)
    _add_times(backtest, are_needed=True)
    backtest.add_argument("--page", metavar="FILE.html", type=Path, help="write a page with a map")
    backtest.add_argument("--json", action="store_true", help="print the alerts of one rule, a line of JSON each")
    backtest.set_defaults(run=_backtest)


def _backtest(typed: argparse.Namespace) -> int:
    from milepost.cli.site_tables import table  # noqa: PLC0415
    from milepost.config.settings import read_settings  # noqa: PLC0415
    from milepost.runtime.archive_options import archive_in, spark_session, time_window_in  # noqa: PLC0415

    if len(typed.rules) > 2 or (typed.json and len(typed.rules) > 1):
        raise UsageFault("give one rule file, or two to compare; --json is for one")
    archive, time_window = archive_in(typed), time_window_in(typed)
    rules = {path: read_settings(path) for path in typed.rules}
    with spark_session("backtest", conf_in(typed)) as session:
        alerts = [_alerts(session, archive, time_window, path, settings) for path, settings in rules.items()]
    if typed.json:
        for record in alerts[0]:
            print_line(record.decode())
        return 0
    from milepost.pipelines.backtest import HEAD, incidents_of, page, pair_incidents, summary, table_row  # noqa: PLC0415

    found = pair_incidents(incidents_of(alerts[0]), incidents_of(alerts[1]) if len(alerts) > 1 else [])
    for line in (*table(HEAD, [table_row(pair) for pair in found]), summary(found)):
        print_line(line)
    if typed.page:
        typed.page.write_text(page(" and ".join(path.name for path in typed.rules), found))
    return 0


def _alerts(session: "SparkSession", archive: Path, time_window: "TimeWindow", path: Path, settings: "Settings") -> list[bytes]:
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.pipelines.backtest import Replay, alerts  # noqa: PLC0415
    from milepost.runtime.road_files import find_approach  # noqa: PLC0415

    kinds = settings.incidents.kinds
    replay = Replay(
        settings.site.log.name or _BACKTEST_SITE,
        kinds,
        allowed_lateness_s=settings.incidents.allowed_lateness_s,
        since=time_window.start,
        approach=find_approach(settings.incidents),
    )
    found = list(alerts(session, archive, replay, start=time_window.start, end=Instant(time_window.end + 1)))
    for why, count in replay.dropped.items():
        print_error(f"milepost: {path}: {count} cells were skipped: {why}")
    return found
