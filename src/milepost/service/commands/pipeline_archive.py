"""`milepost pipeline archive`: bring the archive in order, and say which files count."""

import argparse
from typing import Final

from milepost.service.archive_options import add_archive, add_area, add_times
from milepost.service.faults import StartFault, UsageFault
from milepost.service.parsers import Commands
from milepost.service.terminal import say

_TABLES: Final = ("messages", "reports", "deliveries", "unpublished")

_COMPACT_EPILOG: Final = """\
examples:
  milepost pipeline archive compact
  milepost pipeline archive compact --keep '90 days'

Run it once an hour. Hours that are over get one file for each cell, unpublished messages are taken out, and with --keep older
hours are removed; the least is 8 days. Files that no longer count are removed ten minutes later, by the next run, so that whoever
reads may finish.
"""

_FILES_EPILOG: Final = """\
example:
  milepost pipeline archive files reports --from '2 hours ago' --area 'circle 40.7608,-111.891 500'

One path in each line, for any reader of Parquet. The files may have more rows than those in the time and the area.
"""


def add_to(verbs: Commands) -> None:
    """Add `archive` and its verbs."""
    archive = verbs.add_parser("archive", help="look after the archive", description="The archive of a site.")
    inner: Commands = archive.add_subparsers(title="verbs", metavar="VERB", required=True)
    compact = inner.add_parser("compact", help="bring it in order", description="Compact the archive.", epilog=_COMPACT_EPILOG)
    add_archive(compact)
    compact.add_argument("--keep", metavar="TIME", help="remove what is older, such as `90 days`; without it nothing is")
    compact.set_defaults(run=_compact)
    files = inner.add_parser("files", help="say which files count", description="Say which files count.", epilog=_FILES_EPILOG)
    files.add_argument("table", metavar="TABLE", choices=_TABLES, help=", ".join(_TABLES))
    add_archive(files)
    add_times(files)
    add_area(files)
    files.set_defaults(run=_files)


def _compact(typed: argparse.Namespace) -> int:
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.service.archives import archive_in, spark  # noqa: PLC0415

    folder, keep_s = archive_in(typed), _keep_s(typed.keep)
    with spark("archive compact") as session:
        from milepost.pipelines.archive.compaction import Busy, compact  # noqa: PLC0415

        try:
            done = compact(session, folder, now=Instant(time_ns()), keep_s=keep_s)
        except Busy as fault:
            raise StartFault(f"{fault}: wait until it has ended") from None
    say(f"{done.sorted} hours sorted, {done.gone} hours gone, {done.files_removed} files removed")
    return 0


def _keep_s(text: str | None) -> float | None:
    from milepost.model.instants import SECOND_NS  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415
    from milepost.pipelines.archive.files import KEEP_S_MIN  # noqa: PLC0415
    from milepost.wire.times import duration_from_text  # noqa: PLC0415

    if text is None:
        return None
    try:
        keep_s = duration_from_text(text) / SECOND_NS
    except Malformed as fault:
        raise UsageFault(f"--keep: {fault.detail}; give a time such as `90 days`") from None
    if keep_s < KEEP_S_MIN:
        raise UsageFault(f"--keep is {text}: at least {KEEP_S_MIN // 86_400} days are kept, because so late rows may come")
    return keep_s


def _files(typed: argparse.Namespace) -> int:
    from milepost.pipelines.archive.files import files_of  # noqa: PLC0415
    from milepost.pipelines.archive.schema import TABLES  # noqa: PLC0415
    from milepost.service.archives import archive_in, area_in, frame_in  # noqa: PLC0415

    table = next(table for table in TABLES if table.name == typed.table)
    area = None if typed.area is None else area_in(typed.area)
    for path in files_of(archive_in(typed), table, frame=frame_in(typed), area=area):
        say(path)
    return 0
