"""State of an edge's membership in a site: the registry, the interest of others, recent records, cursors, the outbox."""

from bisect import bisect_left
from collections import Counter, deque
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from typing import Final, NamedTuple

from milepost.broker.broker import Broker
from milepost.broker.effects import StoredState
from milepost.federation.claims import ranked
from milepost.federation.limits import SiteLimits
from milepost.federation.outbox import Append, Outbox
from milepost.federation.residency import Cursors, Move, MoveOutcome, Residency
from milepost.matching.matcher import Matcher, MatcherLimits
from milepost.model.addresses import ToContent
from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import OnTopic
from milepost.model.reasons import Malformed
from milepost.model.site_records import (
    CROSS_HUB,
    DIRECT,
    MAIN,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    Epoch,
    ForwardedMessage,
    MissedMessages,
    Position,
    SiteRecord,
    claim_key,
)
from milepost.model.subscriptions import Subscription, SubscriptionId
from milepost.model.time_windows import ALWAYS
from milepost.wire.records import to_record

_NONE: dict[EdgeRef, EndpointClaim] = {}


class SiteRegistry:
    """Claims by endpoint and edge, in whatever order they are read (D8); `claims.ranked` decides which one wins.

    Claims of other sites come from the central hub, which does not announce their end: they may be out of date.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._claims: dict[EndpointId, dict[EdgeRef, EndpointClaim]] = {}
        self.dropped = 0
        """Claims dropped for lack of room: this edge asks the central hub about their endpoints."""

    def __len__(self) -> int:
        return len(self._claims)

    def put(self, claim: EndpointClaim) -> bool:
        """Add a claim; return whether it is new. Between owners at one edge the claim that is read last counts."""
        claims = self._claims.get(claim.endpoint)
        if claims is None:
            if len(self._claims) >= self._limit:
                self.dropped += 1
                return False
            claims = self._claims[claim.endpoint] = {}
        before = claims.get(claim.edge)
        if before is not None and before.owner == claim.owner and _age_of(before) >= _age_of(claim):
            return False
        claims[claim.edge] = claim
        return True

    def remove(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """Remove a withdrawn claim."""
        claims = self._claims.get(endpoint)
        if claims is not None and claims.pop(edge, None) is not None and not claims:
            del self._claims[endpoint]

    def drop_outdated(self, endpoint: EndpointId, owner: str, site: str) -> None:
        """Remove claims of other owners at other sites; the central hub repeats its notice if they still hold."""
        for claim in self.claims_for(endpoint):
            if claim.owner != owner and claim.edge.site != site:
                self.remove(endpoint, claim.edge)

    def winner(self, endpoint: EndpointId) -> EndpointClaim | None:
        """Return the claim that wins."""
        return next(iter(ranked(self.claims_for(endpoint))), None)

    def claims_for(self, endpoint: EndpointId) -> list[EndpointClaim]:
        """Return all claims of an endpoint."""
        return list(self._claims.get(endpoint, _NONE).values())

    def claim_of(self, endpoint: EndpointId, edge: EdgeRef) -> EndpointClaim | None:
        """Return the claim of one edge."""
        return self._claims.get(endpoint, _NONE).get(edge)

    def is_claimed_elsewhere(self, endpoint: EndpointId, edge: EdgeRef, owner: str) -> bool:
        """Return whether another edge has a claim of the same owner: a session may come from there."""
        return any(one.edge != edge and one.owner == owner for one in self._claims.get(endpoint, _NONE).values())

    def epoch_above(self, endpoint: EndpointId, now: int) -> Epoch:
        """Return an epoch above every known one of an endpoint."""
        claims = self._claims.get(endpoint, _NONE)
        return Epoch(max(now, *(claim.epoch + 1 for claim in claims.values()), 0))

    def claims_of(self, edge: EdgeRef) -> list[EndpointClaim]:
        """Return all claims of an edge."""
        return [claims[edge] for claims in self._claims.values() if edge in claims]


def _age_of(claim: EndpointClaim) -> tuple[Epoch, Epoch, int]:
    return claim.epoch, claim.clean_start_epoch, -claim.kept_since


# The interest of other edges, by subscription, so that only messages with receivers leave this edge (D7).
#
# Invariants:
# - `may_match` has no false negatives: it ignores areas and time windows;
# - `owners_matching` is exact, except for areas that move with their owner: they count as everywhere;
# - `changed` is called when a result of `may_match` may have changed, and not for every subscription.

OWNERS_MAX: Final = 65_536
CACHED_TOPICS_MAX: Final = 100_000
_ANYWHERE: Final = ToContent()
_ANY_SOURCE: Final = EndpointId("anybody")
_EVERYTHING: Final = OnTopic("#")

Owners = frozenset[str]


class InterestTable:
    """Subscriptions of others, by key and owner: an edge, a site, a handler, or endpoints that are arriving or leaving."""

    def __init__(self, changed: Callable[[], None], subscriptions_max: int = 1 << 20) -> None:
        self._changed = changed
        limits = MatcherLimits(subscriptions_max, OWNERS_MAX, subscriptions_max)
        self._exact = Matcher(limits)
        self._loose = Matcher(limits)
        """The same subscriptions without their areas and time windows."""
        self._rows: dict[str, tuple[int, int | None, str]] = {}
        self._keys: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._counts: Counter[str] = Counter()
        self._cached_owners: dict[str, Owners] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def put(self, key: str, owner: str, subscription: Subscription) -> None:
        """Add a subscription, or replace the one with this key."""
        self.remove(key)
        subscription = replace(subscription, id=SubscriptionId(0), share=None)
        if isinstance(subscription.area, Around):
            subscription = replace(subscription, area=None)
        number = self._number_of(owner)
        row = _add(self._exact, number, subscription)
        loose = replace(subscription, area=None, time_window=ALWAYS)
        loose_row = _add(self._loose, number, loose) if loose != subscription else None
        query = str(subscription.query)
        self._rows[key] = (row, loose_row, query)
        self._keys[row] = key
        self._cached_owners.clear()
        self._counts[query] += 1
        if self._counts[query] == 1:
            self._changed()

    def remove(self, key: str) -> bool:
        """Remove a subscription; return whether there was one."""
        if key not in self._rows:
            return False
        self._exact.remove(self._rows[key][0])
        self._forget(key)
        return True

    def expire(self, now: Instant) -> None:
        """Remove subscriptions whose time window is over."""
        for row in self._exact.expire(now):
            self._forget(self._keys[row])

    def may_match(self, topic: str, now: Instant) -> bool:
        """Return whether any message on a topic may match."""
        if not self._rows:
            return False
        message = Message(MessageId(1), _ANY_SOURCE, topic, now)
        return bool(self._owners(message, now)) or self._loose.find_rows(message, now).size > 0

    def owners_matching(self, message: Message, now: Instant) -> Owners:
        """Return the owners of the subscriptions that a message matches."""
        if not self._rows:
            return frozenset()
        return self._owners(message if message.address == _ANYWHERE else replace(message, address=_ANYWHERE), now)

    def _owners(self, message: Message, now: Instant) -> Owners:
        exact = self._exact
        is_cacheable = not message.tags and (message.place is None or not exact.has_areas)
        if is_cacheable and (cached := self._cached_owners.get(message.topic)) is not None:
            return cached
        owners = frozenset(self._names[number] for number in exact.owners_of(exact.find_rows(message, now)).tolist())
        if is_cacheable and exact.is_cacheable(message) and len(self._cached_owners) < CACHED_TOPICS_MAX:
            self._cached_owners[message.topic] = owners
        return owners

    def _number_of(self, owner: str) -> int:
        if owner not in self._numbers:
            self._numbers[owner] = len(self._names)
            self._names.append(owner)
        return self._numbers[owner]

    def _forget(self, key: str) -> None:
        row, loose_row, query = self._rows.pop(key)
        del self._keys[row]
        if loose_row is not None:
            self._loose.remove(loose_row)
        self._cached_owners.clear()
        self._counts[query] -= 1
        if not self._counts[query]:
            del self._counts[query]
            self._changed()

    def keys(self) -> Iterator[str]:
        """Return all keys."""
        return iter(list(self._rows))


def _add(matcher: Matcher, owner: int, subscription: Subscription) -> int:
    try:
        return matcher.add(owner, subscription)
    except Malformed:  # too many queries of negations alone: then every topic may match
        return matcher.add(owner, Subscription(subscription.owner, _EVERYTHING))


# Recent records of cross-hub, cached for arriving sessions; older ones are read again from the log.

MISSED_RECORDS_MAX: Final = 1_000
"""Maximum records with messages found by the central hub."""


class ReadRecord(NamedTuple):
    """A message as it was read from cross-hub."""

    offset: int
    appended_at: Instant
    size: int
    forwarded: ForwardedMessage
    is_new: bool = True
    """Whether it was read for the first time, and not again from another place of the log."""


class RecentRecords:
    """The last records of cross-hub, limited in number and bytes."""

    def __init__(self, limits: SiteLimits) -> None:
        self._limits = limits
        self._reads: deque[ReadRecord] = deque()
        self._bytes = 0
        self._missed: deque[tuple[int, MissedMessages]] = deque()
        self._first: int | None = None
        self._next = 0

    def begin(self, offset: int) -> None:
        """Note the first offset that will be read."""
        self._first = self._next = offset

    def put(self, read: ReadRecord) -> None:
        """Add a record."""
        self._reads.append(read)
        self._bytes += read.size
        while len(self._reads) > self._limits.recent_records_max or self._bytes > self._limits.recent_bytes_max:
            oldest = self._reads.popleft()
            self._bytes -= oldest.size
            self._first = oldest.offset + 1

    def put_missed(self, offset: int, missed: MissedMessages) -> None:
        """Add messages that the central hub found for an endpoint."""
        self._missed.append((offset, missed))
        if len(self._missed) > MISSED_RECORDS_MAX:
            self._first = max(self._first or 0, self._missed.popleft()[0] + 1)

    def missed_for(self, endpoint: EndpointId) -> list[MissedMessages]:
        """Return the messages that the central hub found for an endpoint."""
        return [missed for _, missed in self._missed if missed.endpoint == endpoint]

    def reaches(self, offset: int) -> bool:
        """Return whether all records from an offset on are cached."""
        return self._first is not None and self._first <= offset

    def reaches_time(self, instant: Instant) -> bool:
        """Return whether all records appended since a time are cached."""
        return bool(self._reads) and self._reads[0].appended_at < instant

    def offsets(self) -> dict[tuple[str, int], int]:
        """Return the offset of each new message, by origin and number."""
        return {(str(read.forwarded.sender), read.forwarded.number): read.offset for read in self._reads if read.is_new}

    def since(self, offset: int) -> list[ReadRecord]:
        """Return the records from an offset on."""
        at = bisect_left(self._reads, offset, key=lambda read: read.offset)
        return list(islice(self._reads, at, None))

    def since_time(self, instant: Instant) -> list[ReadRecord]:
        """Return the records appended at a time or later."""
        at = bisect_left(self._reads, instant, key=lambda read: read.appended_at)
        return list(islice(self._reads, at, None))


HUB_TIMEOUT_NS: Final = 5 * SECOND_NS
"""Time without a heartbeat after which the central hub counts as down."""

MOVES_MAX: Final = 1_000
"""Maximum lines about moves in one tick; more are counted."""

_OFFSET, _MESSAGE, _ADDRESSED = "offset ", "said ", "letter "


class SiteState:
    """State that the parts of a `SiteMember` share."""

    def __init__(self, broker: Broker, edge: EdgeRef, limits: SiteLimits) -> None:
        self.broker = broker
        self.edge = edge
        self.limits = limits
        self.outbox = Outbox(limits, broker.store_outbox)
        self.interest = InterestTable(broker.routes_changed)
        self.registry = SiteRegistry(limits.registry_max)
        self.recent = RecentRecords(limits)
        self.cursors: Cursors = {}
        """By stream, the last number read from cross-hub; for this edge's own stream, the last number read back."""
        self.addressed_cursors: Cursors = {}
        """By origin, the last number read of records addressed to this edge: handovers and replies."""
        self.offsets: Cursors = {}
        """By topic, the next offset to read."""
        self.next_offset = 0
        """The next offset of cross-hub, while its records are handled one by one."""
        self.known_end = 0
        """The end of cross-hub when this edge started: records of its earlier processes are before it, or in the outbox."""
        self.read_at = Instant(0)
        """Append time of the last record read from cross-hub."""
        self.edges: dict[EdgeRef, EdgeInfo] = {}
        """All other known edges, of all sites."""
        self.neighbours: frozenset[str] = frozenset()
        """Sites whose logs this edge can append to."""
        self.hub_seen_at = Instant(0)
        """Time of the last heartbeat read from the central hub, by this edge's clock."""
        self.is_ready = False
        """Whether the site's registry was read up to its end at the start of this edge."""
        self.counts: Counter[str] = Counter()
        """Events, for the metrics."""
        self.now = Instant(0)
        """The time of the last call with a time argument."""
        self.moves: list[Move] = []
        """Moves that ended in this tick, for the operator."""

    def note_move(self, residency: Residency, outcome: MoveOutcome, why: str, *, from_edge: str = "", messages: int = 0) -> None:
        """Add the operator's line about a move to this edge."""
        if len(self.moves) >= MOVES_MAX:
            self.counts["handovers_not_logged"] += 1
            return
        if residency.catching_up is not None and not from_edge:
            from_edge, messages = residency.catching_up.from_edge, residency.catching_up.carried
        duration_ns = max(0, self.now - residency.epoch)
        self.moves.append(Move(residency.endpoint, from_edge, str(self.edge), outcome, why, messages, duration_ns))

    def restore(self, stored: StoredState) -> None:
        """Restore cursors, offsets and the outbox."""
        for name, number in stored.cursors.items():
            for head, cursors in ((_OFFSET, self.offsets), (_MESSAGE, self.cursors), (_ADDRESSED, self.addressed_cursors)):
                if name.startswith(head):
                    cursors[name.removeprefix(head)] = number
        self.outbox.restore(stored.outbox, self.cursors.get(str(self.edge), 0))

    def is_hub_available(self, now: Instant) -> bool:
        """Return whether a heartbeat of the central hub was read lately."""
        return now - self.hub_seen_at < HUB_TIMEOUT_NS

    def note_offset(self, topic: str, offset: int) -> None:
        """Note that a topic was read up to an offset."""
        self.offsets[topic] = offset
        self.broker.store_cursor(_OFFSET + topic, offset)

    def position_of(self, forwarded: ForwardedMessage) -> Position:
        """Return the position of a message in the log of this site."""
        return Position(str(forwarded.sender), DIRECT if self.edge.site in forwarded.direct else MAIN, forwarded.number)

    def is_new(self, forwarded: ForwardedMessage) -> bool:
        """Return whether a message was not read before, and advance the cursor."""
        return self._is_new(self.cursors, _MESSAGE, self.position_of(forwarded))

    def is_new_addressed(self, sender: EdgeRef, number: int, *, is_last: bool = True) -> bool:
        """Do the same for records addressed to one edge; of a divided handover, the cursor is stored with the last record."""
        return self._is_new(self.addressed_cursors, _ADDRESSED, Position(str(sender), MAIN, number), is_stored=is_last)

    def _is_new(self, cursors: Cursors, head: str, position: Position, *, is_stored: bool = True) -> bool:
        if not position.is_after(cursors):
            self.counts["duplicates"] += 1
            return False
        cursors[position.key] = position.number
        if is_stored:
            self.broker.store_cursor(head + position.key, position.number)
        return True

    def send_to_edge(self, record: SiteRecord, number: int, receiver: EdgeRef) -> None:
        """Send a record to another edge."""
        self.outbox.spool(Append(number, CROSS_HUB, str(receiver), to_record(record)))

    def announce_claim(self, claim: EndpointClaim) -> None:
        """Announce that an endpoint is at this edge."""
        self.registry.put(claim)
        self.outbox.announce(VEHICLE_INFO, claim_key(claim.endpoint, self.edge), to_record(claim))
