"""The parts of a Spark checkpoint that bind its query, read before Spark starts. Does not import Spark.

NAME-VERSION/offsets/N   v1 ⏎ {"batchWatermarkMs": …, "conf": {"spark.sql.shuffle.partitions": "2", …}} ⏎ offsets, by source
             commits/N   v1 or v2, the format of the state ⏎ …
             state/      if the query has state
"""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from milepost.pipelines.spark_settings import CHECKPOINT_FORMAT, REQUIRED, SHUFFLE_PARTITIONS

FORMAT_VERSION: Final = int(REQUIRED[CHECKPOINT_FORMAT].value)


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """The checkpoint of a query that has finished a batch."""

    folder: Path
    format_version: int
    has_state: bool
    partitions: int | None
    """Shuffle partitions: those of the first batch, whatever the settings say later."""

    def find_fault(self) -> str | None:
        """Return why the query cannot continue from here in real-time mode, and the remedy."""
        if not self.has_state or self.format_version >= FORMAT_VERSION:
            return None
        return (
            f"the state in {self.folder} has checkpoint format {self.format_version}, but real-time mode needs {FORMAT_VERSION}: "
            f'set mode = "micro-batch" in [pipelines], or move the folder away, and the query starts anew from the oldest record '
            f"of the log"
        )


def find_checkpoint(folder: Path) -> Checkpoint | None:
    """Return the checkpoint in a folder, if a batch was finished there."""
    offsets, commit = _find_latest(folder / "offsets"), _find_latest(folder / "commits")
    if offsets is None or commit is None:
        return None
    return Checkpoint(folder, _version_of(commit), (folder / "state").is_dir(), _partitions_in(offsets))


def _find_latest(folder: Path) -> list[str] | None:
    """Return the lines of the file with the highest batch number."""
    numbered = [path for path in folder.glob("[0-9]*") if path.name.isdecimal()] if folder.is_dir() else []
    if not numbered:
        return None
    return max(numbered, key=lambda path: int(path.name)).read_text(encoding="utf-8").splitlines()


def _version_of(lines: list[str]) -> int:
    first = lines[0] if lines else ""
    return int(first[1:]) if first[1:].isdecimal() else 0


def _partitions_in(lines: list[str]) -> int | None:
    try:
        return int(json.loads(lines[1])["conf"][SHUFFLE_PARTITIONS])
    except (IndexError, KeyError, TypeError, ValueError):
        return None
