"""Roaming: claims of endpoints, made and heard, and what follows from them (docs/reference/roaming.md has the table).

What must hold:
- whoever opens a session here is claimed with a new epoch, above all that this edge has heard of the endpoint;
- an edge that hears of a higher claim hands over what it holds, at once or as soon as it has read what it must;
- a client waits for its session only while somebody may bring it, and never longer than `hold_s`.
"""

from dataclasses import replace
from typing import Final

from milepost.edge.sessions import Session
from milepost.edge.site.departures import Departures
from milepost.edge.site.forwarding import Forwarder
from milepost.edge.site.handing import joined
from milepost.edge.site.moving import Moving
from milepost.edge.site.recent import Read
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import Stay, stay_from_bytes, stay_to_bytes
from milepost.edge.site.youth import Youth, in_short, since_here
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.queries import OnTopic
from milepost.model.reasons import Reason, Refused
from milepost.model.sites import (
    SUBSCRIPTION_INFO,
    Claim,
    EdgeRef,
    Epoch,
    Extra,
    Handover,
    Prior,
    Rest,
    Taken,
    Waiting,
    Wanted,
    wanted_key,
)
from milepost.wire.records import to_record

FORGOTTEN_NS: Final = 600 * SECOND_NS
"""An endpoint that left while it was awaited, and of which nothing came, is forgotten after so long."""

_TAKEN_OVER: Final = Refused(Reason.SESSION_TAKEN_OVER)
_ELSEWHERE: Final = Refused(Reason.SESSION_TAKEN_OVER, "at another edge")


