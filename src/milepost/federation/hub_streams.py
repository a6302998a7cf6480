"""Streams: a site's cross-hub, copied to other sites in its order by the process that owns the site, and moves between sites.

    route ─▶ backlog ─▶ message: to the sites with interest      ─▶ `HubAppend`
                        addressed record: to its receiver's site, as it is
    queue_missed ─▶ moves ─▶ `MissedMessages`: those not copied, for an endpoint; if not cached, `HubReadBack`, and all else waits

Invariants:
- messages of an origin are copied to each site in the order of their numbers: readers drop numbers below their cursors;
- a message already at the destination is not copied again, directly or among missed messages, whichever process copied it; a
  message that an earlier process passed over, while it copied a later one, is never copied: readers would drop it;
- `MissedMessages` are sent when all records present when the move was seen are handled: they are those not copied;
- a stream that waits for records handles nothing.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from milepost.federation.hub_actions import DropReason, HubAppend, HubCounts, HubReadBack
from milepost.federation.hub_routing import Routing
from milepost.model.addresses import ToContent, includes
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.queries import holds
from milepost.model.reasons import Malformed
from milepost.model.site_records import (
    CROSS_HUB,
    HUB,
    EdgeRef,
    Epoch,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    LoggedRecord,
    MissedMessages,
)
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record, head_of, to_record

# Moves between sites (D8). A handover arrives in the cross-hub of the receiver's site. The owner of each other site reads it
# there and from then on copies the messages that match the endpoint's subscriptions; earlier ones, which the former edge had not
# read and which were not copied, it sends as `MissedMessages`. Together they are all messages, none twice. Both records are in
# the receiver's cross-hub: after a process was killed, the next one sends the missing ones with the same numbers.

SLACK_NS: Final = 60 * SECOND_NS
"""Maximum difference between clocks of edges and logs, including the delay of records in transit."""
MISSED_BYTES: Final = 500_000
"""Maximum bytes of messages in one `MissedMessages`; as JSON it stays below the record limit of every log."""
PARTS_MAX: Final = 1_000


@dataclass(frozen=True, slots=True)
class SiteMove:
    """An endpoint that moves to another site."""

    handover_offset: int
    """The offset of its handover in the cross-hub of the receiver's site."""
    handover: str
    """The id of its handover."""
    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    subscriptions: tuple[Subscription, ...]
    place: Place | None
    cursors: dict[str, int]
    offset: int
    as_of: Instant
    seen_at: Instant
    sites_missing: set[str]
    """The sites whose `MissedMessages` are still outstanding."""

    @property
    def since(self) -> Instant:
        """The time before which no appended message is missing at the endpoint."""
        return Instant(max(0, self.as_of - SLACK_NS))

    def cursor_of(self, sender: str) -> int:
        """Return the cursor of the endpoint for an origin."""
        return self.cursors.get(sender, self.since)

    def may_match_topic(self, topic: str) -> bool:
        """Return whether a plain message on a topic may match a subscription of the endpoint."""
        return any(holds(one.query, topic, frozenset()) for one in self.subscriptions)

    def may_receive(self, message: Message) -> bool:
        """Return whether the endpoint may be in the audience of a message; areas that move with it are left to its edge."""
        if isinstance(message.address, ToContent):
            return any(one.matches(message, None, if_unplaced=True) for one in self.subscriptions)
        return includes(message.address, self.endpoint, self.place, was_notified=True, if_unplaced=True)


def move_of(handover: Handover, at: int, now: Instant, sites: Iterable[str]) -> SiteMove:
    """Return the move of a handover."""
    return SiteMove(
        at,
        handover.id,
        handover.endpoint,
        handover.epoch,
        handover.sender,
        handover.receiver,
        tuple(held.subscription for held in handover.subscriptions),
        handover.place,
        dict(handover.cursors),
        handover.offset,
        handover.as_of,
        now,
        set(sites) - {handover.receiver.site},
    )


def missed_records(move: SiteMove, site: str, forwarded: Iterable[tuple[ForwardedMessage, int]]) -> Iterator[bytes]:
    """Return the records with the messages of a site, each given with its size, for the endpoint alone; at least one.

    The last one has the last number of this move, however many there are: another process would assign the same number.
    """
    parts: list[list[ForwardedMessage]] = [[]]
    total = 0
    for one, size in forwarded:
        if parts[-1] and total + size > MISSED_BYTES:
            parts.append([])
            total = 0
        parts[-1].append(one)
        total += size
    parts = parts[:PARTS_MAX]
    for at, part in enumerate(parts, PARTS_MAX - len(parts)):
        number, is_last = move.handover_offset * PARTS_MAX + at, at == PARTS_MAX - 1
        sender = EdgeRef(site, HUB)
        yield to_record(
            MissedMessages(move.endpoint, move.epoch, sender, move.receiver, number, move.handover, tuple(part), is_last)
        )


