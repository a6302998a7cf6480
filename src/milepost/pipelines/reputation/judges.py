"""The judges of a minute: endpoints by their own moves, and the endpoints of a square by each other, by ways and by events (M27).

*Invariants:*
- the order of rows does not matter; rows before the minute are considered but not counted;
- a way is where other endpoints drove before: a place is judged by the ways known before its minute, and never by the
  endpoint's own visits. Ways are not used where they are not known yet, that is where many places of a minute are off them;
- each small square of a way stores at most `VISITORS_MAX` endpoints, and is forgotten `way_hours` after its last visit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from milepost.model.places import Flags
from milepost.model.reasons import Reason
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, Limits, What
from milepost.pipelines.reputation.nearby import DEGREE_M, Found, judge_near, metres, steps_m

IMPOSSIBLE: Final = (Reason.MOVE_TOO_FAST, Reason.MOVE_TELEPORT, Reason.HEADING_AGAINST_MOVE)
RATES: Final = (Reason.RATE_TOO_HIGH, Reason.PREFIX_RATE_TOO_HIGH, Reason.EDGE_RATE_TOO_HIGH)
"""Refusals by rate limits: counted as a flood, or caused by other endpoints."""

_ORDER: Final = ["endpoint", "seen_at_us", "latitude", "longitude", "speed_mps", "heading_deg", "verdict"]

VISITORS_MAX: Final = 4
PLACES_MIN: Final = 200
"""Minimum places in a minute to decide whether ways are known."""

_TYPES: Final = pa.schema([("east", pa.int64()), ("north", pa.int64()), ("visitor", pa.int64()), ("minute", pa.int64())])
_AROUND: Final = [(east, north) for east in (-1, 0, 1) for north in (-1, 0, 1)]


def judge_endpoints(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """Return the evidence (EVIDENCE_ROW) in the moves of some endpoints."""
    return judge_moves(sights, minute, limits)


def judge_squares(kept: bytes | None, squares: Sequence[pd.DataFrame], minute: int, limits: Limits) -> tuple[bytes, pd.DataFrame]:
    """Return the state of some squares after a minute, and the evidence (EVIDENCE_ROW); *kept* is the state before, or `None`."""
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


def judge_moves(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """Return the evidence (EVIDENCE_ROW) in the reports of each endpoint itself, for a minute of which all rows are here."""
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
    """Return the moves from each report to the next of the same endpoint."""
    east_m, north_m = steps_m(accepted["latitude"].to_numpy(), accepted["longitude"].to_numpy())
    after = accepted.iloc[1:].assign(east_m=east_m, north_m=north_m)
    before = accepted.iloc[:-1]
    after["gap_s"] = (after["seen_at_us"].to_numpy() - before["seen_at_us"].to_numpy()) / 1e6
    for name in ("speed_mps", "heading_deg"):
        after[f"{name}_before"] = before[name].to_numpy()
    is_same: Flags = after["endpoint"].to_numpy() == before["endpoint"].to_numpy()
    return after[is_same]


def _moved(moves: pd.DataFrame, limits: Limits) -> pd.DataFrame:
    """Count implausible moves per endpoint; an unknown speed or heading is NaN and is no evidence."""
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
    """Return the moves that end standing, but started too fast to stop within their distance."""
    is_standing = moves["speed_mps"] < limits.standing_mps
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    needed_m = moves["speed_mps_before"] ** 2 / (2 * limits.brake_mps2)
    is_moving = moves["speed_mps_before"] > limits.moving_mps
    return is_standing & is_moving & (way_m + limits.place_error_m < needed_m)


def _counted(sums: pd.DataFrame) -> pd.DataFrame:
    found = sums.rename(columns=str).reset_index().melt("endpoint", var_name="what", value_name="count")
    return found[found["count"] > 0].astype({"count": float})


def judge_events(sights: pd.DataFrame, minute: int, limits: Limits) -> Iterator[Found]:
    """Yield the evidence about events in rows of SIGHT_ROW of one square.

    An event is judged once, when the reports of the `event_s` after it have arrived. Endpoints that report it, too, confirm it;
    endpoints that pass at speed and report nothing contradict it, and the majority decides: where there is traffic, one liar
    cannot vouch for another.
    """
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
    """Return the other endpoints within *within_m* of an event, up to *after_s* after it (infinite: at any time in *rows*)."""
    gap_s = (rows["seen_at_us"] - event.seen_at_us) / 1e6
    is_then = gap_s.between(0, after_s) if after_s < np.inf else True
    is_near = np.hypot(rows["east"] - event.east, rows["north"] - event.north) < within_m
    return set(rows.loc[is_near & is_then & (rows["endpoint"] != event.endpoint), "endpoint"])


def ways_from_bytes(kept: bytes | None) -> pd.DataFrame:
    """Return the ways in stored state; none if there is no state."""
    found: pd.DataFrame = pa.ipc.open_stream(kept).read_pandas() if kept else _TYPES.empty_table().to_pandas()
    return found


def ways_to_bytes(ways: pd.DataFrame) -> bytes:
    """Return the ways as state to be stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _TYPES) as writer:
        writer.write_table(pa.Table.from_pandas(ways, _TYPES, preserve_index=False))
    return bytes(sink.getvalue())