class Roaming:
    """The endpoints of this edge as the site sees them."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.forwarder = Forwarder(state)
        self.youth = Youth(state, self.forwarder)
        self.departures = Departures(state)
        self.moving = Moving(state, self.forwarder, self.youth, self.departures)
        self.stays: dict[EndpointId, Stay] = {}
        self._waiting: dict[EndpointId, Stay] = {}
        self._expired: set[EndpointId] = set()
        """Whose sessions ended while this edge was not there."""
        self._dropped: tuple[Stay | None, str, int, int] = (None, "", 0, 0)
        """The subscription that was ended last, whose it was, and when."""
        self._unfinished: dict[tuple[EdgeRef, EndpointId], tuple[Handover, list[Waiting], int]] = {}

    def restore(self, kept: dict[str, bytes], now: Instant) -> None:
        """Go on where an earlier process was; sessions are restored already."""
        corridor = self._state.corridor
        self.forwarder.restore(now)
        for key, data in kept.items():
            if "\n" in key:
                self.departures.restore(key, data)
                continue
            session = corridor.sessions.maybe(key)
            if session is None:  # it expired while this edge was not there
                corridor.changes.stays[key] = None
                self._expired.add(EndpointId(key))
                continue
            stay = self.stays[session.name] = stay_from_bytes(session.name, data)
            self.youth.note_ahead(stay)
            if stay.young is not None:
                self.youth.begin(stay, session)
                if stay.young.late:
                    self.moving.ask_back(stay)

    # What endpoints do here

    def arrive(self, name: EndpointId, now: Instant, *, is_fresh: bool) -> bool:
        """Whether an endpoint can open its session at once."""
        stay = self.stays.get(name)
        if is_fresh:
            return True
        if stay is not None and (not stay.is_here or name in self._waiting):
            stay.waits_until = stay.waits_until or Instant(now + self._hold_ns)
            self._waiting[name] = stay
            return False
        if self._state.corridor.sessions.maybe(name) is not None:
            return True
        is_elsewhere = self._is_claimed_elsewhere(name)
        if self._state.is_ready and not is_elsewhere and not self._state.is_centre_there(now):
            return True
        stay = self.stays[name] = self._waiting[name] = Stay(name, Epoch(0), is_whole=False)
        stay.waits_until = Instant(now + self._hold_ns)
        self._claim(stay, now, asks=not is_elsewhere)
        return False

    def opened(self, session: Session, now: Instant, *, is_fresh: bool) -> None:
        """A session was opened: its endpoint is claimed, if it was not when it arrived."""
        name = session.name
        stay = self.stays.get(name)
        if stay is None:
            is_elsewhere = self._is_claimed_elsewhere(name)
            is_known = is_fresh or (not is_elsewhere and not self._state.centre_at)
            stay = self.stays[name] = Stay(name, Epoch(0), is_whole=is_known)
            self._claim(stay, now, is_fresh=is_fresh, asks=not is_elsewhere and not is_known)
        elif stay.is_here or is_fresh:
            self._claim(stay, now, is_fresh=is_fresh)
        if not stay.is_here:
            self.moving.note_opened(stay)
        stay.is_here, stay.waits_until = True, None
        if self._waiting.pop(name, None) is not None:  # somebody else under this name
            self.moving.welcome(name, _TAKEN_OVER)
        stay.is_whole, stay.began = stay.is_whole or is_fresh, stay.epoch
        self._keep(stay)

    def ended(self, session: Session) -> None:
        """A session is over, or was cut out."""
        stay = self.stays.pop(session.name, None)
        if stay is None:
            return
        self.youth.forget(session.name)
        if self.moving.cutting != session.name:
            self.departures.give_up(session.name)
        self._state.corridor.changes.stays[session.name] = None

    def subscribed(self, session: Session, name: str) -> None:
        """Say what an endpoint wants."""
        subscription = session.subscriptions[name].subscription
        query = subscription.query
        if isinstance(query, OnTopic) and query.filter.startswith("$"):
            return
        self._say_wanted(session, name)
        stay = self.stays.get(session.name)
        if stay is None:
            return
        stay.ended = [one for one in stay.ended if one != name]
        if self._dropped[0] is stay and self._dropped[1:] == self._moment_of(name):  # it was replaced: what it had, it has
            self.youth.resubscribed(stay, session, name)
        else:
            since = since_here(self.youth.marks_here(), self._state.next_offset)
            if len(stay.since) > 2 * len(session.subscriptions):
                stay.since = {one: at for one, at in stay.since.items() if one in session.subscriptions}
            stay.since[name] = in_short(since) if stay.is_whole else since
            self.youth.subscribed(stay, session, name)
        self._keep(stay)

    def _moment_of(self, name: str) -> tuple[str, int, int]:
        return name, self._state.next_offset, self._state.outbox.last_number

    def unsubscribed(self, session: Session, name: str) -> None:
        """Say what an endpoint no longer wants; one that is just cut out goes on wanting it."""
        stay = self.stays.get(session.name)
        self.youth.unsubscribed(session, name)
        self._dropped = (stay, *self._moment_of(name))
        if stay is not None:
            stay.ended += [name] if not stay.is_whole else []
            self._keep(stay)
        if self.moving.cutting != session.name:
            self._state.outbox.say(SUBSCRIPTION_INFO, wanted_key(self._state.me, session.name, name), None)

    # What others say

    def on_taken(self, taken: Taken, now: Instant) -> None:
        """An endpoint that left is at the other edge: nothing of it is here any more, unless it has come back."""
        if self.departures.taken(taken, now) and taken.endpoint not in self.stays:
            self.departures.give_up(taken.endpoint)

    def on_claim(self, claim: Claim, now: Instant) -> None:
        """An edge has claimed an endpoint: of this site in the register, of another one as the centre tells."""
        state = self._state
        state.register.put(claim)
        if claim.edge == state.me or not state.is_ready:
            return
        stay = self.stays.get(claim.endpoint)
        if stay is None:
            mine = state.register.of(claim.endpoint, state.me)
            if mine is not None and mine.epoch < claim.epoch and not self.departures.has_left(claim.endpoint):
                self._give_up(claim, now, is_whole=True)
        elif (claim.epoch, claim.edge) > (stay.epoch, state.me):
            self._follow(claim, stay, now)
        else:
            state.counts["late_claims"] += 1

    def _follow(self, claim: Claim, stay: Stay, now: Instant) -> None:
        """An endpoint of this edge is at another one."""
        session = self._state.corridor.sessions.maybe(claim.endpoint)
        if session is None:
            self.stays.pop(claim.endpoint)
            self._waiting.pop(claim.endpoint, None)
            self._give_up(claim, now, is_whole=False)
            self.moving.welcome(claim.endpoint, _ELSEWHERE)
        elif claim.anew > stay.began:
            self.moving.part(session)
            session.will = None
            self._state.corridor.deliveries.end(session)
            self._state.corridor.remove(session)
        elif stay.young is None or not stay.young.late:  # else when it has read what it must
            self.moving.cut(session, stay, claim, now)

    def _give_up(self, claim: Claim, now: Instant, *, is_whole: bool) -> None:
        self.departures.give_up(claim.endpoint)
        self.departures.say_nothing_held(claim, now, is_whole=is_whole)

    def on_claim_gone(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """An edge has nothing of an endpoint any more; what this edge has it knows itself, once it has read what it had said."""
        if edge != self._state.me or (not self._state.is_ready and endpoint not in self.stays):
            self._state.register.take_away(endpoint, edge)

    def on_prior(self, prior: Prior) -> None:
        """The centre says where an endpoint was before."""
        stay = self.stays.get(prior.endpoint)
        if stay is None or stay.epoch != prior.epoch or prior.edge is not None:
            return
        self._complete(stay)
        self._keep(stay)

    def on_handover(self, handover: Handover, now: Instant) -> None:
        """A session arrives, whole or in its first part."""
        if handover.rests:
            self._unfinished[handover.sender, handover.endpoint] = (handover, list(handover.waiting), handover.rests)
        else:
            self._arrived(handover, joined(handover.waiting), now)

    def on_rest(self, rest: Rest, now: Instant) -> None:
        """More of what waits for an endpoint."""
        key = (rest.sender, rest.endpoint)
        if key not in self._unfinished:
            self._state.counts["strange"] += 1
            return
        handover, waiting, missing = self._unfinished.pop(key)
        waiting += rest.waiting
        handover = replace(handover, subscriptions=handover.subscriptions + rest.subscriptions)
        if missing > 1:
            self._unfinished[key] = (handover, waiting, missing - 1)
        else:
            self._arrived(handover, joined(waiting), now)

    def is_last(self, letter: Handover | Rest | Taken) -> bool:
        """Whether nothing more belongs to a letter."""
        if isinstance(letter, Rest):
            return self._unfinished.get((letter.sender, letter.endpoint), (None, None, 1))[2] == 1
        return not isinstance(letter, Handover) or not letter.rests

    @property
    def is_unfinished(self) -> bool:
        """Whether a handover has come in part."""
        return bool(self._unfinished)

    def _arrived(self, handover: Handover, waiting: list[Waiting], now: Instant) -> None:
        endpoint, state = handover.endpoint, self._state
        known = state.register.of(endpoint, handover.sender)
        if handover.sender.site != state.me.site and known is not None and known.epoch < handover.epoch:
            state.register.take_away(endpoint, handover.sender)  # the centre does not tell of that
        stay = self.stays.get(endpoint)
        if not handover.is_held:
            if stay is not None and handover.is_whole and handover.epoch == stay.epoch:
                self._complete(stay)
            return
        latest = state.register.latest(endpoint)
        if stay is None and latest is not None and latest.edge != state.me and latest.epoch > handover.epoch:
            if latest.anew > handover.began:
                self.departures.decline(handover, now)
            else:
                self.moving.relay(handover, waiting, latest, now)
            return
        stay = stay or Stay(endpoint, handover.epoch, is_whole=handover.is_whole)
        stay.anew = max(stay.anew, handover.anew)
        if handover.began < stay.anew or not self.moving.arrive(handover, waiting, stay, now):
            self.departures.decline(handover, now)
            if endpoint in self._waiting:
                self._complete(stay)
            return
        mine = state.register.of(endpoint, state.me)
        if mine is None or mine.anew < stay.anew or endpoint not in self.stays:  # not awaited: a higher claim may be known
            self._state.say_claim(Claim(endpoint, state.me, stay.epoch, stay.anew))
        stay.began = max(stay.began, handover.began)
        self.stays[endpoint] = stay
        self._say_all(endpoint)
        self.departures.owe(handover)
        if handover.is_whole:
            self._complete(stay)
        self._keep(stay)
        self._look(stay, now)

    def _complete(self, stay: Stay) -> None:
        stay.is_whole, stay.ended = True, []
        if stay.endpoint in self._waiting:
            self._let_in(stay)

    def _let_in(self, stay: Stay) -> None:
        self._waiting.pop(stay.endpoint, None)
        stay.waits_until = None
        self.moving.welcome(stay.endpoint)

    def _look(self, stay: Stay, now: Instant) -> None:
        """Whether an endpoint has been claimed elsewhere meanwhile."""
        latest = self._state.register.latest(stay.endpoint)
        if latest is not None and latest.edge != self._state.me and (latest.epoch, latest.edge) > (stay.epoch, self._state.me):
            self._follow(latest, stay, now)

    def on_extra(self, extra: Extra, now: Instant) -> None:
        """What the centre found for an endpoint."""
        stay = self.stays.get(extra.endpoint)
        if stay is not None and stay.is_here:
            self.moving.extra(extra, stay, now)
            self._look(stay, now)

    def on_read_back(self, endpoint: EndpointId, reads: list[Read], extras: list[Extra], now: Instant) -> None:
        """What had to be read again for an endpoint."""
        stay = self.stays.get(endpoint)
        if stay is not None and stay.is_here:
            self.moving.read_back(stay, reads, extras, now)
            self._look(stay, now)

    # By themselves

    def settle(self, now: Instant) -> None:
        """The end of what was read, or appended: who can be served at once is, who is owed an answer gets it."""
        for stay in (*self.youth.take_changed(), *self.youth.grow_up()):
            self._keep(stay)
        self.departures.settle(now)

    def tick(self, now: Instant) -> None:
        """Who waited long enough for a session that did not come is let in without it."""
        for stay in [one for one in self._waiting.values() if one.waits_until is not None and one.waits_until <= now]:
            self._state.counts["held_in_vain"] += 1
            self._let_in(stay)
        for stay in [one for one in self.stays.values() if not one.is_here and now - one.epoch > FORGOTTEN_NS]:
            del self.stays[stay.endpoint]
            self.departures.give_up(stay.endpoint)

    def begin(self, now: Instant) -> None:
        """The register is read: put right what changed while this edge was not there."""
        state = self._state
        state.is_ready = True
        state.corridor.planner.change()
        self.forwarder.decide(now)
        self.departures.begin()
        for claim in state.register.claimed_by(state.me):
            if claim.endpoint not in self.stays and not self.departures.has_left(claim.endpoint):
                self._lose(claim, now)
        for stay in list(self.stays.values()):
            mine = state.register.of(stay.endpoint, state.me)
            if mine is None or mine.epoch < stay.epoch:
                self._state.say_claim(Claim(stay.endpoint, state.me, stay.epoch, stay.anew))
            self._look(stay, now)
        for session in state.corridor.sessions:
            if session.name not in self.stays:  # of a time when this edge was alone
                self.opened(session, now, is_fresh=False)
        for stay in list(self._waiting.values()):
            if not self._is_claimed_elsewhere(stay.endpoint) and not state.is_centre_there(now):
                self._complete(stay)

    def _lose(self, claim: Claim, now: Instant) -> None:
        """A session is no more though it was claimed: who waits for it elsewhere is told."""
        latest = self._state.register.latest(claim.endpoint)
        if latest is not None and latest.edge != self._state.me:
            self._give_up(latest, now, is_whole=claim.endpoint in self._expired)
        else:
            self.departures.give_up(claim.endpoint)

    def _say_all(self, endpoint: EndpointId) -> None:
        session = self._state.corridor.sessions.maybe(endpoint)
        assert session is not None, "who has arrived has a session"
        for name in session.subscriptions:
            self._say_wanted(session, name)

    def _say_wanted(self, session: Session, name: str) -> None:
        state = self._state
        key = wanted_key(state.me, session.name, name)
        state.outbox.say(SUBSCRIPTION_INFO, key, to_record(Wanted(state.me, session.subscriptions[name].subscription)))
        self.departures.ended(key)

    def _claim(self, stay: Stay, now: Instant, *, is_fresh: bool = False, asks: bool = False) -> None:
        state = self._state
        stay.epoch = max(state.register.epoch_above(stay.endpoint, now), Epoch(stay.epoch + 1))
        stay.anew = stay.epoch if is_fresh else stay.anew
        self._state.say_claim(Claim(stay.endpoint, state.me, stay.epoch, stay.anew, asks))
        state.counts["claims"] += 1

    def _is_claimed_elsewhere(self, name: EndpointId) -> bool:
        return self._state.register.is_claimed_beside(name, self._state.me)

    @property
    def _hold_ns(self) -> int:
        return int(self._state.limits.hold_s * SECOND_NS)

    def _keep(self, stay: Stay) -> None:
        session = self._state.corridor.sessions.maybe(stay.endpoint)
        if session is not None and session.is_kept:
            self._state.corridor.changes.stays[stay.endpoint] = stay_to_bytes(stay)
