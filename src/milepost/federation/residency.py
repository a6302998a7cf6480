"""Residency: an endpoint's time at this edge, from its claim to the end of its move away, as a state machine.

    absent ─▶ awaited ─▶ catching up ─▶ live ─▶ leaving ─▶ ended        docs/reference/roaming.md has the whole table

Invariants:
- the state changes in `advance` and nowhere else, along `TRANSITIONS`;
- a residency has its `catching_up` while it is in that state, and no longer than it takes to leave the edge;
- a restarted process resumes from the state stored by `residency_to_bytes` and `outgoing_to_bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, NamedTuple, cast

import orjson

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.site_records import (
    ANY_EDGE,
    AWAITED_HANDOVERS_MAX,
    AWAITED_SITES_MAX,
    NEVER,
    NO_EPOCH,
    EdgeRef,
    Epoch,
    HeldSubscription,
    Position,
    edge_ref,
)
from milepost.model.subscriptions import Subscription
from milepost.vetting.access import ClientIdentity
from milepost.wire.json_form import from_json, to_json


class ResidencyState(Enum):
    """The part of an endpoint's state that an edge has."""

    ABSENT = "absent"
    """Nothing."""
    AWAITED = "awaited"
    """A claim; the session may come from another edge."""
    CATCHING_UP = "catching up"
    """The session; its messages are read from the log."""
    LIVE = "live"
    """The session, served by matching."""
    LEAVING = "leaving"
    """The subscriptions, until the edge that has the session now announces them itself."""
    ENDED = "ended"
    """Nothing any more."""


class ResidencyEvent(Enum):
    """Events that change the state."""

    ARRIVES = "the endpoint connects, its session may be elsewhere"
    OPENED = "a session is opened"
    HANDOVER = "a handover arrives"
    RELAYED = "a handover arrives for an endpoint that has moved on"
    CAUGHT_UP = "all records in transit have been read"
    CLAIMED = "another edge has a higher claim"
    REPLACED = "the endpoint has begun a new session at another edge"
    OUTRANKED = "the endpoint belongs to another owner"
    SESSION_ENDED = "the session ends"
    TAKEN = "the other edge has taken all of it"
    GIVEN_UP = "no session comes"


_S, _E = ResidencyState, ResidencyEvent

TRANSITIONS: Final[dict[tuple[ResidencyState, ResidencyEvent], ResidencyState]] = {
    (_S.ABSENT, _E.ARRIVES): _S.AWAITED,
    (_S.ABSENT, _E.OPENED): _S.LIVE,
    (_S.ABSENT, _E.HANDOVER): _S.CATCHING_UP,
    (_S.ABSENT, _E.RELAYED): _S.LEAVING,
    (_S.AWAITED, _E.OPENED): _S.LIVE,
    (_S.AWAITED, _E.HANDOVER): _S.CATCHING_UP,
    (_S.AWAITED, _E.CLAIMED): _S.ENDED,
    (_S.AWAITED, _E.OUTRANKED): _S.ENDED,
    (_S.AWAITED, _E.GIVEN_UP): _S.ENDED,
    (_S.CATCHING_UP, _E.OPENED): _S.CATCHING_UP,
    (_S.CATCHING_UP, _E.HANDOVER): _S.CATCHING_UP,
    (_S.CATCHING_UP, _E.CAUGHT_UP): _S.LIVE,
    (_S.CATCHING_UP, _E.CLAIMED): _S.LEAVING,
    (_S.CATCHING_UP, _E.REPLACED): _S.ENDED,
    (_S.CATCHING_UP, _E.OUTRANKED): _S.ENDED,
    (_S.CATCHING_UP, _E.SESSION_ENDED): _S.ENDED,
    (_S.LIVE, _E.OPENED): _S.LIVE,
    (_S.LIVE, _E.HANDOVER): _S.CATCHING_UP,
    (_S.LIVE, _E.CLAIMED): _S.LEAVING,
    (_S.LIVE, _E.REPLACED): _S.ENDED,
    (_S.LIVE, _E.OUTRANKED): _S.ENDED,
    (_S.LIVE, _E.SESSION_ENDED): _S.ENDED,
    (_S.LEAVING, _E.TAKEN): _S.ENDED,
}
"""Next state by state and event; docs/reference/roaming.md has the same table, with the actions of the edge."""


