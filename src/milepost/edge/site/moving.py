"""Moving: a session cut out of this edge for another one, and one that arrives (docs/reference/roaming.md).

What must hold:
- cut and what is kept of it are one turn: the handover is in the outbox when the session is gone, and not before;
- what the endpoint asks for is asked for here until the other edge has said that it asks for it itself.
"""

from typing import Final, NamedTuple

from milepost.edge.actions import Expel, Welcome
from milepost.edge.journal import parcel_from_bytes
from milepost.edge.sessions import NOWHERE, Session
from milepost.edge.site.forwarding import ON_THE_MOVE, Forwarder
from milepost.edge.site.handing import add_to, held_of, in_parts, install, open_away, take_up, waiting_of
from milepost.edge.site.recent import Read
from milepost.edge.site.sayings import message_of
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import Back, Leaving, Marks, Stay, Young, leaving_to_bytes
from milepost.edge.site.youth import Youth
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.sites import (
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    Claim,
    EdgeRef,
    Epoch,
    Extra,
    Handover,
    Held,
    Rest,
    Taken,
    Waiting,
    wanted_key,
)

SLACK_NS: Final = SECOND_NS
"""By so much the numbers of different edges may stand in another order than their records."""
FLOOR_NS: Final = 60 * SECOND_NS
"""Edges of which the sender had heard nothing: what they said so long before counts as said before the endpoint asked."""


class ReadBack(NamedTuple):
    """What has to be read again from the log for an endpoint."""

    endpoint: EndpointId
    epoch: Epoch
    offset: int | None
    since: Instant


