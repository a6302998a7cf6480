"""Roaming: claims of endpoints, and the residencies that begin and end with them (docs/reference/roaming.md has the table).

Invariants:
- an endpoint that opens a session here is claimed with a new epoch, above all epochs of it that this edge has read;
- an edge that reads a higher claim of the same owner hands its session over, at once or after it has read the records it still
  needs; one that reads a claim of another owner that wins (`claims.ranked`) ends its session and hands nothing over;
- a client waits for its session only while some edge may have it, and never longer than `handover_timeout_s`.
"""

from dataclasses import replace
from typing import Final

from milepost.broker.session import Session
from milepost.federation.catch_up import CatchUp, condensed, starting_cursors
from milepost.federation.claims import claim_for, kept_since, ranked
from milepost.federation.forwarding import Forwarder
from milepost.federation.handover import Handovers, identity_of, joined
from milepost.federation.member_state import ReadRecord, SiteState
from milepost.federation.outgoing_handovers import OutgoingHandovers
from milepost.federation.residency import (
    MoveOutcome,
    Residency,
    ResidencyEvent,
    ResidencyState,
    advance,
    residency_from_bytes,
    residency_to_bytes,
)
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import OnTopic
from milepost.model.reasons import Reason, Refused
from milepost.model.site_records import (
    NO_EPOCH,
    SUBSCRIPTION_INFO,
    EdgeRef,
    EndpointClaim,
    Epoch,
    Handover,
    HandoverPart,
    HandoverTaken,
    Interest,
    MissedMessages,
    PriorEdge,
    QueuedMessage,
    interest_key,
)
from milepost.vetting.access import ClientIdentity
from milepost.vetting.ownership import Takeover, not_owner, takeover
from milepost.wire.records import to_record

AWAITED_NS_MAX: Final = 600 * SECOND_NS
"""Time after which an endpoint that left while it was awaited is forgotten, if no session came."""

_TAKEN_OVER: Final = Refused(Reason.SESSION_TAKEN_OVER)
_ANOTHER_OWNER: Final = "the endpoint belongs to another owner"
_ELSEWHERE: Final = Refused(Reason.SESSION_TAKEN_OVER, "at another edge")


