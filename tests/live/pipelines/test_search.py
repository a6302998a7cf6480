"""Many queries about the past are answered in one pass, in pages (T17), without unpublished messages (T6)."""

import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.archives import HOUR_US, NOON_US, Row, append_batch, between, instant, message, report
from milepost.model.areas import Circle
from milepost.model.places import Place, moved, vectors
from milepost.model.queries import holds, parse_query
from milepost.model.reasons import Malformed
from milepost.pipelines.archive.compaction import compact
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, UNPUBLISHED
from milepost.pipelines.search import ArchiveQuery, archive_query_from_json, cursor_from_text, find_endpoints, search_messages

HOME: Final = Place(40.7608, -111.891)
ADDRESS: Final = '{"to": "endpoint", "endpoint": "car-1"}'


def somewhere(chance: random.Random) -> tuple[float, float] | None:
    place = moved(HOME, chance.uniform(0, 360), chance.uniform(0, 30_000))
    return (place.latitude, place.longitude) if chance.random() < 0.9 else None


def random_messages(chance: random.Random, count: int) -> list[Row]:
    return [
        message(
            offset,
            NOON_US + chance.randrange(3 * HOUR_US),
            topic=chance.choice(["road/a", "road/b", "air"]),
            tags=chance.sample(["x", "y", "z"], chance.randrange(4)),
            place=somewhere(chance),
            address=ADDRESS if chance.random() < 0.1 else None,
        )
        for offset in range(count)
    ]


def random_queries(chance: random.Random, count: int) -> list[ArchiveQuery]:
    formulas = [None, *map(parse_query, ("x & !y", "topic:road/# & (x | z)", "!x", "topic:air"))]
    found = []
    for _ in range(count):
        start = NOON_US + chance.randrange(3 * HOUR_US)
        place = somewhere(chance)
        area = Circle(Place(*place), chance.uniform(500, 20_000)) if place else None
        found.append(ArchiveQuery(chance.choice(formulas), area, between(start, start + chance.randrange(2 * HOUR_US))))
    return found


def answers(rows: list[Row], query: ArchiveQuery) -> list[str]:
    """Return the ids of the messages that answer a query, by the definition."""
    found = []
    for row in rows:
        topic, at_us, latitude, longitude, tags, address = row[5], row[6], row[8], row[9], row[11], row[12]
        is_there = query.area is None or (latitude is not None and query.area.contains(vectors([latitude], [longitude]))[0])
        matches = query.formula is None or holds(query.formula, topic, frozenset(tags))
        if address is None and is_there and matches and query.time_window.holds(instant(at_us)):
            found.append((at_us, row[15], row[3]))
    return [one[2] for one in sorted(found)]


def test_forty_queries_in_one_pass_are_answered_like_each_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(4)
    rows, queries = random_messages(chance, 300), random_queries(chance, 40)
    append_batch(spark, tmp_path, MESSAGES, rows[:200])
    compact(spark, tmp_path, now=instant(NOON_US + 5 * HOUR_US))
    append_batch(spark, tmp_path, MESSAGES, rows[200:])
    append_batch(spark, tmp_path, UNPUBLISHED, [("car-1", "5", NOON_US, 0, rows[0][-1])])
    visible = [row for row in rows if row[3] != "5"]
    expected = [answers(visible, query) for query in queries]
    found = list(search_messages(spark, tmp_path, queries, count=1_000))
    assert [[one["id"] for one in answer["messages"]] for answer in found] == expected
    assert [answer["found"] for answer in found] == [len(ids) for ids in expected]
    assert not any("more" in answer for answer in found)
    assert sum(map(bool, expected)) > 20


def test_answers_come_in_pages_until_there_are_no_more(spark: SparkSession, tmp_path: Path) -> None:
    # T17
    rows = [message(offset, NOON_US + offset // 2) for offset in range(7)]
    append_batch(spark, tmp_path, MESSAGES, rows)
    query, batches = ArchiveQuery(), []
    while True:
        (answer,) = search_messages(spark, tmp_path, [query], count=3)
        assert answer["found"] == 7
        batches.append([one["id"] for one in answer["messages"]])
        if "more" not in answer:
            break
        query = ArchiveQuery(after=cursor_from_text(answer["more"]))
    assert batches == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_endpoints_in_an_area_are_found_with_first_and_last_time(spark: SparkSession, tmp_path: Path) -> None:
    away = moved(HOME, 0.0, 5_000.0)
    rows = [
        report(0, NOON_US, endpoint="car-1"),
        report(1, NOON_US + 60, endpoint="car-1"),
        report(2, NOON_US + HOUR_US, endpoint="car-1"),
        report(3, NOON_US + 70, endpoint="car-2", place=(away.latitude, away.longitude)),
        report(4, NOON_US + 80, endpoint="car-3", verdict=177),
        report(5, NOON_US + 3 * HOUR_US, endpoint="car-4"),
    ]
    append_batch(spark, tmp_path, REPORTS, rows)
    here, hours = Circle(HOME, 300.0), between(NOON_US, NOON_US + 2 * HOUR_US)
    found = find_endpoints(
        spark,
        tmp_path,
        [ArchiveQuery(area=here, time_window=hours), ArchiveQuery(area=Circle(away, 300.0)), ArchiveQuery(time_window=hours)],
    )
    assert [tuple(row) for row in found] == [
        (0, "car-1", NOON_US, NOON_US + HOUR_US, 3),
        (1, "car-2", NOON_US + 70, NOON_US + 70, 1),
        (2, "car-1", NOON_US, NOON_US + HOUR_US, 3),
        (2, "car-2", NOON_US + 70, NOON_US + 70, 1),
    ]
    assert find_endpoints(spark, tmp_path / "empty", [ArchiveQuery()]) == []


@pytest.mark.parametrize(
    "value", [{"query": "&"}, {"area": "circle"}, {"time_window": "soon"}, {"after": "x"}, {"quest": "x"}, []]
)
def test_an_invalid_query_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        archive_query_from_json(value, "time_window", instant(NOON_US))
