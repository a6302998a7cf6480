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
from milepost.federation.forwarding import ON_THE_MOVE, Forwarder, publication_of
from milepost.federation.member_state import ReadRecord, SiteState
from milepost.federation.residency import (
    ALWAYS,
    EVERY,
    OFFSET,
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
from milepost.model.sites import NEVER, EdgeRef, ForwardedMessage, HeldSubscription, Position
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

# Matching for one endpoint that is catching up, and is in no route.


class Recipient(NamedTuple):
    """An endpoint with its position and subscriptions."""

    endpoint: EndpointId
    place: Place | None
    held: tuple[HeldSubscription, ...]


def maybe_delivery(publication: Publication, message: Message, who: Recipient, now: Instant) -> Delivery | None:
    """Return the delivery of a message to one endpoint, if it is in the message's audience."""
    # The caller has already checked whether the endpoint was notified.
    if message.is_expired(now) or not includes(message.address, who.endpoint, who.place, was_notified=True):
        return None
    is_to_content = isinstance(message.address, ToContent)
    return _by_subscription(publication, message, who, now) if is_to_content else Delivery(publication, publication.qos)


def matching(held: Iterable[HeldSubscription], message: Message, place: Place | None, now: Instant) -> list[HeldSubscription]:
    """Return the subscriptions of one endpoint that a message matches."""
    return [one for one in held if is_asked_for(one.subscription, message, place, now)]


def is_asked_for(asked: Subscription, message: Message, place: Place | None, now: Instant) -> bool:
    """Return whether a message matches a subscription that has not ended, if its owner is at *place*."""
    return not asked.time_window.is_over(now) and asked.matches(message, place)


def _by_subscription(publication: Publication, message: Message, who: Recipient, now: Instant) -> Delivery | None:
    found = matching(who.held, message, who.place, now)
    if not found or (message.source == who.endpoint and all(one.is_not_own for one in found)):
        return None
    labels = tuple(sorted(one.subscription.id for one in found if one.subscription.id))
    qos = min(publication.qos, max(one.subscription.qos for one in found))
    is_shown = any(one.is_retain_shown for one in found)
    return Delivery(publication, qos, labels, is_from_store=publication.is_retained and is_shown)


EXTRA: Final = -1
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
            self._set_aside(session, name)

    def subscribed(self, residency: Residency, session: Session, name: str) -> None:
        """Add a new subscription as a part whose cursors are those of this edge."""
        if residency.catching_up is not None:
            residency.catching_up.parts = [_without(part, name) for part in residency.catching_up.parts]
            since = {name: residency.since[name]}
            residency.catching_up.parts.append(
                Part(self._state.edge.site, [name], since, self.cursors_here(), self._state.next_offset)
            )
            self._set_aside(session, name)

    def resubscribed(self, residency: Residency, session: Session, name: str) -> None:
        """Replace a subscription by one of the same name, with the same cursors."""
        if residency.catching_up is not None:
            self._set_aside(session, name)

    def _set_aside(self, session: Session, name: str) -> None:
        """Suspend a subscription, unless it is shared: those are served at once."""
        subscription = session.subscriptions[name].subscription
        if subscription.share is None:
            self._state.broker.suspend_subscription(session, name)
            self._state.interest.put(_key(session.name, name), ON_THE_MOVE, subscription)
        else:
            self._state.broker.resume_subscription(session, name)

    def unsubscribed(self, session: Session, name: str) -> None:
        """End the interest of a subscription that has ended or is about to be replaced."""
        self._state.interest.take_away(_key(session.name, name))

    def forget(self, endpoint: EndpointId) -> None:
        """Forget an endpoint that has left; its subscriptions are dropped already."""
        self._residencies.pop(endpoint, None)
        self._changed.pop(endpoint, None)
        for ahead in self._early.values():
            ahead.pop(endpoint, None)

    def cursors_here(self) -> Cursors:
        """Return the cursors of an endpoint that is live here."""
        state = self._state
        own = str(state.edge)
        return state.cursors | {own: max(self._forwarder.forwarded_up_to, state.cursors.get(own, 0))}

    def cursors_of(self, residency: Residency) -> Cursors:
        """Return the cursors up to which an endpoint was served, by stream."""
        here = self.cursors_here() if residency.catching_up is None else dict(self._state.cursors)
        for stream, number in residency.had.items():
            here[stream] = max(number, here.get(stream, 0))
        if residency.catching_up is not None:
            parts, awaits = residency.catching_up.parts, residency.catching_up.awaits
            for stream in {stream for part in parts for stream in part.cursors} | here.keys():
                least = min(part.cursors.get(stream, part.floor) for part in parts)
                here[stream] = least if site_of(stream) in awaits else max(least, here.get(stream, 0))
        return here

    def hear(self, read: ReadRecord, publication: Publication, now: Instant) -> None:
        """Offer a new record of cross-hub to the endpoints that are catching up."""
        site = read.said.sender.site
        for residency in self._residencies.values():
            if residency.catching_up is not None and residency.catching_up.is_served(site):
                self._offer(residency, residency.catching_up, read, publication, now)

    def replay(self, residency: Residency, reads: Sequence[ReadRecord], now: Instant) -> None:
        """Deliver the records an endpoint missed; then its cursors are those of this edge, except for incomplete sites."""
        catching_up = residency.catching_up
        assert catching_up is not None, "only a residency that is catching up replays"
        late, catching_up.late = catching_up.late, set()
        first = reads[0].offset if reads else self._state.next_offset
        sites = {one.said.sender.site for one in reads} - catching_up.awaits.keys()
        served = sites if EVERY in late else sites & late
        near = [one for one in reads if one.said.sender.site in served]
        far = [said for said in map(_said, catching_up.extras) if said.sender.site not in catching_up.awaits]
        catching_up.extras = [record for record in catching_up.extras if _said(record).sender.site in catching_up.awaits]
        waits = self._state.broker.in_transit(self._session(residency))
        for read in in_order(near, far, self._state.next_offset):
            if not waits or (str(read.said.sender), read.said.number) not in waits:
                self._offer(residency, catching_up, read, None, now)
        for part in catching_up.parts:
            for stream, number in self._state.cursors.items():
                if site_of(stream) not in catching_up.awaits:
                    part.cursors[stream] = max(number, part.cursors.get(stream, 0))
            part.offset = self._state.next_offset if not catching_up.awaits else first if part.offset is None else part.offset
        self._changed[residency.endpoint] = residency

    def _offer(
        self, residency: Residency, catching_up: CatchingUp, read: ReadRecord, publication: Publication | None, now: Instant
    ) -> None:
        """Deliver a record to an endpoint if a part lacks it; most records are not lacking, so that is checked first."""
        said = read.said
        position = self._state.position_of(said)
        lacking = [part for part in catching_up.parts if part.lacks(position, read.offset)]
        if not lacking:
            return
        offset = None if read.size == EXTRA or said.sender == self._state.edge else read.offset
        told = Candidate(said.message, position, offset)
        if not isinstance(said.message.address, ToContent):
            if isinstance(said.message.address, ToNotified) or self._was_addressed_before(residency, read):
                self._give(residency, publication or publication_of(said), said.message, [], now)
        elif not _is_brought(catching_up, told) and not self._has_had(residency, catching_up.parts, told, now):
            names = [name for part in lacking for name in part.names]
            self._give(residency, publication or publication_of(said), said.message, names, now)
        for part in lacking:
            part.cursors[position.key] = position.number
            if said.sender.site == self._state.edge.site:
                part.given.setdefault(position.key, position.number)
        self._changed[residency.endpoint] = residency

    def _was_addressed_before(self, residency: Residency, read: ReadRecord) -> bool:
        """Return whether a message not addressed to content came before the session: later ones were delivered at once."""
        is_own = read.said.sender == self._state.edge
        return read.size == EXTRA or (read.said.number <= residency.opened_after if is_own else read.offset < residency.opened_at)

    def was_given(self, residency: Residency, told: Candidate, now: Instant) -> bool:
        """Return whether an endpoint has received a message at this edge."""
        session = self._session(residency)
        parts = (
            residency.catching_up.parts
            if residency.catching_up is not None
            else [self.part_here(residency, list(session.subscriptions))]
        )
        if not isinstance(told.message.address, ToContent):
            return told.position.number > residency.opened_above and any(not part.lacks(told.position) for part in parts)
        return self._has_had(residency, parts, told, now)

    def since_of(self, residency: Residency, name: str) -> Cursors:
        """Return the cursors at which a subscription began."""
        found = (
            [part.since[name] for part in residency.catching_up.parts if name in part.since]
            if residency.catching_up is not None
            else []
        )
        found += [residency.since[name]] if name in residency.since else []
        streams = {stream for one in found for stream in one}
        return {stream: min(one.get(stream, one[EVERY]) for one in found) for stream in streams} or ALWAYS

    def part_here(self, residency: Residency, names: list[str]) -> Part:
        """Return the subscriptions of a live endpoint as a part."""
        since = {name: residency.since.get(name, ALWAYS) for name in names}
        return Part(self._state.edge.site, names, since, self.cursors_of(residency), self._state.next_offset)

    def _has_had(self, residency: Residency, parts: list[Part], told: Candidate, now: Instant) -> bool:
        session = self._session(residency)
        place = self._state.broker.place_of(session)
        asked = {name: one.subscription for name, one in session.subscriptions.items()}
        own = self._state.edge.site
        known = [part for part in parts if part.home == own or part.is_sure_of(told.position)]
        return any(has_had(part, asked, told, place, now) for part in known)

    def _give(self, residency: Residency, publication: Publication, message: Message, names: list[str], now: Instant) -> None:
        session, broker = self._session(residency), self._state.broker
        if not broker.lacks_alert(session, publication):
            return
        held = tuple(one for one in broker.subscriptions_of(session) if one.name in names and one.subscription.share is None)
        delivery = maybe_delivery(publication, message, Recipient(residency.endpoint, broker.place_of(session), held), now)
        if delivery is not None:
            broker.deliver(delivery, session)

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
        if read_back < self._forwarder.last_for_movers:
            return []
        caught_up = [one for one in self._residencies.values() if one.catching_up and _is_caught_up(one.catching_up, read_back)]
        for residency in caught_up:
            del self._residencies[residency.endpoint]
            self._serve_at_once(residency, self._session(residency))
        return caught_up

    def note_received_early(self, residency: Residency) -> None:
        """Note the records that an endpoint received elsewhere and this edge has not read: they may still arrive."""
        for stream, number in residency.had.items():
            self._early.setdefault(stream, {})[residency.endpoint] = number

    def received_early(self, position: Position) -> frozenset[str]:
        """Return the endpoints that received a record, which is new here, at another edge."""
        early = self._early.get(position.key)
        if early is None:
            return frozenset()
        still = {name: had for name, had in early.items() if had >= position.number and name not in self._residencies}
        if not still:
            del self._early[position.key]
            return frozenset()
        self._early[position.key] = still
        return frozenset(still)

    def _serve_at_once(self, residency: Residency, session: Session) -> None:
        state = self._state
        assert residency.catching_up is not None, "only a residency that is catching up goes live"
        residency.had = {
            stream: number for stream, number in self.cursors_of(residency).items() if number > state.cursors.get(stream, 0)
        }
        since = {name: self.since_of(residency, name) for name in session.subscriptions}
        residency.since = {name: in_short(cursors) if residency.is_whole else cursors for name, cursors in since.items()}
        state.note_move(residency, MoveOutcome.COMPLETED, "the session has caught up")
        residency.catching_up = None
        advance(residency, ResidencyEvent.CAUGHT_UP)
        self.note_received_early(residency)
        for name in list(session.subscriptions):
            state.interest.take_away(_key(session.name, name))
            state.broker.resume_subscription(session, name)

    def _session(self, residency: Residency) -> Session:
        session = self._state.broker.find_session(residency.endpoint)
        assert session is not None, "a residency that is catching up has a session"
        return session


def in_order(reads: Sequence[ReadRecord], extras: Sequence[ForwardedMessage], offset: int) -> Iterator[ReadRecord]:
    """Return records and messages of the central hub, those of each origin in the order of their numbers."""
    by_sender: dict[EdgeRef, deque[ForwardedMessage]] = {}
    for said in sorted(extras, key=lambda one: one.number):
        by_sender.setdefault(said.sender, deque()).append(said)
    for read in reads:
        waiting = by_sender.get(read.said.sender)
        while waiting and waiting[0].number < read.said.number:
            yield ReadRecord(offset, NEVER, EXTRA, waiting.popleft())
        yield read
    for waiting in by_sender.values():
        yield from (ReadRecord(offset, NEVER, EXTRA, said) for said in waiting)


def _said(record: str) -> ForwardedMessage:
    said = from_record(record.encode())
    assert isinstance(said, ForwardedMessage), "the centre finds messages"
    return said


def has_had(part: Part, asked: Mapping[str, Subscription], told: Candidate, place: Place | None, now: Instant) -> bool:
    """Return whether a message was delivered through one of a part's subscriptions, according to its cursors."""
    if told.offset is None and not part.is_sure_of(told.position):
        return False
    return not part.lacks(told.position, told.offset) and any(
        part.began_before(name, told.position, told.offset)
        and name in asked
        and is_asked_for(asked[name], told.message, place, now)
        for name in part.names
    )


def _without(part: Part, name: str) -> Part:
    since = {one: at for one, at in part.since.items() if one != name}
    return replace(part, names=[one for one in part.names if one != name], since=since)


def since_here(cursors: Cursors, offset: int) -> Cursors:
    """Return the beginning of a new subscription: all cursors, one for unknown streams, and the offset of the log."""
    return cursors | {EVERY: max(cursors.values(), default=0), OFFSET: offset}


def in_short(since: Cursors) -> Cursors:
    """Return the beginning of a subscription without the cursors of single streams."""
    return {EVERY: since[EVERY], OFFSET: since[OFFSET]}


def _is_brought(catching_up: CatchingUp, told: Candidate) -> bool:
    return any((told.position.origin, told.position.number) in part.brought for part in catching_up.parts)


def _is_caught_up(catching_up: CatchingUp, read_back: int) -> bool:
    return not catching_up.late and not catching_up.awaits and read_back >= catching_up.came_at


def _key(endpoint: str, name: str) -> str:
    return f"catching_up\n{endpoint}\n{name}"
