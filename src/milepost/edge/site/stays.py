"""Stays: what is known of an endpoint's time at this edge, from its claim to the end of its move away.

    awaited ─▶ here, young ─▶ here ─▶ leaving          docs/reference/roaming.md has the whole table

What must hold: whatever of it a process needs to go on after it was killed is in `stay_to_bytes`.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, cast

import orjson

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.sites import ALL, NEVER, NO_EPOCH, EdgeRef, Epoch, Held, edge_ref
from milepost.model.subscriptions import Subscription
from milepost.wire.json_form import from_json, to_json

Marks = dict[str, int]
"""By edge, as SITE/EDGE: the number up to which what it said is dealt with."""


OFFSET: Final = "@"
"""Among marks: where cross-hub was read."""
EVERY: Final = ALL
"""In place of a site or an edge: all of them."""


FAR: Final = 1 << 62
"""Above every offset."""
ALWAYS: Final[Marks] = {EVERY: 0, OFFSET: 0}
"""Since when somebody asks who asked before this edge was part of a site."""


@dataclass(slots=True)
class Part:
    """Some subscriptions of an endpoint that came, and up to where they had their share."""

    home: str
    """The site in whose log they were served: of others it has what somebody there wanted, and there may be gaps."""
    names: list[str]
    since: dict[str, Marks]
    """By name, from when on each was asked for: see `asked_before`."""
    marks: Marks
    offset: int | None = None
    """From here on it is to be read again, or"""
    at: Instant = NEVER
    """from what was appended at this time, if it came from another site."""
    floor: int = 0
    """Numbers of edges of which nothing is known count above this one."""
    brought: Sequence[tuple[str, int]] = ()
    """What came with it and is above its marks, by edge and number."""
    given: Marks = field(default_factory=dict)
    """By edge of this site, from which number on it was given here what that edge said: above it there are no gaps."""

    def is_sure_of(self, stream: str, number: int) -> bool:
        """Whether its marks tell if it has had a record: of other sites than its own there may be gaps below them."""
        return site_of(stream) == self.home or number >= self.given.get(stream, FAR)

    def lacks(self, stream: str, number: int, offset: int | None = None) -> bool:
        """Whether it has not had its share of a record."""
        if offset is not None and self.offset is not None and offset < self.offset:
            return False
        return number > self.marks.get(stream, self.floor)

    def asked_before(self, name: str, stream: str, number: int, offset: int | None) -> bool:
        """Whether a record was said after a subscription was made, or at least read."""
        since = self.since.get(name, ALWAYS)
        return number > since.get(stream, since[EVERY]) or (offset is not None and offset >= since[OFFSET])


@dataclass(slots=True)
class Young:
    """An endpoint that gets everything from the log until nothing of this edge is on its way there."""

    came_at: int
    """The last number this edge had put on cross-hub when it came."""
    parts: list[Part] = field(default_factory=list)
    late: set[str] = field(default_factory=set)
    """Sites whose records must be read again before new ones count; `EVERY` when it has just come."""
    awaits: Marks = field(default_factory=dict)
    """Sites of which the centre still has something for it, and under which epoch: what they say later waits for that."""
    extras: list[str] = field(default_factory=list)
    """What the centre has found so far, as records; it is given in the order of numbers with what stands in the log."""

    def is_served(self, site: str) -> bool:
        """Whether records of a site are given as they are read."""
        return not ({site, EVERY} & self.late) and site not in self.awaits


@dataclass(slots=True)
class Stay:
    """An endpoint at this edge."""

    endpoint: EndpointId
    epoch: Epoch
    began: Epoch = NO_EPOCH
    """The last epoch under which the session was served, here or elsewhere."""
    anew: Epoch = NO_EPOCH
    """When the endpoint last began anew: what is older is not taken in."""
    is_here: bool = False
    """Whether its session is; else it is awaited."""
    waits_until: Instant | None = None
    """So long a client waits for its session."""
    is_whole: bool = True
    """Whether nothing of an earlier stay is outstanding, as far as is known."""
    young: Young | None = None
    had: Marks = field(default_factory=dict)
    """What it had from edges of which this one has read less."""
    offsets: Marks = field(default_factory=dict)
    """By other site where it was before: up to where it had all of that site's cross-hub."""
    since: dict[str, Marks] = field(default_factory=dict)
    """By subscription, from when on it was asked for."""
    ended: list[str] = field(default_factory=list)
    """Subscriptions that were ended here before all of it was here: they do not come back with what is handed over."""
    opened_at: int = 0
    """What this edge read next when the session began here: what was addressed to it later it got at once."""
    opened_after: int = 0
    """The last number of this edge then; the same."""
    opened_above: int = 0
    """No number that was known then is higher."""