class Moving:
    """Cuts sessions out, and takes in those that arrive."""

    def __init__(self, state: SiteState, forwarder: Forwarder, youth: Youth) -> None:
        self._state = state
        self._forwarder = forwarder
        self._youth = youth
        self.leaving: dict[tuple[EndpointId, Epoch], Leaving] = {}
        self.read_backs: list[ReadBack] = []
        """What is to be read again, for whoever reads."""
        self.cutting: EndpointId | None = None
        """Who is just being cut out: what it asks for is not taken back."""

    def cut(self, session: Session, stay: Stay, claim: Claim, now: Instant) -> None:
        """Hand a session over to the edge that has a higher claim."""
        state, corridor = self._state, self._state.corridor
        self.part(session)
        corridor.deliveries.leave(session)
        held, parts = held_of(session), in_parts(waiting_of(session))
        number = state.outbox.next_number(now)
        handover = Handover(
            session.name,
            claim.epoch,
            state.me,
            claim.edge,
            number,
            is_whole=stay.is_whole,
            expiry_ns=session.expiry_ns,
            place=corridor.place_of(session),
            subscriptions=held,
            waiting=parts[0],
            received=tuple(sorted(session.received or ())),
            marks=self._marks_of(stay),
            offset=state.offsets.get(CROSS_HUB, 0),
            as_of=state.read_at,
            rests=len(parts) - 1,
        )
        corridor.deliveries.let_go(session)
        self.cutting = session.name
        session.will = None
        corridor.remove(session)
        self.cutting = None
        state.write(handover, number, claim.edge)
        for part in parts[1:]:
            number = state.outbox.next_number(now)
            state.write(Rest(session.name, claim.epoch, state.me, claim.edge, number, part), number, claim.edge)
        self._leave(Leaving(session.name, claim.epoch, held))
        state.counts["moves_out"] += 1

    def part(self, session: Session) -> None:
        """Drop the connection of an endpoint that is elsewhere."""
        if session.link is not NOWHERE:
            self._state.corridor.deliveries.actions.append(
                Expel(session.link, Refused(Reason.SESSION_TAKEN_OVER, "at another edge"))
            )
            session.link = NOWHERE

    def say_nothing_held(self, claim: Claim, now: Instant, *, is_whole: bool) -> None:
        """Tell the edge that waits for a handover that there is none."""
        number = self._state.outbox.next_number(now)
        answer = Handover(claim.endpoint, claim.epoch, self._state.me, claim.edge, number, is_whole=is_whole, is_held=False)
        self._state.write(answer, number, claim.edge)

    def _marks_of(self, stay: Stay) -> Marks:
        """Up to where an endpoint has had its share of what everybody said."""
        state = self._state
        marks = dict(state.marks)
        if stay.young is None:
            marks[str(state.me)] = max(self._forwarder.said_up_to, marks.get(str(state.me), 0))
            return marks
        young = stay.young.marks
        return marks | {one: max(young[one], marks.get(one, 0)) for one in young}

    def _leave(self, leaving: Leaving) -> None:
        self.leaving[leaving.endpoint, leaving.epoch] = leaving
        self._state.corridor.changes.stays[_leaving_key(leaving)] = leaving_to_bytes(leaving)
        self.ask_for(leaving)

    def ask_for(self, leaving: Leaving) -> None:
        """Have what an endpoint that left asks for go to the log."""
        for held in leaving.subscriptions:
            self._state.interest.put(_interest_key(leaving, held), ON_THE_MOVE, held.subscription)

    def taken(self, taken: Taken) -> None:
        """The other edge asks for everything itself."""
        leaving = self.leaving.pop((taken.endpoint, taken.epoch), None)
        if leaving is None:
            return
        state = self._state
        state.corridor.changes.stays[_leaving_key(leaving)] = None
        session = state.corridor.sessions.maybe(leaving.endpoint)
        for held in leaving.subscriptions:
            state.interest.take_away(_interest_key(leaving, held))
            if session is None or held.name not in session.subscriptions:
                state.outbox.say(SUBSCRIPTION_INFO, wanted_key(state.me, leaving.endpoint, held.name), None)

    def arrive(self, handover: Handover, waiting: list[Waiting], stay: Stay, now: Instant) -> bool:
        """Take a session in; tells whether there was one, and room for it."""
        state, corridor = self._state, self._state.corridor
        session = corridor.sessions.maybe(handover.endpoint)
        if session is None:
            opened = open_away(corridor, handover.endpoint, handover.expiry_ns, now) if handover.expiry_ns else None
            if opened is None or isinstance(opened, Malformed):
                corridor.counts.dropped[opened.reason if opened else Reason.SESSION_EXPIRED] += len(waiting)
                return False
            session = opened
            install(corridor, session, waiting, handover.received)
        else:
            add_to(corridor, session, [one for one in waiting if not self._was_given(stay, one, now)])
        stay.is_here = True
        if handover.place is not None and corridor.place_of(session) is None:
            corridor.watch.put_place(session, handover.place)
        for held in handover.subscriptions:
            take_up(corridor, session, held)
        self._begin_young(handover, stay, session)
        if not self._catch_up(stay, handover.subscriptions, now):
            self.ask_back(stay)
        state.counts["moves_in"] += 1
        return True

    def ask_back(self, stay: Stay) -> None:
        """Have what an endpoint missed read again from the log."""
        back = stay.young.back if stay.young else None
        assert back is not None, "what is not at hand is to be read again"
        self.read_backs.append(ReadBack(stay.endpoint, stay.epoch, back.offset, back.since))

    def _was_given(self, stay: Stay, one: Waiting, now: Instant) -> bool:
        if not stay.since or not one.said_number:
            return False
        message = message_of(parcel_from_bytes(one.parcel)) if one.parcel else None
        return message is not None and self._youth.was_given(stay, message, one.said_by, one.said_number, now)

    def _begin_young(self, handover: Handover, stay: Stay, session: Session) -> None:
        state = self._state
        if handover.sender.site == state.me.site:
            back = Back(handover.offset, Instant(0), 0)
        else:
            mine = [number for edge, number in handover.marks.items() if edge.startswith(f"{state.me.site}/")]
            floor = handover.as_of - FLOOR_NS
            back = Back(None, Instant(min([max(mine, default=floor), handover.as_of]) - SLACK_NS), floor)
        marks = dict(handover.marks)
        if stay.young is not None:  # what it got here already it does not get again
            marks = {one: max(marks.get(one, 0), stay.young.marks.get(one, 0)) for one in {*marks, *stay.young.marks}}
        stay.young = Young(marks, self._forwarder.last_said, back)
        self._youth.begin(stay, session)

    def _catch_up(self, stay: Stay, held: tuple[Held, ...], now: Instant) -> bool:
        """What an endpoint missed, as far as it is at hand; tells whether that is all."""
        reads = self._at_hand(stay)
        if reads is None:
            return False
        self._youth.catch_up(stay, held, reads, now)
        return True

    def _at_hand(self, stay: Stay) -> list[Read] | None:
        recent, back = self._state.recent, stay.young.back if stay.young else None
        assert back is not None, "there is something to catch up with"
        if back.offset is not None:
            return recent.since(back.offset) if recent.reaches(back.offset) else None
        return recent.since_time(back.since) if recent.reaches_time(back.since) else None

    def read_back(self, stay: Stay, reads: list[Read], now: Instant) -> None:
        """What was read again; all that was read here meanwhile comes after it."""
        session = self._state.corridor.sessions.maybe(stay.endpoint)
        if session is None or stay.young is None or stay.young.back is None:
            return
        following = self._state.recent.since(reads[-1].offset + 1) if reads else []
        self._youth.catch_up(stay, held_of(session), [*reads, *following], now)

    def extra(self, extra: Extra, stay: Stay, now: Instant) -> None:
        """What the centre found for an endpoint that is here."""
        for said in extra.said:
            self._youth.give(stay, said, now)

    def pass_on(self, extra: Extra, receiver: EdgeRef, now: Instant) -> None:
        """What the centre found for an endpoint that has moved on."""
        number = self._state.outbox.next_number(now)
        self._state.write(Extra(extra.endpoint, extra.epoch, self._state.me, receiver, number, extra.said), number, receiver)

    def pay(self, stay: Stay, now: Instant) -> bool:
        """Tell who handed an endpoint over that it is taken, once what it asks for was said; tells whether it could be."""
        state = self._state
        if state.outbox.said_up_to < stay.owes_after:
            return False
        session = state.corridor.sessions.maybe(stay.endpoint)
        held = held_of(session) if session is not None else ()
        for edge, epoch in stay.owes:
            number = state.outbox.next_number(now)
            state.write(Taken(stay.endpoint, epoch, state.me, edge, number, held), number, edge)
        stay.owes = []
        return True

    def welcome(self, endpoint: EndpointId, why: Refused | None = None) -> None:
        """Let who waits for its session go on, or go."""
        self._state.corridor.deliveries.actions.append(Welcome(endpoint, why))


def _leaving_key(leaving: Leaving) -> str:
    return f"{leaving.endpoint}\n{leaving.epoch}"


def _interest_key(leaving: Leaving, held: Held) -> str:
    return f"leaving\n{leaving.endpoint}\n{leaving.epoch}\n{held.name}"
