"""Handovers: a session exported from this edge for another one, and a session that arrives (docs/reference/roaming.md).

Invariants:
- export and storage are one tick: the handover is in the outbox when the session is gone, and not before;
- a session that arrives is served from the log until it has caught up.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Final, NamedTuple

from milepost.broker.publication import Delivery
from milepost.broker.session import Session
from milepost.broker.session_transfer import SessionSnapshot, publication_of
from milepost.federation.catch_up import Candidate, CatchUp, was_delivered_through
from milepost.federation.forwarding import Forwarder
from milepost.federation.member_state import ReadRecord, SiteState
from milepost.federation.outgoing_handovers import OutgoingHandovers
from milepost.federation.residency import (
    EVERY,
    OFFSET,
    OFFSET_MAX,
    CatchingUp,
    OutgoingHandover,
    Part,
    Residency,
    ResidencyEvent,
    ResidencyState,
    advance,
)
from milepost.model.addresses import ToArea, ToNotified
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Reason, Refused
from milepost.model.site_records import (
    AWAITED_SITES_MAX,
    MAIN,
    EdgeRef,
    EndpointClaim,
    Handover,
    HandoverPart,
    HeldSubscription,
    MissedMessages,
    Position,
    QueuedMessage,
)
from milepost.vetting.access import ClientIdentity
from milepost.wire.json_form import to_json
from milepost.wire.records import to_record

HANDOVER_BYTES: Final = 500_000
"""Maximum bytes of queued messages in one record; in base64 that stays below the record limit of every log."""
SUBSCRIPTIONS_BYTES: Final = 700_000
"""Maximum bytes of subscriptions in one record."""
_ROW_BYTES: Final = 150
"""Bytes of a row without its message."""

_EXPIRED: Final = Refused(Reason.SESSION_EXPIRED)
AWAITED_SITES_NS_MAX: Final = 3_600 * SECOND_NS
"""Time for which a session waits for messages that the central hub is to find; then it is served without them."""
SLACK_NS: Final = SECOND_NS
"""Maximum disorder between numbers of different edges and the order of their records."""
FLOOR_NS: Final = 60 * SECOND_NS
"""Slack for origins that the sender had no cursor of: older messages count as published before the subscription."""


# A handover is split into records within the limit of every log: rows keep their order; a message too large for one record is
# split into several rows with the same packet id.


class Portion(NamedTuple):
    """The part of a session that one record holds."""

    held: list[HeldSubscription]
    waiting: list[QueuedMessage]


def split_into_portions(held: Iterable[HeldSubscription], waiting: Iterable[QueuedMessage]) -> list[Portion]:
    """Divide a session into portions, at least one; the subscriptions come first."""
    portions, size = [Portion([], [])], 0
    for subscription in held:
        more = (
            len(subscription.name.encode()) + len(to_json(subscription.subscription)) + _ROW_BYTES * (1 + len(subscription.since))
        )
        if size + more > SUBSCRIPTIONS_BYTES:
            portions.append(Portion([], []))
            size = 0
        portions[-1].held.append(subscription)
        size += more
    for one in waiting:
        for at in range(0, max(1, len(one.publication)), HANDOVER_BYTES):
            piece = one._replace(publication=one.publication[at : at + HANDOVER_BYTES])
            more = len(piece.publication) + _ROW_BYTES
            if size + more > HANDOVER_BYTES and (portions[-1].held or portions[-1].waiting):
                portions.append(Portion([], []))
                size = 0
            portions[-1].waiting.append(piece)
            size += more
    return portions


def joined(waiting: Iterable[QueuedMessage]) -> list[QueuedMessage]:
    """Join the rows of messages that were divided."""
    found: list[QueuedMessage] = []
    for one in waiting:
        if found and found[-1].packet_id == one.packet_id:
            found[-1] = one._replace(publication=found[-1].publication + one.publication)
        else:
            found.append(one)
    return found


class ReadBack(NamedTuple):
    """Records of cross-hub that have to be read again for an endpoint."""

    endpoint: EndpointId
    offset: int | None
    """The first offset; None: `since` alone decides."""
    since: Instant | None
    """The earliest time of appending; with both, the earlier one counts."""


class Handovers:
    """Export of sessions, and import of sessions that arrive."""

    def __init__(self, state: SiteState, forwarder: Forwarder, catch_up: CatchUp, outgoing: OutgoingHandovers) -> None:
        self._state = state
        self._forwarder = forwarder
        self._catch_up = catch_up
        self._outgoing = outgoing
        self.read_backs: dict[EndpointId, ReadBack] = {}
        """By endpoint, the records that have to be read again: one request covers all that it needs."""

    def export(self, session: Session, residency: Residency, claim: EndpointClaim, now: Instant) -> None:
        """Hand a session over to the edge that has a higher claim."""
        state = self._state
        advance(residency, ResidencyEvent.CLAIMED)
        snapshot = state.broker.export_session(session)
        held = self._held_of(snapshot, residency)
        first, *rest = split_into_portions(held, snapshot.queued)
        number = state.outbox.next_number(now)
        handover = Handover(
            session.name,
            claim.epoch,
            state.edge,
            claim.edge,
            number,
            is_complete=residency.is_complete,
            expiry_ns=snapshot.expiry_ns,
            place=snapshot.place,
            subscriptions=tuple(first.held),
            queued=tuple(first.waiting),
            received=snapshot.received,
            cursors=self._catch_up.cursors_of(residency),
            offset=self._read_up_to(residency),
            as_of=state.read_at,
            parts=len(rest),
            began=residency.began,
            clean_start_epoch=residency.clean_start_epoch,
            awaits=_awaited_by(residency),
            offsets=residency.offsets | {state.edge.site: self._read_up_to(residency)},
            notified=snapshot.notified,
            user=snapshot.identity.user or "",
            role=snapshot.identity.role or "",
            kept_since=residency.kept_since,
        )
        state.send_to_edge(handover, number, claim.edge)
        self._send_parts(session.name, claim, rest, now)
        self._outgoing.add(OutgoingHandover(session.name, claim.epoch, held, state=residency.state))
        state.counts["handovers_out"] += 1

    def relay(self, handover: Handover, waiting: list[QueuedMessage], claim: EndpointClaim, now: Instant) -> None:
        """Relay a handover to the edge that has the endpoint now, with the cursors of its sender."""
        state = self._state
        first, *rest = split_into_portions(handover.subscriptions, waiting)
        is_near = handover.sender.site == state.edge.site
        number = state.outbox.next_number(now)
        onward = replace(
            handover,
            epoch=claim.epoch,
            sender=state.edge,
            receiver=claim.edge,
            number=number,
            subscriptions=tuple(first.held),
            queued=tuple(first.waiting),
            parts=len(rest),
            awaits=self._awaits_of(handover),
            offset=handover.offset if is_near else handover.offsets.get(state.edge.site, 0),
        )
        state.send_to_edge(onward, number, claim.edge)
        self._send_parts(handover.endpoint, claim, rest, now)
        relayed = [(handover.sender, handover.epoch)]
        outgoing = OutgoingHandover(handover.endpoint, claim.epoch, (), relayed, state=ResidencyState.ABSENT)
        advance(outgoing, ResidencyEvent.RELAYED)
        self._outgoing.add(outgoing)
        state.counts["handovers_forwarded"] += 1

    def _send_parts(self, endpoint: EndpointId, claim: EndpointClaim, rest: list[Portion], now: Instant) -> None:
        for held, waiting in rest:
            number = self._state.outbox.next_number(now)
            more = HandoverPart(endpoint, claim.epoch, self._state.edge, claim.edge, number, tuple(waiting), tuple(held))
            self._state.send_to_edge(more, number, claim.edge)

    def _other_sites(self, sender: EdgeRef) -> set[str]:
        known = {info.edge.site for info in self._state.edges.values()}
        others = (known | {sender.site}) - {self._state.edge.site}
        return others if len(others) <= AWAITED_SITES_MAX else {sender.site}

    def _awaits_of(self, handover: Handover) -> Mapping[str, tuple[str, ...]]:
        """Return the sites that the receiver of a handover waits for: the hub answers a handover from another site."""
        if handover.sender.site == self._state.edge.site:
            return handover.awaits
        return dict.fromkeys(self._other_sites(handover.sender), (handover.id,))

    def _read_up_to(self, residency: Residency) -> int:
        """Return the first offset of cross-hub whose record the endpoint may lack."""
        catching_up, here = residency.catching_up, self._state.next_offset
        if catching_up is None or not catching_up.awaits:
            return here
        return min((part.offset for part in catching_up.parts if part.offset is not None), default=here)

    def _held_of(self, snapshot: SessionSnapshot, residency: Residency) -> tuple[HeldSubscription, ...]:
        """Return the subscriptions of a session, with the cursors at which they began."""
        found = []
        for held in snapshot.subscriptions:
            since = self._catch_up.since_of(residency, held.name)
            since = {EVERY: since[EVERY]} if residency.is_complete else {edge: since[edge] for edge in since if edge != OFFSET}
            found.append(replace(held, since=since))
        return tuple(found)

    def import_session(self, handover: Handover, waiting: list[QueuedMessage], residency: Residency, now: Instant) -> str | None:
        """Import a session; if that is not possible, change nothing and return the reason."""
        state, broker = self._state, self._state.broker
        accepted = replace(
            handover,
            subscriptions=tuple(held for held in handover.subscriptions if held.name not in residency.ended_subscriptions),
        )
        session, here = broker.find_session(handover.endpoint), list[str]()
        if session is None:
            adopted = broker.adopt_session(snapshot_of(accepted, waiting), now) if handover.expiry_ns else _EXPIRED
            if isinstance(adopted, Refused):
                broker.count_dropped(adopted.reason, len(waiting))
                return f"{adopted.reason.name}: {adopted.detail}" if adopted.detail else adopted.reason.name
            session = adopted
            self.note_opened(residency)
        else:
            here = list(session.subscriptions)
            missing = self._not_delivered(residency, session, waiting, now)
            self._withdraw(handover, waiting, session, now)
            broker.merge_session(session, snapshot_of(accepted, missing))
        for site, offset in accepted.offsets.items():
            if site != state.edge.site:
                residency.offsets[site] = min(offset, residency.offsets.get(site, offset))
        part = self._part_of(accepted)
        positions = ((one.forwarded_by, one.forwarded_number) for one in waiting if one.forwarded_number)
        part.carried_messages = [(origin, number) for origin, number in positions if part.lacks(Position(origin, MAIN, number))]
        self._begin_catching_up(accepted, residency, here, part, len(waiting))
        self._catch_up.begin(residency, session)
        self.deliver_missed(residency, now)
        state.counts["handovers_in"] += 1
        return None

    def note_opened(self, residency: Residency) -> None:
        """Note the cursors at which a session begins here: later messages to the endpoint are delivered at once."""
        cursors = self._catch_up.cursors_here()
        residency.opened_offset, residency.opened_own_number = self._state.next_offset, cursors[str(self._state.edge)]
        residency.opened_highest_number = max(cursors.values())

    def _not_delivered(
        self, residency: Residency, session: Session, waiting: list[QueuedMessage], now: Instant
    ) -> list[QueuedMessage]:
        """Return the messages that the endpoint has not received here and that are not queued for it."""
        own, offsets = str(self._state.edge), self._state.recent.offsets() if waiting else {}
        broker = self._state.broker
        here = broker.in_transit(session)

        def was_delivered(one: QueuedMessage) -> bool:
            if not one.forwarded_number or not one.publication:
                return False
            publication = publication_of(one)
            if (one.forwarded_by, one.forwarded_number) in here:
                return True
            if isinstance(publication.address, ToArea):
                return broker.has_received_alert(session, publication)
            if isinstance(publication.address, ToNotified):  # this edge did not know that it was notified
                return False
            offset = offsets.get((one.forwarded_by, one.forwarded_number)) if one.forwarded_by != own else None
            candidate = Candidate(publication.message, Position(one.forwarded_by, MAIN, one.forwarded_number), offset)
            return self._catch_up.was_delivered(residency, candidate, now)

        return [one for one in waiting if not was_delivered(one)]

    def _withdraw(self, handover: Handover, waiting: list[QueuedMessage], session: Session, now: Instant) -> None:
        """Withdraw messages that are queued here and were delivered where the session comes from."""
        part, held = self._part_of(handover), {one.name: one.subscription for one in handover.subscriptions}
        not_delivered = {(one.forwarded_by, one.forwarded_number) for one in waiting if not one.is_released}

        def was_delivered(delivery: Delivery) -> bool:
            publication = delivery.publication
            if not publication.forwarded_number or (publication.forwarded_by, publication.forwarded_number) in not_delivered:
                return False
            candidate = Candidate(
                publication.message, Position(publication.forwarded_by, MAIN, publication.forwarded_number), None
            )
            return was_delivered_through(part, held, candidate, handover.place, now)

        self._state.broker.withdraw(session, was_delivered)

    def _begin_catching_up(self, handover: Handover, residency: Residency, here: list[str], part: Part, carried: int) -> None:
        if residency.catching_up is None:
            parts = [self._catch_up.part_here(residency, here)] if here else []
            residency.catching_up = CatchingUp(self._forwarder.last_forwarded, parts)
        catching_up = residency.catching_up
        catching_up.parts.append(part)
        catching_up.last_number_on_arrival = self._forwarder.last_forwarded
        catching_up.sites_to_reread.add(EVERY)
        catching_up.from_edge = str(handover.sender)
        catching_up.carried += carried
        advance(residency, ResidencyEvent.HANDOVER)
        until = Instant(self._state.now + AWAITED_SITES_NS_MAX)
        for site, handovers in self._awaits_of(handover).items():
            for one in handovers:
                catching_up.await_missed(site, one, until)

    def _part_of(self, handover: Handover) -> Part:
        state, names = self._state, [held.name for held in handover.subscriptions]
        since = {held.name: {EVERY: 0, **held.since, OFFSET: OFFSET_MAX} for held in handover.subscriptions}
        part = Part(handover.sender.site, names, since, dict(handover.cursors))
        if state.edge.site in handover.offsets:
            part.offset = handover.offsets[state.edge.site]
        else:
            own_numbers = [number for edge, number in handover.cursors.items() if edge.startswith(f"{state.edge.site}/")]
            part.default_cursor = max(0, handover.as_of - FLOOR_NS)
            part.reread_from = Instant(max(0, min([max(own_numbers, default=part.default_cursor), handover.as_of]) - SLACK_NS))
        return part

    def deliver_missed(self, residency: Residency, now: Instant) -> None:
        """Deliver the messages an endpoint missed, if the records are cached; else request to read them again."""
        catching_up = residency.catching_up
        assert catching_up is not None, "only a residency that is catching up reads again"
        reads = self._cached_records(catching_up)
        if reads is None:
            self.request_read_back(residency)
        else:
            collect_missed(catching_up, self._state.recent.missed_for(residency.endpoint))
            self._catch_up.replay(residency, reads, now)

    def request_read_back(self, residency: Residency) -> None:
        """Request to read the records an endpoint missed again from the log."""
        assert residency.catching_up is not None, "only a residency that is catching up reads again"
        offset, at = _first_of(residency.catching_up)
        self.read_backs[residency.endpoint] = ReadBack(residency.endpoint, offset, at)

    def _cached_records(self, catching_up: CatchingUp) -> list[ReadRecord] | None:
        recent, (offset, at) = self._state.recent, _first_of(catching_up)
        if (offset is not None and not recent.reaches(offset)) or (at is not None and not recent.reaches_time(at)):
            return None
        by_offset = recent.since(offset) if offset is not None else []
        by_time = recent.since_time(at) if at is not None else []
        return max(by_offset, by_time, key=len)

    def read_back(
        self, residency: Residency, reads: list[ReadRecord], missed_records: list[MissedMessages], now: Instant
    ) -> None:
        """Deliver records that were read again, and those read here meanwhile."""
        if residency.catching_up is None or not residency.catching_up.sites_to_reread:
            return
        following = self._state.recent.since(reads[-1].offset + 1) if reads else []
        collect_missed(residency.catching_up, [one for one in missed_records if one.endpoint == residency.endpoint])
        self._catch_up.replay(residency, [*reads, *following], now)

    def stop_waiting(self, residency: Residency, now: Instant) -> None:
        """Serve an endpoint without the messages that the central hub has not sent in time."""
        assert residency.catching_up is not None, "only a residency that is catching up waits for the hub"
        self._state.counts["missed_given_up"] += sum(map(len, residency.catching_up.awaits.values()))
        residency.catching_up.stop_waiting()
        if EVERY not in residency.catching_up.sites_to_reread:
            self.deliver_missed(residency, now)

    def on_missed(self, missed: MissedMessages, residency: Residency, now: Instant) -> None:
        """Deliver messages that the central hub found for an endpoint of this edge."""
        if (
            residency.catching_up is not None
            and collect_missed(residency.catching_up, [missed])
            and EVERY not in residency.catching_up.sites_to_reread
        ):
            self.deliver_missed(residency, now)


def collect_missed(catching_up: CatchingUp, missed_records: list[MissedMessages]) -> bool:
    """Collect the hub's answers to handovers that are still awaited; return whether a site has answered all of them."""
    is_complete = False
    for missed in missed_records:
        site = missed.sender.site
        if missed.handover not in catching_up.awaits.get(site, ()):
            continue
        found = [to_record(forwarded).decode() for forwarded in missed.messages]
        catching_up.missed += [record for record in found if record not in catching_up.missed]
        if missed.is_last:
            catching_up.awaits[site].remove(missed.handover)
            if not catching_up.awaits[site]:
                del catching_up.awaits[site]
                catching_up.sites_to_reread.add(site)
                is_complete = True
    return is_complete


def _awaited_by(residency: Residency) -> dict[str, tuple[str, ...]]:
    """Return the sites whose missed messages a residency waits for, with the handovers that they answer."""
    awaits = residency.catching_up.awaits if residency.catching_up is not None else {}
    return {site: tuple(handovers) for site, handovers in awaits.items()}


def snapshot_of(handover: Handover, waiting: list[QueuedMessage]) -> SessionSnapshot:
    """Return the session in a handover, with the messages of all its records."""
    return SessionSnapshot(
        handover.endpoint,
        handover.expiry_ns,
        handover.place,
        handover.subscriptions,
        tuple(waiting),
        handover.received,
        handover.notified,
        identity_of(handover),
    )


def identity_of(handover: Handover) -> ClientIdentity:
    """Return the identity whose session a handover carries."""
    return ClientIdentity(handover.endpoint, handover.user or None, handover.role or None)


def _first_of(catching_up: CatchingUp) -> tuple[int | None, Instant | None]:
    offsets = [part.offset for part in catching_up.parts if part.offset is not None]
    times = [part.reread_from for part in catching_up.parts if part.offset is None]
    return min(offsets, default=None), min(times, default=None)
