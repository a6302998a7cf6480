"""`milepost pipeline lookback`: ask about the past."""

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Final

from milepost.service.archive_options import add_archive, add_area, add_times
from milepost.service.faults import UsageFault, cannot_read
from milepost.service.parsers import Commands
from milepost.service.terminal import say

if TYPE_CHECKING:
    from milepost.pipelines.lookback.asks import Past

_EPILOG: Final = """\
examples:
  milepost pipeline lookback --query 'collision & i80' --from '2 hours ago'
  milepost pipeline lookback --who --area 'circle 40.7608,-111.891 500' --from 2026-11-10T08:00Z --to 2026-11-10T09:00Z
  milepost pipeline lookback questions.json --count 20

questions.json is an array of questions, each an object with any of query, area, frame and after; thousands of them are answered
in one pass over the archive. Each answer says how many messages there are, has the first --count of them, and under `more` what
to give as `after` (or --after) to go on.
"""


def add_to(verbs: Commands) -> None:
    """Add `lookback`."""
    lookback = verbs.add_parser("lookback", help="ask about the past", description="Ask about the past.", epilog=_EPILOG)
    lookback.add_argument("questions", metavar="QUESTIONS.json", type=Path, nargs="?", help="many questions at once")
    add_archive(lookback)
    add_times(lookback)
    add_area(lookback)
    lookback.add_argument("--query", metavar="QUERY", help="a formula over tags and topics")
    lookback.add_argument("--after", metavar="TOKEN", help="go on where an answer ended")
    lookback.add_argument(
        "--count", metavar="N", type=int, default=100, help="so many messages for each question; 100 unless told"
    )
    lookback.add_argument("--who", action="store_true", help="say which endpoints were there, instead of what was said")
    lookback.set_defaults(run=_run)


def _run(typed: argparse.Namespace) -> int:
    from milepost.service.archives import archive_in, spark  # noqa: PLC0415

    folder, pasts = archive_in(typed), _pasts(typed)
    if typed.count < 1:
        raise UsageFault("--count is less than 1")
    with spark("lookback") as session:
        from milepost.pipelines.lookback.job import look_back, who_was_here  # noqa: PLC0415

        if typed.who:
            lines = [json.dumps(row.asDict()) for row in who_was_here(session, folder, pasts)]
        else:
            lines = [json.dumps(answer) for answer in look_back(session, folder, pasts, count=typed.count)]
    for line in lines:
        say(line)
    return 0


def _pasts(typed: argparse.Namespace) -> "list[Past]":
    from time import time_ns  # noqa: PLC0415

    from milepost.model.instants import Instant  # noqa: PLC0415
    from milepost.model.queries import parse_query  # noqa: PLC0415
    from milepost.model.reasons import Malformed  # noqa: PLC0415
    from milepost.pipelines.lookback.asks import FROM_THE_FIRST, Past, past_from_json, token_from_text  # noqa: PLC0415
    from milepost.service.archives import area_in, frame_in  # noqa: PLC0415

    if typed.questions is not None and any((typed.area, typed.query, typed.start, typed.end, typed.after)):
        raise UsageFault("ask by a file or by options, not by both")
    try:
        if typed.questions is not None:
            now = Instant(time_ns())
            return [past_from_json(one, f"question {number}", now) for number, one in enumerate(_read(typed.questions))]
        query = None if typed.query is None else parse_query(typed.query)
        after = FROM_THE_FIRST if typed.after is None else token_from_text(typed.after)
    except Malformed as fault:
        raise UsageFault(str(fault)) from None
    return [Past(query, None if typed.area is None else area_in(typed.area), frame_in(typed), after)]


def _read(path: Path) -> list[object]:
    try:
        found = json.loads(path.read_bytes())
    except OSError as error:
        raise cannot_read(path, error) from None
    except ValueError as fault:
        raise UsageFault(f"{path} is no JSON: {fault}") from None
    if not isinstance(found, list):
        raise UsageFault(f"{path} is not an array of questions")
    return found
