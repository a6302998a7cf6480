"""Stays: what is known of an endpoint's time at this edge, from its claim to the end of its move away.

    awaited ─▶ here, young ─▶ here ─▶ leaving          docs/reference/roaming.md has the whole table

What must hold: whatever of it a process needs to go on after it was killed is in `stay_to_bytes`.
"""

from dataclasses import dataclass, field
from typing import cast

import orjson

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.sites import EdgeRef, Epoch, Held, edge_ref
from milepost.model.subscriptions import Subscription
from milepost.wire.json_form import from_json, to_json

Marks = dict[str, int]
"""By edge, as SITE/EDGE: the number up to which what it said is dealt with."""


@dataclass(frozen=True, slots=True)
class Back:
    """What is to be read again for an endpoint that came: from an offset, or from a time, above a number."""

    offset: int | None
    since: Instant
    floor: int
    """Numbers of edges of which nothing is known count above this one."""


@dataclass(slots=True)
class Young:
    """An endpoint that gets everything from the log until nothing of this edge is on its way there."""

    marks: Marks
    """It had its share of all up to these numbers."""
    came_at: int
    """The last number this edge had put on cross-hub when it came: what was addressed to it later it got at once."""
    back: Back | None = None
    """What must first be read again."""


@dataclass(slots=True)
class Stay:
    """An endpoint at this edge."""

    endpoint: EndpointId
    epoch: Epoch
    is_here: bool = False
    """Whether its session is; else it is awaited."""
    waits_until: Instant | None = None
    """So long a client waits for its session."""
    is_whole: bool = True
    """Whether nothing of an earlier stay is outstanding, as far as is known."""
    young: Young | None = None
    owes: list[tuple[EdgeRef, Epoch]] = field(default_factory=list)
    """Who is to hear that its handover was taken, once what is wanted here was said."""
    owes_after: int = 0
    """The turn of what was said (`Outbox.last_said`) with which it was."""
    since: dict[str, Marks] = field(default_factory=dict)
    """Of subscriptions made before all of it was here: what was said since then was delivered by them."""


@dataclass(frozen=True, slots=True)
class Leaving:
    """An endpoint that was handed over; what it asks for is asked for here until it is taken."""

    endpoint: EndpointId
    epoch: Epoch
    subscriptions: tuple[Held, ...]


def stay_to_bytes(stay: Stay) -> bytes:
    """A stay as it is stored."""
    young = stay.young
    back = None if young is None or young.back is None else [young.back.offset, young.back.since, young.back.floor]
    return orjson.dumps(
        {
            "epoch": stay.epoch,
            "whole": stay.is_whole,
            "young": None if young is None else young.marks,
            "back": back,
            "owes": [[str(edge), epoch] for edge, epoch in stay.owes],
            "since": stay.since,
        }
    )


def stay_from_bytes(endpoint: EndpointId, data: bytes) -> Stay:
    """A stay that was stored; its session is here."""
    value = orjson.loads(data)
    back = None if value["back"] is None else Back(*value["back"])
    young = None if value["young"] is None else Young(value["young"], 0, back)
    owes = [(edge_ref(edge), Epoch(epoch)) for edge, epoch in value["owes"]]
    return Stay(
        endpoint, Epoch(value["epoch"]), is_here=True, is_whole=value["whole"], young=young, owes=owes, since=value["since"]
    )


def leaving_to_bytes(leaving: Leaving) -> bytes:
    """What is wanted on behalf of an endpoint that left, as it is stored."""
    held = [[one.name, to_json(one.subscription).decode(), one.is_not_own, one.is_retain_shown] for one in leaving.subscriptions]
    return orjson.dumps({"epoch": leaving.epoch, "held": held})


def leaving_from_bytes(endpoint: EndpointId, data: bytes) -> Leaving:
    """The same, read back."""
    value = orjson.loads(data)
    held = tuple(
        Held(name, cast("Subscription", from_json(text.encode())), is_not_own, is_retain_shown)
        for name, text, is_not_own, is_retain_shown in value["held"]
    )
    return Leaving(endpoint, Epoch(value["epoch"]), held)