def completed_handover(missed: MissedMessages) -> int | None:
    """Return the offset of the handover whose missed messages of this site are complete with this one; None if more follow."""
    return missed.number // PARTS_MAX if missed.is_last else None


RECORDS_MAX: Final = 20_000
BYTES_MAX: Final = 32_000_000
ARRIVALS_MAX: Final = 100_000


class Routed(NamedTuple):
    """A message that was read and routed."""

    offset: int
    appended_at: Instant
    sender: str
    """The origin, as SITE/EDGE."""
    number: int
    value: bytes
    """The record as it is in the log; few are decoded again."""
    copied: frozenset[str]
    """The sites that have it."""


class RoutedRecords:
    """The last messages of a site's edges, in the order of the log, limited in number and bytes."""

    def __init__(self, first: int, records_max: int = RECORDS_MAX, bytes_max: int = BYTES_MAX) -> None:
        self.first = first
        """Offset from which on all messages are cached."""
        self._records_max = records_max
        self._bytes_max = bytes_max
        self._bytes = 0
        self._oldest_first: deque[Routed] = deque()
        self._by_sender: dict[str, deque[Routed]] = {}
        self._dropped_at: Instant | None = None

    def put(self, routed: Routed) -> None:
        """Add a message."""
        self._oldest_first.append(routed)
        self._by_sender.setdefault(routed.sender, deque()).append(routed)
        self._bytes += len(routed.value)
        while len(self._oldest_first) > self._records_max or self._bytes > self._bytes_max:
            oldest = self._oldest_first.popleft()
            self._by_sender[oldest.sender].popleft()
            self._bytes -= len(oldest.value)
            self.first, self._dropped_at = oldest.offset + 1, oldest.appended_at

    def reaches(self, since: Instant) -> bool:
        """Return whether all messages appended since a time are cached."""
        if self._dropped_at is not None:
            return self._dropped_at < since
        return bool(self._oldest_first) and self._oldest_first[0].appended_at < since

    def above(self, cursor_of: Callable[[str], int]) -> list[Routed]:
        """Return the messages above the cursor of each origin, in the order of the log."""
        found: list[Routed] = []
        for sender, forwarded in self._by_sender.items():
            lowest = cursor_of(sender)
            for one in reversed(forwarded):
                if one.number <= lowest:
                    break
                found.append(one)
        return sorted(found, key=lambda one: one.offset)


class Arrivals:
    """Messages of other sites in a site's cross-hub, by origin and number, whichever process copied them; limited in number."""

    def __init__(self, limit: int = ARRIVALS_MAX) -> None:
        self._limit = limit
        self._known: dict[tuple[str, int], None] = {}
        self._for_one: dict[tuple[str, int], None] = {}
        self._highest: dict[str, int] = {}

    def __contains__(self, message_key: tuple[str, int]) -> bool:
        return message_key in self._known or message_key in self._for_one

    def is_for_all(self, message_key: tuple[str, int]) -> bool:
        """Return whether a message is there for all endpoints, and not only for one of them."""
        return message_key in self._known

    def is_passed(self, sender: str, number: int) -> bool:
        """Return whether readers would drop a message: a later one of its origin is there."""
        return number <= self._highest.get(sender, 0)

    def add(self, sender: str, number: int) -> None:
        """Note a message."""
        self._highest[sender] = max(number, self._highest.get(sender, 0))
        self._add(self._known, sender, number)

    def add_for_one(self, sender: str, number: int) -> None:
        """Note a message that is there for one endpoint alone."""
        self._add(self._for_one, sender, number)

    def _add(self, known: dict[tuple[str, int], None], sender: str, number: int) -> None:
        known[sender, number] = None
        if len(known) > self._limit:
            del known[next(iter(known))]


AddressedRecord = Handover | HandoverPart | MissedMessages | HandoverTaken
ADDRESSED_RECORDS: Final = (Handover, HandoverPart, MissedMessages, HandoverTaken)

OnTaken = Callable[[HandoverTaken, Instant], None]
OnFault = Callable[[str, str, int, DropReason, str], None]
"""Called with a wrong record: site, topic, offset, reason, details."""


MOVE_NS_MAX: Final = 600 * SECOND_NS
"""Time after which a move whose missed messages are outstanding is given up."""
MOVES_MAX: Final = 100_000


