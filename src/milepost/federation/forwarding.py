"""Forwarding: which messages published here leave the edge, and for which receivers (D9, M15, M33).

| address      | leaves if                                                                                             |
|--------------|-------------------------------------------------------------------------------------------------------|
| content      | it matches a subscription of another edge, a handler, or an endpoint that is arriving or leaving      |
| an endpoint  | the endpoint is not here                                                                              |
| an area      | another edge's coverage touches it, or squares outside its coverage in which that edge has endpoints  |
| everyone     | there are other edges                                                                                 |
| (retained)   | there are other edges: all of them store it                                                           |
"""

from collections import deque
from functools import lru_cache
from typing import Final, NamedTuple

from milepost.broker.publication import ELSEWHERE, Publication
from milepost.federation.member_state import SiteState
from milepost.federation.outbox import UNDECIDED, Append
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, Box, touches
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.pipeline_records import PIPELINES
from milepost.model.reasons import Reason, Refused
from milepost.model.site_records import (
    CROSS_HUB,
    OUTSIDE_SQUARE_DEG,
    SERVICE_MARK,
    EdgeInfo,
    ForwardedMessage,
    handler_topic,
    service_sender,
)
from milepost.wire.records import from_record, to_record

# Publications as records, and records as publications (D9).


def publication_of(forwarded: ForwardedMessage) -> Publication:
    """Return a forwarded message as a publication for the broker."""
    message = forwarded.message
    publication = Publication(
        message.topic,
        message.body,
        message.seen_at,
        source=message.source,
        origin=ELSEWHERE,
        qos=forwarded.qos,
        is_retained=forwarded.is_retained,
        priority=message.priority,
        valid_until=message.valid_until,
        extras=forwarded.extras,
        tags=message.tags,
        place=message.place,
        address=message.address,
        fields=message.fields,
    )
    publication.id = message.id
    publication.signed = (message.signature, message.certificate) if message.signature else None
    publication.signer = forwarded.owner or None
    publication.forwarded_by, publication.forwarded_number = str(forwarded.sender), forwarded.number
    return publication


MOVING_ENDPOINTS: Final = "moving endpoints"
"""The owner of the interest of endpoints that are arriving or leaving."""

IN_FLIGHT_MAX: Final = 1_000
IN_FLIGHT_BYTES_MAX: Final = 10_000
"""Maximum messages, and bytes of each, that are remembered until the log returns them; others are decoded again."""

MESSAGE_BYTES_MAX: Final = 890_000
"""Maximum bytes of a forwarded message, within the record limit of every log."""


class Receivers(NamedTuple):
    """The receivers of a message beyond this edge."""

    is_remote: bool
    """Whether it goes to cross-hub."""
    handlers: tuple[str, ...] = ()
    has_moving_endpoints: bool = False
    """Whether an endpoint that is arriving or leaving has a matching subscription."""


_NO_RECEIVERS: Final = Receivers(False)


