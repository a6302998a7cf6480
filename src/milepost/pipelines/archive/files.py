"""Which files of the archive count: no Spark needed, so that duckdb, pandas and others can ask too.

    archive/TABLE/_table.json                                {"upto": 1234, "next": null}
    archive/TABLE/date=2030-01-01/hour=12/_hour.json         {"generation": 2, "upto": 1200, "at": …, "is_gone": false}
    archive/TABLE/date=2030-01-01/hour=12/cell=recent/00…1234.parquet      one batch: rows up to this offset of the log
    archive/TABLE/date=2030-01-01/hour=12/cell=recent/00…1001-00…1200.parquet      all batches from one to another
    archive/TABLE/date=2030-01-01/hour=12/cell=r1307c687/g2.parquet        all rows of a cell, up to the hour's `upto`

What must hold:
- a batch counts once `_table.json` says so, a generation once `_hour.json` does: each is one file, replaced at once;
- of an hour count: the files of its generation, and the batches after what that holds; of batches that were put together only
  the file that has them all;
- what no longer counts stays for a while, for readers that have begun; what does not count yet is nobody's.
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
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import SECOND_NS, Instant
from milepost.pipelines.archive.cells import RECENT, Wanted, cells_over, everywhere
from milepost.pipelines.archive.schema import Table

HOUR_NS: Final = 3600 * SECOND_NS
KEEP_S_MIN: Final = 8 * 86_400
"""Hours that ended later than this long ago are kept: rows may come for them (`records.transform.BEHIND_S`, and a day)."""
NOTHING_YET: Final = -1

_TABLE_FILE: Final = "_table.json"
_HOUR_FILE: Final = "_hour.json"


class Batch(NamedTuple):
    """A file of rows as they came: one batch, or all from one to another, each known by its last offset."""

    first: int
    upto: int
    path: Path

    def holds(self, other: "Batch") -> bool:
        """Whether all of another file is in this one."""
        return self != other and self.first <= other.first and other.upto <= self.upto


@dataclass(frozen=True, slots=True)
class TableState:
    """What counts of a table."""

    upto: int = NOTHING_YET
    """Batches up to this offset do."""
    next: int | None = None
    """The batch that is being put in its places; somebody died over it if nobody is doing so."""


@dataclass(frozen=True, slots=True)
class HourState:
    """What counts of an hour."""

    generation: int = 0
    """Of its files by cell; 0: there are none."""
    upto: int = NOTHING_YET
    """Batches up to this offset are in the generation."""
    at: int = 0
    """Since when."""
    is_gone: bool = False


@dataclass(frozen=True, slots=True)
class Hour:
    """One hour of a table."""

    path: Path
    start: Instant

    @property
    def end(self) -> Instant:
        """When it was over."""
        return Instant(self.start + HOUR_NS)

    def state(self) -> HourState:
        """What counts now."""
        return HourState(**_read(self.path / _HOUR_FILE))

    def become(self, state: HourState) -> None:
        """Let something else count from now on."""
        self.path.mkdir(parents=True, exist_ok=True)
        _write(self.path / _HOUR_FILE, asdict(state))

    def batches(self) -> list[Batch]:
        """All files of rows as they came, the oldest first."""
        return sorted(map(_batch, (self.path / f"cell={RECENT}").glob("*.parquet")))

    def batch(self, upto: int, first: int | None = None) -> Path:
        """Where the rows of a batch belong, or of all batches from a first one on."""
        name = f"{upto:019}" if first is None else f"{first:019}-{upto:019}"
        return self.path / f"cell={RECENT}" / f"{name}.parquet"

    def generation(self, number: int, wanted: Wanted = everywhere) -> list[Path]:
        """The files of a generation, in the cells that are wanted."""
        found = sorted(self.path.glob(f"cell=*/g{number}.parquet"))
        return [path for path in found if wanted(path.parent.name.removeprefix("cell="))]

    def current(self, upto: int, wanted: Wanted = everywhere) -> list[Path]:
        """The files that count, of a table that counts up to an offset."""
        state = self.state()
        if state.is_gone:
            return []
        return self.generation(state.generation, wanted) + [batch.path for batch in self.unsorted(upto)]

    def unsorted(self, upto: int) -> list[Batch]:
        """Those of them that are in no generation."""
        after = self.state().upto
        found = [batch for batch in self.batches() if after < batch.upto <= upto]
        return [batch for batch in found if not any(other.holds(batch) for other in found)]

    def outdated(self) -> list[Path]:
        """The files that do not count any more."""
        state = self.state()
        former = [path for path in self.path.glob("cell=*/g*.parquet") if int(path.stem[1:]) < state.generation]
        return former + [batch.path for batch in self.batches() if batch.upto <= state.upto]


@dataclass(frozen=True, slots=True)
class Shelf:
    """A table of an archive."""

    folder: Path
    """Of the archive."""
    table: Table

    @property
    def path(self) -> Path:
        """The table's own folder."""
        return self.folder / self.table.name

    def staging(self, purpose: str) -> Path:
        """A place where files are made before they are put in theirs, which is not there yet; earlier ones are removed.

        It is never the same: the Java of a process that was killed may go on writing for a moment.
        """
        places = self.folder / "_staging" / self.table.name / purpose
        shutil.rmtree(places, ignore_errors=True)
        return places / uuid4().hex

    def upto(self) -> int:
        """The last offset of the log whose rows count."""
        return self.state().upto

    def state(self) -> TableState:
        """What counts now."""
        return TableState(**_read(self.path / _TABLE_FILE))

    def become(self, state: TableState) -> None:
        """Let something else count from now on."""
        _write(self.path / _TABLE_FILE, asdict(state))

    def hour_of(self, folder: Path) -> Hour:
        """The hour that a folder is named for, here or in another place."""
        date, hour = folder.parent.name, folder.name
        start = datetime.strptime(f"{date} {hour}", "date=%Y-%m-%d hour=%H").replace(tzinfo=UTC)
        return Hour(self.path / date / hour, Instant(int(start.timestamp()) * SECOND_NS))

    def hours(self, frame: Frame = ALWAYS) -> Iterator[Hour]:
        """The hours there are, in their order, as far as they are in a frame."""
        for hour in map(self.hour_of, sorted(self.path.glob("date=*/hour=*"))):
            if hour.start <= frame.end and hour.end > frame.start:
                yield hour

    def current(self, frame: Frame = ALWAYS, wanted: Wanted = everywhere) -> list[Path]:
        """The files that count in a frame and in the cells that are wanted."""
        upto = self.upto()
        return [path for hour in self.hours(frame) for path in hour.current(upto, wanted)]


def files_of(folder: Path, table: Table, *, frame: Frame = ALWAYS, area: Area | None = None) -> list[str]:
    """The files of an archive that may have rows in a frame and an area, for any reader of Parquet."""
    wanted = everywhere if area is None else cells_over(area)
    return [str(path) for path in Shelf(folder, table).current(frame, wanted)]


def put(source: Path, target: Path) -> None:
    """Put a finished file in its place, in the place of what was there."""
    target.parent.mkdir(parents=True, exist_ok=True)
    with source.open("rb") as file:
        os.fsync(file.fileno())
    source.replace(target)


def _batch(path: Path) -> Batch:
    first, _, last = path.stem.partition("-")
    return Batch(int(first), int(last or first), path)


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
    put(new, path)
