"""Lookback: many queries about the past ("questions"), answered in one pass over the archive.

    {"query": "collision & i80", "area": "circle 40.7,-111.8 500", "time_window": "last 2 hours", "after": "1900000000000000-17"}

    messages of the archive ─▶ found: FOUND_ROW ─▶ answered: ANSWER_ROW, one page per question
    reports of the archive  ─▶ who: WHO_ROW

The column `question` is the index of the question. Each member of a question may be absent. An area is text or GeoJSON; a time
window is text (`milepost.wire.times`).

*Invariants:* as for a subscription, a row answers a question if it matches the query, its place is in the area and its instant in
the time window; a row without a place is in no area. Matching is vectorised: there is no loop over pairs of question and row.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple, Self

import msgspec
import numpy as np
import pandas as pd
from numpy.typing import NDArray
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from milepost.matching.formulas import Formulas
from milepost.model.areas import Area
from milepost.model.instants import Instant
from milepost.model.places import Flags, Vectors, vectors
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.files import Hour, TableFolder
from milepost.pipelines.archive.rows import read_files, visible
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, Table, Wanted, cells_over, everywhere
from milepost.pipelines.records import names_of
from milepost.wire.area_text import area_from_text
from milepost.wire.geojson import area_from_geojson
from milepost.wire.json_form import JSON_BYTES_MAX
from milepost.wire.json_form.codec import Decoder, Notation, absent
from milepost.wire.json_form.notations import QueryText, text_of
from milepost.wire.times import instant_to_text, time_window_from_text

_MESSAGE: Final = """
    seen_at_us bigint, offset bigint, source string, id string, topic string, tags array<string>,
    latitude double, longitude double
