"""Youth: endpoints that have just come get everything from the log, until this edge can serve them at once without a double.

What must hold:
- an endpoint that is young is in no plan: its subscriptions are set aside, and what is published here for it goes to the log;
- its subscriptions are in parts, by what they had when they came: of those it brought, up to the marks of the handover; of those
  that were here, up to what was read here. A record is given if one of a part that lacks it asks for it, unless one of a part
  that has had it did, too: then the endpoint has it. From then on no part lacks it;
- what it missed comes before what is new: nothing new of a site is given before what was to be read again of it was;
- it is young no longer when all that this edge put on the log for somebody on the move, or before it came, was read back.
"""

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from milepost.edge.asking import ASIDE
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Session
from milepost.edge.site.forwarding import ON_THE_MOVE, Forwarder
from milepost.edge.site.handing import held_of, on_its_way
from milepost.edge.site.recent import Read
from milepost.edge.site.sayings import parcel_of
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import ALWAYS, EVERY, OFFSET, Marks, Part, Stay, Young, site_of
from milepost.edge.site.wants import Somebody, is_asked_for, maybe_delivery
from milepost.model.addresses import ToArea, ToContent, ToTold
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed
from milepost.model.sites import NEVER, EdgeRef, Said
from milepost.model.subscriptions import Subscription
from milepost.wire.records import from_record

EXTRA: Final = -1
"""The size of what was not read, but found by the centre."""


class Told(NamedTuple):
    """A message and what it is known by."""

    message: Message
    stream: str
    number: int
    offset: int | None
    """Where it stands in the log of this site, if that is known; nothing for what this edge said, which is served first."""