class CrossHubWatch:
    """Contents of one site's cross-hub as known to every process: messages of other sites, and moves to it."""

    def __init__(self, site: str, sites: tuple[str, ...], arrivals: Arrivals) -> None:
        self._site = site
        self._sites = sites
        self._arrivals = arrivals
        self._moves: dict[int, SiteMove] = {}
        self.next_offset = 0
        """The offset after the last record that was read."""

    def on_record(self, record: LoggedRecord, now: Instant) -> SiteMove | None:
        """Handle a record; return the move that begins with it, if one does."""
        self.next_offset = record.offset + 1
        if record.value is None:
            return None
        head = head_of(record.value) if not record.key else None
        if head is not None:
            if head.site != self._site:
                self._arrivals.add(head.sender, head.number)
            return None
        return self._read(record, now)

    def moves(self) -> Iterator[SiteMove]:
        """Return the moves to this site whose missed messages are outstanding."""
        return iter(list(self._moves.values()))

    def tick(self, now: Instant) -> None:
        """Give up moves that are too old."""
        while self._moves:
            move = next(iter(self._moves.values()))
            if move.seen_at > now - MOVE_NS_MAX and len(self._moves) <= MOVES_MAX:
                break
            del self._moves[move.handover_offset]

    def _read(self, record: LoggedRecord, now: Instant) -> SiteMove | None:
        try:
            value = from_record(record.value or b"")
        except Malformed:  # counted by the owner of the site
            return None
        if not isinstance(value, (ForwardedMessage, *ADDRESSED_RECORDS)) or value.sender.site == self._site:
            return None
        message_key = str(value.sender), value.number
        is_new = message_key not in self._arrivals
        self._arrivals.add(*message_key)
        if isinstance(value, MissedMessages):
            self._note_missed(value)
        elif isinstance(value, Handover) and is_new and value.has_session and value.receiver.site == self._site:
            move = self._moves[record.offset] = move_of(value, record.offset, now, self._sites)
            return move
        return None

    def _note_missed(self, missed: MissedMessages) -> None:
        """Note the messages of a record."""
        for forwarded in missed.messages:
            self._arrivals.add_for_one(str(forwarded.sender), forwarded.number)
        at = completed_handover(missed)
        move = self._moves.get(at) if at is not None else None
        if move is not None:
            move.sites_missing.discard(missed.sender.site)
            if not move.sites_missing:
                del self._moves[move.handover_offset]


