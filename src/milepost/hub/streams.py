"""Streams: a site's cross-hub, copied to others in its order, by the one process that acts for the site.

    route ─▶ backlog ─▶ message: to the sites that want it       ─▶ `Append`
                        letter: to its receiver's site, whole
    extra ─▶ pending ─▶ what was said and not copied, to one endpoint; if it is not at hand: `ReadBack`, and all else waits

What must hold:
- what an edge said is copied to each site in the order of its numbers: readers there drop what is not higher;
- nothing is copied that stands there already, brought by an earlier process, as a copy or in an extra; and what an earlier
  process did not copy stays so once something later stands there: readers would drop it;
- an extra is sent when all is dealt with that was there when the move was seen: what an earlier process passed over is in it;
- a stream that waits for records deals with nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from milepost.hub.actions import Append, Incoming, ReadBack
from milepost.hub.counts import Counts, Drop
from milepost.hub.moves import Move, extras_of
from milepost.hub.recent import Arrivals, Recent, Routed
from milepost.hub.routing import Routing
from milepost.model.instants import Instant
from milepost.model.reasons import Malformed
from milepost.model.sites import CROSS_HUB, Extra, Handover, Rest, Said, Taken
from milepost.wire.records import from_record
from milepost.wire.records.heads import head_of

Letter = Handover | Rest | Extra | Taken
LETTERS: Final = (Handover, Rest, Extra, Taken)

OnTaken = Callable[[Taken, Instant], None]
OnFault = Callable[[str, str, int, Drop, str], None]
"""Told of a record that is not what it should be: site, topic, offset, why, details."""


class Stream:
    """The cross-hub of one site."""

    def __init__(
        self,
        site: str,
        first: int,
        routing: Routing,
        arrivals: Mapping[str, Arrivals],
        counts: Counts,
        *,
        taken: OnTaken,
        fault: OnFault,
    ) -> None:
        self._site = site
        self._routing = routing
        self._arrivals = arrivals
        self._counts = counts
        self._on_taken = taken
        self._on_fault = fault
        self._recent = Recent(first)
        self._backlog: deque[Incoming] = deque()
        self._moves: deque[tuple[Move, int]] = deque()
        """With the position from which on their extras can be sent."""
        self._is_reading = False
        self.position = first
        """All before this offset is dealt with."""
        self.appends: list[Append] = []
        self.reads: list[ReadBack] = []

    @property
    def is_waiting(self) -> bool:
        """Whether it waits for records that are to be read again."""
        return self._is_reading

    def route(self, records: Sequence[Incoming], now: Instant) -> None:
        """Deal with the next records."""
        self._backlog.extend(records)
        self._go_on(now)

    def extra(self, move: Move, after: int, now: Instant) -> None:
        """Send an endpoint on the move what it has not got of this site, once all before an offset is dealt with."""
        self._moves.append((move, after))
        self._go_on(now)

    def on_read(self, records: Sequence[Incoming], now: Instant, *, is_whole: bool) -> None:
        """Records that were to be read again, or what of them is still there."""
        if not self._is_reading:  # whoever had the site before asked for them
            return
        self._is_reading = False
        move, _ = self._moves.popleft()
        if not is_whole:
            self._on_fault(self._site, CROSS_HUB, self._recent.first, Drop.TOO_OLD, f"for {move.endpoint}, who moves")
        self._send_extra(move, records)
        self._go_on(now)

    def _go_on(self, now: Instant) -> None:
        while not self._is_reading:
            if self._moves and self._moves[0][1] <= self.position:
                self._begin_extra()
            elif self._backlog:
                record = self._backlog.popleft()
                self._route(record, now)
                self.position = record.offset + 1
            else:
                return

    def _route(self, record: Incoming, now: Instant) -> None:
        if record.key.startswith(f"{self._site}/") or record.value is None:
            return  # from one edge to another of the same site
        if not record.key and (head := head_of(record.value)) is not None:
            if head.site != self._site:  # brought here by a centre, or by its edge
                return
            sites = self._routing.maybe_sites_for(head.topic) if head.topic is not None else None
            if sites is not None:
                self._copy(head.sender, head.number, record, sites - {self._site})
                return
        try:
            value = from_record(record.value)
        except Malformed as fault:
            self._on_fault(self._site, CROSS_HUB, record.offset, Drop.UNREADABLE, str(fault))
            return
        if isinstance(value, Said):
            self._copy_said(value, record, now)
        elif isinstance(value, LETTERS):
            self._copy_letter(value, record, now)
        else:
            self._on_fault(self._site, CROSS_HUB, record.offset, Drop.FALSE, f"a {type(value).__name__} belongs elsewhere")

    def _copy_said(self, said: Said, record: Incoming, now: Instant) -> None:
        if said.sender.site != self._site:  # brought here by a centre, or by its edge
            return
        self._copy(str(said.sender), said.number, record, self._routing.sites_for(said, now), said.direct)

    def _copy(self, sender: str, number: int, record: Incoming, sites: Iterable[str], direct: Sequence[str] = ()) -> None:
        copied = set(direct)
        for site in sites:
            if self._append(site, sender, number, record):
                self._arrivals[site].add(sender, number)
            if self._arrivals[site].is_for_all((sender, number)):
                copied.add(site)
        self._recent.put(_routed(record, sender, number, copied))

    def _copy_letter(self, letter: Letter, record: Incoming, now: Instant) -> None:
        site = letter.receiver.site
        if letter.sender.site != self._site or site == self._site:
            return
        if site not in self._arrivals:
            self._on_fault(self._site, CROSS_HUB, record.offset, Drop.SITE_UNKNOWN, f"a letter for {letter.receiver}")
            return
        if isinstance(letter, Taken):
            self._on_taken(letter, now)
        if self._append(site, str(letter.sender), letter.number, record):
            self._counts.moves_started += isinstance(letter, Handover)
            self._counts.moves_finished += isinstance(letter, Taken)

    def _append(self, site: str, sender: str, number: int, record: Incoming) -> bool:
        """Copy a record as it is, unless it is there already, or would be dropped because later ones are."""
        if (sender, number) in self._arrivals[site] or self._arrivals[site].is_passed(sender, number):
            self._counts.repeated += 1
            return False
        self._counts.copied[self._site, site] += 1
        self.appends.append(Append(site, CROSS_HUB, record.key, record.value, self._site))
        return True

    def _begin_extra(self) -> None:
        move, _ = self._moves[0]
        first = move.offset if move.sender.site == self._site else 0
        if self._recent.first <= first or self._recent.reaches(move.since):
            self._moves.popleft()
            self._send_extra(move, ())
        else:
            self._is_reading = True
            self.reads.append(ReadBack(self._site, first, move.since, self._recent.first))

    def _send_extra(self, move: Move, older: Sequence[Incoming]) -> None:
        site = move.receiver.site
        arrived = self._arrivals[site]
        found: list[tuple[Said, int]] = []
        for one in (*self._reread(older, move), *self._recent.above(move.mark_of)):
            if site in one.copied or arrived.is_for_all((one.sender, one.number)):
                continue
            said = _maybe_wanted(one.value, move)
            if said is not None:
                arrived.add_extra(one.sender, one.number)
                found.append((said, len(one.value)))
        self._counts.extras += len(found)
        for value in extras_of(move, self._site, found):
            self.appends.append(Append(site, CROSS_HUB, str(move.receiver), value))

    def _reread(self, records: Sequence[Incoming], move: Move) -> Iterator[Routed]:
        """Of what was read again, what the endpoint has not had; who has it, as far as the record says."""
        for record in records:
            said = _maybe_said(record.value) if not record.key and record.value is not None else None
            if said is not None and said.sender.site == self._site and said.number > move.mark_of(str(said.sender)):
                yield _routed(record, str(said.sender), said.number, said.direct)


def _routed(record: Incoming, sender: str, number: int, copied: Iterable[str]) -> Routed:
    return Routed(record.offset, record.appended_at, sender, number, record.value or b"", frozenset(copied))


def _maybe_wanted(value: bytes, move: Move) -> Said | None:
    """The message in a record, if the endpoint wants it: what it does not ask about is not read."""
    head = head_of(value)
    if head is not None and head.topic is not None and not move.asks_about(head.topic):
        return None
    said = _maybe_said(value)
    return said if said is not None and move.wants(said.message) else None


def _maybe_said(value: bytes) -> Said | None:
    """The message in a record, if there is one; what cannot be read was counted when it was to be, here or where it went."""
    try:
        said = from_record(value)
    except Malformed:
        return None
    return said if isinstance(said, Said) else None
