"""Search of the archive: many queries about the past, answered in one pass.

    {"query": "collision & i80", "area": "circle 40.7,-111.8 500", "time_window": "last 2 hours", "after": "1900000000000000-17"}

    messages of the archive ─▶ matching_messages: FOUND_ROW ─▶ answer_pages: ANSWER_ROW, one page per query
    reports of the archive  ─▶ visits: VISIT_ROW

The column `query` is the index of the query. All members are optional: `query` is a formula over topics and
tags, an area is text or GeoJSON, a time window is text (`milepost.wire.times`), `after` is a cursor.

*Invariants:* as for a subscription, a row answers a query if its content matches the formula, its place is in the area and its
instant in the time window; a row without a place is in no area. Matching is vectorised: no loop runs over pairs of query and row.
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

from milepost.matching.query_index import QueryIndex
from milepost.model.areas import Area
from milepost.model.instants import Instant
from milepost.model.places import Flags, Vectors, vectors
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.files import Hour, TableFolder
from milepost.pipelines.archive.rows import read_files, visible
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, ArchiveTable, CellFilter, all_cells, cells_over
from milepost.pipelines.records import names_of
from milepost.wire.area_text import area_from_text
from milepost.wire.geojson import area_from_geojson
from milepost.wire.json_form import JSON_BYTES_MAX
from milepost.wire.json_form.codec import Decoder, Notation, absent
from milepost.wire.json_form.field_codecs import QueryText, text_of
from milepost.wire.times import instant_to_text, time_window_from_text

_MESSAGE: Final = """
    seen_at_us bigint, offset bigint, source string, id string, topic string, tags array<string>,
    latitude double, longitude double
