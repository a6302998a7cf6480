"""Youth: endpoints that have just come get everything from the log, until this edge can serve them at once without a double.

What must hold:
- an endpoint that is young is in no plan: its subscriptions are set aside, and what is published here for it goes to the log;
- it gets a record if the number is above its marks, and then its marks are the number: each record once, in the log's order;
- it is young no longer when all that this edge put on the log for somebody on the move, or before it came, was read back.
"""

from collections.abc import Iterable

from milepost.edge.asking import ASIDE
from milepost.edge.parcels import Parcel
from milepost.edge.sessions import Session
from milepost.edge.site.forwarding import ON_THE_MOVE, Forwarder
from milepost.edge.site.handing import held_of
from milepost.edge.site.recent import Read
from milepost.edge.site.sayings import parcel_of
from milepost.edge.site.state import SiteState
from milepost.edge.site.stays import Stay
from milepost.edge.site.wants import Somebody, is_asked_for, maybe_delivery
from milepost.model.addresses import ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.sites import Held, Said


class Youth:
    """The endpoints that are young."""

    def __init__(self, state: SiteState, forwarder: Forwarder) -> None:
        self._state = state
        self._forwarder = forwarder
        self._stays: dict[EndpointId, Stay] = {}

    def __len__(self) -> int:
        return len(self._stays)

    def begin(self, stay: Stay, session: Session) -> None:
        """An endpoint is young from now on."""
        self._stays[stay.endpoint] = stay
        for name in list(session.subscriptions):
            self.set_aside(session, name)

    def set_aside(self, session: Session, name: str) -> None:
        """A subscription of a young endpoint; one that is shared is no matter of its own, and is in use at once."""
        subscription = session.subscriptions[name].subscription
        if subscription.share is None:
            self._state.corridor.asking.set_aside(session, name)
            self._state.interest.put(_key(session.name, name), ON_THE_MOVE, subscription)
        elif session.subscriptions[name].row == ASIDE:
            self._state.corridor.asking.take_up(session, name, session.subscriptions[name])

    def drop(self, session: Session, name: str) -> None:
        """A subscription is over."""
        self._state.interest.take_away(_key(session.name, name))

    def forget(self, endpoint: EndpointId) -> None:
        """An endpoint has left; its subscriptions are dropped already."""
        self._stays.pop(endpoint, None)

    def hear(self, read: Read, parcel: Parcel, now: Instant) -> list[Stay]:
        """A record of cross-hub, new here: whoever is young gets it; gives whose marks have changed."""
        said, state = read.said, self._state
        stream, is_own = state.stream_of(said), said.sender == state.me
        is_content = isinstance(said.message.address, ToContent)
        heard = []
        for stay in self._stays.values():
            young = stay.young
            if young is None or young.back is not None or said.number <= young.marks.get(stream, 0):
                continue
            young.marks[stream] = said.number
            heard.append(stay)
            if is_content or (is_own and said.number <= young.came_at):
                self._give(stay, parcel, said.message, now)
        return heard

    def catch_up(self, stay: Stay, held: tuple[Held, ...], reads: Iterable[Read], now: Instant) -> None:
        """What was said before an endpoint came and after it was cut; then it has all that this edge has read."""
        state, young = self._state, stay.young
        assert young is not None, "who catches up is young"
        assert young.back is not None, "there is something to catch up with"
        for read in reads:
            said = read.said
            stream = state.stream_of(said)
            if said.number <= young.marks.get(stream, young.back.floor):
                continue
            young.marks[stream] = said.number
            if not self.was_given(stay, said.message, stream, said.number, now):
                self._give(stay, parcel_of(said), said.message, now, held)
        young.back = None
        for stream, number in state.marks.items():
            young.marks[stream] = max(number, young.marks.get(stream, 0))

    def was_given(self, stay: Stay, message: Message, stream: str, number: int, now: Instant) -> bool:
        """Whether an endpoint has had a message by a subscription that it made before all of it was here."""
        if not stay.since:
            return False
        session = self._session(stay)
        place = self._state.corridor.place_of(session)
        return any(
            name in session.subscriptions
            and number > marks.get(stream, 0)
            and is_asked_for(session.subscriptions[name].subscription, message, place, now)
            for name, marks in stay.since.items()
        )

    def give(self, stay: Stay, said: Said, now: Instant) -> None:
        """A message for one endpoint, whichever of its subscriptions asks for it."""
        self._give(stay, parcel_of(said), said.message, now, held_of(self._session(stay)))

    def _give(self, stay: Stay, parcel: Parcel, message: Message, now: Instant, held: tuple[Held, ...] | None = None) -> None:
        session, corridor = self._session(stay), self._state.corridor
        if held is None:
            held = tuple(one for one in held_of(session) if session.subscriptions[one.name].row == ASIDE)
        who = Somebody(stay.endpoint, corridor.place_of(session), tuple(one for one in held if one.subscription.share is None))
        delivery = maybe_delivery(parcel, message, who, now)
        if delivery is not None:
            corridor.deliveries.hand_one(delivery, session)

    def grow_up(self) -> list[Stay]:
        """Serve at once again whoever can be; gives those."""
        if not self._stays:
            return []
        state = self._state
        read_back = state.marks.get(str(state.me), 0)
        if read_back < self._forwarder.last_for_movers or state.next_offset < state.known_end:
            return []
        grown = [one for one in self._stays.values() if one.young and not one.young.back and read_back >= one.young.came_at]
        for stay in grown:
            stay.young = None
            del self._stays[stay.endpoint]
            self._serve_at_once(self._session(stay))
        return grown

    def _serve_at_once(self, session: Session) -> None:
        state = self._state
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


def _key(endpoint: str, name: str) -> str:
    return f"young\n{endpoint}\n{name}"