def judge_ways(ways: pd.DataFrame, sights: pd.DataFrame, minute: int, limits: Limits) -> list[Found]:
    """Return the evidence of places off the ways, in rows of SIGHT_ROW of one square."""
    return list(_off(ways, _visits(sights, minute, limits), limits))


def learnt(ways: pd.DataFrame, sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """Return the ways after a minute; *sights* are rows of SIGHT_ROW of any squares."""
    fresh = _visits(sights, minute, limits)[["east", "north", "visitor"]].assign(minute=minute)
    kept = ways[ways["minute"] > minute - limits.way_hours * 60]
    both = pd.concat([fresh, kept], ignore_index=True)
    both = both.sort_values(["east", "north", "minute", "visitor"], ascending=[True, True, False, True], ignore_index=True)
    both = both.drop_duplicates(["east", "north", "visitor"])
    return both.groupby(["east", "north"], sort=False).head(VISITORS_MAX)


def _visits(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """Return the small squares visited: rows of equal height, columns of one width per rounded degree of latitude."""
    is_driven = sights["kind"].isna() & (sights["verdict"] == 0) & (sights["speed_mps"] > limits.moving_mps)
    driven = sights[is_driven & (sights["seen_at_us"] >= minute * MINUTE_US)]
    side = limits.way_side_m / DEGREE_M
    width = side / np.maximum(0.01, np.cos(np.radians(driven["latitude"].round())))
    found = pd.DataFrame(
        {
            "endpoint": driven["endpoint"],
            "visitor": pd.util.hash_array(driven["endpoint"].to_numpy(object), categorize=False).view(np.int64),
            "east": np.floor(driven["longitude"] / width).astype(np.int64),
            "north": np.floor(driven["latitude"] / side).astype(np.int64),
        }
    )
    # Each small square once: frequent reports give an endpoint no more weight.
    return found.drop_duplicates(["visitor", "east", "north"])


def _off(ways: pd.DataFrame, visits: pd.DataFrame, limits: Limits) -> Iterator[Found]:
    if len(visits) < PLACES_MIN:
        return
    rows = visits[["visitor", "east", "north"]]
    around = pd.concat([rows.assign(at_east=rows["east"] + east, at_north=rows["north"] + north) for east, north in _AROUND])
    met = around.merge(ways, left_on=["at_east", "at_north"], right_on=["east", "north"], suffixes=("", "_there"))
    met = met[met["visitor"] != met["visitor_there"]]
    others = met.groupby(["visitor", "east", "north"])["visitor_there"].nunique().rename("others")
    known = visits.join(others, on=["visitor", "east", "north"])
    is_off = known["others"].fillna(0) < limits.way_others
    shares = is_off.groupby(known["endpoint"]).agg(["sum", "count"])
    total = shares.sum()
    for endpoint, (off, places) in zip(shares.index, shares.to_numpy(), strict=True):
        others_off, others_places = total["sum"] - off, total["count"] - places
        if others_places and others_off <= (1 - limits.way_share_min) * others_places:
            yield What.PLACES, str(endpoint), float(places)
            if off:
                yield What.OFF_WAYS, str(endpoint), float(off)
