"""Catch-up: an endpoint whose session has just arrived receives its messages from the log, until matching can take over.

Invariants:
- an endpoint that is catching up is in no route: its subscriptions are suspended, and messages published here for it go to the
  log;
- its subscriptions are in parts, each with its own cursors: those that came with the session have the cursors of the handover,
  those made here the cursors of this edge. A record is delivered if it matches a subscription whose part has its cursor behind
  the record, and none whose part has passed it. Then the cursors of all parts pass it;
- missed records come before new ones: no new record of a site is delivered before the missed ones were read again;
- the endpoint goes live when this edge has read back all messages that it forwarded for moving endpoints, or before the session
  came.
"""

from collections import deque
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from milepost.broker.publication import Delivery, Publication
from milepost.broker.session import Session
from milepost.federation.forwarding import MOVING_ENDPOINTS, Forwarder, publication_of
from milepost.federation.member_state import ReadRecord, SiteState
from milepost.federation.residency import (
    EVERY,
    OFFSET,
    SINCE_ALWAYS,
    CatchingUp,
    Cursors,
    MoveOutcome,
    Part,
    Residency,
    ResidencyEvent,
    advance,
    site_of,
)
from milepost.model.addresses import ToContent, ToNotified, includes
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.site_records import NEVER, EdgeRef, ForwardedMessage, HeldSubscription, Position
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

# Matching for one endpoint that is catching up, and is in no route.


class Recipient(NamedTuple):
    """An endpoint with its position and subscriptions."""

    endpoint: EndpointId
    place: Place | None
    held: tuple[HeldSubscription, ...]


def maybe_delivery(publication: Publication, message: Message, recipient: Recipient, now: Instant) -> Delivery | None:
    """Return the delivery of a message to one endpoint, if it is in the message's audience."""
    # The caller has already checked whether the endpoint was notified.
    if message.is_expired(now) or not includes(message.address, recipient.endpoint, recipient.place, was_notified=True):
        return None
    is_to_content = isinstance(message.address, ToContent)
    return _by_subscription(publication, message, recipient, now) if is_to_content else Delivery(publication, publication.qos)


def matching_subscriptions(
    held: Iterable[HeldSubscription], message: Message, place: Place | None, now: Instant
) -> list[HeldSubscription]:
    """Return the subscriptions of one endpoint that a message matches."""
    return [one for one in held if matches_now(one.subscription, message, place, now)]


def matches_now(subscription: Subscription, message: Message, place: Place | None, now: Instant) -> bool:
    """Return whether a message matches a subscription that has not ended, if its owner is at *place*."""
    return not subscription.time_window.is_over(now) and subscription.matches(message, place)


def _by_subscription(publication: Publication, message: Message, recipient: Recipient, now: Instant) -> Delivery | None:
    found = matching_subscriptions(recipient.held, message, recipient.place, now)
    if not found or (message.source == recipient.endpoint and all(one.no_local for one in found)):
        return None
    subscription_ids = tuple(sorted(one.subscription.id for one in found if one.subscription.id))
    qos = min(publication.qos, max(one.subscription.qos for one in found))
    is_shown = any(one.retain_as_published for one in found)
    return Delivery(publication, qos, subscription_ids, has_retain_flag=publication.is_retained and is_shown)


FOUND_BY_HUB: Final = -1
"""The size of messages that were found by the central hub, and not read here."""


class Candidate(NamedTuple):
    """A message with its position."""

    message: Message
    position: Position
    offset: int | None
    """Its offset in the log of this site, if known; None for messages of this edge, which are delivered before they are read."""


