"""`milepost pipeline backtest`: what rules would have said about traffic in the archive."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.service.archive_options import add_archive, add_times
from milepost.service.faults import UsageFault
from milepost.service.parsers import Commands
from milepost.service.terminal import complain, say

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from milepost.model.frames import Frame
    from milepost.service.settings import Settings

_SITE: Final = "backtest"
"""The name of a site that has none in the file."""

_EPILOG: Final = """\
examples:
  milepost pipeline backtest rule.toml --from 2026-11-16T07:00Z --to 2026-11-16T09:00Z
  milepost pipeline backtest rule.toml --from ... --to ... --json > alerts.jsonl
  milepost pipeline backtest old.toml new.toml --from ... --to ... --page both.html

A rule file has [[incidents.kinds]] as in milepost.example.toml; a file with all settings of a site will do. With --json the
alerts are printed as the site's log would have them. Two files are compared: which incidents only A (the first) raises, which
only B, which both.
"""


def add_to(verbs: Commands) -> None:
    """Add `backtest`."""
    backtest = verbs.add_parser(
        "backtest", help="try rules on the past", description="Say which alerts rules would have raised.", epilog=_EPILOG
    )
    backtest.add_argument("rules", metavar="RULE.toml", type=Path, nargs="+", help="one rule file, or two to compare")
    add_archive(backtest)
    add_times(backtest, are_needed=True)
    backtest.add_argument("--page", metavar="FILE.html", type=Path, help="write a page with a map")
    backtest.add_argument("--json", action="store_true", help="print the alerts of one rule, a line of JSON each")
    backtest.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.archives import archive_in, frame_in, spark  # noqa: PLC0415
    from milepost.service.settings import read_settings  # noqa: PLC0415
    from milepost.service.site_tables import table  # noqa: PLC0415

    if len(typed.rules) > 2 or (typed.json and len(typed.rules) > 1):
        raise UsageFault("give one rule file, or two to compare; --json is for one")
    archive, frame = archive_in(typed), frame_in(typed)
    rules = {path: read_settings(path) for path in typed.rules}
    with spark("backtest") as session:
        told = [_alerts(session, archive, frame, path, settings) for path, settings in rules.items()]
    if typed.json:
        for record in told[0]:
            say(record.decode())
        return 0
    from milepost.pipelines.backtest.comparing import lives, pairs  # noqa: PLC0415
    from milepost.pipelines.backtest.showing import HEAD, counts, page, row  # noqa: PLC0415

    found = pairs(lives(told[0]), lives(told[1]) if len(told) > 1 else [])
    for line in (*table(HEAD, [row(pair) for pair in found]), counts(found)):
        say(line)
    if typed.page:
        typed.page.write_text(page(" and ".join(path.name for path in typed.rules), found))
    return 0


def _alerts(session: "SparkSession", archive: Path, frame: "Frame", path: Path, settings: "Settings") -> list[bytes]:
    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.pipelines.backtest.job import alerts  # noqa: PLC0415
    from milepost.pipelines.backtest.replay import Replay  # noqa: PLC0415
    from milepost.service.road_files import maybe_approach  # noqa: PLC0415

    kinds = settings.incidents.kinds
    replay = Replay(settings.site.log.name or _SITE, kinds, maybe_approach(settings.incidents))
    found = list(alerts(session, archive, replay, kinds, start=frame.start, end=Instant(frame.end + 1)))
    for why, count in replay.dropped.items():
        complain(f"milepost: {path}: {count} cells were not taken: {why}")
    return found
