"""Many questions about the past are answered in one pass, in batches (T17), without what was unpublished (T6)."""

import random
from pathlib import Path
from typing import Final

import pytest
from pyspark.sql import SparkSession

from live.pipelines.archives import HOUR_US, NOON_US, Row, between, instant, keep, message, report
from milepost.model.areas import Circle
from milepost.model.places import Place, moved, vectors
from milepost.model.queries import holds, parse_query
from milepost.model.reasons import Malformed
from milepost.pipelines.archive.compaction import compact
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, UNPUBLISHED
from milepost.pipelines.lookback import Question, look_back, question_from_json, token_from_text, who_was_here

HOME: Final = Place(40.7608, -111.891)
ADDRESS: Final = '{"to": "endpoint", "endpoint": "car-1"}'


def somewhere(chance: random.Random) -> tuple[float, float] | None:
    place = moved(HOME, chance.uniform(0, 360), chance.uniform(0, 30_000))
    return (place.latitude, place.longitude) if chance.random() < 0.9 else None


def said(chance: random.Random, count: int) -> list[Row]:
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


def asked(chance: random.Random, count: int) -> list[Question]:
    queries = [None, *map(parse_query, ("x & !y", "topic:road/# & (x | z)", "!x", "topic:air"))]
    found = []
    for _ in range(count):
        start = NOON_US + chance.randrange(3 * HOUR_US)
        place = somewhere(chance)
        area = Circle(Place(*place), chance.uniform(500, 20_000)) if place else None
        found.append(Question(chance.choice(queries), area, between(start, start + chance.randrange(2 * HOUR_US))))
    return found


def answers(rows: list[Row], question: Question) -> list[str]:
    """The ids of what answers a question, by the definition."""
    found = []
    for row in rows:
        topic, at_us, latitude, longitude, tags, address = row[5], row[6], row[8], row[9], row[11], row[12]
        is_there = question.area is None or (latitude is not None and question.area.contains(vectors([latitude], [longitude]))[0])
        is_asked = question.query is None or holds(question.query, topic, frozenset(tags))
        if address is None and is_there and is_asked and question.time_window.holds(instant(at_us)):
            found.append((at_us, row[15], row[3]))
    return [one[2] for one in sorted(found)]


def test_forty_questions_in_one_pass_are_answered_as_each_by_itself(spark: SparkSession, tmp_path: Path) -> None:
    chance = random.Random(4)
    rows, questions = said(chance, 300), asked(chance, 40)
    keep(spark, tmp_path, MESSAGES, rows[:200])
    compact(spark, tmp_path, now=instant(NOON_US + 5 * HOUR_US))
    keep(spark, tmp_path, MESSAGES, rows[200:])
    keep(spark, tmp_path, UNPUBLISHED, [("car-1", "5", NOON_US, 0, rows[0][-1])])
    visible = [row for row in rows if row[3] != "5"]
    expected = [answers(visible, question) for question in questions]
    found = list(look_back(spark, tmp_path, questions, count=1_000))
    assert [[one["id"] for one in answer["messages"]] for answer in found] == expected
    assert [answer["found"] for answer in found] == [len(ids) for ids in expected]
    assert not any("more" in answer for answer in found)
    assert sum(map(bool, expected)) > 20


def test_answers_come_in_batches_until_there_are_no_more(spark: SparkSession, tmp_path: Path) -> None:
    # T17
    rows = [message(offset, NOON_US + offset // 2) for offset in range(7)]
    keep(spark, tmp_path, MESSAGES, rows)
    question, batches = Question(), []
    while True:
        (answer,) = look_back(spark, tmp_path, [question], count=3)
        assert answer["found"] == 7
        batches.append([one["id"] for one in answer["messages"]])
        if "more" not in answer:
            break
        question = Question(after=token_from_text(answer["more"]))
    assert batches == [["0", "1", "2"], ["3", "4", "5"], ["6"]]


def test_who_was_here_is_told_with_first_and_last_time(spark: SparkSession, tmp_path: Path) -> None:
    away = moved(HOME, 0.0, 5_000.0)
    rows = [
        report(0, NOON_US, endpoint="car-1"),
        report(1, NOON_US + 60, endpoint="car-1"),
        report(2, NOON_US + HOUR_US, endpoint="car-1"),
        report(3, NOON_US + 70, endpoint="car-2", place=(away.latitude, away.longitude)),
        report(4, NOON_US + 80, endpoint="car-3", verdict=177),
        report(5, NOON_US + 3 * HOUR_US, endpoint="car-4"),
    ]
    keep(spark, tmp_path, REPORTS, rows)
    here, hours = Circle(HOME, 300.0), between(NOON_US, NOON_US + 2 * HOUR_US)
    found = who_was_here(
        spark, tmp_path, [Question(area=here, time_window=hours), Question(area=Circle(away, 300.0)), Question(time_window=hours)]
    )
    assert [tuple(row) for row in found] == [
        (0, "car-1", NOON_US, NOON_US + HOUR_US, 3),
        (1, "car-2", NOON_US + 70, NOON_US + 70, 1),
        (2, "car-1", NOON_US, NOON_US + HOUR_US, 3),
        (2, "car-2", NOON_US + 70, NOON_US + 70, 1),
    ]
    assert who_was_here(spark, tmp_path / "empty", [Question()]) == []


@pytest.mark.parametrize(
    "value", [{"query": "&"}, {"area": "circle"}, {"time_window": "soon"}, {"after": "x"}, {"quest": "x"}, []]
)
def test_a_question_that_is_none_is_refused(value: object) -> None:
    with pytest.raises(Malformed):
        question_from_json(value, "time_window", instant(NOON_US))
