"""The current files of the archive; does not import Spark, so that DuckDB, pandas and others can use it too.

    archive/TABLE/_table.json                                {"upto": 1234, "next": null}
    archive/TABLE/date=2030-01-01/hour=12/_hour.json         {"generation": 2, "upto": 1200, "at": …, "is_expired": false}
    archive/TABLE/date=2030-01-01/hour=12/cell=recent/00…1234.parquet      one batch: rows up to this offset of the log
    archive/TABLE/date=2030-01-01/hour=12/cell=recent/00…1001-00…1200.parquet      merged: all batches from one to another
    archive/TABLE/date=2030-01-01/hour=12/cell=r1307c687/g2.parquet        all rows of a cell, up to the hour's `upto`

Invariants:
- `_table.json` makes a batch current, `_hour.json` a generation: each is one file, replaced atomically;
- current files of an hour are those of its generation and the batches after the generation's `upto`; of merged batches only
  the merged file;
- outdated files stay for a while, for readers that have begun; files that are not current yet are never read.
"""

import json
import os
import shutil
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from uuid import uuid4

from milepost.model.areas import Area
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.pipelines.archive.schema import RECENT, ArchiveTable, CellFilter, all_cells, cells_over

HOUR_NS: Final = 3600 * SECOND_NS
RETENTION_S_MIN: Final = 8 * 86_400
"""Minimum retention: rows may still arrive for younger hours (`records.BEHIND_S_MAX`, and a day)."""
NO_OFFSET: Final = -1

_TABLE_FILE: Final = "_table.json"
_HOUR_FILE: Final = "_hour.json"


class BatchFile(NamedTuple):
    """A file of rows in order of arrival: one batch, or merged batches; a batch is identified by its last offset."""

    first: int
    upto: int
    path: Path

    def contains(self, other: "BatchFile") -> bool:
        """Return whether this file contains all of another one."""
        return self != other and self.first <= other.first and other.upto <= self.upto


@dataclass(frozen=True, slots=True)
class TableState:
    """The current state of a table."""

    upto: int = NO_OFFSET
    """Batches up to this offset are current."""
    next: int | None = None
    """The batch being moved into place; if no process is doing so, the writer crashed."""


@dataclass(frozen=True, slots=True)
class HourState:
    """The current state of an hour."""

    generation: int = 0
    """Number of the current files by cell; 0: there are none."""
    upto: int = NO_OFFSET
    """Batches up to this offset are in the generation."""
    at: int = 0
    """When this state was written."""
    is_expired: bool = False


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of a table."""

    path: Path
    start: Instant

    @property
    def end(self) -> Instant:
        """The end of the hour."""
        return Instant(self.start + HOUR_NS)

    def state(self) -> HourState:
        """Read the current state."""
        return HourState(**_read(self.path / _HOUR_FILE))

    def write_state(self, state: HourState) -> None:
        """Replace the state atomically."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / _HOUR_FILE, asdict(state))

    def batches(self) -> list[BatchFile]:
        """Return all batch files, the oldest first."""
        return sorted(map(_batch_file, (self.path / f"cell={RECENT}").glob("*.parquet")))

    def batch(self, upto: int, first: int | None = None) -> Path:
        """Return the path of a batch, or of the merged batches from *first* to *upto*."""
        name = f"{upto:019}" if first is None else f"{first:019}-{upto:019}"
        return self.path / f"cell={RECENT}" / f"{name}.parquet"

    def generation(self, number: int, cell_filter: CellFilter = all_cells) -> list[Path]:
        """Return the files of a generation, in the cells that *cell_filter* selects."""
        found = sorted(self.path.glob(f"cell=*/g{number}.parquet"))
        return [path for path in found if cell_filter(path.parent.name.removeprefix("cell="))]

    def current(self, upto: int, cell_filter: CellFilter = all_cells) -> list[Path]:
        """Return the current files, for a table that is current up to an offset."""
        state = self.state()
        if state.is_expired:
            return []
        return self.generation(state.generation, cell_filter) + [batch.path for batch in self.unsorted(upto)]

    def unsorted(self, upto: int) -> list[BatchFile]:
        """Return the current batch files, which are in no generation yet."""
        after = self.state().upto
        found = [batch for batch in self.batches() if after < batch.upto <= upto]
        return [batch for batch in found if not any(other.contains(batch) for other in found)]

    def outdated(self) -> list[Path]:
        """Return the files that are no longer current."""
        state = self.state()
        previous = [path for path in self.path.glob("cell=*/g*.parquet") if int(path.stem[1:]) < state.generation]
        return previous + [batch.path for batch in self.batches() if batch.upto <= state.upto]


@dataclass(frozen=True, slots=True)
class TableFolder:
    """The folder of one table of an archive."""

    folder: Path
    """The folder of the archive."""
    table: ArchiveTable

    @property
    def path(self) -> Path:
        """The table's own folder."""
        return self.folder / self.table.name

    def staging(self, purpose: str) -> Path:
        """Return a new path, not created yet, for files before they are moved into place; remove earlier ones.

        The path is never reused: the JVM of a killed process may go on writing for a moment.
        """
        parent = self.folder / "_staging" / self.table.name / purpose
        shutil.rmtree(parent, ignore_errors=True)
        return parent / uuid4().hex

    def upto(self) -> int:
        """Return the last offset of the log whose rows are current."""
        return self.state().upto

    def state(self) -> TableState:
        """Read the current state."""
        return TableState(**_read(self.path / _TABLE_FILE))

    def write_state(self, state: TableState) -> None:
        """Replace the state atomically."""
        _write(self.path / _TABLE_FILE, asdict(state))

    def hour_of(self, folder: Path) -> Hour:
        """Return the hour after which a folder is named, here or in staging."""
        date, hour = folder.parent.name, folder.name
        start = datetime.strptime(f"{date} {hour}", "date=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
        return Hour(self.path / date / hour, Instant(int(start.timestamp()) * SECOND_NS))

    def hours(self, time_window: TimeWindow = ALWAYS) -> Iterator[Hour]:
        """Yield the existing hours that overlap a time window, in order."""
        for hour in map(self.hour_of, sorted(self.path.glob("date=*/hour=*"))):
            if hour.start <= time_window.end and hour.end > time_window.start:
                yield hour

    def current(self, time_window: TimeWindow = ALWAYS, cell_filter: CellFilter = all_cells) -> list[Path]:
        """Return the current files in a time window and in the cells that *cell_filter* selects."""
        upto = self.upto()
        return [path for hour in self.hours(time_window) for path in hour.current(upto, cell_filter)]


def files_of(folder: Path, table: ArchiveTable, *, time_window: TimeWindow = ALWAYS, area: Area | None = None) -> list[str]:
    """Return the files of an archive that may have rows in a time window and an area, for any Parquet reader."""
    cell_filter = all_cells if area is None else cells_over(area)
    return [str(path) for path in TableFolder(folder, table).current(time_window, cell_filter)]


def move_into_place(source: Path, target: Path) -> None:
    """Sync a finished file to disk and move it to *target*, replacing it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)


def _batch_file(path: Path) -> BatchFile:
    first, _, last = path.stem.partition("-")
    return BatchFile(int(first), int(last or first), path)


def _read(path: Path) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(path.read_text())
    except FileNotFoundError:
        return {}
    return found


def _write(path: Path, members: dict[str, Any]) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    new = path.with_suffix(".new")
    new.write_text(json.dumps(members))
    move_into_place(new, path)
