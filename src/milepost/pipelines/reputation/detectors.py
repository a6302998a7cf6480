"""The detectors of a minute: endpoints by their moves; those of a square also by each other, by known roads and by events (M27).

*Invariants:*
- the order of rows does not matter; rows before the minute are considered but not counted;
- a known road is where other endpoints drove before: a place is checked against the roads known before its minute, and never by
  the endpoint's own visits. Where many places of a minute are off them, roads are not known yet and nothing is checked;
- each small square of a known road stores at most `VISITORS_MAX` endpoints, and is forgotten `road_hours` after its last visit.
"""

from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pandas as pd
import pyarrow as pa

from milepost.model.places import Flags
from milepost.model.reasons import Reason
from milepost.pipelines.reputation.evidence import LEAD_US, MINUTE_US, EvidenceKind, EvidenceThresholds
from milepost.pipelines.reputation.nearby import DEGREE_M, Evidence, check_neighbours, metres, steps_m

IMPOSSIBLE: Final = (Reason.MOVE_TOO_FAST, Reason.MOVE_TELEPORT, Reason.HEADING_AGAINST_MOVE)
RATES: Final = (Reason.RATE_TOO_HIGH, Reason.PREFIX_RATE_TOO_HIGH, Reason.EDGE_RATE_TOO_HIGH)
"""Refusals by rate limits: counted as a flood, or caused by other endpoints."""

_ORDER: Final = ["endpoint", "seen_at_us", "latitude", "longitude", "speed_mps", "heading_deg", "verdict"]

VISITORS_MAX: Final = 4
PLACES_MIN: Final = 200
"""Minimum places in a minute to decide whether roads are known."""

_TYPES: Final = pa.schema([("east", pa.int64()), ("north", pa.int64()), ("visitor", pa.int64()), ("minute", pa.int64())])
_AROUND: Final = [(east, north) for east in (-1, 0, 1) for north in (-1, 0, 1)]