def advance(residency: "Residency | OutgoingHandover", event: ResidencyEvent) -> None:
    """Change the state of a residency; an event without a transition is a bug."""
    state = TRANSITIONS.get((residency.state, event))
    assert state is not None, f"{residency.endpoint} is {residency.state.value}: {event.value}"
    residency.state = state
    if isinstance(residency, Residency) and state in (_S.CATCHING_UP, _S.LIVE):
        assert (state is _S.CATCHING_UP) == (residency.catching_up is not None), "the state and its data change together"


class MoveOutcome(Enum):
    """Outcome of a move to this edge."""

    COMPLETED = "completed"
    """The session is here and served by matching."""
    INTERRUPTED = "interrupted"
    """The session came and left again, or ended, before it was served by matching."""
    REFUSED = "refused"
    """The session came and was not accepted."""
    OUTRANKED = "outranked"
    """The session, or the client that waited for it, had to go: the endpoint belongs to another owner."""
    GIVEN_UP = "given up"
    """The client was admitted, or rejected, without its session."""


class Move(NamedTuple):
    """A move of an endpoint to this edge and its outcome: one line for the operator."""

    endpoint: EndpointId
    from_edge: str
    """As SITE/EDGE; empty if that is not known."""
    to_edge: str
    outcome: MoveOutcome
    why: str
    messages: int
    """Messages that were queued or in flight and came with the session."""
    duration_ns: int
    """Time since the endpoint was claimed here."""


Cursors = dict[str, int]
"""By the key of a stream (`Position.key`): the number up to which its messages are processed."""

OFFSET: Final = "@"
"""Key among cursors: the offset up to which cross-hub was read."""
EVERY: Final = ANY_EDGE
"""Wildcard for a site or a stream."""
OFFSET_MAX: Final = 1 << 62
"""Above every offset."""
SINCE_ALWAYS: Final[Cursors] = {EVERY: 0, OFFSET: 0}
"""The beginning of a subscription that is older than this edge's membership in a site."""


ANONYMOUS: Final = ClientIdentity("")


@dataclass(slots=True)
class Part:
    """Some subscriptions of an endpoint, and the cursors up to which they were served."""

    home_site: str
    """The site in whose log they were served; that log has gaps in the streams of other sites."""
    names: list[str]
    start_cursors: dict[str, Cursors]
    """By name, the cursors at which each subscription began: see `began_before`."""
    cursors: Cursors
    offset: int | None = None
    """Offset from which to read cross-hub again; None: from the time `reread_from`, for a session from another site."""
    reread_from: Instant = NEVER
    default_cursor: int = 0
    """The cursor of streams that `cursors` does not have."""
    carried_messages: Sequence[tuple[str, int]] = ()
    """Messages above the cursors that came with the session, by origin and number."""
    served_from: Cursors = field(default_factory=dict)
    """By stream of this site, the number from which on it was served here: above it there are no gaps."""

    def is_conclusive_for(self, position: Position) -> bool:
        """Return whether the cursors show if a record was delivered: below them the streams of other sites have gaps."""
        return site_of(position.key) == self.home_site or position.number >= self.served_from.get(position.key, OFFSET_MAX)

    def lacks(self, position: Position, offset: int | None = None) -> bool:
        """Return whether the cursors are behind a record."""
        if offset is not None and self.offset is not None and offset < self.offset:
            return False
        return position.is_after(self.cursors, self.default_cursor)

    def began_before(self, name: str, position: Position, offset: int | None) -> bool:
        """Return whether a subscription began before a record was published, or at least before it was read."""
        since = self.start_cursors.get(name, SINCE_ALWAYS)
        return position.is_after(since, since[EVERY]) or (offset is not None and offset >= since[OFFSET])


