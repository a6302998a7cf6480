"""Ways as others' wheels have drawn them: small squares of a larger one, and who drove there.

What must hold:
- a place is judged by what was known before its minute, so that nobody makes the way for himself, and not by his own visits;
- ways judge nobody where they are not known yet: where many places of a minute are off them, it is they who lack;
- each small square has the names of `VISITORS_MAX` endpoints at most, and what nobody visits is forgotten after `way_hours`.
"""

from collections.abc import Iterator
from typing import Final

import numpy as np
import pandas as pd
import pyarrow as pa

from milepost.pipelines.reputation.flat import DEGREE_M
from milepost.pipelines.reputation.limits import Limits
from milepost.pipelines.reputation.near import Found
from milepost.pipelines.reputation.schema import MINUTE_US, What

VISITORS_MAX: Final = 4
PLACES_MIN: Final = 200
"""Fewer places in a minute say nothing of whether ways are known."""

_TYPES: Final = pa.schema([("east", pa.int64()), ("north", pa.int64()), ("visitor", pa.int64()), ("minute", pa.int64())])
_AROUND: Final = [(east, north) for east in (-1, 0, 1) for north in (-1, 0, 1)]


def ways_from_bytes(kept: bytes | None) -> pd.DataFrame:
    """Ways as they were kept; none at first."""
    found: pd.DataFrame = pa.ipc.open_stream(kept).read_pandas() if kept else _TYPES.empty_table().to_pandas()
    return found


def ways_to_bytes(ways: pd.DataFrame) -> bytes:
    """To keep."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, _TYPES) as writer:
        writer.write_table(pa.Table.from_pandas(ways, _TYPES, preserve_index=False))
    return bytes(sink.getvalue())


def judge_ways(ways: pd.DataFrame, sights: pd.DataFrame, minute: int, limits: Limits) -> list[Found]:
    """Who left the ways; of rows of SIGHT_ROW of one square."""
    return list(_off(ways, _visits(sights, minute, limits), limits))


def learnt(ways: pd.DataFrame, sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """The ways after a minute; of rows of SIGHT_ROW, of any squares."""
    fresh = _visits(sights, minute, limits)[["east", "north", "visitor"]].assign(minute=minute)
    kept = ways[ways["minute"] > minute - limits.way_hours * 60]
    both = pd.concat([fresh, kept], ignore_index=True)
    both = both.sort_values(["east", "north", "minute", "visitor"], ascending=[True, True, False, True], ignore_index=True)
    both = both.drop_duplicates(["east", "north", "visitor"])
    return both.groupby(["east", "north"], sort=False).head(VISITORS_MAX)


def _visits(sights: pd.DataFrame, minute: int, limits: Limits) -> pd.DataFrame:
    """Small squares by rows of the same height and columns of a width that a whole degree of latitude shares."""
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
    # Each small square once: who reports often has no more say than others.
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
