"""Replay window: the counters of a session already received, so that a replayed datagram is processed once.

Invariants:
- a counter is new once: after `take`, `is_new` is false for ever;
- a counter `WIDTH` or more behind the greatest is never new: whether it was received is no longer known;
- a counter is taken only after its datagram was decrypted, so that a sender without the key cannot move the window.
"""

from typing import Final

WIDTH: Final = 256
_ALL: Final = (1 << WIDTH) - 1


class ReplayWindow:
    """The last 256 counters of one direction; those received in order are counted, not marked one by one."""

    __slots__ = ("_at", "_seen", "greatest")

    def __init__(self) -> None:
        self.greatest = -1
        """After decrypting a datagram with the next counter, the caller may set this to that counter: the same as `take`."""
        self._at = -1
        self._seen = 0
        """Bit i: `_at - i` was received; all from there to `greatest` were."""

    def is_new(self, counter: int) -> bool:
        """Return whether the counter was not received yet and is not too far behind."""
        behind = self.greatest - counter
        return behind < 0 or (behind < WIDTH and not self.seen >> behind & 1)

    def take(self, counter: int) -> None:
        """Mark a counter as received."""
        assert self.is_new(counter), "callers check `is_new` first"
        ahead, seen = counter - self.greatest, self.seen
        if ahead > 0:
            self._seen = (seen << ahead | 1) & _ALL if ahead < WIDTH else 1
            self._at = self.greatest = counter
        else:
            self._seen = seen | 1 << -ahead

    @property
    def seen(self) -> int:
        """Bit i: `greatest - i` was received."""
        run = self.greatest - self._at
        if run:
            self._seen = (self._seen << run | (1 << run) - 1) & _ALL if run < WIDTH else _ALL
            self._at = self.greatest
        return self._seen