@dataclass(slots=True)
class CatchingUp:
    """Records that a residency has to read before it can be served by matching."""

    last_number_on_arrival: int
    """The last number that this edge had assigned on cross-hub when the session came."""
    parts: list[Part] = field(default_factory=list)
    sites_to_reread: set[str] = field(default_factory=set)
    """Sites whose records must be read again before new ones are delivered; `EVERY` when the session has just come."""
    awaits: dict[str, list[str]] = field(default_factory=dict)
    """Sites of which the central hub still has records for the endpoint, with the ids of the handovers: later ones wait."""
    missed: list[str] = field(default_factory=list)
    """Messages found by the central hub so far, as records; delivered in the order of numbers with those in the log."""
    from_edge: str = ""
    """The edge that the session came from, as SITE/EDGE."""
    carried: int = 0
    """Number of messages that came with it."""
    awaits_until: Instant = NEVER
    """When it stops waiting for the central hub."""

    def await_missed(self, site: str, handover: str, until: Instant = NEVER) -> None:
        """Wait for the missed messages of a site that answer a handover; beyond the limits, do without them."""
        if site not in self.awaits and len(self.awaits) >= AWAITED_SITES_MAX:
            return
        awaited = self.awaits.setdefault(site, [])
        if handover not in awaited and len(awaited) < AWAITED_HANDOVERS_MAX:
            awaited.append(handover)
            self.awaits_until = max(self.awaits_until, until)

    def stop_waiting(self) -> None:
        """Do without the missed messages that the central hub has not sent, and deliver those read since."""
        self.sites_to_reread.update(self.awaits)
        self.awaits.clear()

    def is_served(self, site: str) -> bool:
        """Return whether records of a site are delivered as they are read."""
        return not ({site, EVERY} & self.sites_to_reread) and site not in self.awaits


@dataclass(slots=True)
class Residency:
    """An endpoint at this edge."""

    endpoint: EndpointId
    epoch: Epoch
    began: Epoch = NO_EPOCH
    """The last epoch under which the session was served, here or elsewhere."""
    clean_start_epoch: Epoch = NO_EPOCH
    """Epoch at which the endpoint last began a new session: older state is not accepted."""
    state: ResidencyState = ResidencyState.ABSENT
    waits_until: Instant | None = None
    """Deadline of a client that waits for its session; None: no client waits."""
    is_complete: bool = True
    """Whether nothing of an earlier residency is outstanding, as far as is known."""
    catching_up: CatchingUp | None = None
    received_elsewhere: Cursors = field(default_factory=dict)
    """By stream, the number up to which the endpoint received messages elsewhere, beyond this edge's cursor."""
    offsets: Cursors = field(default_factory=dict)
    """By other site, the offset up to which the endpoint was served from that site's cross-hub."""
    since: dict[str, Cursors] = field(default_factory=dict)
    """By subscription, the cursors at which it began."""
    ended_subscriptions: list[str] = field(default_factory=list)
    """Subscriptions that ended here while a handover was outstanding: it does not restore them."""
    opened_offset: int = 0
    """The next offset of cross-hub when the session began here: later messages to the endpoint were delivered at once."""
    opened_own_number: int = 0
    """The last number of this edge at that time."""
    opened_highest_number: int = 0
    """The highest number of any edge at that time."""
    identity: ClientIdentity = ANONYMOUS
    """The client that has the session, or waits for it."""
    kept_since: Epoch = NO_EPOCH
    """As in its claim."""

    @property
    def is_here(self) -> bool:
        """Whether the session is at this edge."""
        return self.state in (ResidencyState.CATCHING_UP, ResidencyState.LIVE)