class Youth:
    """The endpoints that are young."""

    def __init__(self, state: SiteState, forwarder: Forwarder) -> None:
        self._state = state
        self._forwarder = forwarder
        self._stays: dict[EndpointId, Stay] = {}
        self._changed: dict[EndpointId, Stay] = {}
        self._ahead: dict[str, dict[EndpointId, int]] = {}
        """By edge: who is served at once, and has had more of what that edge said than this one has read."""

    def __len__(self) -> int:
        return len(self._stays)

    def begin(self, stay: Stay, session: Session) -> None:
        """An endpoint is young from now on."""
        self._stays[stay.endpoint] = stay
        for name in list(session.subscriptions):
            self._set_aside(session, name)

    def subscribed(self, stay: Stay, session: Session, name: str) -> None:
        """An endpoint has one more subscription, which has had its share of all that was said before."""
        if stay.young is not None:
            stay.young.parts = [_without(part, name) for part in stay.young.parts]
            since = {name: stay.since[name]}
            stay.young.parts.append(Part(self._state.me.site, [name], since, self.marks_here(), self._state.next_offset))
            self._set_aside(session, name)

    def resubscribed(self, stay: Stay, session: Session, name: str) -> None:
        """An endpoint has a subscription in place of another, which had its share until now."""
        if stay.young is not None:
            self._set_aside(session, name)

    def _set_aside(self, session: Session, name: str) -> None:
        """One that is shared is no matter of its own, and is in use at once."""
        subscription = session.subscriptions[name].subscription
        if subscription.share is None:
            self._state.corridor.asking.set_aside(session, name)
            self._state.interest.put(_key(session.name, name), ON_THE_MOVE, subscription)
        elif session.subscriptions[name].row == ASIDE:
            self._state.corridor.asking.take_up(session, name, session.subscriptions[name])

    def unsubscribed(self, session: Session, name: str) -> None:
        """A subscription is over, or about to be another."""
        self._state.interest.take_away(_key(session.name, name))

    def forget(self, endpoint: EndpointId) -> None:
        """An endpoint has left; its subscriptions are dropped already."""
        self._stays.pop(endpoint, None)
        self._changed.pop(endpoint, None)
        for ahead in self._ahead.values():
            ahead.pop(endpoint, None)

    def marks_here(self) -> Marks:
        """What somebody has had whom this edge serves at once."""
        state = self._state
        me = str(state.me)
        return state.marks | {me: max(self._forwarder.said_up_to, state.marks.get(me, 0))}

    def marks_of(self, stay: Stay) -> Marks:
        """Up to where an endpoint has had its share of what everybody said."""
        here = self.marks_here() if stay.young is None else dict(self._state.marks)
        for stream, number in stay.had.items():
            here[stream] = max(number, here.get(stream, 0))
        if stay.young is not None:
            parts, awaits = stay.young.parts, stay.young.awaits
            for stream in {stream for part in parts for stream in part.marks} | here.keys():
                least = min(part.marks.get(stream, part.floor) for part in parts)
                here[stream] = least if site_of(stream) in awaits else max(least, here.get(stream, 0))
        return here

    def hear(self, read: Read, parcel: Parcel, now: Instant) -> None:
        """A record of cross-hub, new here: whoever is young gets it."""
        site = read.said.sender.site
        for stay in self._stays.values():
            if stay.young is not None and stay.young.is_served(site):
                self._offer(stay, stay.young, read, parcel, now)

    def catch_up(self, stay: Stay, reads: Sequence[Read], now: Instant) -> None:
        """What an endpoint has missed; then it has all that this edge has read, but of sites of which more is to come."""
        young = stay.young
        assert young is not None, "who catches up is young"
        late, young.late = young.late, set()
        first = reads[0].offset if reads else self._state.next_offset
        sites = {one.said.sender.site for one in reads} - young.awaits.keys()
        served = sites if EVERY in late else sites & late
        near = [one for one in reads if one.said.sender.site in served]
        far = [said for said in map(_said, young.extras) if said.sender.site not in young.awaits]
        young.extras = [record for record in young.extras if _said(record).sender.site in young.awaits]
        waits = on_its_way(self._session(stay))
        for read in in_order(near, far, self._state.next_offset):
            if not waits or (str(read.said.sender), read.said.number) not in waits:
                self._offer(stay, young, read, None, now)
        for part in young.parts:
            for stream, number in self._state.marks.items():
                if site_of(stream) not in young.awaits:
                    part.marks[stream] = max(number, part.marks.get(stream, 0))
            part.offset = self._state.next_offset if not young.awaits else first if part.offset is None else part.offset
        self._changed[stay.endpoint] = stay

    def _offer(self, stay: Stay, young: Young, read: Read, parcel: Parcel | None, now: Instant) -> None:
        """Most of what is at hand when somebody comes it has had: that is found out before anything is made of a record."""
        said = read.said
        stream = self._state.stream_of(said)
        lacking = [part for part in young.parts if part.lacks(stream, said.number, read.offset)]
        if not lacking:
            return
        offset = None if read.size == EXTRA or said.sender == self._state.me else read.offset
        told = Told(said.message, stream, said.number, offset)
        if not isinstance(said.message.address, ToContent):
            if isinstance(said.message.address, ToTold) or self._was_addressed_before(stay, read):
                self._give(stay, parcel or parcel_of(said), said.message, [], now)
        elif not _is_brought(young, told) and not self._has_had(stay, young.parts, told, now):
            names = [name for part in lacking for name in part.names]
            self._give(stay, parcel or parcel_of(said), said.message, names, now)
        for part in lacking:
            part.marks[told.stream] = told.number
            if said.sender.site == self._state.me.site:
                part.given.setdefault(told.stream, told.number)
        self._changed[stay.endpoint] = stay

    def _was_addressed_before(self, stay: Stay, read: Read) -> bool:
        """Whether a message to an endpoint, an area or everyone was here before the session: else its plan has served it."""
        is_own = read.said.sender == self._state.me
        return read.size == EXTRA or (read.said.number <= stay.opened_after if is_own else read.offset < stay.opened_at)

    def was_given(self, stay: Stay, told: Told, now: Instant) -> bool:
        """Whether an endpoint has had a message at this edge."""
        session = self._session(stay)
        parts = stay.young.parts if stay.young is not None else [self.part_here(stay, list(session.subscriptions))]
        if not isinstance(told.message.address, ToContent):
            return told.number > stay.opened_above and any(not part.lacks(told.stream, told.number) for part in parts)
        return self._has_had(stay, parts, told, now)

    def since_of(self, stay: Stay, name: str) -> Marks:
        """From which numbers on a subscription has asked."""
        found = [part.since[name] for part in stay.young.parts if name in part.since] if stay.young is not None else []
        found += [stay.since[name]] if name in stay.since else []
        streams = {stream for one in found for stream in one}
        return {stream: min(one.get(stream, one[EVERY]) for one in found) for stream in streams} or ALWAYS

    def part_here(self, stay: Stay, names: list[str]) -> Part:
        """The subscriptions of an endpoint that is served at once."""
        since = {name: stay.since.get(name, ALWAYS) for name in names}
        return Part(self._state.me.site, names, since, self.marks_of(stay), self._state.next_offset)

    def _has_had(self, stay: Stay, parts: list[Part], told: Told, now: Instant) -> bool:
        session = self._session(stay)
        place = self._state.corridor.place_of(session)
        asked = {name: one.subscription for name, one in session.subscriptions.items()}
        me = self._state.me.site
        known = [part for part in parts if part.home == me or part.is_sure_of(told.stream, told.number)]
        return any(has_had(part, asked, told, place, now) for part in known)

    def _give(self, stay: Stay, parcel: Parcel, message: Message, names: list[str], now: Instant) -> None:
        session, corridor = self._session(stay), self._state.corridor
        if not self._may_have(session, parcel):
            return
        held = tuple(one for one in held_of(session) if one.name in names and one.subscription.share is None)
        delivery = maybe_delivery(parcel, message, Somebody(stay.endpoint, corridor.place_of(session), held), now)
        if delivery is not None:
            corridor.deliveries.hand_one(delivery, session)

    def _may_have(self, session: Session, parcel: Parcel) -> bool:
        """Whether a message to an area is not one that it had or will be handed when it says where it is."""
        corridor, standing = self._state.corridor, self._state.corridor.deliveries.standing
        match parcel.address:
            case ToArea():
                if standing.stands(parcel):
                    corridor.addressing.look_again(session)
                    return False
                return not standing.has_had(session, parcel)
            case ToTold(incidents):
                return standing.was_told(session, parcel.source, incidents)
            case _:
                return True

    def take_changed(self) -> list[Stay]:
        """Whose parts have changed."""
        changed, self._changed = list(self._changed.values()), {}
        return changed

    def grow_up(self) -> list[Stay]:
        """Serve at once again whoever can be; gives those."""
        state = self._state
        read_back = state.marks.get(str(state.me), 0)
        if not self._stays or not state.is_ready or state.next_offset < state.known_end:
            return []
        if read_back < self._forwarder.last_for_movers:
            return []
        grown = [one for one in self._stays.values() if one.young and _is_grown(one.young, read_back)]
        for stay in grown:
            del self._stays[stay.endpoint]
            self._serve_at_once(stay, self._session(stay))
        return grown

    def note_ahead(self, stay: Stay) -> None:
        """Somebody who is served at once had more of some edges than this one has read: that may still come."""
        for stream, number in stay.had.items():
            self._ahead.setdefault(stream, {})[stay.endpoint] = number

    def ahead_of(self, stream: str, number: int) -> frozenset[str]:
        """Who has had a record that is new here."""
        ahead = self._ahead.get(stream)
        if ahead is None:
            return frozenset()
        self._ahead[stream] = {endpoint: had for endpoint, had in ahead.items() if had >= number and endpoint not in self._stays}
        if not self._ahead[stream]:
            del self._ahead[stream]
            return frozenset()
        return frozenset(self._ahead[stream])

    def _serve_at_once(self, stay: Stay, session: Session) -> None:
        state = self._state
        assert stay.young is not None, "who grows up is young"
        stay.had = {stream: number for stream, number in self.marks_of(stay).items() if number > state.marks.get(stream, 0)}
        since = {name: self.since_of(stay, name) for name in session.subscriptions}
        stay.since = {name: in_short(marks) if stay.is_whole else marks for name, marks in since.items()}
        stay.young = None
        self.note_ahead(stay)
        for name, asked in list(session.subscriptions.items()):
            state.interest.take_away(_key(session.name, name))
            if asked.row == ASIDE:
                try:
                    state.corridor.asking.take_up(session, name, asked)
                except Malformed as fault:  # no room for it at this edge
                    state.corridor.counts.refused[fault.reason] += 1

    def _session(self, stay: Stay) -> Session:
        session = self._state.corridor.sessions.maybe(stay.endpoint)
        assert session is not None, "who is young has a session here"
        return session