class CatchUp:
    """The residencies that are catching up."""

    def __init__(self, state: SiteState, forwarder: Forwarder) -> None:
        self._state = state
        self._forwarder = forwarder
        self._residencies: dict[EndpointId, Residency] = {}
        self._changed: dict[EndpointId, Residency] = {}
        self._early: dict[str, dict[EndpointId, int]] = {}
        """By stream: live endpoints that received more of it elsewhere than this edge has read."""

    def __len__(self) -> int:
        return len(self._residencies)

    def begin(self, residency: Residency, session: Session) -> None:
        """Begin catching up: suspend the subscriptions."""
        self._residencies[residency.endpoint] = residency
        for name in list(session.subscriptions):
            self._suspend(session, name)

    def subscribed(self, residency: Residency, session: Session, name: str) -> None:
        """Add a new subscription as a part whose cursors are those of this edge."""
        if residency.catching_up is not None:
            residency.catching_up.parts = [_without(part, name) for part in residency.catching_up.parts]
            since = {name: residency.since[name]}
            residency.catching_up.parts.append(
                Part(self._state.edge.site, [name], since, self.cursors_here(), self._state.next_offset)
            )
            self._suspend(session, name)

    def resubscribed(self, residency: Residency, session: Session, name: str) -> None:
        """Replace a subscription by one of the same name, with the same cursors."""
        if residency.catching_up is not None:
            self._suspend(session, name)

    def _suspend(self, session: Session, name: str) -> None:
        """Suspend a subscription, unless it is shared: those are served at once."""
        subscription = session.subscriptions[name].subscription
        if subscription.share is None:
            self._state.broker.suspend_subscription(session, name)
            self._state.interest.put(_key(session.name, name), MOVING_ENDPOINTS, subscription)
        else:
            self._state.broker.resume_subscription(session, name)

    def unsubscribed(self, session: Session, name: str) -> None:
        """End the interest of a subscription that has ended or is about to be replaced."""
        self._state.interest.remove(_key(session.name, name))

    def forget(self, endpoint: EndpointId) -> None:
        """Forget an endpoint that has left; its subscriptions are dropped already."""
        self._residencies.pop(endpoint, None)
        self._changed.pop(endpoint, None)
        for early in self._early.values():
            early.pop(endpoint, None)

    def cursors_here(self) -> Cursors:
        """Return the cursors of an endpoint that is live here."""
        state = self._state
        own = str(state.edge)
        return state.cursors | {own: max(self._forwarder.forwarded_up_to, state.cursors.get(own, 0))}

    def cursors_of(self, residency: Residency) -> Cursors:
        """Return the cursors up to which an endpoint was served, by stream."""
        here = self.cursors_here() if residency.catching_up is None else dict(self._state.cursors)
        for stream, number in residency.received_elsewhere.items():
            here[stream] = max(number, here.get(stream, 0))
        if residency.catching_up is not None:
            parts, awaits = residency.catching_up.parts, residency.catching_up.awaits
            for stream in {stream for part in parts for stream in part.cursors} | here.keys():
                lowest = min(part.cursors.get(stream, part.default_cursor) for part in parts)
                here[stream] = lowest if site_of(stream) in awaits else max(lowest, here.get(stream, 0))
        return here

    def offer_record(self, read: ReadRecord, publication: Publication, now: Instant) -> None:
        """Offer a new record of cross-hub to the endpoints that are catching up."""
        site = read.forwarded.sender.site
        for residency in self._residencies.values():
            if residency.catching_up is not None and residency.catching_up.is_served(site):
                self._deliver_if_missing(residency, residency.catching_up, read, publication, now)

    def replay(self, residency: Residency, reads: Sequence[ReadRecord], now: Instant) -> None:
        """Deliver the records an endpoint missed; then its cursors are those of this edge, except for incomplete sites."""
        catching_up = residency.catching_up
        assert catching_up is not None, "only a residency that is catching up replays"
        to_reread, catching_up.sites_to_reread = catching_up.sites_to_reread, set()
        first = reads[0].offset if reads else self._state.next_offset
        sites = {one.forwarded.sender.site for one in reads} - catching_up.awaits.keys()
        served = sites if EVERY in to_reread else sites & to_reread
        from_log = [one for one in reads if one.forwarded.sender.site in served]
        from_hub = [
            forwarded for forwarded in map(_forwarded_from, catching_up.missed) if forwarded.sender.site not in catching_up.awaits
        ]
        catching_up.missed = [
            record for record in catching_up.missed if _forwarded_from(record).sender.site in catching_up.awaits
        ]
        in_transit = self._state.broker.in_transit(self._session(residency))
        for read in merged_by_number(from_log, from_hub, self._state.next_offset):
            if not in_transit or (str(read.forwarded.sender), read.forwarded.number) not in in_transit:
                self._deliver_if_missing(residency, catching_up, read, None, now)
        for part in catching_up.parts:
            for stream, number in self._state.cursors.items():
                if site_of(stream) not in catching_up.awaits:
                    part.cursors[stream] = max(number, part.cursors.get(stream, 0))
            part.offset = self._state.next_offset if not catching_up.awaits else first if part.offset is None else part.offset
        self._changed[residency.endpoint] = residency

    def _deliver_if_missing(
        self, residency: Residency, catching_up: CatchingUp, read: ReadRecord, publication: Publication | None, now: Instant
    ) -> None:
        """Deliver a record to an endpoint if a part lacks it; most records are not lacking, so that is checked first."""
        forwarded = read.forwarded
        position = self._state.position_of(forwarded)
        lacking = [part for part in catching_up.parts if part.lacks(position, read.offset)]
        if not lacking:
            return
        offset = None if read.size == FOUND_BY_HUB or forwarded.sender == self._state.edge else read.offset
        candidate = Candidate(forwarded.message, position, offset)
        if not isinstance(forwarded.message.address, ToContent):
            if isinstance(forwarded.message.address, ToNotified) or self._was_addressed_before(residency, read):
                self._deliver(residency, publication or publication_of(forwarded), forwarded.message, [], now)
        elif not _is_carried(catching_up, candidate) and not self._was_delivered_through(
            residency, catching_up.parts, candidate, now
        ):
            names = [name for part in lacking for name in part.names]
            self._deliver(residency, publication or publication_of(forwarded), forwarded.message, names, now)
        for part in lacking:
            part.cursors[position.key] = position.number
            if forwarded.sender.site == self._state.edge.site:
                part.served_from.setdefault(position.key, position.number)
        self._changed[residency.endpoint] = residency

    def _was_addressed_before(self, residency: Residency, read: ReadRecord) -> bool:
        """Return whether a message not addressed to content came before the session: later ones were delivered at once."""
        is_own = read.forwarded.sender == self._state.edge
        return read.size == FOUND_BY_HUB or (
            read.forwarded.number <= residency.opened_own_number if is_own else read.offset < residency.opened_offset
        )

    def was_delivered(self, residency: Residency, candidate: Candidate, now: Instant) -> bool:
        """Return whether an endpoint has received a message at this edge."""
        session = self._session(residency)
        parts = (
            residency.catching_up.parts
            if residency.catching_up is not None
            else [self.part_here(residency, list(session.subscriptions))]
        )
        if not isinstance(candidate.message.address, ToContent):
            return candidate.position.number > residency.opened_highest_number and any(
                not part.lacks(candidate.position) for part in parts
            )
        return self._was_delivered_through(residency, parts, candidate, now)

    def since_of(self, residency: Residency, name: str) -> Cursors:
        """Return the cursors at which a subscription began."""
        found = (
            [part.start_cursors[name] for part in residency.catching_up.parts if name in part.start_cursors]
            if residency.catching_up is not None
            else []
        )
        found += [residency.since[name]] if name in residency.since else []
        streams = {stream for one in found for stream in one}
        return {stream: min(one.get(stream, one[EVERY]) for one in found) for stream in streams} or SINCE_ALWAYS

    def part_here(self, residency: Residency, names: list[str]) -> Part:
        """Return the subscriptions of a live endpoint as a part."""
        since = {name: residency.since.get(name, SINCE_ALWAYS) for name in names}
        return Part(self._state.edge.site, names, since, self.cursors_of(residency), self._state.next_offset)

    def _was_delivered_through(self, residency: Residency, parts: list[Part], candidate: Candidate, now: Instant) -> bool:
        session = self._session(residency)
        place = self._state.broker.place_of(session)
        subscriptions = {name: one.subscription for name, one in session.subscriptions.items()}
        own = self._state.edge.site
        known = [part for part in parts if part.home_site == own or part.is_conclusive_for(candidate.position)]
        return any(was_delivered_through(part, subscriptions, candidate, place, now) for part in known)

    def _deliver(self, residency: Residency, publication: Publication, message: Message, names: list[str], now: Instant) -> None:
        session, broker = self._session(residency), self._state.broker
        if not broker.is_authentic(publication, now) or not broker.lacks_alert(session, publication):
            return
        held = tuple(one for one in broker.subscriptions_of(session) if one.name in names and one.subscription.share is None)
        delivery = maybe_delivery(publication, message, Recipient(residency.endpoint, broker.place_of(session), held), now)
        if delivery is not None:
            broker.deliver(delivery, session)

    def overdue(self, now: Instant) -> list[Residency]:
        """Return the residencies that have waited for the central hub for too long."""
        waiting = [one for one in self._residencies.values() if one.catching_up is not None and one.catching_up.awaits]
        return [one for one in waiting if one.catching_up is not None and 0 < one.catching_up.awaits_until <= now]

    def take_changed(self) -> list[Residency]:
        """Return the residencies whose cursors have changed."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def go_live(self) -> list[Residency]:
        """Let all residencies go live that have caught up; return them."""
        state = self._state
        read_back = state.cursors.get(str(state.edge), 0)
        if not self._residencies or not state.is_ready or state.next_offset < state.known_end:
            return []
        if read_back < self._forwarder.last_for_moving:
            return []
        caught_up = [one for one in self._residencies.values() if one.catching_up and _is_caught_up(one.catching_up, read_back)]
        for residency in caught_up:
            del self._residencies[residency.endpoint]
            self._serve_at_once(residency, self._session(residency))
        return caught_up

    def note_received_early(self, residency: Residency) -> None:
        """Note the records that an endpoint received elsewhere and this edge has not read: they may still arrive."""
        for stream, number in residency.received_elsewhere.items():
            self._early.setdefault(stream, {})[residency.endpoint] = number

    def received_early(self, position: Position) -> frozenset[str]:
        """Return the endpoints that received a record, which is new here, at another edge."""
        early = self._early.get(position.key)
        if early is None:
            return frozenset()
        remaining = {name: had for name, had in early.items() if had >= position.number and name not in self._residencies}
        if not remaining:
            del self._early[position.key]
            return frozenset()
        self._early[position.key] = remaining
        return frozenset(remaining)

    def _serve_at_once(self, residency: Residency, session: Session) -> None:
        state = self._state
        assert residency.catching_up is not None, "only a residency that is catching up goes live"
        residency.received_elsewhere = {
            stream: number for stream, number in self.cursors_of(residency).items() if number > state.cursors.get(stream, 0)
        }
        since = {name: self.since_of(residency, name) for name in session.subscriptions}
        residency.since = {name: condensed(cursors) if residency.is_complete else cursors for name, cursors in since.items()}
        state.note_move(residency, MoveOutcome.COMPLETED, "the session has caught up")
        residency.catching_up = None
        advance(residency, ResidencyEvent.CAUGHT_UP)
        self.note_received_early(residency)
        for name in list(session.subscriptions):
            state.interest.remove(_key(session.name, name))
            state.broker.resume_subscription(session, name)

    def _session(self, residency: Residency) -> Session:
        session = self._state.broker.find_session(residency.endpoint)
        assert session is not None, "a residency that is catching up has a session"
        return session


def merged_by_number(reads: Sequence[ReadRecord], missed: Sequence[ForwardedMessage], offset: int) -> Iterator[ReadRecord]:
    """Return records and messages of the central hub, those of each origin in the order of their numbers."""
    by_sender: dict[EdgeRef, deque[ForwardedMessage]] = {}
    for forwarded in sorted(missed, key=lambda one: one.number):
        by_sender.setdefault(forwarded.sender, deque()).append(forwarded)
    for read in reads:
        waiting = by_sender.get(read.forwarded.sender)
        while waiting and waiting[0].number < read.forwarded.number:
            yield ReadRecord(offset, NEVER, FOUND_BY_HUB, waiting.popleft())
        yield read
    for waiting in by_sender.values():
        yield from (ReadRecord(offset, NEVER, FOUND_BY_HUB, forwarded) for forwarded in waiting)


def _forwarded_from(record: str) -> ForwardedMessage:
    forwarded = from_record(record.encode())
    assert isinstance(forwarded, ForwardedMessage), "the central hub finds messages"
    return forwarded


def was_delivered_through(
    part: Part, subscriptions: Mapping[str, Subscription], candidate: Candidate, place: Place | None, now: Instant
) -> bool:
    """Return whether a message was delivered through one of a part's subscriptions, according to its cursors."""
    if candidate.offset is None and not part.is_conclusive_for(candidate.position):
        return False
    return not part.lacks(candidate.position, candidate.offset) and any(
        part.began_before(name, candidate.position, candidate.offset)
        and name in subscriptions
        and matches_now(subscriptions[name], candidate.message, place, now)
        for name in part.names
    )


def _without(part: Part, name: str) -> Part:
    start_cursors = {one: cursors for one, cursors in part.start_cursors.items() if one != name}
    return replace(part, names=[one for one in part.names if one != name], start_cursors=start_cursors)


def starting_cursors(cursors: Cursors, offset: int) -> Cursors:
    """Return the beginning of a new subscription: all cursors, one for unknown streams, and the offset of the log."""
    return cursors | {EVERY: max(cursors.values(), default=0), OFFSET: offset}


def condensed(since: Cursors) -> Cursors:
    """Return the beginning of a subscription without the cursors of single streams."""
    return {EVERY: since[EVERY], OFFSET: since[OFFSET]}


def _is_carried(catching_up: CatchingUp, candidate: Candidate) -> bool:
    return any((candidate.position.origin, candidate.position.number) in part.carried_messages for part in catching_up.parts)


def _is_caught_up(catching_up: CatchingUp, read_back: int) -> bool:
    return not catching_up.sites_to_reread and not catching_up.awaits and read_back >= catching_up.last_number_on_arrival


def _key(endpoint: str, name: str) -> str:
    return f"catching_up\n{endpoint}\n{name}"
