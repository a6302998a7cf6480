"""The history of the map: compressed whole scenes of the last minutes, one per second, for viewers that look at the past.

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


class StoredScene(NamedTuple):
    """A compressed scene."""

    at_ms: int
    packed: bytes


class SceneHistory:
    """The scenes of the last minutes."""

    def __init__(self, *, minutes: float, bytes_max: int = BYTES_MAX) -> None:
        self._length_ms = round(minutes * 60_000)
        self._bytes_max = bytes_max
        self._scenes: deque[StoredScene] = deque()
        self._bytes = 0

    def is_due(self, at_ms: int) -> bool:
        """Return whether the next scene is due."""
        return bool(self._length_ms) and (not self._scenes or not 0 <= at_ms - self._scenes[-1].at_ms < STEP_MS)

    def add(self, at_ms: int, frame: bytes) -> None:
        """Add a scene; if the clock was set back, it replaces the later ones."""
        while self._scenes and self._scenes[-1].at_ms >= at_ms:
            self._bytes -= len(self._scenes.pop().packed)
        packed = gzip.compress(frame, _LEVEL)
        self._scenes.append(StoredScene(at_ms, packed))
        self._bytes += len(packed)
        while self._scenes[0].at_ms < at_ms - self._length_ms or self._bytes > self._bytes_max:
            self._bytes -= len(self._scenes.popleft().packed)
            if not self._scenes:
                return

    def span_ms(self) -> tuple[int, int] | None:
        """Return the times of the first and the last scene."""
        return (self._scenes[0].at_ms, self._scenes[-1].at_ms) if self._scenes else None

    def find_at(self, at_ms: int) -> bytes | None:
        """Return the gzipped scene at an instant: the last one not after it, or else the first."""
        if not self._scenes:
            return None
        found = bisect_right(self._scenes, at_ms, key=lambda one: one.at_ms)
        return self._scenes[max(0, found - 1)].packed
