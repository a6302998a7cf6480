"""Last places and handovers: whatever reports come, in whatever batches."""

from itertools import pairwise
from random import Random
from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.positions import FORGET_S, HANDOVERS_TOPIC, LAST_TOPIC, REPORT_COLUMNS, Places, take
from unit.pipelines.positions_oracle import Sight, handovers, last_places

START_US = 1_900_000_800_000_000

SIGHTS = st.builds(
    Sight,
    seen_at_us=st.integers(0, 40).map(lambda at: START_US + at * 500_000),
    edge=st.sampled_from(["north/e1", "north/e2", "south/e1"]),
    latitude=st.sampled_from([52.0, 52.001]),
    longitude=st.sampled_from([13.0, 13.001]),
    heading_deg=st.sampled_from([None, 0.0, 90.0]),
    speed_mps=st.sampled_from([None, 0.0, 12.5]),
    endpoint=st.sampled_from(["car-1", "car-2", "bus-3"]),
)


def frame(sights: list[Sight]) -> pd.DataFrame:
    rows = [tuple(getattr(one, name) for name in REPORT_COLUMNS) for one in sights]
    types = {"seen_at_us": "int64", "heading_deg": "float64", "speed_mps": "float64"}
    return pd.DataFrame(rows, columns=list(REPORT_COLUMNS)).astype(types)


def told_of(batches: list[list[Sight]]) -> tuple[Places, pd.DataFrame]:
    places, told = Places.empty(), []
    for batch in batches:
        places, said = take(Places.from_bytes(places.to_bytes()), frame(batch))
        told.append(said)
    return places, pd.concat([one for one in told if len(one)], ignore_index=True)


def read(row: "pd.Series[Any]") -> Sight:
    known: dict[str, Any] = {name: None if pd.isna(row[name]) else row[name] for name in REPORT_COLUMNS}
    return Sight(**known)


@given(batches=st.lists(st.lists(SIGHTS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_the_last_place_is_the_latest_in_whatever_order_and_batches_reports_come(batches: list[list[Sight]]) -> None:
    places, told = told_of(batches)
    expected = last_places(one for batch in batches for one in batch)
    assert {row["endpoint"]: read(row) for _, row in places.rows.iterrows()} == expected
    last_told = told[told["topic"] == LAST_TOPIC].drop_duplicates("endpoint", keep="last")
    assert {row["endpoint"]: read(row) for _, row in last_told.iterrows()} == expected


@given(sights=st.lists(SIGHTS, min_size=1, max_size=30), cuts=st.sets(st.integers(1, 29), max_size=4))
def test_handovers_are_told_once_wherever_batches_of_reports_in_order_are_cut(sights: list[Sight], cuts: set[int]) -> None:
    ordered = sorted(sights, key=lambda one: one.rank)
    edges = [0, *sorted(cut for cut in cuts if cut < len(ordered)), len(ordered)]
    _, told = told_of([ordered[first:last] for first, last in pairwise(edges)])
    moves = told[told["topic"] == HANDOVERS_TOPIC]
    found = zip(moves["endpoint"], moves["left_edge"], moves["edge"], moves["seen_at_us"], moves["gap_s"], strict=True)
    assert sorted(found) == handovers(sights)


@given(sights=st.lists(SIGHTS, min_size=1, max_size=30), mixed=st.randoms(use_true_random=False))
def test_the_order_of_rows_in_a_batch_does_not_matter(sights: list[Sight], mixed: Random) -> None:
    shuffled = list(sights)
    mixed.shuffle(shuffled)
    _, told = take(Places.empty(), frame(sights))
    _, told_again = take(Places.empty(), frame(shuffled))
    pd.testing.assert_frame_equal(told, told_again)


def test_a_report_older_than_what_is_known_is_passed_over() -> None:
    new, old = Sight(START_US + 5_000_000, "north/e1", 52.0, 13.0), Sight(START_US, "north/e2", 52.0, 13.0)
    places, _ = take(Places.empty(), frame([new]))
    after, told = take(places, frame([old]))
    assert told.empty
    assert after.rows["edge"].tolist() == ["north/e1"]


def test_who_was_not_seen_for_an_hour_is_forgotten_and_makes_no_handover() -> None:
    gone, here = Sight(START_US, "north/e1", 52.0, 13.0), Sight(START_US, "north/e1", 52.0, 13.0, endpoint="car-2")
    later_us = START_US + int(FORGET_S * 1e6) + 1
    places, _ = take(Places.empty(), frame([gone, here]))
    places, told = take(places, frame([Sight(later_us, "north/e2", 52.0, 13.0, endpoint="car-2")]))
    assert places.rows["endpoint"].tolist() == ["car-2"]
    assert told["topic"].tolist() == [LAST_TOPIC]
