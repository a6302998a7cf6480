"""Windows: which counters of a session came already, so that a datagram sent twice by somebody else counts once.

What must hold:
- a counter is new once: after `take`, `is_new` says no for ever;
- what lies `WIDTH` or more behind the greatest counter is never new: it is too late to tell;
- a counter is taken only after its datagram was opened, so that nobody without the key can move the window.
"""

from typing import Final

WIDTH: Final = 256
ALL: Final = (1 << WIDTH) - 1


class Window:
    """The last 256 counters of one direction, as bits below the greatest."""

    __slots__ = ("greatest", "seen")

    def __init__(self) -> None:
        self.greatest = -1
        self.seen = 0
        """Bit i says whether `greatest - i` came."""

    def is_new(self, counter: int) -> bool:
        """Whether the counter did not come yet and is not too far behind."""
        behind = self.greatest - counter
        return behind < 0 or (behind < WIDTH and not self.seen >> behind & 1)

    def take(self, counter: int) -> None:
        """The counter came."""
        assert self.is_new(counter), "asked before the datagram was opened"
        ahead = counter - self.greatest
        if ahead > 0:
            self.seen = (self.seen << ahead | 1) & ALL if ahead < WIDTH else 1
            self.greatest = counter
        else:
            self.seen |= 1 << -ahead