class Forwarder:
    """Forwarding of messages to the outbox."""

    def __init__(self, state: SiteState) -> None:
        self._state = state
        self.last_forwarded = 0
        """The last number of a message to cross-hub."""
        self.last_for_moving = 0
        """The last number of such a message for an endpoint that is arriving or leaving."""
        self._first = 0
        self._in_flight: deque[ForwardedMessage] = deque(maxlen=IN_FLIGHT_MAX)
        """Messages that were forwarded and not read back yet, as far as they are in memory."""

    def restore(self, now: Instant) -> None:
        """Continue after a restart: a message still in the outbox may have been for any endpoint."""
        outbox = self._state.outbox
        self.last_forwarded = self.last_for_moving = outbox.last_of(CROSS_HUB, "")
        self._first = outbox.next_number(now)

    @property
    def forwarded_up_to(self) -> int:
        """Upper bound of the numbers of this edge's messages, including those of its earlier processes."""
        return max(self.last_forwarded, self._first)

    def has_interest(self, topic: str, now: Instant) -> bool:
        """Return whether plain messages on a topic may have to be forwarded."""
        return not topic.startswith("$") and (not self._state.is_ready or self._state.interest.may_match(topic, now))

    def forward(self, publication: Publication, now: Instant) -> Refused | None:
        """Forward a message if it has receivers elsewhere; refuse it if it must be stored and there is no room."""
        state = self._state
        if publication.topic.startswith("$"):
            return None
        is_undecided = not state.is_ready and not isinstance(publication.address, ToEndpoint)
        message = publication.message
        receivers = _NO_RECEIVERS if is_undecided else self._receivers_of(message, publication.is_retained, now)
        if not is_undecided and not receivers.handlers and not receivers.is_remote:
            return None
        if publication.qos and state.outbox.is_full():
            return Refused(Reason.SPOOL_FULL, f"{state.outbox.waiting} messages wait for the log of site {state.edge.site}")
        direct = self._direct(publication, now) if isinstance(publication.address, ToArea) else ()
        number = state.outbox.next_number(now)
        forwarded = ForwardedMessage(
            state.edge,
            number,
            message,
            publication.qos,
            publication.is_retained,
            publication.extras,
            direct,
            "" if publication.signed is not None else publication.signer or "",
        )
        value = to_record(forwarded)
        if len(value) > MESSAGE_BYTES_MAX:
            return self._refuse(publication, len(value))
        publication.forwarded_by, publication.forwarded_number = str(state.edge), number
        if is_undecided:
            self._enqueue(publication, Append(number, UNDECIDED, "", value))
        for append in self._appends_of(forwarded, receivers, value, now):
            if self._enqueue(publication, append) and append.number == number:
                self._note(number, receivers)
                if len(value) <= IN_FLIGHT_BYTES_MAX:
                    self._in_flight.append(forwarded)
        return None

    def pop_read_back(self, number: int) -> ForwardedMessage | None:
        """Return the message that this edge forwarded with a number, when it is read back; None if not in memory."""
        forwarded = self._in_flight
        while forwarded and forwarded[0].number < number:
            forwarded.popleft()
        return forwarded.popleft() if forwarded and forwarded[0].number == number else None

    def forward_undecided(self, now: Instant) -> None:
        """Forward the messages that were published before the registry was read."""

        def choose(append: Append) -> list[Append]:
            forwarded = from_record(append.value or b"")
            assert isinstance(forwarded, ForwardedMessage), "an undecided record is a message"
            receivers = self._receivers_of(forwarded.message, forwarded.is_retained, now)
            self._note(forwarded.number, receivers)
            return self._appends_of(forwarded, receivers, append.value or b"", now)

        self._state.outbox.resolve_undecided(choose)

    def _appends_of(self, forwarded: ForwardedMessage, receivers: Receivers, value: bytes, now: Instant) -> list[Append]:
        outbox, appends = self._state.outbox, list[Append]()
        if receivers.is_remote:
            appends.append(Append(forwarded.number, CROSS_HUB, "", value))
            appends += [Append(outbox.next_number(now), topic_at(site), "", value) for site in forwarded.direct]
        for handler in receivers.handlers:
            number = outbox.next_number(now) if appends else forwarded.number
            appends.append(Append(number, handler_topic(handler), forwarded.message.source, value))
        return appends

    def _note(self, number: int, receivers: Receivers) -> None:
        self.last_forwarded = number if receivers.is_remote else self.last_forwarded
        self.last_for_moving = number if receivers.has_moving_endpoints else self.last_for_moving

    def _refuse(self, publication: Publication, size: int) -> Refused | None:
        """Refuse a message too large for the log; at QoS 0 it is delivered here and counted as dropped."""
        if publication.qos:
            return Refused(Reason.MESSAGE_TOO_LARGE, f"{size} bytes as a record of the log, {MESSAGE_BYTES_MAX} are possible")
        self._state.broker.count_dropped(Reason.MESSAGE_TOO_LARGE, 1)
        return None

    def _enqueue(self, publication: Publication, append: Append) -> bool:
        state = self._state
        if publication.qos:
            state.outbox.spool(append)
        elif not state.outbox.add_transient(append):
            state.broker.count_dropped(Reason.SPOOL_FULL, 1)
            return False
        state.counts["forwarded"] += 1
        return True

    def _receivers_of(self, message: Message, is_retained: bool, now: Instant) -> Receivers:
        state = self._state
        is_for_all_edges = is_retained and bool(state.edges)
        match message.address:
            case ToContent():
                owners = state.interest.owners_matching(message, now)
                handlers = sorted(owner.removeprefix(SERVICE_MARK) for owner in owners if owner.startswith(SERVICE_MARK))
                return Receivers(is_for_all_edges or len(owners) > len(handlers), tuple(handlers), MOVING_ENDPOINTS in owners)
            case ToEndpoint(name):
                return Receivers(is_for_all_edges or state.broker.find_session(name) is None)
            case ToArea(area):
                is_for_pipelines = service_sender(PIPELINES) in state.interest.owners_matching(
                    message, now
                )  # other handlers have no position
                return Receivers(
                    is_for_all_edges or any(covers(info, area) for info in state.edges.values()), (PIPELINES,) * is_for_pipelines
                )
            case ToNotified():
                is_for_pipelines = service_sender(PIPELINES) in state.interest.owners_matching(message, now)
                return Receivers(is_for_all_edges or bool(state.edges), (PIPELINES,) * is_for_pipelines)
            case ToEveryone():
                return Receivers(is_for_all_edges or bool(state.edges))

    def _direct(self, publication: Publication, now: Instant) -> tuple[str, ...]:
        """Return the neighbouring sites that a message to an area goes to directly while the central hub is down (M33)."""
        state = self._state
        if not state.neighbours or state.is_hub_available(now) or not isinstance(publication.address, ToArea):
            return ()
        area = publication.address.area
        reached = {info.edge.site for info in state.edges.values() if info.edge.site in state.neighbours and covers(info, area)}
        unknown = state.neighbours - {info.edge.site for info in state.edges.values()}
        return tuple(sorted(reached | unknown))


def topic_at(site: str) -> str:
    """Return the outbox topic that denotes the cross-hub of a neighbouring site."""
    return f"{site}\n{CROSS_HUB}"


@lru_cache(maxsize=10_000)
def covers(info: EdgeInfo, area: Area) -> bool:
    """Return whether an edge may have endpoints inside an area."""
    if info.coverage is None or touches(info.coverage, area):
        return True
    return any(touches(_square(row, column), area) for row, column in info.outside_squares)


def _square(row: int, column: int) -> Box:
    south, west = row * OUTSIDE_SQUARE_DEG, column * OUTSIDE_SQUARE_DEG
    return Box(max(south, -90.0), west, min(south + OUTSIDE_SQUARE_DEG, 90.0), min(west + OUTSIDE_SQUARE_DEG, 180.0))
