"""Many questions against many rows at once: which of the rows answer which of the questions.

    rows, sorted by time ─▶ those in each frame: a stretch ─▶ those whose topic and tags make the query true ─▶ those in the area

What must hold: a row answers a question if the query is true of it, its place is in the area and its instant in the frame, as for
a subscription; a row without a place is in no area. Nothing walks over questions and rows one by one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from milepost.matching.formulas import Formulas
from milepost.model.areas import Area
from milepost.model.places import Flags, Vectors, vectors
from milepost.pipelines.lookback.asks import Past

Numbers = NDArray[np.int64]

Content = tuple[str, frozenset[str]]
"""Topic and tags."""

_ATOMS_MAX: Final = 1 << 20
_EVERYTHING: Final = -1
_MICRO_NS: Final = 1_000


class Rows(NamedTuple):
    """Columns of equal length; a latitude that is not a number is no place."""

    seen_at_us: Numbers
    latitudes: NDArray[np.float64]
    longitudes: NDArray[np.float64]
    labels: Numbers
    """For each row, which of `contents` it has."""
    contents: Sequence[Content]


class Pairs(NamedTuple):
    """Questions and rows that answer them, side by side."""

    frames: Numbers
    rows: Numbers


class Frames:
    """Questions, made ready."""

    def __init__(self, pasts: Sequence[Past]) -> None:
        self._areas = [past.area for past in pasts]
        self._starts_us = np.array([-(-past.frame.start // _MICRO_NS) for past in pasts], np.int64)
        self._ends_us = np.array([past.frame.end // _MICRO_NS for past in pasts], np.int64)
        self._formulas = Formulas(max(1, len(pasts)), _ATOMS_MAX)
        self._queries = [_EVERYTHING if past.query is None else self._formulas.ask(past.query) for past in pasts]

    def answered_by(self, rows: Rows) -> Pairs:
        """All pairs of a question and a row that answers it."""
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
        frames, numbers = zip(*found, strict=True)
        return Pairs(np.concatenate(frames), np.concatenate(numbers))

    def _truths(self, contents: Sequence[Content]) -> dict[int, Flags]:
        """For each query that is true of any of the contents: of which."""
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
    """Rows in order of time, with their places as vectors and in a box."""

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
        """Whether any of the rows may be in an area."""
        if area is None or self.box is None:
            return area is None
        south, west, north, east = self.box
        return any(
            one.south <= north and south <= one.north and (one.west > one.east or (one.west <= east and west <= one.east))
            for one in area.boxes
        )

    def hits(self, stretch: slice, is_true: Flags, area: Area | None) -> Numbers:
        """Which rows of a stretch have a content that makes a query true, and are in an area."""
        hits: Numbers = np.flatnonzero(is_true[self.labels[stretch]]) + stretch.start
        if area is None:
            return hits
        placed: Numbers = hits[self.is_placed[hits]]
        inside: Numbers = placed[area.contains(self.points[placed])]
        return inside
