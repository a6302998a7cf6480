"""The detectors of a minute: endpoints by their moves; those of a square also by each other, by known roads and by events (M27).

Invariant: the order of rows does not matter; rows before the minute are considered but not counted.
"""

from collections.abc import Iterator
from typing import Any, Final

import numpy as np
import pandas as pd

from milepost.model.places import Flags
from milepost.model.reasons import Reason
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.known_roads import (
    RoadMap,
    check_map,
    check_roads,
    learn_roads,
    roads_from_bytes,
    roads_to_bytes,
)
from milepost.pipelines.reputation.nearby import EMPTY, check_neighbours, evidence_frame, metres, steps_m

IMPOSSIBLE: Final = (Reason.MOVE_TOO_FAST, Reason.MOVE_TELEPORT, Reason.HEADING_AGAINST_MOVE)
RATES: Final = (Reason.RATE_TOO_HIGH, Reason.PREFIX_RATE_TOO_HIGH, Reason.EDGE_RATE_TOO_HIGH)
"""Refusals by rate limits: counted as a flood, or caused by other endpoints."""

_ORDER: Final = ["endpoint", "seen_at_us", "latitude", "longitude", "speed_mps", "heading_deg", "verdict"]

EVENTS_MAX: Final = 12
"""Maximum events of an endpoint that are checked in a minute, the first ones."""
EVENTS_IN_SQUARE_MAX: Final = 200
"""The same for all endpoints of a square: each event is compared with all reports there."""


