"""Sites: the edges that share one log, and what they and the centre tell each other through it (D5-D10).

    topic of the site's log            key                 records                       written by        read by
    reserved.cross-hub                 receiver or ""      Said, Handover, Rest, Extra,  edges, centre     edges, centre
                                                           Taken
    reserved.subscription-SITE-EDGE    endpoint            Claimed, Prior, Prepare, Said centre, edges,    that edge
                                                                                         handlers
    reserved.subscription-info         who and what        Wanted, EdgeInfo, CentreInfo  edges, centre     edges, centre
    reserved.update-vehicle-info       endpoint or @edge   Claim, Places                 edges             edges, centre
    reserved.publish-HANDLER           endpoint            Said                          edges             that handler

What must hold:
- of one endpoint the claim with the highest epoch counts, in whatever order claims are read: late ones change nothing;
- a sender numbers all that it puts on cross-hub, ever higher; a reader drops numbers up to the highest it has seen of a sender.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from milepost.model.areas import Area
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.subscriptions import Subscription

Epoch = NewType("Epoch", int)
"""Orders the stays of one endpoint: when it appeared, in nanoseconds, and above every epoch of it that the edge had heard of."""

NO_EPOCH: Final = Epoch(0)

SITE_NAME_CHARACTERS_MAX: Final = 48
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

NEVER: Final = Instant(0)

CENTRE: Final = "@centre"
"""In place of an edge's name: the centre itself."""
ALL: Final = "*"
"""In place of an edge's name: any edge of the site."""


class EdgeRef(NamedTuple):
    """An edge of a site."""

    site: str
    edge: str

    def __str__(self) -> str:
        return f"{self.site}/{self.edge}"


def edge_ref(text: str) -> EdgeRef:
    """The edge that a text such as `north/edge-1` names; raises ValueError."""
    site, mark, edge = text.partition("/")
    if not mark or not site or not edge:
        raise ValueError(f"{text[:100]!r} is not SITE/EDGE")
    return EdgeRef(site, edge)


def check_site_name(name: str) -> str:
    """A name that can be part of a topic of every log: letters, digits, _ and -; raises ValueError."""
    if not _NAME.fullmatch(name) or len(name) > SITE_NAME_CHARACTERS_MAX:
        raise ValueError(
            f"{name[:100]!r}: letters, digits, _ and -, at most {SITE_NAME_CHARACTERS_MAX}, can be part of a log's topics"
        )
    return name


@dataclass(frozen=True, slots=True)
class Said:
    """A message that left its edge, whole (D9)."""

    sender: EdgeRef
    """The edge at which it was published."""
    number: int
    message: Message
    qos: int = 0
    is_retained: bool = False
    extras: bytes | None = None
    """MQTT's properties as receivers get them; nothing: it was not put into these words yet."""
    direct: tuple[str, ...] = ()
    """Sites that its edge gave it to without the centre (M33)."""


@dataclass(frozen=True, slots=True)
class Held:
    """A subscription of an endpoint as its session has it."""

    name: str
    subscription: Subscription
    is_not_own: bool = False
    is_retain_shown: bool = False
    since: Mapping[str, int] = field(default_factory=dict)
    """By edge (SITE/EDGE), and for all others under `ALL`: what has a higher number was said after it was asked for."""


class Waiting(NamedTuple):
    """A message that waits for an endpoint, or was sent and not acknowledged."""

    number: int
    """Under which it was or will be sent; in this order."""
    qos: int
    is_sent: bool
    """Whether the endpoint may have it."""
    is_released: bool
    labels: tuple[int, ...]
    is_from_store: bool
    said_by: str
    """The edge at which it was published, as SITE/EDGE, and its number there; empty and 0 if it never left it."""
    said_number: int
    parcel: bytes
    """As an edge keeps it; empty if it is released: the endpoint has it, only the exchange is open.

    One that is too large for a record stands in several rows, one after the other, under the same number.
    """


class ToldOf(NamedTuple):
    """An endpoint was handed messages to areas about an incident."""

    source: EndpointId
    incident: str
    id: int
    """Of the last one; 0: what it was handed last it did not get."""
    is_again: bool
    """Whether it was handed another one before."""
    until: Instant
    """So long it is remembered."""


@dataclass(frozen=True, slots=True)
class Handover:
    """All that an edge held of an endpoint, for the edge where it is now (D8)."""

    endpoint: EndpointId
    epoch: Epoch
    """Of the claim that it answers."""
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    is_whole: bool = True
    """Whether the sender itself waits for nothing of an earlier stay."""
    is_held: bool = True
    """Whether there was a session at all."""
    expiry_ns: int = 0
    place: Place | None = None
    subscriptions: tuple[Held, ...] = ()
    waiting: tuple[Waiting, ...] = ()
    received: tuple[int, ...] = ()
    marks: Mapping[str, int] = field(default_factory=dict)
    """By edge (SITE/EDGE): the endpoint had its share of all that this edge said, up to this number."""
    offset: int = 0
    """The sender has read cross-hub of its site up to here, exclusively."""
    as_of: Instant = NEVER
    """When what it read last was appended."""
    rests: int = 0
    """So many `Rest` follow, with more that waits."""
    began: Epoch = NO_EPOCH
    """The last epoch under which the session was served."""
    anew: Epoch = NO_EPOCH
    """As in the claim: when the endpoint last began anew, as far as the sender knows."""
    awaits: Mapping[str, int] = field(default_factory=dict)
    """Sites of which an `Extra` is still to come to this site, with the epoch under which it will."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """By other site where the endpoint was before: up to where it had all of that site's cross-hub when it left."""
    told: tuple[ToldOf, ...] = ()
    """What it was told of, so that it is not told again, and hears the last word on it."""


