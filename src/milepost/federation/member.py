"""An edge as a member of a site: the records it reads from the site's log, and those it has to append.

    published here:      broker ─▶ forward ─▶ `forwarding` ─▶ outbox ─▶ log
    published elsewhere: log ─▶ on_records ─▶ messages: broker, `catch_up`;  records for this edge, claims: `roaming`

Invariants:
- no log is read or written here: records come in, appends and requests to read again are taken out;
- cursors and the effects of the records are stored in the same tick;
- a record that cannot be decoded, or is false, changes nothing but a counter.
"""

from collections.abc import Sequence
from typing import Final

from milepost.broker.broker import Broker
from milepost.broker.effects import StoredState
from milepost.broker.federation_port import FederationPort
from milepost.broker.publication import Publication
from milepost.broker.restore import restore
from milepost.broker.session import Session
from milepost.federation.forwarding import publication_of
from milepost.federation.handover import ReadBack
from milepost.federation.handover_prediction import HandoverPrediction
from milepost.federation.limits import SiteLimits
from milepost.federation.member_state import ReadRecord, SiteState
from milepost.federation.outbox import Append
from milepost.federation.pipeline_feed import DeliveryFeed, ReportFeed
from milepost.federation.residency import Move
from milepost.federation.roaming import Roaming
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.pipeline_records import REPUTATION
from milepost.model.reasons import Malformed, Refused
from milepost.model.site_records import (
    ANY_EDGE,
    CROSS_HUB,
    SERVICE_MARK,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    ClaimNotice,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    EndpointPositions,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    HubInfo,
    Interest,
    LoggedRecord,
    MissedMessages,
    PrepareHandover,
    PriorEdge,
    SiteRecord,
    claim_of_key,
    inbox_topic,
    interest_key,
)
from milepost.vetting import ClientIdentity, Reputations, Scores
from milepost.wire.records import from_record, head_of, record_prefix, to_record

SETTLED_NS: Final = 3 * SECOND_NS
"""Time for which an active alert waits for the handover that shows whether an arrived endpoint was notified before."""

_MISSED_PREFIX: Final = record_prefix("missed")
"""Prefix of records with missed messages from the central hub: the endpoint's current edge reads them, whatever their address."""


