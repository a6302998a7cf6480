"""The output of all pipelines as readers see it: the topics without duplicates, and the tables of the archive.

`READERS` has a rule for each topic that a pipeline writes, `TABLES` names each table of the archive: a new one must be added.

    last record of a key     compacted topics: the last one counts
    most reports of a key    published again at each change: the one with most reports counts
    every distinct record    published once; a repeated record is identical
"""

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Final

import orjson
import pyarrow.parquet as pq

from live.pipelines.logs import SiteLog
from milepost.eventlog.log import Record
from milepost.incidents.engine import CELLS
from milepost.model.pipeline_records import REPUTATION
from milepost.pipelines.archive.files import files_of
from milepost.pipelines.archive.schema import TABLES
from milepost.pipelines.dead_letters import DEAD_LETTERS_TOPIC
from milepost.pipelines.positions import HOLES_TOPIC, LAST_TOPIC, SPEEDS_TOPIC, STAYS_TOPIC

Output = Mapping[str, Any]
"""What readers know, by topic and table."""


def _last_of_key(records: Iterable[Record]) -> object:
    return {record.key: orjson.loads(record.value or b"null") for record in records}


def _most_reports(records: Iterable[Record]) -> object:
    found: dict[str, Any] = {}
    for record in records:
        value = orjson.loads(record.value or b"null")
        if record.key not in found or value["reports"] >= found[record.key]["reports"]:
            found[record.key] = value
    return found


def _distinct(records: Iterable[Record]) -> object:
    return {(record.key, record.value) for record in records}


READERS: Final[Mapping[str, Callable[[Iterable[Record]], object]]] = {
    CELLS: _most_reports,
    STAYS_TOPIC: _most_reports,
    SPEEDS_TOPIC: _most_reports,
    HOLES_TOPIC: _most_reports,
    LAST_TOPIC: _last_of_key,
    REPUTATION: _distinct,
    DEAD_LETTERS_TOPIC: _distinct,
}
"""How readers of a topic drop duplicates."""


def output_in_log(site: SiteLog) -> Output:
    """Return the output in the topics of a site."""
    return {topic: read(site.records(topic)) for topic, read in READERS.items()}


def rows_in_archive(folder: Path) -> Output:
    """Return the rows of each table, counted, without the time of their append, which differs between two runs."""
    return {table.name: Counter(_rows(files_of(folder, table))) for table in TABLES}


def _rows(files: Iterable[str]) -> Iterable[str]:
    for file in files:
        rows = pq.ParquetFile(file).read().drop_columns("appended_at").to_pylist()
        yield from map(repr, rows)


def repeated(site: SiteLog) -> list[tuple[str, str]]:
    """Return the records that the log has more than once, by topic and key."""
    counts = Counter((topic, record.key, record.value) for topic in READERS for record in site.records(topic))
    return [(topic, key) for (topic, key, _), count in counts.items() if count > 1]


def differences(found: Output, expected: Output) -> list[str]:
    """Return the names of topics and tables that differ, with sizes, for a readable failure."""
    return [f"{name}: {len(found[name])} instead of {len(expected[name])}" for name in expected if found[name] != expected[name]]