@dataclass(slots=True)
class OutgoingHandover:
    """An endpoint that was handed over; its subscriptions are announced here until the other edge has taken it."""

    endpoint: EndpointId
    epoch: Epoch
    subscriptions: tuple[HeldSubscription, ...]
    relayed: list[tuple[EdgeRef, Epoch]] = field(default_factory=list)
    """Senders of handovers that were only relayed, with the claims they answered: they wait for `HandoverTaken`, too."""
    handover_count: int = 1
    """Number of handovers to the same claim: sessions that came late were relayed."""
    state: ResidencyState = ResidencyState.LEAVING


def site_of(stream: str) -> str:
    """Return the site of a stream, whose key begins with SITE/EDGE."""
    return stream.partition("/")[0]


def residency_to_bytes(residency: Residency) -> bytes:
    """Encode a residency for storage."""
    catching_up = residency.catching_up
    return orjson.dumps(
        {
            "epoch": residency.epoch,
            "began": residency.began,
            "anew": residency.clean_start_epoch,
            "kept": residency.kept_since,
            "whole": residency.is_complete,
            "had": residency.received_elsewhere,
            "offsets": residency.offsets,
            "since": residency.since,
            "ended": residency.ended_subscriptions,
            "opened": [residency.opened_offset, residency.opened_own_number, residency.opened_highest_number],
            "catching_up": None
            if catching_up is None
            else [
                catching_up.last_number_on_arrival,
                [
                    [
                        one.home_site,
                        one.names,
                        one.start_cursors,
                        one.cursors,
                        one.offset,
                        one.reread_from,
                        one.default_cursor,
                        one.carried_messages,
                        one.served_from,
                    ]
                    for one in catching_up.parts
                ],
                sorted(catching_up.sites_to_reread),
                catching_up.awaits,
                catching_up.missed,
                catching_up.from_edge,
                catching_up.carried,
                catching_up.awaits_until,
            ],
        }
    )


def residency_from_bytes(endpoint: EndpointId, data: bytes) -> Residency:
    """Decode a stored residency, whose session is here; its owner is that of the session."""
    value = orjson.loads(data)
    catching_up = None
    if value["catching_up"] is not None:
        last_number_on_arrival, parts, sites_to_reread, *rest = value["catching_up"]
        catching_up = CatchingUp(last_number_on_arrival, [Part(*part) for part in parts], set(sites_to_reread), *rest)
        for part in catching_up.parts:
            part.carried_messages = [(edge, number) for edge, number in part.carried_messages]
    state = ResidencyState.LIVE if catching_up is None else ResidencyState.CATCHING_UP
    residency = Residency(endpoint, Epoch(value["epoch"]), Epoch(value["began"]), Epoch(value["anew"]), state)
    residency.is_complete, residency.catching_up, residency.kept_since = value["whole"], catching_up, Epoch(value["kept"])
    residency.received_elsewhere, residency.offsets, residency.since = value["had"], value["offsets"], value["since"]
    residency.ended_subscriptions = value["ended"]
    residency.opened_offset, residency.opened_own_number, residency.opened_highest_number = value["opened"]
    return residency


def outgoing_to_bytes(outgoing: OutgoingHandover) -> bytes:
    """Encode an open handover for storage."""
    held = [
        [one.name, to_json(one.subscription).decode(), one.no_local, one.retain_as_published] for one in outgoing.subscriptions
    ]
    relayed = [[str(edge), epoch] for edge, epoch in outgoing.relayed]
    return orjson.dumps({"epoch": outgoing.epoch, "held": held, "relayed": relayed, "times": outgoing.handover_count})


def outgoing_from_bytes(endpoint: EndpointId, data: bytes) -> OutgoingHandover:
    """Decode a stored handover."""
    value = orjson.loads(data)
    held = tuple(
        HeldSubscription(name, cast("Subscription", from_json(text.encode())), no_local, retain_as_published)
        for name, text, no_local, retain_as_published in value["held"]
    )
    relayed = [(edge_ref(edge), Epoch(epoch)) for edge, epoch in value["relayed"]]
    return OutgoingHandover(endpoint, Epoch(value["epoch"]), held, relayed, value["times"])