def check_endpoints(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence (EVIDENCE_ROW) in the moves of some endpoints."""
    return check_moves(sightings, minute, thresholds)


def check_squares(
    state: bytes | None,
    sightings: pd.DataFrame,
    minute: int,
    thresholds: EvidenceThresholds,
    road_map: RoadMap | None = None,
) -> tuple[bytes, pd.DataFrame]:
    """Return the next state of some squares and the evidence (EVIDENCE_ROW) of a minute; *state* is the previous one.

    The sightings have schema SQUARE_ROW. Without a map, roads are learned and stored.
    """
    accepted = sightings[sightings["verdict"] == 0]
    visitors = pd.util.hash_array(accepted["endpoint"].to_numpy(object), categorize=True).view(np.int64)
    rows = accepted.assign(visitor=visitors)
    found = [check_neighbours(rows, minute, thresholds), check_events(rows, minute, thresholds)]
    if road_map is None:
        roads = roads_from_bytes(state)
        found.append(check_roads(roads, rows, minute, thresholds))
        state = roads_to_bytes(learn_roads(roads, rows, minute, thresholds))
    else:
        found.append(check_map(road_map, rows, minute, thresholds))
    evidence = pd.concat([one for one in found if len(one)] or [EMPTY], ignore_index=True)
    return state or b"", evidence.assign(minute=minute)[["minute", "endpoint", "evidence", "count"]]


def check_moves(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence (EVIDENCE_ROW) in the reports of each endpoint itself, for a minute of which all rows are here."""
    reports = sightings[sightings["kind"].isna()].sort_values(_ORDER, ignore_index=True)
    is_counted = reports["seen_at_us"] >= minute * MINUTE_US
    found = [_evidence_rows(_count_reports(reports[is_counted], thresholds))]
    accepted = reports[reports["verdict"] == 0]
    if len(accepted) > 1:
        moves = _moves(accepted)
        is_checked = (moves["seen_at_us"] >= minute * MINUTE_US) & moves["gap_s"].between(
            thresholds.gap_s_min, thresholds.gap_s_max
        )
        found.append(_evidence_rows(_count_moves(moves[is_checked], thresholds)))
    return pd.concat(found, ignore_index=True).assign(minute=minute)[["minute", "endpoint", "evidence", "count"]]


def _count_reports(reports: pd.DataFrame, thresholds: EvidenceThresholds) -> pd.DataFrame:
    verdict = reports["verdict"]
    is_impossible, is_rate = verdict.isin(IMPOSSIBLE), verdict.isin(RATES)
    flags: dict[str, object] = {
        EvidenceKind.REPORTS: np.ones(len(reports)),
        EvidenceKind.IMPOSSIBLE_MOVE: is_impossible,
        EvidenceKind.REFUSED: (verdict != 0) & ~is_impossible & ~is_rate,
    }
    sums = pd.DataFrame({"endpoint": reports["endpoint"], **flags}).groupby("endpoint").sum()
    sums[EvidenceKind.FLOOD] = (sums[EvidenceKind.REPORTS] - thresholds.reports_max).clip(lower=0)
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


def _count_moves(moves: pd.DataFrame, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Count implausible moves per endpoint; an unknown speed or heading is NaN and is no evidence."""
    gap_s = moves["gap_s"]
    speed = (moves["speed_mps"] + moves["speed_mps_before"]) / 2
    one, other = np.radians(moves["heading_deg"]), np.radians(moves["heading_deg_before"])
    heading = np.arctan2(np.sin(one) + np.sin(other), np.cos(one) + np.cos(other))
    off_m = np.hypot(moves["east_m"] - speed * gap_s * np.sin(heading), moves["north_m"] - speed * gap_s * np.cos(heading))
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    is_still = (speed > thresholds.moving_mps) & (way_m < thresholds.still_share * speed * gap_s)
    change_mps = moves["speed_mps_before"] - moves["speed_mps"]
    flags: dict[str, object] = {
        EvidenceKind.MOVES: np.ones(len(moves)),
        EvidenceKind.DRIVEN: moves["speed_mps"] > thresholds.moving_mps,
        EvidenceKind.MISFIT: (off_m > thresholds.place_error_m + thresholds.change_mps2 * gap_s**2 / 2) & ~is_still,
        EvidenceKind.STANDS_STILL: is_still,
        EvidenceKind.SUDDEN_STOP: (change_mps / gap_s > thresholds.brake_mps2) | _is_sudden_stop(moves, thresholds),
    }
    return pd.DataFrame({"endpoint": moves["endpoint"], **flags}).groupby("endpoint").sum()


def _is_sudden_stop(moves: pd.DataFrame, thresholds: EvidenceThresholds) -> "pd.Series[bool]":
    """Return the moves that end standing, but whose distance no brakes allow: too short, or too long to have braked at all."""
    is_standing = moves["speed_mps"] < thresholds.standing_mps
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    speed = moves["speed_mps_before"]
    braking_m = speed**2 / (2 * thresholds.brake_mps2)
    is_too_short = way_m + thresholds.place_error_m < braking_m
    is_too_long = (moves["gap_s"] < thresholds.stop_gap_s_max) & (
        way_m - thresholds.stop_error_m > speed * moves["gap_s"] - braking_m
    )
    return is_standing & (speed > thresholds.stop_mps) & (is_too_short | is_too_long)


def _evidence_rows(sums: pd.DataFrame) -> pd.DataFrame:
    found = sums.rename(columns=str).reset_index().melt("endpoint", var_name="evidence", value_name="count")
    return found[found["count"] > 0].astype({"count": float})


def check_events(rows: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence about events in accepted sightings (SQUARE_ROW).

    An event is checked once, when the reports of the `event_s` after it have arrived. Endpoints that report it, too, confirm it;
    endpoints that pass at speed and report nothing contradict it, and the majority decides: where there is traffic, one liar
    cannot vouch for another. A single passer may have missed it and contradicts by half.
    """
    squares = rows.loc[rows["kind"].notna(), "square"].unique()
    found = [
        one for square in sorted(squares) for one in _check_events_in_square(rows[rows["square"] == square], minute, thresholds)
    ]
    if not found:
        return EMPTY
    parts = [evidence_frame(kind, [endpoint], [count]) for kind, endpoint, count in found]
    return pd.concat(parts, ignore_index=True)


def _check_events_in_square(
    sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds
) -> Iterator[tuple[EvidenceKind, str, float]]:
    east, north = metres(sightings["latitude"].to_numpy(), sightings["longitude"].to_numpy())
    rows = sightings[["endpoint", "seen_at_us", "speed_mps", "kind"]].assign(east=east, north=north)
    events = rows[rows["kind"].notna()].sort_values(["seen_at_us", "endpoint", "kind", "east", "north"])
    events = events.drop_duplicates(["endpoint", "kind", "seen_at_us"])
    reports = rows[rows["kind"].isna() & (rows["speed_mps"] > thresholds.pass_mps)]
    ends_at = (minute + 1) * MINUTE_US - LEAD_US
    checked = events[events["seen_at_us"].between(ends_at - MINUTE_US, ends_at - 1)]
    for event in checked.groupby("endpoint").head(EVENTS_MAX).head(EVENTS_IN_SQUARE_MAX).itertuples():
        same = _others_nearby(events[events["kind"] == event.kind], event, thresholds.confirm_m, np.inf)
        passers = _others_nearby(reports, event, thresholds.event_m, thresholds.event_s) - same
        if len(passers) > len(same):
            yield EvidenceKind.CONTRADICTED, str(event.endpoint), min(1.0, len(passers) / thresholds.passers_min)
        elif same:
            yield EvidenceKind.CONFIRMED, str(event.endpoint), 1.0


def _others_nearby(rows: pd.DataFrame, event: Any, within_m: float, after_s: float) -> set[str]:
    """Return the other endpoints within *within_m* of an event, up to *after_s* after it (infinite: at any time in *rows*)."""
    gap_s = (rows["seen_at_us"] - event.seen_at_us) / 1e6
    is_then = gap_s.between(0, after_s) if after_s < np.inf else True
    is_near = np.hypot(rows["east"] - event.east, rows["north"] - event.north) < within_m
    return set(rows.loc[is_near & is_then & (rows["endpoint"] != event.endpoint), "endpoint"])