@dataclass(frozen=True, slots=True)
class Rest:
    """More of what waits and is asked for, for a handover that was too large for one record."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    waiting: tuple[Waiting, ...] = ()
    subscriptions: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Extra:
    """What the endpoint's former site said between the cut and the handover, for the endpoint alone; found by the centre."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    """The centre, for the site that it read: SITE/@centre."""
    receiver: EdgeRef
    number: int
    said: tuple[Said, ...] = ()
    is_last: bool = True
    """Whether nothing more of this site follows for this move."""


@dataclass(frozen=True, slots=True)
class Taken:
    """A handover has arrived and is kept: who sent it may withdraw what it asked for on behalf of the endpoint."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    subscriptions: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Claim:
    """An endpoint is at an edge (D8); a record without value in its place takes it back: the edge has nothing of it any more."""

    endpoint: EndpointId
    edge: EdgeRef
    epoch: Epoch
    anew: Epoch = NO_EPOCH
    """When it last began anew: what others hold of it from before is to be ended, not handed over."""
    asks: bool = False
    """Whether the edge wants to hear of an earlier stay at another site (`Prior`)."""
    place: Place | None = None


class Whereabouts(NamedTuple):
    """Where an endpoint was last seen."""

    endpoint: EndpointId
    place: Place
    heading_deg: float | None
    speed_mps: float | None
    seen_at: Instant


@dataclass(frozen=True, slots=True)
class Places:
    """Where the endpoints of an edge are, those that moved."""

    edge: EdgeRef
    places: tuple[Whereabouts, ...]


@dataclass(frozen=True, slots=True)
class Claimed:
    """To the edge that has an endpoint: it appeared elsewhere, hand it over (D8)."""

    claim: Claim


@dataclass(frozen=True, slots=True)
class Prior:
    """To the edge where an endpoint appeared: where it was before, if at another site."""

    endpoint: EndpointId
    epoch: Epoch
    edge: EdgeRef | None


@dataclass(frozen=True, slots=True)
class Prepare:
    """To the edge that an endpoint drives towards: what it will ask for."""

    endpoint: EndpointId
    edge: EdgeRef
    """Where it is."""
    epoch: Epoch
    subscriptions: tuple[Held, ...] = ()


@dataclass(frozen=True, slots=True)
class Wanted:
    """Somebody at an edge wants messages that a subscription asks for (D7)."""

    edge: EdgeRef
    """Where; the edge is `ALL` when the centre tells of another site."""
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """An edge: what it covers, and how endpoints reach it."""

    edge: EdgeRef
    coverage: Area | None = None
    """Nothing: everywhere."""
    strays: tuple[tuple[int, int], ...] = ()
    """Squares of `STRAY_SIDE_DEG` (row, column) outside the coverage in which it has endpoints."""
    address: str = ""
    """Where endpoints connect, as `mqtt://HOST:PORT`; empty if it is not said."""


STRAY_SIDE_DEG: Final = 0.05


@dataclass(frozen=True, slots=True)
class CentreInfo:
    """The centre is there."""

    name: str
    sites: tuple[str, ...]
    at: Instant


SiteRecord = Said | Handover | Rest | Extra | Taken | Claim | Places | Claimed | Prior | Prepare | Wanted | EdgeInfo | CentreInfo
"""All that stands in the log of a site."""

CROSS_HUB: Final = "reserved.cross-hub"
SUBSCRIPTION_INFO: Final = "reserved.subscription-info"
VEHICLE_INFO: Final = "reserved.update-vehicle-info"


def inbox_of(edge: EdgeRef) -> str:
    """The topic through which the centre, handlers and other edges reach an edge."""
    return f"reserved.subscription-{edge.site}-{edge.edge}"


def publish_to(handler: str) -> str:
    """The topic through which edges reach a handler."""
    return f"reserved.publish-{handler}"


def wanted_key(edge: EdgeRef, endpoint: str, name: str) -> str:
    """The key under which an edge says that an endpoint wants something; a record without value takes it back."""
    return f"{edge}\n{endpoint}\n{name}"


def edge_key(edge: EdgeRef) -> str:
    """The key under which an edge is described."""
    return f"@{edge}"


def claim_key(endpoint: str, edge: EdgeRef) -> str:
    """The key under which an edge claims an endpoint; a record without value takes the claim back."""
    return f"{endpoint}\n{edge}"


def claim_of_key(key: str) -> tuple[EndpointId, EdgeRef]:
    """The endpoint and the edge in the key of a claim; raises ValueError."""
    endpoint, _, edge = key.rpartition("\n")
    return EndpointId(endpoint), edge_ref(edge)