class SiteMember(FederationPort):
    """The membership of an edge's broker in its site."""

    def __init__(self, broker: Broker, edge: EdgeRef, limits: SiteLimits, *, address: str = "") -> None:
        self.state = SiteState(broker, edge, limits)
        self.roaming = Roaming(self.state)
        self.prediction = HandoverPrediction(self.state, self.roaming, address)
        self.report_feed = ReportFeed(self.state)
        self.delivery_feed = DeliveryFeed(self.state)
        self.scores = Scores()
        self.inbox = inbox_topic(edge)
        self._name = str(edge)
        self._own_prefix = record_prefix("forwarded") + b',"from":"%b",' % self._name.encode()
        self._own_interest: set[str] = set()
        """Keys of the subscriptions of this edge that are in the log."""
        self._edge_keys: dict[str, EdgeRef] = {}
        self._unread: set[str] = {SUBSCRIPTION_INFO, VEHICLE_INFO}
        self._introduction = 0
        """The announcement of the edge itself, as counted by the outbox."""
        self._fault: str | None = None
        """The first record of this tick that was refused, and why."""
        broker.join_federation(self)

    def restore(self, stored: StoredState, now: Instant) -> None:
        """Restore the broker and the membership."""
        self.state.restore(stored)
        restore(self.state.broker, stored, now)
        self.roaming.restore(stored.residencies, now)

    # Federation port, called by the broker

    def has_interest(self, topic: str) -> bool:
        """Return whether a message on a topic may have to be forwarded."""
        return self.roaming.forwarder.has_interest(topic, self.state.now)

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        """Forward a message if it has receivers elsewhere."""
        return self.roaming.forwarder.forward(publication, now)

    def refuse_claim(self, name: EndpointId, identity: ClientIdentity, now: Instant) -> Refused | None:
        """Check that no other owner has the endpoint."""
        return self.roaming.refuse_claim(name, identity, now)

    def arrive(self, name: EndpointId, identity: ClientIdentity, now: Instant, *, clean_start: bool) -> bool:
        """Return whether an endpoint can open its session at once."""
        self.state.now = now
        return self.roaming.arrive(name, identity, now, clean_start=clean_start)

    def is_settled(self, session: Session, now: Instant) -> bool:
        """Return whether the alerts an endpoint received elsewhere are known, or the wait for them is over."""
        residency = self.roaming.residencies.get(session.name)
        return residency is None or residency.is_complete or not 0 <= now - residency.epoch < SETTLED_NS

    def opened(self, session: Session, now: Instant, *, clean_start: bool) -> None:
        """Handle an opened session."""
        self.state.now = now
        self.roaming.opened(session, now, clean_start=clean_start)

    def ended(self, session: Session, *, is_replaced: bool) -> None:
        """Handle the end of a session."""
        self.roaming.ended(session, is_replaced=is_replaced)

    def subscribed(self, session: Session, name: str) -> None:
        """Handle a new subscription."""
        self.roaming.subscribed(session, name)

    def unsubscribed(self, session: Session, name: str) -> None:
        """Handle the end of a subscription."""
        self.roaming.unsubscribed(session, name)

    # From and to the log

    def starts(self) -> dict[str, int | None]:
        """Return the offset to resume each topic from; None: cross-hub from its end, the others from their beginning."""
        offsets = self.state.offsets
        known: dict[str, int | None] = {topic: offsets.get(topic) for topic in (CROSS_HUB, self.inbox)}
        return known | dict.fromkeys((SUBSCRIPTION_INFO, VEHICLE_INFO, REPUTATION))

    def begin_at(self, offset: int, end: int) -> None:
        """Note the offset from which cross-hub is read, and its current end."""
        self.state.recent.begin(offset)
        self.state.note_offset(CROSS_HUB, offset)
        self.state.next_offset, self.state.known_end = offset, end

    def on_records(self, topic: str, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Handle records of one topic, in order."""
        self.state.now = now
        if topic == REPUTATION:
            self._on_reputations(records)
            return
        for record in records:
            try:
                self._on_record(topic, record, now)
            except (Malformed, ValueError) as fault:
                self.state.counts["unreadable"] += 1
                self._fault = self._fault or f"{topic} at {record.offset}: {fault}"
        if records and topic in (CROSS_HUB, self.inbox) and not self.roaming.has_partial_handover:
            self.state.note_offset(topic, records[-1].offset + 1)
        self.roaming.make_progress(now)

    def _on_reputations(self, records: Sequence[LoggedRecord]) -> None:
        names = set()
        for record in records:
            try:
                names.add(self.scores.take(record.key, record.value))
            except Malformed:
                self.state.counts["unreadable"] += 1
        self.state.broker.use_reputations(Reputations(self.scores.known), names)

    def _on_record(self, topic: str, record: LoggedRecord, now: Instant) -> None:
        if topic == CROSS_HUB:
            self.state.read_at, self.state.next_offset = record.appended_at, record.offset + 1
            if record.key and record.key != self._name and not (record.value or b"").startswith(_MISSED_PREFIX):
                return
        if record.value is None:
            self._on_removal(topic, record.key)
            return
        value = self._maybe_own(topic, record) or from_record(record.value)
        if isinstance(value, ForwardedMessage):
            self._on_message(topic, record, value, now)
        elif isinstance(value, MissedMessages):
            self.state.recent.put_missed(record.offset, value)
            self.roaming.on_missed(value, now)
        elif topic == SUBSCRIPTION_INFO:
            self._on_info(record.key, value, now)
        else:
            self._on_other(value, now)

    def _maybe_own(self, topic: str, record: LoggedRecord) -> ForwardedMessage | None:
        """Return a message of this edge that was read back, without decoding it, if it is still in memory."""
        value = record.value or b""
        if topic != CROSS_HUB or not value.startswith(self._own_prefix):
            return None
        head = head_of(value)
        return self.roaming.forwarder.pop_read_back(head.number) if head is not None else None

    def _on_removal(self, topic: str, key: str) -> None:
        if topic == VEHICLE_INFO and not key.startswith("@"):
            self.roaming.on_claim_withdrawn(*claim_of_key(key))
        elif topic == SUBSCRIPTION_INFO:
            self.state.interest.remove(key)
            self.roaming.outgoing.end_interest(key)
            self._own_interest.discard(key)
            if key in self._edge_keys:
                self.state.edges.pop(self._edge_keys.pop(key), None)

    def _on_message(self, topic: str, record: LoggedRecord, forwarded: ForwardedMessage, now: Instant) -> None:
        state = self.state
        if topic == self.inbox:  # a handler's answer, handled like a publication of a local endpoint
            publication = publication_of(forwarded)
            if state.is_new_addressed(forwarded.sender, forwarded.number) and state.broker.is_authentic(publication, now):
                state.broker.accept(publication, None, now)
            return
        is_new = state.is_new(forwarded)
        read = ReadRecord(record.offset, record.appended_at, len(record.value or b""), forwarded, is_new)
        state.recent.put(read)
        if not is_new:
            return
        publication = publication_of(forwarded)
        if forwarded.sender != state.edge:
            received = self.roaming.catch_up.received_early(state.position_of(forwarded))
            state.broker.apply_record(publication, now, except_for=received)
            state.counts["received"] += 1
        if len(self.roaming.catch_up):
            self.roaming.catch_up.offer_record(read, publication, now)

    def _on_info(self, key: str, value: SiteRecord, now: Instant) -> None:
        state = self.state
        match value:
            case Interest(edge, subscription):
                if edge == state.edge:
                    self._own_interest.add(key)
                elif edge.site != state.edge.site or edge.edge != ANY_EDGE:
                    owner = edge.edge if edge.edge.startswith(SERVICE_MARK) and edge.site == state.edge.site else str(edge)
                    state.interest.put(key, owner, subscription)
            case EdgeInfo():
                if value.edge != state.edge:
                    state.edges[value.edge] = value
                    self._edge_keys[key] = value.edge
            case HubInfo():
                state.hub_seen_at = now if state.is_ready else value.at
            case _:
                state.counts["unexpected"] += 1

    def _on_other(self, value: SiteRecord, now: Instant) -> None:
        state, roaming = self.state, self.roaming
        match value:
            case EndpointClaim():
                roaming.on_claim(value, now)
            case ClaimNotice(claim):
                roaming.on_claim(claim, now)
            case PriorEdge():
                roaming.on_prior_edge(value)
            case PrepareHandover():
                self.prediction.on_prepare(value, now)
            case Handover() | HandoverPart() | HandoverTaken():
                if state.is_new_addressed(value.sender, value.number, is_last=roaming.is_last(value)):
                    self._on_handover_record(value, now)
            case EndpointPositions():
                pass
            case _:
                state.counts["unexpected"] += 1

    def _on_handover_record(self, record: Handover | HandoverPart | HandoverTaken, now: Instant) -> None:
        match record:
            case Handover():
                self.roaming.on_handover(record, now)
            case HandoverPart():
                self.roaming.on_handover_part(record, now)
            case HandoverTaken():
                self.roaming.on_taken(record, now)

    def caught_up(self, topic: str, now: Instant) -> None:
        """Note that a topic was read up to its end at the start of this edge."""
        self._unread.discard(topic)
        if not self._unread and not self.state.is_ready:
            self._announce()
            self.roaming.begin(now)
            self.prediction.announce_edge()
            self._introduction = self.state.outbox.last_announced

    @property
    def is_announced(self) -> bool:
        """Whether the log has the announcement of this edge, so that other processes can find it."""
        return 0 < self._introduction <= self.state.outbox.announced_up_to

    def _announce(self) -> None:
        """Announce subscriptions that the log lacks, and withdraw those that are over."""
        state, current = self.state, set[str]()
        for session in state.broker.all_sessions():
            for name, request in session.subscriptions.items():
                key = interest_key(state.edge, session.name, name)
                current.add(key)
                if key not in self._own_interest:
                    state.outbox.announce(SUBSCRIPTION_INFO, key, to_record(Interest(state.edge, request.subscription)))
        for leaving in self.roaming.outgoing.leaving.values():
            for held in leaving.subscriptions:
                key = interest_key(state.edge, leaving.endpoint, held.name)
                current.add(key)
                if key not in self._own_interest:
                    state.outbox.announce(SUBSCRIPTION_INFO, key, to_record(Interest(state.edge, held.subscription)))
        for key in self._own_interest - current:
            state.outbox.announce(SUBSCRIPTION_INFO, key, None)

    def appended(self, appends: list[Append], now: Instant) -> None:
        """Handle the log's confirmation."""
        self.state.now = now
        self.state.outbox.confirm(appends)
        self.roaming.make_progress(now)

    def take_fault(self) -> str | None:
        """Return why a record was refused since the last call, if one was: a line for the operator."""
        fault, self._fault = self._fault, None
        return fault

    def take_moves(self) -> list[Move]:
        """Return the moves that ended since the last call: one line each for the operator."""
        moves, self.state.moves = self.state.moves, []
        return moves

    def take_read_backs(self) -> list[ReadBack]:
        """Return the ranges of cross-hub that have to be read again, up to its current position."""
        found, self.roaming.handovers.read_backs = self.roaming.handovers.read_backs, {}
        return list(found.values())

    def on_read_back(self, request: ReadBack, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Handle records that were read again."""
        self.state.now = now
        reads: list[ReadRecord] = []
        missed: list[MissedMessages] = []
        for record in records:
            try:
                value = from_record(record.value or b"")
            except Malformed:
                continue
            if isinstance(value, ForwardedMessage):
                reads.append(ReadRecord(record.offset, record.appended_at, 0, value))
            elif isinstance(value, MissedMessages):
                missed.append(value)
        self.roaming.on_read_back(request.endpoint, reads, missed, now)
        self.roaming.make_progress(now)

    def tick(self, now: Instant) -> None:
        """Run the timers of all parts."""
        self.state.now = now
        self.roaming.tick(now)
        self.state.interest.expire(now)
        self.prediction.tick(now)
        self.report_feed.tick(now)
        self.roaming.make_progress(now)