class Roaming:
    """The residencies of this edge, and the claims that begin and end them."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.forwarder = Forwarder(state)
        self.catch_up = CatchUp(state, self.forwarder)
        self.outgoing = OutgoingHandovers(state)
        self.handovers = Handovers(state, self.forwarder, self.catch_up, self.outgoing)
        self.residencies: dict[EndpointId, Residency] = {}
        self._waiting: dict[EndpointId, Residency] = {}
        self._expired: set[EndpointId] = set()
        """Endpoints whose sessions expired while this edge was down."""
        self._last_unsubscribed: tuple[Residency | None, str, int, int] = (None, "", 0, 0)
        """The subscription that ended last: its residency, name and moment."""
        self._partial_handovers: dict[tuple[EdgeRef, EndpointId], tuple[Handover, list[QueuedMessage], int]] = {}

    def restore(self, stored: dict[str, bytes], now: Instant) -> None:
        """Restore residencies; the sessions are restored already."""
        broker = self._state.broker
        self.forwarder.restore(now)
        for key, data in stored.items():
            if "\n" in key:
                self.outgoing.restore(key, data)
                continue
            session = broker.find_session(key)
            if session is None:  # it expired while this edge was down
                broker.store_residency(key, None)
                self._expired.add(EndpointId(key))
                continue
            residency = self.residencies[session.name] = residency_from_bytes(session.name, data)
            residency.identity = session.identity
            self.catch_up.note_received_early(residency)
            if residency.catching_up is not None:
                self.catch_up.begin(residency, session)
                if residency.catching_up.sites_to_reread:
                    self.handovers.request_read_back(residency)

    # Events of endpoints at this edge

    def refuse_claim(self, name: EndpointId, identity: ClientIdentity, now: Instant) -> Refused | None:
        """Check that no other owner waits for the endpoint's session here, or has it at another edge of this site.

        Sessions at this edge are judged by themselves (`Broker.refuse_takeover`), not by its claims, which may outlive them. The
        central hub decides between sites.
        """
        state, residency = self._state, self.residencies.get(name)
        policy = state.broker.rules.other_user
        is_awaited = residency is not None and not residency.is_here
        if residency is not None and is_awaited and takeover(residency.identity, identity, policy) is Takeover.REFUSE:
            return not_owner(identity, "that is awaited here")
        claims = [one for one in state.registry.claims_for(name) if one.edge.site == state.edge.site]
        rivals = [one for one in claims if one.edge != state.edge]
        if all(one.owner == identity.owner for one in rivals):
            return None
        epoch = state.registry.epoch_above(name, now)
        since = kept_since(identity, epoch, policy, claims)
        winner, *_ = ranked([*rivals, claim_for(name, state.edge, epoch, identity, since)])
        return None if winner.owner == identity.owner else not_owner(identity, f"at {winner.edge}")

    def arrive(self, name: EndpointId, identity: ClientIdentity, now: Instant, *, clean_start: bool) -> bool:
        """Return whether an endpoint can open its session at once."""
        residency = self.residencies.get(name)
        if clean_start or (residency is not None and residency.identity.owner != identity.owner):  # a new session
            return True
        if residency is not None and (not residency.is_here or name in self._waiting):
            residency.waits_until = residency.waits_until or Instant(now + self._hold_ns)
            self._waiting[name] = residency
            return False
        if self._state.broker.find_session(name) is not None:
            return True
        is_elsewhere = self._is_claimed_elsewhere(name, identity)
        if self._state.is_ready and not is_elsewhere and not self._state.is_hub_available(now):
            return True
        residency = self._waiting[name] = Residency(name, Epoch(0), is_complete=False, identity=identity)
        self.residencies[name] = residency
        advance(residency, ResidencyEvent.ARRIVES)
        residency.waits_until = Instant(now + self._hold_ns)
        self._claim(residency, now, asks_hub=not is_elsewhere)
        return False

    def opened(self, session: Session, now: Instant, *, clean_start: bool) -> None:
        """Begin or continue a residency, and claim the endpoint unless it was claimed on arrival."""
        name, identity = session.name, session.identity
        residency = self.residencies.get(name)
        if residency is not None and residency.identity.owner != identity.owner:  # another client waits for its session
            advance(self.residencies.pop(name), ResidencyEvent.OUTRANKED)
            residency = None
        if residency is None:
            is_elsewhere = self._is_claimed_elsewhere(name, identity)
            is_known = clean_start or (not is_elsewhere and not self._state.hub_seen_at)
            residency = self.residencies[name] = Residency(name, Epoch(0), is_complete=is_known, identity=identity)
            self._claim(residency, now, clean_start=clean_start, asks_hub=not is_elsewhere and not is_known)
        elif residency.is_here or clean_start:
            self._claim(residency, now, clean_start=clean_start)
        if not residency.is_here:
            self.handovers.note_opened(residency)
        advance(residency, ResidencyEvent.OPENED)
        residency.waits_until, residency.identity = None, identity
        if self._waiting.pop(name, None) is not None:  # another client with this name
            self._state.broker.welcome(name, _TAKEN_OVER)
        residency.is_complete, residency.began = residency.is_complete or clean_start, residency.epoch
        self._store(residency)

    def ended(self, session: Session, *, is_replaced: bool) -> None:
        """End the residency of a session that has ended or was exported.

        The claim of one that its owner replaces here stays until `opened` claims again: since when the owner has the endpoint
        is not lost.
        """
        residency = self.residencies.pop(session.name, None)
        if residency is None:
            return
        self.catch_up.forget(session.name)
        if residency.is_here:
            self._note_interrupted(residency, "the session ended")
            advance(residency, ResidencyEvent.SESSION_ENDED)
        if residency.state is not ResidencyState.LEAVING and not is_replaced:
            self.outgoing.withdraw_claim(session.name)
        self._state.broker.store_residency(session.name, None)

    def subscribed(self, session: Session, name: str) -> None:
        """Announce a subscription."""
        subscription = session.subscriptions[name].subscription
        query = subscription.query
        if isinstance(query, OnTopic) and query.filter.startswith("$"):
            return
        self._announce(session, name)
        residency = self.residencies.get(session.name)
        if residency is None:
            return
        residency.ended_subscriptions = [one for one in residency.ended_subscriptions if one != name]
        if self._last_unsubscribed[0] is residency and self._last_unsubscribed[1:] == self._moment_of(
            name
        ):  # it was replaced: keep its cursors
            self.catch_up.resubscribed(residency, session, name)
        else:
            since = starting_cursors(self.catch_up.cursors_here(), self._state.next_offset)
            if len(residency.since) > 2 * len(session.subscriptions):
                residency.since = {one: at for one, at in residency.since.items() if one in session.subscriptions}
            residency.since[name] = condensed(since) if residency.is_complete else since
            self.catch_up.subscribed(residency, session, name)
        self._store(residency)

    def _moment_of(self, name: str) -> tuple[str, int, int]:
        return name, self._state.next_offset, self._state.outbox.last_number

    def unsubscribed(self, session: Session, name: str) -> None:
        """Withdraw a subscription; those of a session that is being exported stay announced."""
        residency = self.residencies.get(session.name)
        self.catch_up.unsubscribed(session, name)
        self._last_unsubscribed = (residency, *self._moment_of(name))
        if residency is not None:
            residency.ended_subscriptions += [name] if not residency.is_complete else []
            self._store(residency)
        if residency is None or residency.state is not ResidencyState.LEAVING:
            self._state.outbox.announce(SUBSCRIPTION_INFO, interest_key(self._state.edge, session.name, name), None)

    # Records of other edges and of the central hub

    def on_taken(self, taken: HandoverTaken, now: Instant) -> None:
        """Handle the reply to a handover: this edge drops the endpoint's state, unless it has come back."""
        if self.outgoing.on_taken(taken, now) and taken.endpoint not in self.residencies:
            self.outgoing.withdraw_claim(taken.endpoint)

    def on_claim(self, claim: EndpointClaim, now: Instant) -> None:
        """Handle the claim of another edge: of this site from the registry, of another site from the central hub.

        An own claim that is read back is no news while the endpoint is here. If it is not, the withdrawal follows in the log;
        until then an edge that has read the claim may wait for an answer.
        """
        state = self._state
        residency = self.residencies.get(claim.endpoint)
        if claim.edge == state.edge and state.is_ready and residency is not None:
            return
        state.registry.put(claim)
        if claim.edge == state.edge or not state.is_ready:
            return
        if residency is None:
            own_claim = state.registry.claim_of(claim.endpoint, state.edge)
            if own_claim is not None and own_claim.epoch < claim.epoch and not self.outgoing.has_left(claim.endpoint):
                self._relinquish(claim, now, is_complete=True)
        elif not self._check_claims(residency, now, claim):
            state.counts["late_claims"] += 1

    def _follow_claim(self, claim: EndpointClaim, residency: Residency, now: Instant) -> None:
        """Hand over, discard or forget an endpoint that is claimed by another edge."""
        session = self._state.broker.find_session(claim.endpoint)
        if claim.owner != residency.identity.owner:
            self._lose(residency, f"at {claim.edge}")
        elif session is None:
            advance(self.residencies.pop(claim.endpoint), ResidencyEvent.CLAIMED)
            if self._waiting.pop(claim.endpoint, None) is not None:
                self._state.note_move(residency, MoveOutcome.GIVEN_UP, f"claimed by {claim.edge}")
            self._relinquish(claim, now, is_complete=False)
            self._state.broker.welcome(claim.endpoint, _ELSEWHERE)
        elif claim.clean_start_epoch > residency.began:
            self._note_interrupted(residency, f"new session at {claim.edge}")
            advance(residency, ResidencyEvent.REPLACED)
            self._state.broker.discard_session(session)
        elif residency.catching_up is None or not residency.catching_up.sites_to_reread:  # else after the catch-up reads
            self._note_interrupted(residency, f"claimed by {claim.edge}")
            self.handovers.export(session, residency, claim, now)

    def _lose(self, residency: Residency, where: str) -> None:
        """End a session, or the wait for one, because the endpoint belongs to another owner: nothing is handed over."""
        state, endpoint = self._state, residency.endpoint
        refused = not_owner(residency.identity, where)
        state.counts["claims_outranked"] += 1
        state.note_move(residency, MoveOutcome.OUTRANKED, f"the session {where} has another owner")
        advance(residency, ResidencyEvent.OUTRANKED)
        session = state.broker.find_session(endpoint)
        if session is not None:
            state.broker.discard_session(session, refused)
        else:
            del self.residencies[endpoint]
            self.outgoing.withdraw_claim(endpoint)
        if self._waiting.pop(endpoint, None) is not None:
            state.broker.welcome(endpoint, refused)

    def _note_interrupted(self, residency: Residency, why: str) -> None:
        if residency.state is ResidencyState.CATCHING_UP:
            self._state.note_move(residency, MoveOutcome.INTERRUPTED, why)

    def _relinquish(self, claim: EndpointClaim, now: Instant, *, is_complete: bool) -> None:
        self.outgoing.withdraw_claim(claim.endpoint)
        self.outgoing.send_no_session(claim, now, is_complete=is_complete)

    def on_claim_withdrawn(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """Remove a withdrawn claim; an own one stays if the endpoint has come back since, or is in transit from here."""
        if edge != self._state.edge or (endpoint not in self.residencies and not self.outgoing.has_left(endpoint)):
            self._state.registry.remove(endpoint, edge)

    def on_prior_edge(self, prior: PriorEdge) -> None:
        """Handle the central hub's answer about the previous edge of an endpoint."""
        residency = self.residencies.get(prior.endpoint)
        if residency is None or residency.epoch != prior.epoch or prior.edge is not None:
            return
        self._complete(residency)
        self._store(residency)

    def on_handover(self, handover: Handover, now: Instant) -> None:
        """Handle a handover, whole or in its first record."""
        if handover.parts:
            self._partial_handovers[handover.sender, handover.endpoint] = (handover, list(handover.queued), handover.parts)
        else:
            self._import_handover(handover, joined(handover.queued), now)

    def on_handover_part(self, part: HandoverPart, now: Instant) -> None:
        """Handle a further record of a handover."""
        key = (part.sender, part.endpoint)
        if key not in self._partial_handovers:
            self._state.counts["unexpected"] += 1
            return
        handover, waiting, missing = self._partial_handovers.pop(key)
        waiting += part.queued
        handover = replace(handover, subscriptions=handover.subscriptions + part.subscriptions)
        if missing > 1:
            self._partial_handovers[key] = (handover, waiting, missing - 1)
        else:
            self._import_handover(handover, joined(waiting), now)

    def is_last(self, record: Handover | HandoverPart | HandoverTaken) -> bool:
        """Return whether no further record of a handover follows."""
        if isinstance(record, HandoverPart):
            return self._partial_handovers.get((record.sender, record.endpoint), (None, None, 1))[2] == 1
        return not isinstance(record, Handover) or not record.parts

    @property
    def has_partial_handover(self) -> bool:
        """Whether a handover has come in part."""
        return bool(self._partial_handovers)

    def _import_handover(self, handover: Handover, waiting: list[QueuedMessage], now: Instant) -> None:
        endpoint, state = handover.endpoint, self._state
        known = state.registry.claim_of(endpoint, handover.sender)
        if handover.sender.site != state.edge.site and known is not None and known.epoch < handover.epoch:
            state.registry.remove(endpoint, handover.sender)  # the central hub does not announce that
        residency = self.residencies.get(endpoint)
        if not handover.has_session:
            if residency is not None and handover.is_complete and handover.epoch == residency.epoch:
                self._complete(residency)
            return
        if self._is_of_another_owner(handover, residency):
            state.counts["handovers_of_another_owner"] += 1
            state.broker.count_dropped(Reason.SESSION_OF_ANOTHER_OWNER, len(waiting))
            moved, sender = residency or Residency(endpoint, handover.epoch), str(handover.sender)
            state.note_move(moved, MoveOutcome.REFUSED, _ANOTHER_OWNER, from_edge=sender, messages=len(waiting))
            self.outgoing.decline(handover, now)
            return
        residency = self.residencies.get(endpoint)
        own_claims = [one for one in state.registry.claims_for(endpoint) if one.owner == identity_of(handover).owner]
        latest = next(iter(ranked(own_claims)), None)
        if residency is None and latest is not None and latest.edge != state.edge and latest.epoch > handover.epoch:
            if latest.clean_start_epoch > handover.began:
                self.outgoing.decline(handover, now)
            else:
                self.handovers.relay(handover, waiting, latest, now)
            return
        residency = residency or Residency(
            endpoint, handover.epoch, is_complete=handover.is_complete, identity=identity_of(handover)
        )
        since = [one for one in (residency.kept_since, handover.kept_since) if one]
        residency.kept_since = min(since, default=NO_EPOCH)
        residency.clean_start_epoch = max(residency.clean_start_epoch, handover.clean_start_epoch)
        why = "the endpoint has begun a new session since" if handover.began < residency.clean_start_epoch else None
        why = why or self.handovers.import_session(handover, waiting, residency, now)
        if why is not None:
            state.note_move(residency, MoveOutcome.REFUSED, why, from_edge=str(handover.sender), messages=len(waiting))
            self.outgoing.decline(handover, now)
            if endpoint in self._waiting:
                self._complete(residency)
            return
        own_claim = state.registry.claim_of(endpoint, state.edge)
        if (
            own_claim is None
            or own_claim.clean_start_epoch < residency.clean_start_epoch
            or own_claim.kept_since != residency.kept_since
            or endpoint not in self.residencies
        ):  # not awaited: a higher claim may be known
            self._state.announce_claim(self._claim_of(residency))
        residency.began = max(residency.began, handover.began)
        self.residencies[endpoint] = residency
        self._announce_all(endpoint)
        self.outgoing.owe_reply(handover)
        if handover.is_complete:
            self._complete(residency)
        self._store(residency)
        self._check_claims(residency, now)

    def _is_of_another_owner(self, handover: Handover, residency: Residency | None) -> bool:
        """Return whether the session of a handover loses to another owner; if it wins, end the session of the other one here."""
        state, identity = self._state, identity_of(handover)
        carried = claim_for(handover.endpoint, state.edge, handover.epoch, identity, handover.kept_since)
        if residency is None:
            others = [one for one in state.registry.claims_for(handover.endpoint) if one.edge != state.edge]
            return ranked([*others, carried])[0].owner != identity.owner
        if residency.identity.owner == identity.owner:
            return False
        if ranked([self._claim_of(residency), carried])[0] is not carried:
            return True
        self._lose(residency, f"from {handover.sender}")
        return False

    def _complete(self, residency: Residency) -> None:
        residency.is_complete, residency.ended_subscriptions = True, []
        if residency.endpoint in self._waiting:
            self._admit(residency)

    def _admit(self, residency: Residency) -> None:
        self._waiting.pop(residency.endpoint, None)
        residency.waits_until = None
        self._state.broker.welcome(residency.endpoint)

    def _check_claims(self, residency: Residency, now: Instant, read: EndpointClaim | None = None) -> bool:
        """Follow the claim of another edge that wins, if one does; *read*: one that the registry may have no room for."""
        state = self._state
        others = {one.edge: one for one in state.registry.claims_for(residency.endpoint) if one.edge != state.edge}
        if read is not None:
            others.setdefault(read.edge, read)
        if not others:
            return False
        winner, *_ = ranked([*others.values(), self._claim_of(residency)])
        if winner.edge == state.edge:
            return False
        self._follow_claim(winner, residency, now)
        return True

    def on_missed(self, missed: MissedMessages, now: Instant) -> None:
        """Handle messages that the central hub found for an endpoint."""
        residency = self.residencies.get(missed.endpoint)
        if residency is not None and residency.is_here:
            self.handovers.on_missed(missed, residency, now)
            self._check_claims(residency, now)

    def on_read_back(self, endpoint: EndpointId, reads: list[ReadRecord], missed: list[MissedMessages], now: Instant) -> None:
        """Handle records that were read again for an endpoint."""
        residency = self.residencies.get(endpoint)
        if residency is not None and residency.is_here:
            self.handovers.read_back(residency, reads, missed, now)
            self._check_claims(residency, now)

    # Timers

    def make_progress(self, now: Instant) -> None:
        """Let endpoints go live and send due replies, after a batch was read or appended."""
        for residency in (*self.catch_up.take_changed(), *self.catch_up.go_live()):
            self._store(residency)
        self.outgoing.send_due_replies(now)

    def tick(self, now: Instant) -> None:
        """Admit clients that have waited long enough; forget endpoints whose session never came."""
        for residency in [one for one in self._waiting.values() if one.waits_until is not None and one.waits_until <= now]:
            self._state.counts["handover_timeouts"] += 1
            self._state.note_move(
                residency, MoveOutcome.GIVEN_UP, f"no session came within {self._state.limits.handover_timeout_s:g} s"
            )
            self._admit(residency)
        for residency in [one for one in self.residencies.values() if not one.is_here and now - one.epoch > AWAITED_NS_MAX]:
            advance(self.residencies.pop(residency.endpoint), ResidencyEvent.GIVEN_UP)
            self.outgoing.withdraw_claim(residency.endpoint)
        for residency in self.catch_up.overdue(now):
            self.handovers.stop_waiting(residency, now)
            self._check_claims(residency, now)

    def begin(self, now: Instant) -> None:
        """Reconcile with changes while this edge was down, after the registry was read."""
        state = self._state
        state.is_ready = True
        state.broker.routes_changed()
        self.forwarder.forward_undecided(now)
        self.outgoing.begin()
        for claim in state.registry.claims_of(state.edge):
            if claim.endpoint not in self.residencies and not self.outgoing.has_left(claim.endpoint):
                self._report_lost(claim, now)
        for residency in list(self.residencies.values()):
            own_claim = state.registry.claim_of(residency.endpoint, state.edge)
            if own_claim is None or own_claim.epoch < residency.epoch:
                self._state.announce_claim(self._claim_of(residency))
            self._check_claims(residency, now)
        for session in state.broker.all_sessions():
            if session.name not in self.residencies:  # from before this edge joined a site
                self.opened(session, now, clean_start=False)
        for residency in list(self._waiting.values()):
            if not self._is_claimed_elsewhere(residency.endpoint, residency.identity) and not state.is_hub_available(now):
                self._complete(residency)

    def _report_lost(self, claim: EndpointClaim, now: Instant) -> None:
        """Notify the edge that waits for a session that it is lost."""
        winner = self._state.registry.winner(claim.endpoint)
        if winner is not None and winner.edge != self._state.edge:
            self._relinquish(winner, now, is_complete=claim.endpoint in self._expired)
        else:
            self.outgoing.withdraw_claim(claim.endpoint)

    def _announce_all(self, endpoint: EndpointId) -> None:
        session = self._state.broker.find_session(endpoint)
        assert session is not None, "an endpoint that has arrived has a session"
        for name in session.subscriptions:
            self._announce(session, name)

    def _announce(self, session: Session, name: str) -> None:
        state = self._state
        key = interest_key(state.edge, session.name, name)
        state.outbox.announce(SUBSCRIPTION_INFO, key, to_record(Interest(state.edge, session.subscriptions[name].subscription)))
        self.outgoing.end_interest(key)

    def _claim(self, residency: Residency, now: Instant, *, clean_start: bool = False, asks_hub: bool = False) -> None:
        state, endpoint, identity = self._state, residency.endpoint, residency.identity
        residency.epoch = max(state.registry.epoch_above(endpoint, now), Epoch(residency.epoch + 1))
        residency.clean_start_epoch = residency.epoch if clean_start else residency.clean_start_epoch
        claims = state.registry.claims_for(endpoint)
        residency.kept_since = kept_since(identity, residency.epoch, state.broker.rules.other_user, claims)
        state.registry.drop_outdated(endpoint, identity.owner, state.edge.site)
        state.announce_claim(self._claim_of(residency, asks_hub=asks_hub))
        state.counts["claims"] += 1

    def _claim_of(self, residency: Residency, *, asks_hub: bool = False) -> EndpointClaim:
        return claim_for(
            residency.endpoint,
            self._state.edge,
            residency.epoch,
            residency.identity,
            residency.kept_since,
            clean_start_epoch=residency.clean_start_epoch,
            asks_prior_edge=asks_hub,
        )

    def _is_claimed_elsewhere(self, name: EndpointId, identity: ClientIdentity) -> bool:
        return self._state.registry.is_claimed_elsewhere(name, self._state.edge, identity.owner)

    @property
    def _hold_ns(self) -> int:
        return int(self._state.limits.handover_timeout_s * SECOND_NS)

    def _store(self, residency: Residency) -> None:
        session = self._state.broker.find_session(residency.endpoint)
        if session is not None and session.is_durable:
            self._state.broker.store_residency(residency.endpoint, residency_to_bytes(residency))
