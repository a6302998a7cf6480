"""Forwarding: which of what is said here leaves the edge, and for whom (D9, M15, M33).

| address      | leaves if                                                                                             |
|--------------|-------------------------------------------------------------------------------------------------------|
| content      | somebody elsewhere asks for it, a handler does, or somebody who is on the move                        |
| an endpoint  | it is not here                                                                                        |
| an area      | another edge's coverage touches it, or squares outside its coverage in which that edge has endpoints  |
| everyone     | there are other edges                                                                                 |
| (retained)   | there are other edges: all keep it for those who subscribe later                                      |
"""

from collections import deque
from functools import lru_cache
from typing import Final, NamedTuple

from milepost.edge.parcels import Parcel
from milepost.edge.site.outbox import UNDECIDED, Append
from milepost.edge.site.sayings import message_of
from milepost.edge.site.state import SiteState
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToTold
from milepost.model.areas import Area, Box, touches
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Reason, Refused
from milepost.model.sites import CROSS_HUB, STRAY_SIDE_DEG, EdgeInfo, Said, publish_to
from milepost.model.telling import PIPELINES
from milepost.wire.records import from_record, to_record

ON_THE_MOVE: Final = "on the move"
"""The owner of what is wanted by endpoints that are just coming or leaving."""

HANDLER_MARK: Final = "@"
"""The names of handlers begin with it, in place of an edge's."""


UNDER_WAY_MAX: Final = 1_000
UNDER_WAY_BYTES_MAX: Final = 10_000
"""So many messages of so many bytes are remembered until the log brings them back; others are read there."""

SAID_BYTES_MAX: Final = 890_000
"""As large a record every log takes."""


class Takers(NamedTuple):
    """Who wants a message, beyond those here."""

    is_elsewhere: bool
    """Whether it goes on cross-hub."""
    handlers: tuple[str, ...] = ()
    is_on_the_move: bool = False
    """Whether somebody wants it who is just coming or leaving."""


_NO_TAKERS: Final = Takers(False)


