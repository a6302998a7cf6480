"""Judging the parts of a minute: some endpoints each by itself, or those of a square by each other."""

from collections.abc import Sequence

import pandas as pd

from milepost.pipelines.reputation.events import judge_events
from milepost.pipelines.reputation.limits import Limits
from milepost.pipelines.reputation.moves import judge_moves
from milepost.pipelines.reputation.near import judge_near
from milepost.pipelines.reputation.ways import judge_ways, learnt, ways_from_bytes, ways_to_bytes


def judge_endpoints(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """The evidence (EVIDENCE_ROW) in what some endpoints did."""
    return judge_moves(sights, minute, limits)


def judge_squares(kept: bytes | None, squares: Sequence[pd.DataFrame], minute: int, limits: Limits) -> tuple[bytes, pd.DataFrame]:
    """What to keep of some squares after a minute (at first there is nothing), and the evidence (EVIDENCE_ROW) in them."""
    ways = ways_from_bytes(kept)
    evidence = [
        (minute, endpoint, str(what), count)
        for sights in squares
        for judged in (
            judge_ways(ways, sights, minute, limits),
            judge_near(sights, minute, limits),
            judge_events(sights, minute, limits),
        )
        for what, endpoint, count in judged
    ]
    ways = learnt(ways, pd.concat(list(squares), ignore_index=True), minute, limits)
    return ways_to_bytes(ways), pd.DataFrame(evidence, columns=["minute", "endpoint", "what", "count"])
