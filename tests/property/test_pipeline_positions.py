"""Last positions and handovers, for arbitrary reports in arbitrary batches."""

from itertools import pairwise
from random import Random
from typing import Any

import pandas as pd
from hypothesis import given
from hypothesis import strategies as st

from milepost.pipelines.positions import FORGET_S, HANDOVERS_TOPIC, LAST_TOPIC, REPORT_COLUMNS, LastPositions, update_positions
from unit.pipelines.positions_oracle import PositionReport, handovers, last_places

START_US = 1_900_000_800_000_000

POSITION_REPORTS = st.builds(
    PositionReport,
    seen_at_us=st.integers(0, 40).map(lambda at: START_US + at * 500_000),
    edge=st.sampled_from(["north/e1", "north/e2", "south/e1"]),
    latitude=st.sampled_from([52.0, 52.001]),
    longitude=st.sampled_from([13.0, 13.001]),
    heading_deg=st.sampled_from([None, 0.0, 90.0]),
    speed_mps=st.sampled_from([None, 0.0, 12.5]),
    endpoint=st.sampled_from(["car-1", "car-2", "bus-3"]),
)


def frame(position_reports: list[PositionReport]) -> pd.DataFrame:
    rows = [tuple(getattr(one, name) for name in REPORT_COLUMNS) for one in position_reports]
    types = {"seen_at_us": "int64", "heading_deg": "float64", "speed_mps": "float64"}
    return pd.DataFrame(rows, columns=list(REPORT_COLUMNS)).astype(types)


def output_of(batches: list[list[PositionReport]]) -> tuple[LastPositions, pd.DataFrame]:
    places, outputs = LastPositions.empty(), []
    for batch in batches:
        places, output = update_positions(LastPositions.from_bytes(places.to_bytes()), frame(batch))
        outputs.append(output)
    return places, pd.concat([one for one in outputs if len(one)], ignore_index=True)


def read(row: "pd.Series[Any]") -> PositionReport:
    known: dict[str, Any] = {name: None if pd.isna(row[name]) else row[name] for name in REPORT_COLUMNS}
    return PositionReport(**known)


@given(batches=st.lists(st.lists(POSITION_REPORTS, min_size=1, max_size=12), min_size=1, max_size=4))
def test_the_last_position_is_the_latest_in_any_order_and_batches_of_reports(batches: list[list[PositionReport]]) -> None:
    places, output = output_of(batches)
    expected = last_places(one for batch in batches for one in batch)
    assert {row["endpoint"]: read(row) for _, row in places.rows.iterrows()} == expected
    last_output = output[output["topic"] == LAST_TOPIC].drop_duplicates("endpoint", keep="last")
    assert {row["endpoint"]: read(row) for _, row in last_output.iterrows()} == expected


@given(position_reports=st.lists(POSITION_REPORTS, min_size=1, max_size=30), cuts=st.sets(st.integers(1, 29), max_size=4))
def test_handovers_are_published_once_however_ordered_reports_are_split_into_batches(
    position_reports: list[PositionReport], cuts: set[int]
) -> None:
    ordered = sorted(position_reports, key=lambda one: one.rank)
    edges = [0, *sorted(cut for cut in cuts if cut < len(ordered)), len(ordered)]
    _, output = output_of([ordered[first:last] for first, last in pairwise(edges)])
    moves = output[output["topic"] == HANDOVERS_TOPIC]
    found = zip(moves["endpoint"], moves["previous_edge"], moves["edge"], moves["seen_at_us"], moves["gap_s"], strict=True)
    assert sorted(found) == handovers(position_reports)


@given(position_reports=st.lists(POSITION_REPORTS, min_size=1, max_size=30), mixed=st.randoms(use_true_random=False))
def test_the_order_of_rows_in_a_batch_does_not_matter(position_reports: list[PositionReport], mixed: Random) -> None:
    shuffled = list(position_reports)
    mixed.shuffle(shuffled)
    _, output = update_positions(LastPositions.empty(), frame(position_reports))
    _, output_again = update_positions(LastPositions.empty(), frame(shuffled))
    pd.testing.assert_frame_equal(output, output_again)


def test_a_report_older_than_the_known_position_is_skipped() -> None:
    new, old = PositionReport(START_US + 5_000_000, "north/e1", 52.0, 13.0), PositionReport(START_US, "north/e2", 52.0, 13.0)
    places, _ = update_positions(LastPositions.empty(), frame([new]))
    after, output = update_positions(places, frame([old]))
    assert output.empty
    assert after.rows["edge"].tolist() == ["north/e1"]


def test_an_endpoint_not_seen_for_an_hour_is_forgotten_without_a_handover() -> None:
    gone, here = (
        PositionReport(START_US, "north/e1", 52.0, 13.0),
        PositionReport(START_US, "north/e1", 52.0, 13.0, endpoint="car-2"),
    )
    later_us = START_US + int(FORGET_S * 1e6) + 1
    places, _ = update_positions(LastPositions.empty(), frame([gone, here]))
    places, output = update_positions(places, frame([PositionReport(later_us, "north/e2", 52.0, 13.0, endpoint="car-2")]))
    assert places.rows["endpoint"].tolist() == ["car-2"]
    assert output["topic"].tolist() == [LAST_TOPIC]
