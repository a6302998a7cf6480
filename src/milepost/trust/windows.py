"""Windows: which counters of a session came already, so that a datagram sent twice by somebody else counts once.

What must hold:
- a counter is new once: after `take`, `is_new` says no for ever;
- what lies `WIDTH` or more behind the greatest counter is never new: it is too late to tell;
- a counter is taken only after its datagram was opened, so that nobody without the key can move the window.
"""

from typing import Final

WIDTH: Final = 256
_ALL: Final = (1 << WIDTH) - 1


class Window:
    """The last 256 counters of one direction; those that came in order are counted, not written down one by one."""

    __slots__ = ("_at", "_seen", "greatest")

    def __init__(self) -> None:
        self.greatest = -1
        """Whoever has opened a datagram with the counter after it may set this to that counter: the same as `take`."""
        self._at = -1
        self._seen = 0
        """Bit i says whether `_at - i` came; all from there to `greatest` did."""

    def is_new(self, counter: int) -> bool:
        """Whether the counter did not come yet and is not too far behind."""
        behind = self.greatest - counter
        return behind < 0 or (behind < WIDTH and not self.seen >> behind & 1)

    def take(self, counter: int) -> None:
        """The counter came."""
        assert self.is_new(counter), "asked before the datagram was opened"
        ahead, seen = counter - self.greatest, self.seen
        if ahead > 0:
            self._seen = (seen << ahead | 1) & _ALL if ahead < WIDTH else 1
            self._at = self.greatest = counter
        else:
            self._seen = seen | 1 << -ahead

    @property
    def seen(self) -> int:
        """Bit i says whether `greatest - i` came."""
        run = self.greatest - self._at
        if run:
            self._seen = (self._seen << run | (1 << run) - 1) & _ALL if run < WIDTH else _ALL
            self._at = self.greatest
        return self._seen
