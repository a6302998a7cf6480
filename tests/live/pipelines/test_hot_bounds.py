"""A replay of the reports around bins that may be hot equals a replay of all reports (M24)."""

import random
from dataclasses import replace
from datetime import timedelta
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.archives import NOON_US, Row, frame_of, instant, message, report
from milepost.model.incidents import EVENT_KINDS, EventKind, Grid, Square
from milepost.model.places import Place, moved
from milepost.pipelines.archive.schema import MESSAGES, REPORTS
from milepost.pipelines.arrivals import arrivals
from milepost.pipelines.backtest import Replay, all_events, needed_arrivals
from milepost.pipelines.hot_bounds import around

DELAYS: Final = tuple(timedelta(seconds=late_s) for late_s in (0, 0, 0, 1.5, 8, 45))
MINUTES: Final = 12
END_US: Final = NOON_US + MINUTES * 60_000_000
PREDICATES: Final = (
    "weight >= 4 and reports >= 9",
    "reports >= 12 and mean_speed_mps < 4",
    "witnesses >= 3 and not max_speed_mps > 5",
    "count_speed_mps == 0 and reports >= 3 or sum_speed_mps > 120",
    "reports >= 6 and radius_m < 200 and age_s > 5",
)
CENTRES: Final = (Place(40.7608, -111.891), Place(-17.0, 179.999), Place(64.1, -21.9))
CONGESTION: Final = next(kind for kind in EVENT_KINDS if kind.name == "Congestion")


def drawn_kind(chance: random.Random) -> EventKind:
    return replace(
        CONGESTION,
        predicate=chance.choice(PREDICATES),
        side_m=chance.choice((150.0, 300.0)),
        interval_s=chance.choice((5.0, 10.0, 30.0)),
        slots=chance.choice((1, 2, 5, 6)),
    )


def drawn_rows(chance: random.Random) -> tuple[list[Row], list[Row]]:
    """Return messages and reports at quiet and crowded places, some of them late."""
    centre = chance.choice(CENTRES)
    places = [moved(centre, chance.uniform(0, 360), chance.uniform(0, 4_000)) for _ in range(40)]
    bursts = [(chance.choice(places), NOON_US + chance.randrange(MINUTES * 60) * 1_000_000) for _ in range(8)]
    rows: list[list[Row]] = [[], []]
    for offset in range(900):
        place, at_us = chance.choice(places), NOON_US + chance.randrange(MINUTES * 60_000_000)
        if offset % 3 == 0:
            place, began_us = chance.choice(bursts)
            at_us = min(began_us + chance.randrange(40_000_000), END_US - 1)
        spot = moved(place, chance.uniform(0, 360), chance.uniform(0, 150))
        where, source = (spot.latitude, spot.longitude), f"car-{chance.randrange(25)}"
        one = (
            message(offset, at_us, source=source, topic=CONGESTION.topic, place=where)
            if offset % 4 == 0
            else report(offset, at_us, endpoint=source, place=where, speed_mps=chance.uniform(0, 9))
        )
        rows[offset % 4 != 0].append((*one[:-1], one[-1] + chance.choice(DELAYS)))
    return rows[0], rows[1]


@pytest.mark.parametrize("seed", range(5))
def test_a_replay_of_the_reports_that_are_needed_equals_a_replay_of_all(spark: SparkSession, seed: int) -> None:
    chance = random.Random(seed)
    kinds = [drawn_kind(chance)]
    messages, reports = drawn_rows(chance)
    events = all_events(frame_of(spark, MESSAGES, messages), frame_of(spark, REPORTS, reports), kinds)
    found = arrivals(events, kinds)
    with needed_arrivals(found, kinds, allowed_lateness_s=2.0) as needed:
        some = sorted(needed.collect())
    everything = sorted(found.drop("height").collect())
    expected = list(replay(kinds).alerts(everything, instant(END_US)))
    assert list(replay(kinds).alerts(some, instant(END_US))) == expected
    assert len(some) <= len(everything)


def replay(kinds: list[EventKind]) -> Replay:
    return Replay("north", kinds, allowed_lateness_s=2.0, since=instant(NOON_US))


def test_places_where_nothing_can_be_hot_stay_in_spark(spark: SparkSession) -> None:
    kinds = [replace(CONGESTION, predicate="reports >= 10 and mean_speed_mps < 4")]
    chance = random.Random(1)
    quiet = [moved(CENTRES[0], chance.uniform(0, 360), chance.uniform(3_000, 20_000)) for _ in range(500)]
    rows = [report(number, NOON_US + number, place=(one.latitude, one.longitude)) for number, one in enumerate(quiet)]
    slow = [report(1_000 + number, NOON_US + number, endpoint=f"car-{number}", speed_mps=1.0) for number in range(12)]
    events = all_events(frame_of(spark, MESSAGES, []), frame_of(spark, REPORTS, [*rows, *slow]), kinds)
    with needed_arrivals(arrivals(events, kinds), kinds, allowed_lateness_s=2.0) as needed:
        assert needed.count() == len(slow)


@pytest.mark.parametrize("side_m", [10.0, 300.0, 50_000.0])
def test_the_squares_around_one_are_those_of_its_block_and_those_whose_block_has_it(spark: SparkSession, side_m: float) -> None:
    grid, chance = Grid(side_m), random.Random(3)
    rows = [chance.randrange(4, grid.rows - 4) for _ in range(300)] + [4, 5, 6, grid.rows // 2, grid.rows - 5, grid.rows - 6]
    squares = [Square(row, chance.choice((0, 1, grid.columns(row) - 1, chance.randrange(grid.columns(row))))) for row in rows]
    schema = "number int, row bigint, column bigint, height bigint"
    frame = spark.createDataFrame([(number, *square, grid.height) for number, square in enumerate(squares)], schema)
    found: dict[int, set[Square]] = {}
    for number, row, column in around(frame).select("number", "row", "column").collect():
        found.setdefault(number, set()).add(Square(row, column))
    for number, square in enumerate(squares):
        assert set(grid.block(square)) <= found[number]
        wider = {near for one in grid.block(square) for near in grid.block(one)}
        assert {near for near in wider if square in grid.block(near)} <= found[number]
        assert square in found[number]
