"""Events that endpoints report, held against who else was there (M27).

What must hold: an event is judged once, when what came in the `event_s` after it is known. Others that report it too speak for
it, others that pass at speed and say nothing against it, and the more of them are right: one liar does not vouch for another
where there is traffic.
"""

from collections.abc import Iterator
from typing import Any

import numpy as np
import pandas as pd

from milepost.pipelines.reputation.flat import metres
from milepost.pipelines.reputation.limits import Limits
from milepost.pipelines.reputation.near import Found
from milepost.pipelines.reputation.schema import LEAD_US, MINUTE_US, What


def judge_events(sights: pd.DataFrame, minute: int, limits: Limits) -> Iterator[Found]:
    """What is found in rows of SIGHT_ROW of one square: events, and reports that were let in."""
    if not sights["kind"].notna().any():
        return
    east, north = metres(sights["latitude"].to_numpy(), sights["longitude"].to_numpy())
    rows = sights[["endpoint", "seen_at_us", "speed_mps", "verdict", "kind"]].assign(east=east, north=north)
    events = rows[rows["kind"].notna()].drop_duplicates(["endpoint", "kind", "seen_at_us"])
    reports = rows[rows["kind"].isna() & (rows["verdict"] == 0) & (rows["speed_mps"] > limits.pass_mps)]
    ends_at = (minute + 1) * MINUTE_US - LEAD_US
    for event in events[events["seen_at_us"].between(ends_at - MINUTE_US, ends_at - 1)].itertuples():
        same = _others_near(events[events["kind"] == event.kind], event, limits.confirm_m, np.inf)
        passers = _others_near(reports, event, limits.event_m, limits.event_s) - same
        if len(passers) >= limits.passers_min and len(passers) > len(same):
            yield What.CONTRADICTED, str(event.endpoint), 1.0
        elif same:
            yield What.CONFIRMED, str(event.endpoint), 1.0


def _others_near(rows: pd.DataFrame, event: Any, within_m: float, after_s: float) -> set[str]:
    """Which others were so near, from then on for so long (or at any time in sight)."""
    gap_s = (rows["seen_at_us"] - event.seen_at_us) / 1e6
    is_then = gap_s.between(0, after_s) if after_s < np.inf else True
    is_near = np.hypot(rows["east"] - event.east, rows["north"] - event.north) < within_m
    return set(rows.loc[is_near & is_then & (rows["endpoint"] != event.endpoint), "endpoint"])
