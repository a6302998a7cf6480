"""The history of the map: compressed whole scenes of the last minutes, one per second, for viewers that look back.

Invariants: scenes are never older than the configured minutes, nor larger in total than the byte limit; the oldest are dropped
first.
"""

import gzip
from bisect import bisect_right
from collections import deque
from typing import Final, NamedTuple

STEP_MS: Final = 1_000
BYTES_MAX: Final = 256_000_000
_LEVEL: Final = 1


class Kept(NamedTuple):
    """A compressed scene."""

    at_ms: int
    packed: bytes


class Past:
    """The scenes of the last minutes."""

    def __init__(self, *, minutes: float, bytes_max: int = BYTES_MAX) -> None:
        self._length_ms = round(minutes * 60_000)
        self._bytes_max = bytes_max
        self._kept: deque[Kept] = deque()
        self._bytes = 0

    def is_due(self, at_ms: int) -> bool:
        """Return whether the next scene is due."""
        return bool(self._length_ms) and (not self._kept or not 0 <= at_ms - self._kept[-1].at_ms < STEP_MS)

    def keep(self, at_ms: int, frame: bytes) -> None:
        """Add a scene; if the clock was set back, it replaces the later ones."""
        while self._kept and self._kept[-1].at_ms >= at_ms:
            self._bytes -= len(self._kept.pop().packed)
        packed = gzip.compress(frame, _LEVEL)
        self._kept.append(Kept(at_ms, packed))
        self._bytes += len(packed)
        while self._kept[0].at_ms < at_ms - self._length_ms or self._bytes > self._bytes_max:
            self._bytes -= len(self._kept.popleft().packed)
            if not self._kept:
                return

    def span_ms(self) -> tuple[int, int] | None:
        """Return the times of the first and the last scene."""
        return (self._kept[0].at_ms, self._kept[-1].at_ms) if self._kept else None

    def maybe_at(self, at_ms: int) -> bytes | None:
        """Return the gzipped scene at an instant: the last one not after it, or else the first."""
        if not self._kept:
            return None
        found = bisect_right(self._kept, at_ms, key=lambda one: one.at_ms)
        return self._kept[max(0, found - 1)].packed
