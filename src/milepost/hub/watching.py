"""Watching a site's cross-hub: what others have brought there, which moves to it have begun, and which extras are there.

Every process of the centre watches all sites, whichever it acts for: what stands in a log is what was done, whoever did it.
"""

from collections.abc import Iterator
from typing import Final

from milepost.hub.actions import Incoming
from milepost.hub.moves import Move, last_of, move_of
from milepost.hub.recent import Arrivals
from milepost.hub.streams import LETTERS
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed
from milepost.model.sites import Extra, Handover, Said
from milepost.wire.records import from_record
from milepost.wire.records.heads import head_of

MOVE_NS_MAX: Final = 600 * SECOND_NS
"""After so long a move whose extras are not all there is given up: whoever should have sent them is gone for good."""
MOVES_MAX: Final = 100_000


class Watch:
    """What is known of one site's cross-hub."""

    def __init__(self, site: str, sites: tuple[str, ...], arrivals: Arrivals) -> None:
        self._site = site
        self._sites = sites
        self._arrivals = arrivals
        self._moves: dict[int, Move] = {}
        self.next_offset = 0
        """One above the last offset that was read."""

    def take(self, record: Incoming, now: Instant) -> Move | None:
        """One more record; gives the move that begins with it, if one does."""
        self.next_offset = record.offset + 1
        if record.value is None:
            return None
        head = head_of(record.value) if not record.key else None
        if head is not None:
            if head.site != self._site:
                self._arrivals.add(head.sender, head.number)
            return None
        return self._read(record, now)

    def moves(self) -> Iterator[Move]:
        """Moves to this site of which extras are still to come."""
        return iter(list(self._moves.values()))

    def tick(self, now: Instant) -> None:
        """Give up what is too old."""
        while self._moves:
            move = next(iter(self._moves.values()))
            if move.seen_at > now - MOVE_NS_MAX and len(self._moves) <= MOVES_MAX:
                break
            del self._moves[move.at]

    def _read(self, record: Incoming, now: Instant) -> Move | None:
        try:
            value = from_record(record.value or b"")
        except Malformed:  # counted by whoever acts for the site
            return None
        if not isinstance(value, (Said, *LETTERS)) or value.sender.site == self._site:
            return None
        which = str(value.sender), value.number
        is_new = which not in self._arrivals
        self._arrivals.add(*which)
        if isinstance(value, Extra):
            self._note(value)
        elif isinstance(value, Handover) and is_new and value.is_held and value.receiver.site == self._site:
            move = self._moves[record.offset] = move_of(value, record.offset, now, self._sites)
            return move
        return None

    def _note(self, extra: Extra) -> None:
        """An extra is there: what it brought has arrived."""
        for said in extra.said:
            self._arrivals.add_extra(str(said.sender), said.number)
        at = last_of(extra)
        move = self._moves.get(at) if at is not None else None
        if move is not None:
            move.left.discard(extra.sender.site)
            if not move.left:
                del self._moves[move.at]