"""

FOUND_ROW: Final = f"question int, {_MESSAGE}"
"""A message that answers a question."""

ANSWER_ROW: Final = f"question int, found bigint, left bigint, {_MESSAGE}"
"""A message of the requested page; `found` counts all answers of the question, `left` those after this one."""

WHO_ROW: Final = "question int, endpoint string, first_us bigint, last_us bigint, reports bigint"
"""An endpoint that was in an area: its first and last report there, and the number of its reports."""

Numbers = NDArray[np.int64]

Content = tuple[str, frozenset[str]]
"""Topic and tags."""

_ATOMS_MAX: Final = 1 << 20
_EVERYTHING: Final = -1
_MICRO_NS: Final = 1_000

_TOKEN: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
COUNT: Final = 100
"""Default size of a page of answers."""

_CONTENT: Final = "content"
_BETWEEN: Final = "\n"
"""A separator that neither topics nor tags contain."""


class Token(NamedTuple):
    """Cursor at the end of a page of answers: the time and the offset of its last message."""

    seen_at_us: int = -1
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.seen_at_us}-{self.offset}"


FROM_THE_FIRST: Final = Token()


@dataclass(frozen=True, slots=True)
class Question:
    """One question about the past."""

    query: Query | None = None
    area: Area | None = None
    time_window: TimeWindow = ALWAYS
    after: Token = FROM_THE_FIRST


class _AreaOrText(Notation):
    """An area as a text or in GeoJSON."""

    @staticmethod
    def read(value: object) -> Area:
        """Return the area."""
        return area_from_text(value) if isinstance(value, str) else area_from_geojson(value)


class _TokenText(Notation):
    @staticmethod
    def read(value: object) -> Token:
        """Return the token."""
        return token_from_text(text_of(value))


class _Question(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: QueryText = absent(None)
    area: _AreaOrText = absent(None)
    time_window: str = "always"
    after: _TokenText = absent(FROM_THE_FIRST)


def question_from_json(value: object, where: str, now: Instant) -> Question:
    """Return the question in a JSON object; raises only `Malformed`."""
    asked: Any = Decoder(where, _Question, bytes_max=JSON_BYTES_MAX).convert(value)
    return Question(asked.query, asked.area, time_window_from_text(asked.time_window, now), asked.after)


def token_from_text(text: str) -> Token:
    """Return the token of an earlier answer."""
    found = _TOKEN.fullmatch(text)
    if found is None:
        raise Malformed(Reason.FIELD_RANGE, f"{text[:40]!r} is not where an answer ended: give what it said as `more`")
    return Token(int(found[1]), int(found[2]))


def look_back(
    session: SparkSession, archive: Path, questions: Sequence[Question], *, count: int = COUNT
) -> Iterator[dict[str, Any]]:
    """Return the answer to each question: the number of messages, the first *count* after its token, and the next token."""
    rows = answered(found(_candidates(session, archive, MESSAGES, questions), questions), questions, count=count).collect()
    rows.sort(key=lambda row: (row.question, row.seen_at_us, row.offset))
    by_question = {number: list(some) for number, some in groupby(rows, key=lambda row: row.question)}
    return (_answer(number, by_question.get(number, [])) for number in range(len(questions)))


def who_was_here(session: SparkSession, archive: Path, questions: Sequence[Question]) -> list[Row]:
    """Return the endpoints that were in the area of each question, and when (WHO_ROW): a geofence after the fact."""
    rows = who(_candidates(session, archive, REPORTS, questions), questions).collect()
    return sorted(rows, key=lambda row: (row.question, row.first_us, row.endpoint))


def found(messages: DataFrame, questions: Sequence[Question]) -> DataFrame:
    """Return FOUND_ROW: the messages that answer questions; messages addressed to an endpoint or area answer none."""
    columns = names_of(FOUND_ROW)[1:]

    def answers(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        index = QuestionIndex(questions)
        for batch in batches:
            labels, contents = pd.factorize(batch[_CONTENT])
            names = [(topic, frozenset(tags)) for topic, *tags in (content.split(_BETWEEN) for content in contents)]
            pairs = index.answered_by(_rows(batch, labels.astype(np.int64), names))
            yield _answered(batch[columns], pairs)

    public = messages.where("address is null").withColumn(_CONTENT, f.concat_ws(_BETWEEN, "topic", "tags"))
    # In Python, so that the matching engine decides what matches; a batch at a time.
    return public.select(*columns, _CONTENT).mapInPandas(answers, FOUND_ROW)


def answered(found: DataFrame, questions: Sequence[Question], *, count: int) -> DataFrame:
    """Return ANSWER_ROW: the first *count* answers of each question after its token, in order of time (T17)."""
    session = found.sparkSession
    after = session.createDataFrame(
        [(number, question.after.seen_at_us, question.after.offset) for number, question in enumerate(questions)],
        "question int, after_us bigint, after_offset bigint",
    )
    place = f.struct("seen_at_us", "offset")
    is_next = place > f.struct(f.col("after_us").alias("seen_at_us"), f.col("after_offset").alias("offset"))
    by_question = Window.partitionBy("question")
    in_order = by_question.orderBy(~f.col("is_next"), "seen_at_us", "offset")
    ranked = (
        found.join(f.broadcast(after), on="question", how="inner")
        .withColumn("is_next", is_next)
        .withColumn("found", f.count("*").over(by_question))
        .withColumn("rank", f.row_number().over(in_order))
        .withColumn("left", f.count_if("is_next").over(by_question) - f.col("rank"))
    )
    return ranked.where(f.col("is_next") & (f.col("rank") <= count)).select(*names_of(ANSWER_ROW))


def who(reports: DataFrame, questions: Sequence[Question]) -> DataFrame:
    """Return WHO_ROW: the endpoints that were in the areas of questions, by accepted reports."""

    def seen(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        index = QuestionIndex(questions)
        for batch in batches:
            pairs = index.answered_by(_rows(batch, np.zeros(len(batch), np.int64), [("", frozenset())]))
            there = _answered(batch[["endpoint", "seen_at_us"]], pairs).groupby(["question", "endpoint"], sort=False)[
                "seen_at_us"
            ]
            yield there.agg(first_us="min", last_us="max", reports="count").reset_index()

    accepted = reports.where("verdict = 0").select("endpoint", "seen_at_us", "latitude", "longitude")
    parts = accepted.mapInPandas(seen, WHO_ROW)
    summed = parts.groupBy("question", "endpoint").agg(
        f.min("first_us").alias("first_us"), f.max("last_us").alias("last_us"), f.sum("reports").alias("reports")
    )
    return summed.select(*names_of(WHO_ROW))


class Rows(NamedTuple):
    """Columns of equal length; a latitude of NaN is no place."""

    seen_at_us: Numbers
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    labels: Numbers
    """For each row, its index in `contents`."""
    contents: Sequence[Content]


class Pairs(NamedTuple):
    """Parallel arrays of question indexes and answering rows."""

    questions: Numbers
    rows: Numbers


class QuestionIndex:
    """Many questions, matched with many rows at once."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._areas = [question.area for question in questions]
        self._starts_us = np.array([-(-question.time_window.start // _MICRO_NS) for question in questions], np.int64)
        self._ends_us = np.array([question.time_window.end // _MICRO_NS for question in questions], np.int64)
        self._formulas = Formulas(max(1, len(questions)), _ATOMS_MAX)
        self._queries = [_EVERYTHING if question.query is None else self._formulas.ask(question.query) for question in questions]

    def answered_by(self, rows: Rows) -> Pairs:
        """Return all pairs of a question and a row that answers it."""
        order = np.argsort(rows.seen_at_us, kind="stable")
        times, batch = rows.seen_at_us[order], _Batch.of(rows, order)
        firsts = np.searchsorted(times, self._starts_us, side="left").tolist()
        lasts = np.searchsorted(times, self._ends_us, side="right").tolist()
        truths = self._truths(rows.contents)
        found = []
        for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            is_true = truths.get(self._queries[number])
            if first < last and is_true is not None and batch.touches(self._areas[number]):
                hits = batch.hits(slice(first, last), is_true, self._areas[number])
                found.append((np.full(hits.size, number, np.int64), order[hits]))
        if not found:
            return Pairs(np.empty(0, np.int64), np.empty(0, np.int64))
        questions, numbers = zip(*found, strict=True)
        return Pairs(np.concatenate(questions), np.concatenate(numbers))

    def _truths(self, contents: Sequence[Content]) -> dict[int, Flags]:
        """Return the contents that match, for each query that matches any."""
        found = {_EVERYTHING: np.ones(len(contents), np.bool_)}
        for label, (topic, tags) in enumerate(contents):
            plain, others = self._formulas.true_for(topic, tags)
            for query in (*plain, *others.tolist()):
                if query not in found:
                    found[query] = np.zeros(len(contents), np.bool_)
                found[query][label] = True
        return found


@dataclass(frozen=True, slots=True)
class _Batch:
    """Rows in order of time, with their places as vectors and their bounding box."""

    labels: Numbers
    points: Vectors
    is_placed: Flags
    box: tuple[float, float, float, float] | None

    @classmethod
    def of(cls, rows: Rows, order: Numbers) -> Self:
        latitudes, longitudes = rows.latitudes[order], rows.longitudes[order]
        is_placed = ~np.isnan(latitudes)
        up, over = latitudes[is_placed], longitudes[is_placed]
        box = (float(up.min()), float(over.min()), float(up.max()), float(over.max())) if up.size else None
        points = vectors(np.where(is_placed, latitudes, 0.0), np.where(is_placed, longitudes, 0.0))
        return cls(rows.labels[order], points, is_placed, box)

    def touches(self, area: Area | None) -> bool:
        """Return whether any of the rows may be in an area."""
        if area is None or self.box is None:
            return area is None
        south, west, north, east = self.box
        return any(
            one.south <= north and south <= one.north and (one.west > one.east or (one.west <= east and west <= one.east))
            for one in area.boxes
        )

    def hits(self, stretch: slice, is_true: Flags, area: Area | None) -> Numbers:
        """Return the rows of a slice whose content matches the query and whose place is in *area*."""
        hits: Numbers = np.flatnonzero(is_true[self.labels[stretch]]) + stretch.start
        if area is None:
            return hits
        placed: Numbers = hits[self.is_placed[hits]]
        inside: Numbers = placed[area.contains(self.points[placed])]
        return inside


def _rows(batch: pd.DataFrame, labels: Numbers, contents: Sequence[Content]) -> Rows:
    latitudes, longitudes = (batch[name].to_numpy(np.float64) for name in ("latitude", "longitude"))
    return Rows(batch["seen_at_us"].to_numpy(np.int64), latitudes, longitudes, labels, contents)


def _answered(batch: pd.DataFrame, pairs: Pairs) -> pd.DataFrame:
    there = batch.iloc[pairs.rows].reset_index(drop=True)
    there.insert(0, "question", pairs.questions.astype(np.int32))
    return there


def _candidates(session: SparkSession, archive: Path, table: Table, questions: Sequence[Question]) -> DataFrame:
    """Return the rows of the files that may answer any of the questions."""
    table_folder, upto = TableFolder(archive, table), TableFolder(archive, table).upto()
    wanted = _Wanted(questions)
    files = [str(path) for hour in table_folder.hours() for path in hour.current(upto, wanted.in_hour(hour))]
    return visible(session, archive, table, read_files(session, table, files))


class _Wanted:
    """The hours and cells that questions are about."""

    def __init__(self, questions: Sequence[Question]) -> None:
        self._starts = np.array([question.time_window.start for question in questions], np.int64)
        self._ends = np.array([question.time_window.end for question in questions], np.int64)
        self._over = [everywhere if question.area is None else cells_over(question.area) for question in questions]
        self._by_cell: dict[str, Flags] = {}

    def in_hour(self, hour: Hour) -> Wanted:
        """Return the filter of the cells that questions about this hour need."""
        is_asked = (self._starts < hour.end) & (self._ends >= hour.start)
        return lambda cell: bool((is_asked & self._askers(cell)).any())

    def _askers(self, cell: str) -> Flags:
        if cell not in self._by_cell:
            self._by_cell[cell] = np.array([is_over(cell) for is_over in self._over], np.bool_)
        return self._by_cell[cell]


def _answer(number: int, rows: Sequence[Row]) -> dict[str, Any]:
    answer: dict[str, Any] = {"question": number, "found": 0, "messages": [_message(row) for row in rows]}
    if rows:
        last = rows[-1]
        answer["found"] = last.found
        if last.left:
            answer["more"] = str(Token(last.seen_at_us, last.offset))
    return answer


def _message(row: Row) -> dict[str, Any]:
    return {
        "source": row.source,
        "id": row.id,
        "topic": row.topic,
        "tags": row.tags or [],
        "place": None if row.latitude is None else [row.latitude, row.longitude],
        "seen_at": instant_to_text(Instant(row.seen_at_us * 1_000)),
    }
