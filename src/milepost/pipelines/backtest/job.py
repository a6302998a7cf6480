"""A backtest over the archive: Spark makes the cells, and only these come to the driver, a part of the time after the other."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from pyspark.sql import SparkSession

from milepost.model.frames import Frame
from milepost.model.incidents import EventKind
from milepost.model.instants import Instant
from milepost.pipelines.archive.files import HOUR_NS
from milepost.pipelines.archive.reading import read
from milepost.pipelines.archive.schema import MESSAGES, REPORTS
from milepost.pipelines.backtest.replay import Replay
from milepost.pipelines.backtest.transform import all_events, ended_cells

_PARTS_MAX: Final = 1_000


def alerts(
    session: SparkSession, archive: Path, replay: Replay, kinds: Sequence[EventKind], *, start: Instant, end: Instant
) -> Iterator[bytes]:
    """The alerts that rules would have raised from one instant up to another, as the site's log would have them."""
    frame = Frame(start, Instant(end - 1))
    messages, reports = (read(session, archive, table, frame=frame) for table in (MESSAGES, REPORTS))
    parts = min(_PARTS_MAX, max(1, -(-(end - start) // HOUR_NS)))
    cells = ended_cells(all_events(messages, reports, kinds), kinds, parts=parts)
    yield from replay.alerts(((row.ends_ns, row.value) for row in cells.toLocalIterator()), end)
