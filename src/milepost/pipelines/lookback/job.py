"""Lookbacks over the archive: only hours and cells that somebody asks about are read, each once, for all questions together."""

from collections.abc import Iterator, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession

from milepost.model.instants import Instant
from milepost.model.places import Flags
from milepost.pipelines.archive.cells import Wanted, cells_over, everywhere
from milepost.pipelines.archive.files import Hour, Shelf
from milepost.pipelines.archive.reading import read_files, visible
from milepost.pipelines.archive.schema import MESSAGES, REPORTS, Table
from milepost.pipelines.lookback.asks import Past, Token
from milepost.pipelines.lookback.transform import answered, found, who
from milepost.wire.times import instant_to_text

COUNT: Final = 100
"""So many answers come first unless told."""


def look_back(session: SparkSession, archive: Path, pasts: Sequence[Past], *, count: int = COUNT) -> Iterator[dict[str, Any]]:
    """The answer to each question: how many messages there are, the first so many after its token, and where to go on."""
    rows = answered(found(_rows(session, archive, MESSAGES, pasts), pasts), pasts, count=count).collect()
    rows.sort(key=lambda row: (row.frame, row.seen_at_us, row.offset))
    by_frame = {number: list(some) for number, some in groupby(rows, key=lambda row: row.frame)}
    return (_answer(number, by_frame.get(number, [])) for number in range(len(pasts)))


def who_was_here(session: SparkSession, archive: Path, pasts: Sequence[Past]) -> list[Row]:
    """Who was in the area of each question, and when (WHO_ROW): a fence drawn after the fact."""
    rows = who(_rows(session, archive, REPORTS, pasts), pasts).collect()
    return sorted(rows, key=lambda row: (row.frame, row.first_us, row.endpoint))


def _rows(session: SparkSession, archive: Path, table: Table, pasts: Sequence[Past]) -> DataFrame:
    """The rows that may answer any of the questions."""
    shelf, upto = Shelf(archive, table), Shelf(archive, table).upto()
    wanted = _Wanted(pasts)
    files = [str(path) for hour in shelf.hours() for path in hour.current(upto, wanted.in_hour(hour))]
    return visible(session, archive, table, read_files(session, table, files))


class _Wanted:
    """Which hours and cells somebody asks about."""

    def __init__(self, pasts: Sequence[Past]) -> None:
        self._starts = np.array([past.frame.start for past in pasts], np.int64)
        self._ends = np.array([past.frame.end for past in pasts], np.int64)
        self._over = [everywhere if past.area is None else cells_over(past.area) for past in pasts]
        self._by_cell: dict[str, Flags] = {}

    def in_hour(self, hour: Hour) -> Wanted:
        """The cells that somebody asks about who asks about an hour."""
        is_asked = (self._starts < hour.end) & (self._ends >= hour.start)
        return lambda cell: bool((is_asked & self._askers(cell)).any())

    def _askers(self, cell: str) -> Flags:
        if cell not in self._by_cell:
            self._by_cell[cell] = np.array([is_over(cell) for is_over in self._over], np.bool_)
        return self._by_cell[cell]


def _answer(number: int, rows: Sequence[Row]) -> dict[str, Any]:
    answer: dict[str, Any] = {"frame": number, "found": 0, "messages": [_message(row) for row in rows]}
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