"""

FOUND_ROW: Final = f"query int, {_MESSAGE}"
"""A message that answers a query."""

ANSWER_ROW: Final = f"query int, found bigint, left bigint, {_MESSAGE}"
"""A message of the requested page; `found` counts all answers of the query, `left` those after this one."""

VISIT_ROW: Final = "query int, endpoint string, first_us bigint, last_us bigint, reports bigint"
"""An endpoint that was in an area: its first and last report there, and the number of its reports."""

Numbers = NDArray[np.int64]

Content = tuple[str, frozenset[str]]
"""Topic and tags."""

_ATOMS_MAX: Final = 1 << 20
_EVERYTHING: Final = -1
_MICRO_NS: Final = 1_000

_CURSOR: Final = re.compile(r"([0-9]{1,18})-([0-9]{1,18})")
COUNT: Final = 100
"""Default size of a page of answers."""

_CONTENT: Final = "content"
_SEPARATOR: Final = "\n"
"""A separator that neither topics nor tags contain."""


class PageCursor(NamedTuple):
    """Cursor at the end of a page of answers: the time and the offset of its last message."""

    seen_at_us: int = -1
    offset: int = -1

    def __str__(self) -> str:
        return f"{self.seen_at_us}-{self.offset}"


FIRST_PAGE: Final = PageCursor()


@dataclass(frozen=True, slots=True)
class ArchiveQuery:
    """One query about the past."""

    formula: Query | None = None
    area: Area | None = None
    time_window: TimeWindow = ALWAYS
    after: PageCursor = FIRST_PAGE


class _AreaOrText(Notation):
    """An area as a text or in GeoJSON."""

    @staticmethod
    def read(value: object) -> Area:
        """Return the area."""
        return area_from_text(value) if isinstance(value, str) else area_from_geojson(value)


class _CursorText(Notation):
    @staticmethod
    def read(value: object) -> PageCursor:
        """Return the cursor."""
        return cursor_from_text(text_of(value))


class _ArchiveQueryForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    query: QueryText = absent(None)
    area: _AreaOrText = absent(None)
    time_window: str = "always"
    after: _CursorText = absent(FIRST_PAGE)


def archive_query_from_json(value: object, where: str, now: Instant) -> ArchiveQuery:
    """Return the query in a JSON object; raises only `Malformed`."""
    form: Any = Decoder(where, _ArchiveQueryForm, bytes_max=JSON_BYTES_MAX).convert(value)
    return ArchiveQuery(form.query, form.area, time_window_from_text(form.time_window, now), form.after)


def cursor_from_text(text: str) -> PageCursor:
    """Return the cursor in an earlier answer."""
    found = _CURSOR.fullmatch(text)
    if found is None:
        raise Malformed(Reason.FIELD_RANGE, f"{text[:40]!r} is not a cursor: pass the value of `more` from an earlier answer")
    return PageCursor(int(found[1]), int(found[2]))


def search_messages(
    session: SparkSession, archive: Path, queries: Sequence[ArchiveQuery], *, count: int = COUNT
) -> Iterator[dict[str, Any]]:
    """Return the answer to each query: the number of messages, the first *count* after its cursor, and the next cursor."""
    rows = answer_pages(
        matching_messages(_candidates(session, archive, MESSAGES, queries), queries), queries, count=count
    ).collect()
    rows.sort(key=lambda row: (row.query, row.seen_at_us, row.offset))
    by_query = {number: list(some) for number, some in groupby(rows, key=lambda row: row.query)}
    return (_answer(number, by_query.get(number, [])) for number in range(len(queries)))


def find_endpoints(session: SparkSession, archive: Path, queries: Sequence[ArchiveQuery]) -> list[Row]:
    """Return the endpoints that were in the area of each query, and when (VISIT_ROW): a geofence over the past."""
    rows = visits(_candidates(session, archive, REPORTS, queries), queries).collect()
    return sorted(rows, key=lambda row: (row.query, row.first_us, row.endpoint))


def matching_messages(messages: DataFrame, queries: Sequence[ArchiveQuery]) -> DataFrame:
    """Return FOUND_ROW: the messages that answer queries; messages addressed to an endpoint or area answer none."""
    columns = names_of(FOUND_ROW)[1:]

    def answers(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        index = ArchiveQueryIndex(queries)
        for batch in batches:
            labels, contents = pd.factorize(batch[_CONTENT])
            names = [(topic, frozenset(tags)) for topic, *tags in (content.split(_SEPARATOR) for content in contents)]
            pairs = index.answered_by(_rows(batch, labels.astype(np.int64), names))
            yield _matched_rows(batch[columns], pairs)

    public = messages.where("address is null").withColumn(_CONTENT, f.concat_ws(_SEPARATOR, "topic", "tags"))
    # In Python, so that the matching engine decides what matches; a batch at a time.
    return public.select(*columns, _CONTENT).mapInPandas(answers, FOUND_ROW)


def answer_pages(found: DataFrame, queries: Sequence[ArchiveQuery], *, count: int) -> DataFrame:
    """Return ANSWER_ROW: the first *count* answers of each query after its cursor, in order of time (T17)."""
    session = found.sparkSession
    after = session.createDataFrame(
        [(number, query.after.seen_at_us, query.after.offset) for number, query in enumerate(queries)],
        "query int, after_us bigint, after_offset bigint",
    )
    place = f.struct("seen_at_us", "offset")
    is_next = place > f.struct(f.col("after_us").alias("seen_at_us"), f.col("after_offset").alias("offset"))
    by_query = Window.partitionBy("query")
    in_order = by_query.orderBy(~f.col("is_next"), "seen_at_us", "offset")
    ranked = (
        found.join(f.broadcast(after), on="query", how="inner")
        .withColumn("is_next", is_next)
        .withColumn("found", f.count("*").over(by_query))
        .withColumn("rank", f.row_number().over(in_order))
        .withColumn("left", f.count_if("is_next").over(by_query) - f.col("rank"))
    )
    return ranked.where(f.col("is_next") & (f.col("rank") <= count)).select(*names_of(ANSWER_ROW))


def visits(reports: DataFrame, queries: Sequence[ArchiveQuery]) -> DataFrame:
    """Return VISIT_ROW: the endpoints that were in the areas of queries, by accepted reports."""

    def summed_visits(batches: Iterator[pd.DataFrame]) -> Iterator[pd.DataFrame]:
        index = ArchiveQueryIndex(queries)
        for batch in batches:
            pairs = index.answered_by(_rows(batch, np.zeros(len(batch), np.int64), [("", frozenset())]))
            there = _matched_rows(batch[["endpoint", "seen_at_us"]], pairs).groupby(["query", "endpoint"], sort=False)[
                "seen_at_us"
            ]
            yield there.agg(first_us="min", last_us="max", reports="count").reset_index()

    accepted = reports.where("verdict = 0").select("endpoint", "seen_at_us", "latitude", "longitude")
    parts = accepted.mapInPandas(summed_visits, VISIT_ROW)
    summed = parts.groupBy("query", "endpoint").agg(
        f.min("first_us").alias("first_us"), f.max("last_us").alias("last_us"), f.sum("reports").alias("reports")
    )
    return summed.select(*names_of(VISIT_ROW))


class RowColumns(NamedTuple):
    """Columns of equal length; a latitude of NaN is no place."""

    seen_at_us: Numbers
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    labels: Numbers
    """For each row, its index in `contents`."""
    contents: Sequence[Content]


class QueryRowPairs(NamedTuple):
    """Parallel arrays of query indexes and answering rows."""

    queries: Numbers
    rows: Numbers


class ArchiveQueryIndex:
    """Many queries, matched with many rows at once."""

    def __init__(self, queries: Sequence[ArchiveQuery]) -> None:
        self._areas = [query.area for query in queries]
        self._starts_us = np.array([-(-query.time_window.start // _MICRO_NS) for query in queries], np.int64)
        self._ends_us = np.array([query.time_window.end // _MICRO_NS for query in queries], np.int64)
        self._formulas = QueryIndex(max(1, len(queries)), _ATOMS_MAX)
        self._formula_ids = [_EVERYTHING if query.formula is None else self._formulas.acquire(query.formula) for query in queries]

    def answered_by(self, rows: RowColumns) -> QueryRowPairs:
        """Return all pairs of a query and a row that answers it."""
        order = np.argsort(rows.seen_at_us, kind="stable")
        times, batch = rows.seen_at_us[order], _SortedBatch.of(rows, order)
        firsts = np.searchsorted(times, self._starts_us, side="left").tolist()
        lasts = np.searchsorted(times, self._ends_us, side="right").tolist()
        matching = self._matching_contents(rows.contents)
        found = []
        for number, (first, last) in enumerate(zip(firsts, lasts, strict=True)):
            is_true = matching.get(self._formula_ids[number])
            if first < last and is_true is not None and batch.touches(self._areas[number]):
                hits = batch.hits(slice(first, last), is_true, self._areas[number])
                found.append((np.full(hits.size, number, np.int64), order[hits]))
        if not found:
            return QueryRowPairs(np.empty(0, np.int64), np.empty(0, np.int64))
        queries, numbers = zip(*found, strict=True)
        return QueryRowPairs(np.concatenate(queries), np.concatenate(numbers))

    def _matching_contents(self, contents: Sequence[Content]) -> dict[int, Flags]:
        """Return the matching contents, for each formula that matches any."""
        found = {_EVERYTHING: np.ones(len(contents), np.bool_)}
        for label, (topic, tags) in enumerate(contents):
            plain, others = self._formulas.satisfied_by(topic, tags)
            for formula in (*plain, *others.tolist()):
                if formula not in found:
                    found[formula] = np.zeros(len(contents), np.bool_)
                found[formula][label] = True
        return found


@dataclass(frozen=True, slots=True)
class _SortedBatch:
    """Rows in order of time, with their places as vectors and their bounding box."""

    labels: Numbers
    points: Vectors
    is_placed: Flags
    box: tuple[float, float, float, float] | None

    @classmethod
    def of(cls, rows: RowColumns, order: Numbers) -> Self:
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
        """Return the rows of a slice whose content matches the formula and whose place is in *area*."""
        hits: Numbers = np.flatnonzero(is_true[self.labels[stretch]]) + stretch.start
        if area is None:
            return hits
        placed: Numbers = hits[self.is_placed[hits]]
        inside: Numbers = placed[area.contains(self.points[placed])]
        return inside


def _rows(batch: pd.DataFrame, labels: Numbers, contents: Sequence[Content]) -> RowColumns:
    latitudes, longitudes = (batch[name].to_numpy(np.float64) for name in ("latitude", "longitude"))
    return RowColumns(batch["seen_at_us"].to_numpy(np.int64), latitudes, longitudes, labels, contents)


def _matched_rows(batch: pd.DataFrame, pairs: QueryRowPairs) -> pd.DataFrame:
    there = batch.iloc[pairs.rows].reset_index(drop=True)
    there.insert(0, "query", pairs.queries.astype(np.int32))
    return there


def _candidates(session: SparkSession, archive: Path, table: ArchiveTable, queries: Sequence[ArchiveQuery]) -> DataFrame:
    """Return the rows of the files that may answer any of the queries."""
    table_folder, upto = TableFolder(archive, table), TableFolder(archive, table).upto()
    requested = _RequestedCells(queries)
    files = [str(path) for hour in table_folder.hours() for path in hour.current(upto, requested.in_hour(hour))]
    return visible(session, archive, table, read_files(session, table, files))


class _RequestedCells:
    """The hours and cells that queries are about."""

    def __init__(self, queries: Sequence[ArchiveQuery]) -> None:
        self._starts = np.array([query.time_window.start for query in queries], np.int64)
        self._ends = np.array([query.time_window.end for query in queries], np.int64)
        self._filters = [all_cells if query.area is None else cells_over(query.area) for query in queries]
        self._by_cell: dict[str, Flags] = {}

    def in_hour(self, hour: Hour) -> CellFilter:
        """Return the filter of the cells that queries about this hour need."""
        is_requested = (self._starts < hour.end) & (self._ends >= hour.start)
        return lambda cell: bool((is_requested & self._queries_over(cell)).any())

    def _queries_over(self, cell: str) -> Flags:
        if cell not in self._by_cell:
            self._by_cell[cell] = np.array([may_hold(cell) for may_hold in self._filters], np.bool_)
        return self._by_cell[cell]


def _answer(number: int, rows: Sequence[Row]) -> dict[str, Any]:
    answer: dict[str, Any] = {"query": number, "found": 0, "messages": [_message(row) for row in rows]}
    if rows:
        last = rows[-1]
        answer["found"] = last.found
        if last.left:
            answer["more"] = str(PageCursor(last.seen_at_us, last.offset))
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