@dataclass(slots=True)
class Leaving:
    """An endpoint that was handed over; what it asks for is asked for here until it is taken."""

    endpoint: EndpointId
    epoch: Epoch
    subscriptions: tuple[Held, ...]
    relayed: list[tuple[EdgeRef, Epoch]] = field(default_factory=list)
    """Whose handovers, answering which claims, were only handed on: they go on asking until it is taken."""
    times: int = 1
    """How often it was handed over to the same claim: what came late was handed on."""


def site_of(stream: str) -> str:
    """The site of an edge that is written as SITE/EDGE."""
    return stream.partition("/")[0]


def stay_to_bytes(stay: Stay) -> bytes:
    """A stay as it is stored."""
    young = stay.young
    return orjson.dumps(
        {
            "epoch": stay.epoch,
            "began": stay.began,
            "anew": stay.anew,
            "whole": stay.is_whole,
            "had": stay.had,
            "offsets": stay.offsets,
            "since": stay.since,
            "ended": stay.ended,
            "opened": [stay.opened_at, stay.opened_after, stay.opened_above],
            "young": None
            if young is None
            else [
                young.came_at,
                [
                    [one.home, one.names, one.since, one.marks, one.offset, one.at, one.floor, one.brought, one.given]
                    for one in young.parts
                ],
                sorted(young.late),
                young.awaits,
                young.extras,
            ],
        }
    )


def stay_from_bytes(endpoint: EndpointId, data: bytes) -> Stay:
    """A stay that was stored; its session is here."""
    value = orjson.loads(data)
    young = None
    if value["young"] is not None:
        came_at, parts, late, awaits, extras = value["young"]
        young = Young(came_at, [Part(*part) for part in parts], set(late), awaits, extras)
        for part in young.parts:
            part.brought = [(edge, number) for edge, number in part.brought]
    stay = Stay(endpoint, Epoch(value["epoch"]), is_here=True, is_whole=value["whole"], young=young, had=value["had"])
    stay.began, stay.anew, stay.since = Epoch(value["began"]), Epoch(value["anew"]), value["since"]
    stay.ended, stay.offsets = value["ended"], value["offsets"]
    stay.opened_at, stay.opened_after, stay.opened_above = value["opened"]
    return stay


def leaving_to_bytes(leaving: Leaving) -> bytes:
    """What is wanted on behalf of an endpoint that left, as it is stored."""
    held = [[one.name, to_json(one.subscription).decode(), one.is_not_own, one.is_retain_shown] for one in leaving.subscriptions]
    relayed = [[str(edge), epoch] for edge, epoch in leaving.relayed]
    return orjson.dumps({"epoch": leaving.epoch, "held": held, "relayed": relayed, "times": leaving.times})


def leaving_from_bytes(endpoint: EndpointId, data: bytes) -> Leaving:
    """The same, read back."""
    value = orjson.loads(data)
    held = tuple(
        Held(name, cast("Subscription", from_json(text.encode())), is_not_own, is_retain_shown)
        for name, text, is_not_own, is_retain_shown in value["held"]
    )
    relayed = [(edge_ref(edge), Epoch(epoch)) for edge, epoch in value["relayed"]]
    return Leaving(endpoint, Epoch(value["epoch"]), held, relayed, value["times"])
