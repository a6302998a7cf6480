"""Forwarding: which of what is said here leaves the edge, and for whom (D9, M15, M33).

| address      | leaves if                                                                                             |
|--------------|-------------------------------------------------------------------------------------------------------|
| content      | somebody elsewhere asks for it, a handler does, or somebody who is on the move                        |
| an endpoint  | it is not here                                                                                        |
| an area      | another edge's coverage touches it, or squares outside its coverage in which that edge has endpoints  |
| everyone     | there are other edges                                                                                 |
| (retained)   | there are other edges: all keep it for those who subscribe later                                      |
"""

from functools import lru_cache
from typing import Final

from milepost.edge.parcels import Parcel
from milepost.edge.site.outbox import PASSING, Append
from milepost.edge.site.sayings import message_of, said_of
from milepost.edge.site.state import SiteState
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone
from milepost.model.areas import Area, Box, touches
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Reason, Refused
from milepost.model.sites import CROSS_HUB, STRAY_SIDE_DEG, EdgeInfo, publish_to
from milepost.wire.records import to_record

ON_THE_MOVE: Final = "on the move"
"""The owner of what is wanted by endpoints that are just coming or leaving."""

HANDLER_MARK: Final = "@"
"""The names of handlers begin with it, in place of an edge's."""


class Forwarder:
    """Puts messages into the outbox."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.last_said = 0
        """The last number of what went to cross-hub."""
        self.last_for_movers = 0
        """The last of them that went for somebody who is on the move."""

    def is_wanted(self, topic: str, now: Instant) -> bool:
        """Whether plain messages on a topic may have to leave."""
        return not topic.startswith("$") and self._state.interest.is_wanted(topic, now)

    def take(self, parcel: Parcel, now: Instant) -> Refused | None:
        """Have a message leave, if anybody wants it; refused if it is to be safe and there is no room for it."""
        state = self._state
        if parcel.topic.startswith("$"):
            return None
        message = message_of(parcel)
        handlers, leaves, is_for_movers = self._takers(message, parcel, now)
        if not handlers and not leaves:
            return None
        if parcel.qos and state.outbox.is_full():
            return Refused(Reason.SPOOL_FULL, f"{state.outbox.waiting} messages wait for the log of site {state.me.site}")
        number = state.outbox.next_number(now)
        parcel.said_by, parcel.said_number = str(state.me), number
        direct = self._direct(parcel, now) if isinstance(parcel.address, ToArea) else ()
        value = to_record(said_of(parcel, state.me, number, direct))
        if leaves and self._put(parcel, Append(number, CROSS_HUB, "", value)):
            self.last_said = number
            if is_for_movers:
                self.last_for_movers = number
            for site in direct:
                self._put(parcel, Append(state.outbox.next_number(now), topic_at(site), "", value))
        for handler in handlers:
            spool = number if not leaves and handler is handlers[0] else state.outbox.next_number(now)
            self._put(parcel, Append(spool, publish_to(handler), parcel.source, value))
        return None

    def _put(self, parcel: Parcel, append: Append) -> bool:
        state = self._state
        if parcel.qos:
            state.outbox.spool(append, state.corridor.changes)
        elif not state.outbox.let_pass(append._replace(number=PASSING)):
            state.corridor.counts.dropped[Reason.SPOOL_FULL] += 1
            return False
        state.counts["forwarded"] += 1
        return True

    def _takers(self, message: Message, parcel: Parcel, now: Instant) -> tuple[list[str], bool, bool]:
        """Handlers that want it, whether it goes on cross-hub, and whether for somebody on the move."""
        state = self._state
        leaves = parcel.is_retained and bool(state.edges)
        match parcel.address:
            case ToContent():
                owners = state.interest.wanted_by(message, now)
                handlers = [owner.removeprefix(HANDLER_MARK) for owner in owners if owner.startswith(HANDLER_MARK)]
                return sorted(handlers), leaves or len(owners) > len(handlers), ON_THE_MOVE in owners
            case ToEndpoint(name):
                return [], leaves or state.corridor.sessions.maybe(name) is None, False
            case ToArea(area):
                return [], leaves or any(covers(info, area) for info in state.edges.values()), False
            case ToEveryone():
                return [], leaves or bool(state.edges), False

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
