"""Moving: a session cut out of this edge for another one, and one that arrives (docs/reference/roaming.md).

What must hold:
- cut and what is kept of it are one turn: the handover is in the outbox when the session is gone, and not before;
- what the endpoint asks for is asked for here until the other edge has said that it asks for it itself.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from milepost.edge.actions import Expel, Welcome
from milepost.edge.journal import parcel_from_bytes
from milepost.edge.parcels import Delivery
from milepost.edge.sessions import NOWHERE, Session
from milepost.edge.site.departures import Departures
from milepost.edge.site.forwarding import Forwarder
from milepost.edge.site.handing import Portion, add_to, held_of, in_portions, install, on_its_way, open_away, take_up, waiting_of
from milepost.edge.site.recent import Read
from milepost.edge.site.sayings import message_of
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import EVERY, FAR, OFFSET, Leaving, Part, Stay, Young
from milepost.edge.site.youth import Told, Youth, has_had
from milepost.model.addresses import ToArea, ToTold
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.sites import (
    Claim,
    EdgeRef,
    Extra,
    Handover,
    Held,
    Rest,
    Waiting,
)
from milepost.wire.records import to_record

SLACK_NS: Final = SECOND_NS
"""By so much the numbers of different edges may stand in another order than their records."""
FLOOR_NS: Final = 60 * SECOND_NS
"""Edges of which the sender had heard nothing: what they said so long before counts as said before the endpoint asked."""


class ReadBack(NamedTuple):
    """What has to be read again from the log for an endpoint."""

    endpoint: EndpointId
    offset: int | None
    """From an offset on, or"""
    since: Instant | None
    """from a time on, or from the earlier of both."""


class Moving:
    """Cuts sessions out, and takes in those that arrive."""

    def __init__(self, state: SiteState, forwarder: Forwarder, youth: Youth, departures: Departures) -> None:
        self._state = state
        self._forwarder = forwarder
        self._youth = youth
        self._departures = departures
        self.read_backs: dict[EndpointId, ReadBack] = {}
        """What is to be read again, for whoever reads: all that an endpoint needs at once."""
        self.cutting: EndpointId | None = None
        """Who is just being cut out: what it asks for is not taken back."""

    def cut(self, session: Session, stay: Stay, claim: Claim, now: Instant) -> None:
        """Hand a session over to the edge that has a higher claim."""
        state, corridor = self._state, self._state.corridor
        self.part(session)
        corridor.deliveries.leave(session)
        held = self._held_of(session, stay)
        first, *rest = in_portions(held, waiting_of(session))
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
            subscriptions=tuple(first.held),
            waiting=tuple(first.waiting),
            received=tuple(sorted(session.received or ())),
            marks=self._youth.marks_of(stay),
            offset=self._read_up_to(stay),
            as_of=state.read_at,
            rests=len(rest),
            began=stay.began,
            anew=stay.anew,
            awaits=dict(stay.young.awaits) if stay.young is not None else {},
            offsets=stay.offsets | {state.me.site: self._read_up_to(stay)},
            told=corridor.deliveries.standing.told_of(session),
        )
        corridor.deliveries.let_go(session)
        self.cutting = session.name
        session.will = None
        corridor.remove(session)
        self.cutting = None
        state.write(handover, number, claim.edge)
        self._write_rests(session.name, claim, rest, now)
        self._departures.leave(Leaving(session.name, claim.epoch, held))
        state.counts["moves_out"] += 1

    def relay(self, handover: Handover, waiting: list[Waiting], claim: Claim, now: Instant) -> None:
        """Hand on what came for an endpoint that is elsewhere already: where it is, all of it can be read as well."""
        state = self._state
        first, *rest = in_portions(handover.subscriptions, waiting)
        is_near = handover.sender.site == state.me.site
        number = state.outbox.next_number(now)
        onward = replace(
            handover,
            epoch=claim.epoch,
            sender=state.me,
            receiver=claim.edge,
            number=number,
            subscriptions=tuple(first.held),
            waiting=tuple(first.waiting),
            rests=len(rest),
            awaits=handover.awaits if is_near else dict.fromkeys(self._other_sites(handover.sender), handover.epoch),
            offset=handover.offset if is_near else handover.offsets.get(state.me.site, 0),
        )
        state.write(onward, number, claim.edge)
        self._write_rests(handover.endpoint, claim, rest, now)
        self._departures.leave(Leaving(handover.endpoint, claim.epoch, (), [(handover.sender, handover.epoch)]))
        state.counts["moves_on"] += 1

    def _write_rests(self, endpoint: EndpointId, claim: Claim, rest: list[Portion], now: Instant) -> None:
        for held, waiting in rest:
            number = self._state.outbox.next_number(now)
            more = Rest(endpoint, claim.epoch, self._state.me, claim.edge, number, tuple(waiting), tuple(held))
            self._state.write(more, number, claim.edge)

    def _other_sites(self, sender: EdgeRef) -> set[str]:
        known = {info.edge.site for info in self._state.edges.values()}
        return (known | {sender.site}) - {self._state.me.site}

    def _read_up_to(self, stay: Stay) -> int:
        """From where on there may be something in the log that an endpoint has not had."""
        young, here = stay.young, self._state.next_offset
        if young is None or not young.awaits:
            return here
        return min((part.offset for part in young.parts if part.offset is not None), default=here)

    def _held_of(self, session: Session, stay: Stay) -> tuple[Held, ...]:
        """What a session asks for, and since when."""
        found = []
        for held in held_of(session):
            since = self._youth.since_of(stay, held.name)
            since = {EVERY: since[EVERY]} if stay.is_whole else {edge: since[edge] for edge in since if edge != OFFSET}
            found.append(replace(held, since=since))
        return tuple(found)

    def part(self, session: Session) -> None:
        """Drop the connection of an endpoint that is elsewhere."""
        if session.link is not NOWHERE:
            self._state.corridor.deliveries.actions.append(
                Expel(session.link, Refused(Reason.SESSION_TAKEN_OVER, "at another edge"))
            )
            session.link = NOWHERE

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
            self.note_opened(stay)
            install(corridor, session, waiting, handover.received)
        else:
            missing = self._not_given(stay, session, waiting, now)
            self._withdraw(handover, waiting, session, now)
            add_to(corridor, session, missing)
        stay.is_here = True
        corridor.deliveries.standing.bring(session, handover.told, corridor.changes)
        if handover.place is not None and corridor.place_of(session) is None:
            corridor.watch.put_place(session, handover.place)
        corridor.addressing.look_again(session)
        handover = replace(handover, subscriptions=tuple(held for held in handover.subscriptions if held.name not in stay.ended))
        for site, offset in handover.offsets.items():
            if site != state.me.site:
                stay.offsets[site] = min(offset, stay.offsets.get(site, offset))
        here = list(session.subscriptions)
        for held in handover.subscriptions:
            take_up(corridor, session, held)
        part = self._part_of(handover)
        waits = ((one.said_by, one.said_number) for one in waiting if one.said_number)
        part.brought = [which for which in waits if part.lacks(*which)]
        self._begin_young(handover, stay, session, here, part)
        self.go_on(stay, now)
        state.counts["moves_in"] += 1
        return True

    def note_opened(self, stay: Stay) -> None:
        """A session begins here: what is addressed to it from now on it gets at once."""
        marks = self._youth.marks_here()
        stay.opened_at, stay.opened_after = self._state.next_offset, marks[str(self._state.me)]
        stay.opened_above = max(marks.values())

    def _not_given(self, stay: Stay, session: Session, waiting: list[Waiting], now: Instant) -> list[Waiting]:
        """What waits and the endpoint has not had here, nor is about to."""
        me, offsets = str(self._state.me), self._state.recent.offsets() if waiting else {}
        here, corridor = on_its_way(session), self._state.corridor

        def was_given(one: Waiting) -> bool:
            if not one.said_number or not one.parcel:
                return False
            parcel = parcel_from_bytes(one.parcel)
            if (one.said_by, one.said_number) in here:
                return True
            if isinstance(parcel.address, ToArea):
                return corridor.deliveries.standing.has_had(session, parcel)
            if isinstance(parcel.address, ToTold):  # nobody here knew that it was told
                return False
            offset = offsets.get((one.said_by, one.said_number)) if one.said_by != me else None
            told = Told(message_of(parcel), one.said_by, one.said_number, offset)
            return self._youth.was_given(stay, told, now)

        return [one for one in waiting if not was_given(one)]

    def _withdraw(self, handover: Handover, waiting: list[Waiting], session: Session, now: Instant) -> None:
        """Take back what waits here and the endpoint has had where it comes from."""
        part, held = self._part_of(handover), {one.name: one.subscription for one in handover.subscriptions}
        still = {(one.said_by, one.said_number) for one in waiting if not one.is_released}

        def is_had(delivery: Delivery) -> bool:
            parcel = delivery.parcel
            if not parcel.said_number or (parcel.said_by, parcel.said_number) in still:
                return False
            told = Told(message_of(parcel), parcel.said_by, parcel.said_number, None)
            return has_had(part, held, told, handover.place, now)

        self._state.corridor.deliveries.withdraw(session, is_had)

    def _begin_young(self, handover: Handover, stay: Stay, session: Session, here: list[str], part: Part) -> None:
        if stay.young is None:
            parts = [self._youth.part_here(stay, here)] if here else []
            stay.young = Young(self._forwarder.last_said, parts)
        young = stay.young
        young.parts.append(part)
        young.came_at = self._forwarder.last_said
        young.late.add(EVERY)
        if handover.sender.site == self._state.me.site:
            young.awaits |= handover.awaits
        else:
            young.awaits |= dict.fromkeys(self._other_sites(handover.sender), handover.epoch)
        self._youth.begin(stay, session)

    def _part_of(self, handover: Handover) -> Part:
        state, names = self._state, [held.name for held in handover.subscriptions]
        since = {held.name: {EVERY: 0, **held.since, OFFSET: FAR} for held in handover.subscriptions}
        part = Part(handover.sender.site, names, since, dict(handover.marks))
        if state.me.site in handover.offsets:
            part.offset = handover.offsets[state.me.site]
        else:
            mine = [number for edge, number in handover.marks.items() if edge.startswith(f"{state.me.site}/")]
            part.floor = max(0, handover.as_of - FLOOR_NS)
            part.at = Instant(max(0, min([max(mine, default=part.floor), handover.as_of]) - SLACK_NS))
        return part

    def go_on(self, stay: Stay, now: Instant) -> None:
        """Give an endpoint what it missed, if that is at hand; else have it read again."""
        young = stay.young
        assert young is not None, "who missed something is young"
        reads = self._at_hand(young)
        if reads is None:
            self.ask_back(stay)
        else:
            self._collect(young, self._state.recent.extras_for(stay.endpoint))
            self._youth.catch_up(stay, reads, now)

    def ask_back(self, stay: Stay) -> None:
        """Have what an endpoint missed read again from the log."""
        assert stay.young is not None, "who missed something is young"
        offset, at = _first_of(stay.young)
        self.read_backs[stay.endpoint] = ReadBack(stay.endpoint, offset, at)

    def _at_hand(self, young: Young) -> list[Read] | None:
        recent, (offset, at) = self._state.recent, _first_of(young)
        if (offset is not None and not recent.reaches(offset)) or (at is not None and not recent.reaches_time(at)):
            return None
        by_offset = recent.since(offset) if offset is not None else []
        by_time = recent.since_time(at) if at is not None else []
        return max(by_offset, by_time, key=len)

    def read_back(self, stay: Stay, reads: list[Read], extras: list[Extra], now: Instant) -> None:
        """What was read again; all that was read here meanwhile comes after it."""
        if stay.young is None or not stay.young.late:
            return
        following = self._state.recent.since(reads[-1].offset + 1) if reads else []
        self._collect(stay.young, [one for one in extras if one.endpoint == stay.endpoint])
        self._youth.catch_up(stay, [*reads, *following], now)

    def extra(self, extra: Extra, stay: Stay, now: Instant) -> None:
        """What the centre found for an endpoint that is here."""
        if stay.young is not None and self._collect(stay.young, [extra]) and EVERY not in stay.young.late:
            self.go_on(stay, now)

    def _collect(self, young: Young, extras: list[Extra]) -> bool:
        """Take what the centre found for a move that is not over; tells whether it is all of a site."""
        is_all = False
        for extra in extras:
            site = extra.sender.site
            if young.awaits.get(site) != extra.epoch:
                continue
            found = [to_record(said).decode() for said in extra.said]
            young.extras += [record for record in found if record not in young.extras]
            if extra.is_last:
                del young.awaits[site]
                young.late.add(site)
                is_all = True
        return is_all

    def welcome(self, endpoint: EndpointId, why: Refused | None = None) -> None:
        """Let who waits for its session go on, or go."""
        self._state.corridor.deliveries.actions.append(Welcome(endpoint, why))


def _first_of(young: Young) -> tuple[int | None, Instant | None]:
    offsets = [part.offset for part in young.parts if part.offset is not None]
    times = [part.at for part in young.parts if part.offset is None]
    return min(offsets, default=None), min(times, default=None)