class Forwarder:
    """Puts messages into the outbox."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.last_said = 0
        """The last number of what went to cross-hub."""
        self.last_for_movers = 0
        """The last of them that went for somebody who is on the move."""
        self._first = 0
        self._under_way: deque[Said] = deque(maxlen=UNDER_WAY_MAX)
        """What was said and has not come back, as far as is at hand."""

    def restore(self, now: Instant) -> None:
        """Go on where an earlier process was: what it had not brought to the log may have been for anybody."""
        outbox = self._state.outbox
        self.last_said = self.last_for_movers = outbox.last_of(CROSS_HUB, "")
        self._first = outbox.next_number(now)

    @property
    def said_up_to(self) -> int:
        """All that this edge or an earlier process of it ever said has numbers up to this one."""
        return max(self.last_said, self._first)

    def is_wanted(self, topic: str, now: Instant) -> bool:
        """Whether plain messages on a topic may have to leave."""
        return not topic.startswith("$") and (not self._state.is_ready or self._state.interest.is_wanted(topic, now))

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Have a message leave, if anybody wants it; refused if it is to be safe and there is no room for it."""
        state = self._state
        if parcel.topic.startswith("$"):
            return None
        is_undecided = not state.is_ready and not isinstance(parcel.address, ToEndpoint)
        message = message_of(parcel)
        takers = _NO_TAKERS if is_undecided else self._takers(message, parcel.is_retained, now)
        if not is_undecided and not takers.handlers and not takers.is_elsewhere:
            return None
        if parcel.qos and state.outbox.is_full():
            return Refused(Reason.SPOOL_FULL, f"{state.outbox.waiting} messages wait for the log of site {state.me.site}")
        direct = self._direct(parcel, now) if isinstance(parcel.address, ToArea) else ()
        number = state.outbox.next_number(now)
        said = Said(state.me, number, message, parcel.qos, parcel.is_retained, parcel.extras, direct)
        value = to_record(said)
        if len(value) > SAID_BYTES_MAX:
            return self._refuse(parcel, len(value))
        parcel.said_by, parcel.said_number = str(state.me), number
        if is_undecided:
            self._put(parcel, Append(number, UNDECIDED, "", value))
        for append in self._appends_of(said, takers, value, now):
            if self._put(parcel, append) and append.number == number:
                self._note(number, takers)
                if len(value) <= UNDER_WAY_BYTES_MAX:
                    self._under_way.append(said)
        return None

    def come_back(self, number: int) -> Said | None:
        """What this edge said under a number, when the log brings it back; nothing if it is not at hand."""
        said = self._under_way
        while said and said[0].number < number:
            said.popleft()
        return said.popleft() if said and said[0].number == number else None

    def decide(self, now: Instant) -> None:
        """The register is read: have what was said before leave, as far as somebody wants it."""

        def choose(append: Append) -> list[Append]:
            said = from_record(append.value or b"")
            assert isinstance(said, Said), "what is undecided is a message"
            takers = self._takers(said.message, said.is_retained, now)
            self._note(said.number, takers)
            return self._appends_of(said, takers, append.value or b"", now)

        self._state.outbox.decide(choose, self._state.corridor.changes)

    def _appends_of(self, said: Said, takers: Takers, value: bytes, now: Instant) -> list[Append]:
        outbox, found = self._state.outbox, list[Append]()
        if takers.is_elsewhere:
            found.append(Append(said.number, CROSS_HUB, "", value))
            found += [Append(outbox.next_number(now), topic_at(site), "", value) for site in said.direct]
        for handler in takers.handlers:
            number = outbox.next_number(now) if found else said.number
            found.append(Append(number, publish_to(handler), said.message.source, value))
        return found

    def _note(self, number: int, takers: Takers) -> None:
        self.last_said = number if takers.is_elsewhere else self.last_said
        self.last_for_movers = number if takers.is_on_the_move else self.last_for_movers

    def _refuse(self, parcel: Parcel, size: int) -> Refused | None:
        """No log takes it: who is to be told that it is safe is told that it is not; else those here get it."""
        if parcel.qos:
            return Refused(Reason.MESSAGE_TOO_LARGE, f"{size} bytes as a record of the log, {SAID_BYTES_MAX} are possible")
        self._state.corridor.counts.dropped[Reason.MESSAGE_TOO_LARGE] += 1
        return None

    def _put(self, parcel: Parcel, append: Append) -> bool:
        state = self._state
        if parcel.qos:
            state.outbox.spool(append, state.corridor.changes)
        elif not state.outbox.let_pass(append):
            state.corridor.counts.dropped[Reason.SPOOL_FULL] += 1
            return False
        state.counts["forwarded"] += 1
        return True

    def _takers(self, message: Message, is_retained: bool, now: Instant) -> Takers:
        state = self._state
        leaves = is_retained and bool(state.edges)
        match message.address:
            case ToContent():
                owners = state.interest.wanted_by(message, now)
                handlers = sorted(owner.removeprefix(HANDLER_MARK) for owner in owners if owner.startswith(HANDLER_MARK))
                return Takers(leaves or len(owners) > len(handlers), tuple(handlers), ON_THE_MOVE in owners)
            case ToEndpoint(name):
                return Takers(leaves or state.corridor.sessions.maybe(name) is None)
            case ToArea(area):
                is_told = HANDLER_MARK + PIPELINES in state.interest.wanted_by(message, now)  # other handlers have no place
                return Takers(leaves or any(covers(info, area) for info in state.edges.values()), (PIPELINES,) * is_told)
            case ToTold():
                is_told = HANDLER_MARK + PIPELINES in state.interest.wanted_by(message, now)
                return Takers(leaves or bool(state.edges), (PIPELINES,) * is_told)
            case ToEveryone():
                return Takers(leaves or bool(state.edges))

    def _direct(self, parcel: Parcel, now: Instant) -> tuple[str, ...]:
        """While no centre is there: the neighbouring sites that a message to an area concerns (M33)."""
        state = self._state
        if not state.neighbours or state.is_centre_there(now) or not isinstance(parcel.address, ToArea):
            return ()
        area = parcel.address.area
        reached = {info.edge.site for info in state.edges.values() if info.edge.site in state.neighbours and covers(info, area)}
        unknown = state.neighbours - {info.edge.site for info in state.edges.values()}
        return tuple(sorted(reached | unknown))


def topic_at(site: str) -> str:
    """What stands for the cross-hub of a neighbouring site in the outbox."""
    return f"{site}\n{CROSS_HUB}"


@lru_cache(maxsize=10_000)
def covers(info: EdgeInfo, area: Area) -> bool:
    """Whether an area concerns an edge."""
    if info.coverage is None or touches(info.coverage, area):
        return True
    return any(touches(_square(row, column), area) for row, column in info.strays)


def _square(row: int, column: int) -> Box:
    south, west = row * STRAY_SIDE_DEG, column * STRAY_SIDE_DEG
    return Box(max(south, -90.0), west, min(south + STRAY_SIDE_DEG, 90.0), min(west + STRAY_SIDE_DEG, 180.0))