def check_endpoints(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the evidence (EVIDENCE_ROW) in the moves of some endpoints."""
    return check_moves(sightings, minute, thresholds)


def check_squares(
    state: bytes | None, squares: Sequence[pd.DataFrame], minute: int, thresholds: EvidenceThresholds
) -> tuple[bytes, pd.DataFrame]:
    """Return the next state of some squares and the evidence (EVIDENCE_ROW) of a minute; *state* is the previous one."""
    roads = roads_from_bytes(state)
    evidence = [
        (minute, endpoint, str(kind), count)
        for sightings in squares
        for found in (
            check_roads(roads, sightings, minute, thresholds),
            check_neighbours(sightings, minute, thresholds),
            check_events(sightings, minute, thresholds),
        )
        for kind, endpoint, count in found
    ]
    roads = learn_roads(roads, pd.concat(list(squares), ignore_index=True), minute, thresholds)
    return roads_to_bytes(roads), pd.DataFrame(evidence, columns=["minute", "endpoint", "evidence", "count"])


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
        EvidenceKind.MISFIT: (off_m > thresholds.place_error_m + thresholds.change_mps2 * gap_s**2 / 2) & ~is_still,
        EvidenceKind.STANDS_STILL: is_still,
        EvidenceKind.SUDDEN_STOP: (change_mps / gap_s > thresholds.brake_mps2) | _is_sudden_stop(moves, thresholds),
    }
    return pd.DataFrame({"endpoint": moves["endpoint"], **flags}).groupby("endpoint").sum()


def _is_sudden_stop(moves: pd.DataFrame, thresholds: EvidenceThresholds) -> "pd.Series[bool]":
    """Return the moves that end standing, but started too fast to stop within their distance."""
    is_standing = moves["speed_mps"] < thresholds.standing_mps
    way_m = np.hypot(moves["east_m"], moves["north_m"])
    needed_m = moves["speed_mps_before"] ** 2 / (2 * thresholds.brake_mps2)
    is_moving = moves["speed_mps_before"] > thresholds.moving_mps
    return is_standing & is_moving & (way_m + thresholds.place_error_m < needed_m)


def _evidence_rows(sums: pd.DataFrame) -> pd.DataFrame:
    found = sums.rename(columns=str).reset_index().melt("endpoint", var_name="evidence", value_name="count")
    return found[found["count"] > 0].astype({"count": float})


def check_events(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> Iterator[Evidence]:
    """Yield the evidence about events in sightings (SIGHTING_ROW) of one square.

    An event is checked once, when the reports of the `event_s` after it have arrived. Endpoints that report it, too, confirm it;
    endpoints that pass at speed and report nothing contradict it, and the majority decides: where there is traffic, one liar
    cannot vouch for another.
    """
    if not sightings["kind"].notna().any():
        return
    east, north = metres(sightings["latitude"].to_numpy(), sightings["longitude"].to_numpy())
    rows = sightings[["endpoint", "seen_at_us", "speed_mps", "verdict", "kind"]].assign(east=east, north=north)
    events = rows[rows["kind"].notna()].drop_duplicates(["endpoint", "kind", "seen_at_us"])
    reports = rows[rows["kind"].isna() & (rows["verdict"] == 0) & (rows["speed_mps"] > thresholds.pass_mps)]
    ends_at = (minute + 1) * MINUTE_US - LEAD_US
    for event in events[events["seen_at_us"].between(ends_at - MINUTE_US, ends_at - 1)].itertuples():
        same = _others_nearby(events[events["kind"] == event.kind], event, thresholds.confirm_m, np.inf)
        passers = _others_nearby(reports, event, thresholds.event_m, thresholds.event_s) - same
        if len(passers) >= thresholds.passers_min and len(passers) > len(same):
            yield EvidenceKind.CONTRADICTED, str(event.endpoint), 1.0
        elif same:
            yield EvidenceKind.CONFIRMED, str(event.endpoint), 1.0


def _others_nearby(rows: pd.DataFrame, event: Any, within_m: float, after_s: float) -> set[str]:
    """Return the other endpoints within *within_m* of an event, up to *after_s* after it (infinite: at any time in *rows*)."""
    gap_s = (rows["seen_at_us"] - event.seen_at_us) / 1e6
    is_then = gap_s.between(0, after_s) if after_s < np.inf else True
    is_near = np.hypot(rows["east"] - event.east, rows["north"] - event.north) < within_m
    return set(rows.loc[is_near & is_then & (rows["endpoint"] != event.endpoint), "endpoint"])


def roads_from_bytes(state: bytes | None) -> pd.DataFrame:
    """Return the known roads in stored state; none if there is no state."""
    found: pd.DataFrame = pa.ipc.open_stream(state).read_pandas() if state else _TYPES.empty_table().to_pandas()
    return found


def roads_to_bytes(roads: pd.DataFrame) -> bytes:
    """Return the known roads as state to be stored."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _TYPES) as writer:
        writer.write_table(pa.Table.from_pandas(roads, _TYPES, preserve_index=False))
    return bytes(sink.getvalue())


def check_roads(roads: pd.DataFrame, sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> list[Evidence]:
    """Return the evidence of places off the known roads, in sightings (SIGHTING_ROW) of one square."""
    return list(_find_off_known_roads(roads, _visits(sightings, minute, thresholds), thresholds))


def learn_roads(roads: pd.DataFrame, sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the known roads after a minute; *sightings* have schema SIGHTING_ROW and are of any squares."""
    fresh = _visits(sightings, minute, thresholds)[["east", "north", "visitor"]].assign(minute=minute)
    recent = roads[roads["minute"] > minute - thresholds.road_hours * 60]
    both = pd.concat([fresh, recent], ignore_index=True)
    both = both.sort_values(["east", "north", "minute", "visitor"], ascending=[True, True, False, True], ignore_index=True)
    both = both.drop_duplicates(["east", "north", "visitor"])
    return both.groupby(["east", "north"], sort=False).head(VISITORS_MAX)


def _visits(sightings: pd.DataFrame, minute: int, thresholds: EvidenceThresholds) -> pd.DataFrame:
    """Return the small squares visited: rows of equal height, columns of one width per rounded degree of latitude."""
    is_driven = sightings["kind"].isna() & (sightings["verdict"] == 0) & (sightings["speed_mps"] > thresholds.moving_mps)
    driven = sightings[is_driven & (sightings["seen_at_us"] >= minute * MINUTE_US)]
    side = thresholds.road_side_m / DEGREE_M
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


def _find_off_known_roads(roads: pd.DataFrame, visits: pd.DataFrame, thresholds: EvidenceThresholds) -> Iterator[Evidence]:
    if len(visits) < PLACES_MIN:
        return
    rows = visits[["visitor", "east", "north"]]
    around = pd.concat([rows.assign(at_east=rows["east"] + east, at_north=rows["north"] + north) for east, north in _AROUND])
    met = around.merge(roads, left_on=["at_east", "at_north"], right_on=["east", "north"], suffixes=("", "_there"))
    met = met[met["visitor"] != met["visitor_there"]]
    others = met.groupby(["visitor", "east", "north"])["visitor_there"].nunique().rename("others")
    known = visits.join(others, on=["visitor", "east", "north"])
    is_off = known["others"].fillna(0) < thresholds.road_others_min
    shares = is_off.groupby(known["endpoint"]).agg(["sum", "count"])
    total = shares.sum()
    for endpoint, (off, places) in zip(shares.index, shares.to_numpy(), strict=True):
        others_off, others_places = total["sum"] - off, total["count"] - places
        if others_places and others_off <= (1 - thresholds.road_share_min) * others_places:
            yield EvidenceKind.PLACES, str(endpoint), float(places)
            if off:
                yield EvidenceKind.OFF_KNOWN_ROADS, str(endpoint), float(off)