class SiteStream:
    """The copying of one site's cross-hub to other sites."""

    def __init__(
        self,
        site: str,
        first: int,
        routing: Routing,
        arrivals: Mapping[str, Arrivals],
        counts: HubCounts,
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
        self._recent = RoutedRecords(first)
        self._backlog: deque[LoggedRecord] = deque()
        self._moves: deque[tuple[SiteMove, int]] = deque()
        """Moves, with the position from which on their missed messages can be sent."""
        self._is_reading = False
        self.position = first
        """All records before this offset are handled."""
        self.appends: list[HubAppend] = []
        self.reads: list[HubReadBack] = []

    @property
    def is_waiting(self) -> bool:
        """Whether the stream waits for records that are read again."""
        return self._is_reading

    def route(self, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Handle the next records."""
        self._backlog.extend(records)
        self._advance(now)

    def queue_missed(self, move: SiteMove, after: int, now: Instant) -> None:
        """Send the endpoint of a move its missing messages of this site, once all records before an offset are handled."""
        self._moves.append((move, after))
        self._advance(now)

    def on_read(self, records: Sequence[LoggedRecord], now: Instant, *, is_complete: bool) -> None:
        """Handle records that were read again, as far as they are still there."""
        if not self._is_reading:  # requested by the previous owner of the site
            return
        self._is_reading = False
        move, _ = self._moves.popleft()
        if not is_complete:
            self._on_fault(
                self._site,
                CROSS_HUB,
                self._recent.first,
                DropReason.TOO_OLD,
                f"for {move.endpoint}: earlier messages are gone from the log",
            )
        self._send_missed(move, records)
        self._advance(now)

    def _advance(self, now: Instant) -> None:
        while not self._is_reading:
            if self._moves and self._moves[0][1] <= self.position:
                self._begin_missed()
            elif self._backlog:
                record = self._backlog.popleft()
                self._route(record, now)
                self.position = record.offset + 1
            else:
                return

    def _route(self, record: LoggedRecord, now: Instant) -> None:
        if record.key.startswith(f"{self._site}/") or record.value is None:
            return  # from one edge to another of the same site
        if not record.key and (head := head_of(record.value)) is not None:
            if head.site != self._site:  # copied here by a central hub, or by its edge
                return
            sites = self._routing.maybe_sites_for(head.topic) if head.topic is not None else None
            if sites is not None:
                self._copy(head.sender, head.number, record, sites - {self._site})
                return
        try:
            value = from_record(record.value)
        except Malformed as fault:
            self._on_fault(self._site, CROSS_HUB, record.offset, DropReason.UNREADABLE, str(fault))
            return
        if isinstance(value, ForwardedMessage):
            self._copy_message(value, record, now)
        elif isinstance(value, ADDRESSED_RECORDS):
            self._copy_addressed(value, record, now)
        else:
            self._on_fault(self._site, CROSS_HUB, record.offset, DropReason.FALSE, f"a {type(value).__name__} belongs elsewhere")

    def _copy_message(self, forwarded: ForwardedMessage, record: LoggedRecord, now: Instant) -> None:
        if forwarded.sender.site != self._site:  # copied here by a central hub, or by its edge
            return
        self._copy(str(forwarded.sender), forwarded.number, record, self._routing.sites_for(forwarded, now), forwarded.direct)

    def _copy(self, sender: str, number: int, record: LoggedRecord, sites: Iterable[str], direct: Sequence[str] = ()) -> None:
        copied = set(direct)
        for site in sites:
            if self._append(site, sender, number, record):
                self._arrivals[site].add(sender, number)
            if self._arrivals[site].is_for_all((sender, number)):
                copied.add(site)
        self._recent.put(_routed(record, sender, number, copied))

    def _copy_addressed(self, addressed: AddressedRecord, record: LoggedRecord, now: Instant) -> None:
        site = addressed.receiver.site
        if addressed.sender.site != self._site or site == self._site:
            return
        if site not in self._arrivals:
            self._on_fault(self._site, CROSS_HUB, record.offset, DropReason.SITE_UNKNOWN, f"a record for {addressed.receiver}")
            return
        if isinstance(addressed, HandoverTaken):
            self._on_taken(addressed, now)
        if self._append(site, str(addressed.sender), addressed.number, record):
            self._counts.moves_started += isinstance(addressed, Handover)
            self._counts.moves_finished += isinstance(addressed, HandoverTaken)

    def _append(self, site: str, sender: str, number: int, record: LoggedRecord) -> bool:
        """Copy a record as it is, unless it is there already, or readers would drop it."""
        if (sender, number) in self._arrivals[site] or self._arrivals[site].is_passed(sender, number):
            self._counts.repeated += 1
            return False
        self._counts.copied[self._site, site] += 1
        self.appends.append(HubAppend(site, CROSS_HUB, record.key, record.value, self._site))
        return True

    def _begin_missed(self) -> None:
        move, _ = self._moves[0]
        first = move.offset if move.sender.site == self._site else 0
        if self._recent.first <= first or self._recent.reaches(move.since):
            self._moves.popleft()
            self._send_missed(move, ())
        else:
            self._is_reading = True
            self.reads.append(HubReadBack(self._site, first, move.since, self._recent.first))

    def _send_missed(self, move: SiteMove, older: Sequence[LoggedRecord]) -> None:
        site = move.receiver.site
        arrived = self._arrivals[site]
        found: list[tuple[ForwardedMessage, int]] = []
        for one in (*self._reread(older, move), *self._recent.above(move.cursor_of)):
            if site in one.copied or arrived.is_for_all((one.sender, one.number)):
                continue
            forwarded = _maybe_matching(one.value, move)
            if forwarded is not None:
                arrived.add_for_one(one.sender, one.number)
                found.append((forwarded, len(one.value)))
        self._counts.missed_messages += len(found)
        for value in missed_records(move, self._site, found):
            self.appends.append(HubAppend(site, CROSS_HUB, str(move.receiver), value))

    def _reread(self, records: Sequence[LoggedRecord], move: SiteMove) -> Iterator[Routed]:
        """Return the messages the endpoint lacks among records read again."""
        for record in records:
            forwarded = _maybe_message(record.value) if not record.key and record.value is not None else None
            if (
                forwarded is not None
                and forwarded.sender.site == self._site
                and forwarded.number > move.cursor_of(str(forwarded.sender))
            ):
                yield _routed(record, str(forwarded.sender), forwarded.number, forwarded.direct)


def _routed(record: LoggedRecord, sender: str, number: int, copied: Iterable[str]) -> Routed:
    return Routed(record.offset, record.appended_at, sender, number, record.value or b"", frozenset(copied))


def _maybe_matching(value: bytes, move: SiteMove) -> ForwardedMessage | None:
    """Return the message in a record if the endpoint may be in its audience, else None, if possible without decoding it."""
    head = head_of(value)
    if head is not None and head.topic is not None and not move.may_match_topic(head.topic):
        return None
    forwarded = _maybe_message(value)
    return forwarded if forwarded is not None and move.may_receive(forwarded.message) else None


def _maybe_message(value: bytes) -> ForwardedMessage | None:
    """Return the message in a record, if there is one; records that cannot be decoded are counted elsewhere."""
    try:
        forwarded = from_record(value)
    except Malformed:
        return None
    return forwarded if isinstance(forwarded, ForwardedMessage) else None
