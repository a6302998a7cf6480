"""What an endpoint's own reports say against it, found for many endpoints at once (M27).

What must hold: the order of rows does not matter; rows before the minute are looked at but not counted.
"""

from typing import Final

import numpy as np
import pandas as pd

from milepost.model.places import Flags
from milepost.model.reasons import Reason
from milepost.pipelines.reputation.flat import steps_m
from milepost.pipelines.reputation.limits import Limits
from milepost.pipelines.reputation.schema import MINUTE_US, What

IMPOSSIBLE: Final = (Reason.MOVE_TOO_FAST, Reason.MOVE_TELEPORT, Reason.HEADING_AGAINST_MOVE)
RATES: Final = (Reason.RATE_TOO_HIGH, Reason.PREFIX_RATE_TOO_HIGH, Reason.EDGE_RATE_TOO_HIGH)
"""Refused for how much came: that is counted as a flood, or is others' doing."""

_ORDER: Final = ["endpoint", "seen_at_us", "latitude", "longitude", "speed_mps", "heading_deg", "verdict"]


def judge_moves(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """The evidence (EVIDENCE_ROW) in rows of SIGHT_ROW, for a minute of which all rows are here."""
    reports = sights[sights["kind"].isna()].sort_values(_ORDER, ignore_index=True)
    is_counted = reports["seen_at_us"] >= minute * MINUTE_US
    found = [_counted(_reported(reports[is_counted], limits))]
    accepted = reports[reports["verdict"] == 0]
    if len(accepted) > 1:
        moves = _moves(accepted)
        is_judged = (moves["seen_at_us"] >= minute * MINUTE_US) & moves["gap_s"].between(limits.gap_s_min, limits.gap_s_max)
        found.append(_counted(_moved(moves[is_judged], limits)))
    return pd.concat(found, ignore_index=True).assign(minute=minute)[["minute", "endpoint", "what", "count"]]


def _reported(reports: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    verdict = reports["verdict"]
    is_impossible, is_rate = verdict.isin(IMPOSSIBLE), verdict.isin(RATES)
    flags: dict[str, object] = {
        What.REPORTS: np.ones(len(reports)),
        What.IMPOSSIBLE_MOVE: is_impossible,
        What.REFUSED: (verdict != 0) & ~is_impossible & ~is_rate,
    }
    sums = pd.DataFrame({"endpoint": reports["endpoint"], **flags}).groupby("endpoint").sum()
    sums[What.FLOOD] = (sums[What.REPORTS] - limits.reports_max).clip(lower=0)
    return sums


def _moves(accepted: pd.DataFrame) -> pd.DataFrame:
    """From each report to the next of the same endpoint."""
    east_m, north_m = steps_m(accepted["latitude"].to_numpy(), accepted["longitude"].to_numpy())
    after = accepted.iloc[1:].assign(east_m=east_m, north_m=north_m)
    before = accepted.iloc[:-1]
    after["gap_s"] = (after["seen_at_us"].to_numpy() - before["seen_at_us"].to_numpy()) / 1e6
    for name in ("speed_mps", "heading_deg"):
        after[f"{name}_before"] = before[name].to_numpy()
    is_same: Flags = after["endpoint"].to_numpy() == before["endpoint"].to_numpy()
    return after[is_same]


def _moved(moves: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """What is odd of moves; a speed or heading that is not known is NaN, and nothing is said against it."""
    gap_s = moves["gap_s"]
    speed = (moves["speed_mps"] + moves["speed_mps_before"]) / 2
    one, other = np.radians(moves["heading_deg"]), np.radians(moves["heading_deg_before"])
    ahead = np.arctan2(np.sin(one) + np.sin(other), np.cos(one) + np.cos(other))
    off_m = np.hypot(moves["east_m"] - speed * gap_s * np.sin(ahead), moves["north_m"] - speed * gap_s * np.cos(ahead))
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    is_still = (speed > limits.moving_mps) & (way_m < limits.still_share * speed * gap_s)
    change_mps = moves["speed_mps_before"] - moves["speed_mps"]
    flags: dict[str, object] = {
        What.MOVES: np.ones(len(moves)),
        What.MISFIT: (off_m > limits.place_error_m + limits.change_mps2 * gap_s**2 / 2) & ~is_still,
        What.STANDS_STILL: is_still,
        What.SUDDEN_STOP: (change_mps / gap_s > limits.brake_mps2) | _stopped(moves, limits),
    }
    return pd.DataFrame({"endpoint": moves["endpoint"], **flags}).groupby("endpoint").sum()


def _stopped(moves: pd.DataFrame, limits: Limits) -> "pd.Series[bool]":
    """Which stand although they were too fast a moment ago to have come to a stop so near."""
    is_standing = moves["speed_mps"] < limits.standing_mps
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    needed_m = moves["speed_mps_before"] ** 2 / (2 * limits.brake_mps2)
    is_moving = moves["speed_mps_before"] > limits.moving_mps
    return is_standing & is_moving & (way_m + limits.place_error_m < needed_m)


def _counted(sums: pd.DataFrame) -> pd.DataFrame:
    found = sums.rename(columns=str).reset_index().melt("endpoint", var_name="what", value_name="count")
    return found[found["count"] > 0].astype({"count": float})