def in_order(reads: Sequence[Read], extras: Sequence[Said], offset: int) -> Iterator[Read]:
    """What was read, and what the centre found beside it, of each edge in the order of its numbers."""
    by_sender: dict[EdgeRef, deque[Said]] = {}
    for said in sorted(extras, key=lambda one: one.number):
        by_sender.setdefault(said.sender, deque()).append(said)
    for read in reads:
        waiting = by_sender.get(read.said.sender)
        while waiting and waiting[0].number < read.said.number:
            yield Read(offset, NEVER, EXTRA, waiting.popleft())
        yield read
    for waiting in by_sender.values():
        yield from (Read(offset, NEVER, EXTRA, said) for said in waiting)


def _said(record: str) -> Said:
    said = from_record(record.encode())
    assert isinstance(said, Said), "the centre finds messages"
    return said


def has_had(part: Part, asked: Mapping[str, Subscription], told: Told, place: Place | None, now: Instant) -> bool:
    """Whether a message has come by one of some subscriptions, as far as is known."""
    if told.offset is None and not part.is_sure_of(told.stream, told.number):
        return False
    return not part.lacks(told.stream, told.number, told.offset) and any(
        part.asked_before(name, told.stream, told.number, told.offset)
        and name in asked
        and is_asked_for(asked[name], told.message, place, now)
        for name in part.names
    )


def _without(part: Part, name: str) -> Part:
    since = {one: at for one, at in part.since.items() if one != name}
    return replace(part, names=[one for one in part.names if one != name], since=since)


def since_here(marks: Marks, offset: int) -> Marks:
    """When a subscription is made: what is known of each edge, of edges of which nothing is, and where the log was read."""
    return marks | {EVERY: max(marks.values(), default=0), OFFSET: offset}


def in_short(since: Marks) -> Marks:
    """Since when something was asked for, without what is known of each edge."""
    return {EVERY: since[EVERY], OFFSET: since[OFFSET]}


def _is_brought(young: Young, told: Told) -> bool:
    return any((told.stream, told.number) in part.brought for part in young.parts)


def _is_grown(young: Young, read_back: int) -> bool:
    return not young.late and not young.awaits and read_back >= young.came_at


def _key(endpoint: str, name: str) -> str:
    return f"young\n{endpoint}\n{name}"
