"""`milepost pipeline coverage`: prove who got a message to an area."""

import argparse
from pathlib import Path
from typing import Final

from milepost.service.archive_options import add_archive, add_times
from milepost.service.faults import StartFault
from milepost.service.parsers import Commands
from milepost.service.terminal import say

_EPILOG: Final = """\
examples:
  milepost pipeline coverage 1900000000000000017 --source incidents
  milepost pipeline coverage 17 --from '2 hours ago' --page proof.html

It reads the archive: deliveries as edges told of them, and where everybody was. --from and --to say when the message was said, so
that not all of the archive is looked at.
"""


def add_to(verbs: Commands) -> None:
    """Add `coverage`."""
    coverage = verbs.add_parser(
        "coverage", help="prove who got a message", description="Say who was in a message's area and who got it.", epilog=_EPILOG
    )
    coverage.add_argument("message", metavar="MESSAGE_ID", help="the message's id")
    coverage.add_argument("--source", metavar="ENDPOINT", help="who said it; needed if several used the id")
    add_archive(coverage)
    add_times(coverage)
    coverage.add_argument("--page", metavar="FILE.html", type=Path, help="write a page with a picture")
    coverage.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.archives import archive_in, frame_in, spark  # noqa: PLC0415
    from milepost.service.site_tables import table  # noqa: PLC0415

    folder, frame = archive_in(typed), frame_in(typed)
    with spark("coverage") as session:
        from milepost.pipelines.coverage.job import HEAD, NoProof, covered  # noqa: PLC0415

        try:
            found = covered(session, folder, typed.message, source=typed.source, frame=frame)
        except NoProof as fault:
            raise StartFault(str(fault)) from None
    for line in (*table(HEAD, found.rows()), found.counts):
        say(line)
    if typed.page:
        typed.page.write_text(found.page())
    return 0
