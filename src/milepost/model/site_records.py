"""Sites: the edges that share one log, and the records that they and the central hub exchange through it (D5-D10).

    topic of the site's log            key                 records                              written by        read by
    reserved.cross-hub                 receiver or ""      ForwardedMessage, Handover,          edges, hub        edges, hub
                                                           HandoverPart, HandoverTaken,
                                                           MissedMessages
    reserved.subscription-SITE-EDGE    endpoint            ClaimNotice, PriorEdge,              hub, edges,       that edge
                                                           PrepareHandover, ForwardedMessage    handlers
    reserved.subscription-info         edge, endpoint,     Interest, EdgeInfo, HubInfo          edges, hub        edges, hub
                                       name
    reserved.update-vehicle-info       endpoint or @edge   EndpointClaim,                       edges             edges, hub
                                                           EndpointPositions
    reserved.publish-HANDLER           endpoint            ForwardedMessage                     edges             that handler

Invariants:
- of the claims of one owner for an endpoint the one with the highest epoch wins, in whatever order claims are read; between
  owners the stronger proof wins (`federation.claims`): late and unproven claims have no effect;
- texts and collections from a log are bounded, however large its records may be;
- an origin numbers all its records on cross-hub in ascending order; a reader drops numbers that are not above its cursor.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple, NewType

from milepost.model.addresses import ToContent, ToEndpoint
from milepost.model.areas import Area
from milepost.model.endpoints import (
    EndpointId,
    SourceId,
    SourceKind,
    SystemSource,
    edge_source,
    endpoint_id,
    kind_of_source,
    name_of_source,
    service_source,
)
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.places import Place
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.subscriptions import Subscription

Epoch = NewType("Epoch", int)
"""Orders the residencies of one endpoint: its arrival in nanoseconds, above every earlier epoch that the edge has read."""

NO_EPOCH: Final = Epoch(0)

SITE_NAME_CHARACTERS_MAX: Final = 48
_NAME: Final = re.compile(r"[A-Za-z0-9_-]+")

NEVER: Final = Instant(0)

EDGE_REF_CHARACTERS_MAX: Final = 128
"""Maximum characters of SITE/EDGE."""
OWNER_CHARACTERS_MAX: Final = 1_100
"""Maximum characters of the owner of a session: a user name, and the kind of its proof."""
HANDOVER_ID_CHARACTERS_MAX: Final = 256
"""Maximum characters of the id of a handover: SITE/EDGE and a number."""
AWAITED_SITES_MAX: Final = 1_000
"""Maximum sites whose missed messages a session waits for."""
AWAITED_HANDOVERS_MAX: Final = 64
"""Maximum handovers whose missed messages a session waits for, per site."""

SERVICE_MARK: Final = "@"
"""The first character of a service's name where the name of an edge is expected: no edge can have such a name."""
HUB: Final = f"{SERVICE_MARK}hub"
"""In place of an edge's name: the central hub itself."""
ANY_EDGE: Final = "*"
"""In place of an edge's name: any edge of the site."""


class EdgeRef(NamedTuple):
    """An edge of a site."""

    site: str
    edge: str

    def __str__(self) -> str:
        return f"{self.site}/{self.edge}"


def edge_ref(text: str) -> EdgeRef:
    """Return the edge that a text such as `north/edge-1` names; raises ValueError."""
    site, mark, edge = text.partition("/")
    if not mark or not site or not edge or len(text) > EDGE_REF_CHARACTERS_MAX:
        raise ValueError(f"{text[:100]!r} is not SITE/EDGE")
    return EdgeRef(site, edge)


def check_site_name(name: str) -> str:
    """Return *name* if it can be part of a topic of every log (letters, digits, _ and -); raises ValueError."""
    if not _NAME.fullmatch(name) or len(name) > SITE_NAME_CHARACTERS_MAX:
        raise ValueError(
            f"{name[:100]!r} is not a valid name: use letters, digits, _ and -, at most {SITE_NAME_CHARACTERS_MAX} characters"
        )
    return name


def _check_length(field_name: str, text: str, characters_max: int) -> None:
    if len(text) > characters_max:
        raise Malformed(Reason.FIELD_RANGE, f"{field_name} has {len(text)} characters, at most {characters_max} are allowed")


class LoggedRecord(NamedTuple):
    """A record as it was read from a topic of a site's log."""

    offset: int
    key: str
    value: bytes | None
    appended_at: Instant


MAIN: Final = ""
"""The stream of messages that go through cross-hub and the central hub."""
DIRECT: Final = "direct"
"""The stream of messages that an edge appends itself to the log of a neighbouring site: they may overtake the others (M33)."""


class Position(NamedTuple):
    """Position of a forwarded message. Readers have one cursor for each stream of each origin (docs/reference/roaming.md)."""

    origin: str
    """The edge at which it was published, as SITE/EDGE."""
    stream: str
    """`MAIN` or `DIRECT`: in every log, the numbers of one stream are in ascending order."""
    number: int
    """Given by the origin, unique and ascending over all its streams and restarts."""

    @property
    def key(self) -> str:
        """The key of the stream among cursors."""
        return f"{self.origin} {self.stream}" if self.stream else self.origin

    def is_after(self, cursors: Mapping[str, int], default: int = 0) -> bool:
        """Return whether the cursor of the stream has not reached the message; *default*: the cursor of unknown streams."""
        return self.number > cursors.get(self.key, default)


@dataclass(frozen=True, slots=True)
class ForwardedMessage:
    """A message that was forwarded by its edge (D9), or by the service that published it.

    Its source fits its sender: no edge forwards messages of another edge, and only a service itself raises its alerts.
    """

    sender: EdgeRef
    """The edge at which it was published."""
    number: int
    message: Message
    qos: int = 0
    is_retained: bool = False
    extras: bytes | None = None
    """MQTT properties as receivers get them; None: not encoded yet."""
    direct: tuple[str, ...] = ()
    """Sites to whose logs the edge has appended it itself (M33)."""
    owner: str = ""
    """The owner of the session that published it, unless it is signed; only the same owner may replace or cancel it."""

    def __post_init__(self) -> None:
        _check_length("owner", self.owner, OWNER_CHARACTERS_MAX)
        if not _may_forward(self.sender, self.message):
            raise Malformed(Reason.SOURCE_FORGED, f"{self.sender} forwards a message of {shown(self.message.source)}")


def _may_forward(sender: EdgeRef, message: Message) -> bool:
    """Return whether the source of a message is one for which its sender speaks.

    An edge forwards messages of its clients, its own, and answers of services that it received for its clients. A service
    forwards its own messages only.
    """
    source = message.source
    if sender.edge.startswith(SERVICE_MARK):
        return source == service_source(sender.edge.removeprefix(SERVICE_MARK))
    match kind_of_source(source):
        case SourceKind.ENDPOINT:
            return True
        case SourceKind.EDGE:
            return name_of_source(source) == sender.edge
        case SourceKind.SERVICE:
            return isinstance(message.address, ToContent | ToEndpoint)


@dataclass(frozen=True, slots=True)
class HeldSubscription:
    """A subscription of an endpoint as stored in its session."""

    name: str
    subscription: Subscription
    no_local: bool = False
    retain_as_published: bool = False
    since: Mapping[str, int] = field(default_factory=dict)
    """By stream, and for all others under `ANY_EDGE`: later numbers are of messages published after the subscription was made."""


class QueuedMessage(NamedTuple):
    """A message that is queued for an endpoint, or was sent and not acknowledged."""

    packet_id: int
    """Its packet id; rows are in the order of delivery."""
    qos: int
    is_sent: bool
    """Whether the endpoint may have received it."""
    is_released: bool
    subscription_ids: tuple[int, ...]
    has_retain_flag: bool
    forwarded_by: str
    """The edge at which it was published, as SITE/EDGE; empty if it was not forwarded."""
    forwarded_number: int
    publication: bytes
    """The stored publication; empty if it is released: the endpoint has it, only the QoS 2 exchange is open.

    A message too large for one record is in several rows, one after the other, with the same packet id.
    """


class NotifiedIncident(NamedTuple):
    """An incident of which an endpoint was notified by area messages."""

    source: SourceId
    incident: str
    id: int
    """Id of the last message; 0: it was not delivered."""
    had_earlier: bool
    """Whether there was an earlier message."""
    until: Instant
    """When the entry expires."""
    signer: str = ""
    """The signer of its messages, or the owner of the session that published them; empty: neither."""


@dataclass(frozen=True, slots=True)
class Handover:
    """The session of an endpoint, for the edge where the endpoint is now (D8)."""

    endpoint: EndpointId
    epoch: Epoch
    """Epoch of the claim that it answers."""
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    is_complete: bool = True
    """Whether the sender waits for no data of an earlier residency."""
    has_session: bool = True
    """Whether there was a session at all."""
    expiry_ns: int = 0
    place: Place | None = None
    subscriptions: tuple[HeldSubscription, ...] = ()
    queued: tuple[QueuedMessage, ...] = ()
    received: tuple[int, ...] = ()
    cursors: Mapping[str, int] = field(default_factory=dict)
    """By stream: the endpoint was served from it up to this number."""
    offset: int = 0
    """The next offset of cross-hub that the sender reads."""
    as_of: Instant = NEVER
    """When the last record that the sender has read was appended."""
    parts: int = 0
    """Number of `HandoverPart` that follow."""
    began: Epoch = NO_EPOCH
    """The last epoch under which the session was served."""
    clean_start_epoch: Epoch = NO_EPOCH
    """As in the claim: when the endpoint last started a new session, as far as the sender knows."""
    awaits: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    """Sites whose `MissedMessages` are still outstanding, with the ids of the handovers that they answer."""
    offsets: Mapping[str, int] = field(default_factory=dict)
    """By site that the endpoint has left: the offset of that site's cross-hub up to which it was served there."""
    notified: tuple[NotifiedIncident, ...] = ()
    """The incidents it was notified of, so that it is not notified again and receives the all-clear."""
    user: str = ""
    """The proven user whose session it is; empty: none."""
    role: str = ""
    """The role in the certificate of the endpoint whose session it is; empty: it has none."""
    kept_since: Epoch = NO_EPOCH
    """As in the claim of the sender."""

    def __post_init__(self) -> None:
        _check_length("user", self.user, OWNER_CHARACTERS_MAX)
        _check_length("role", self.role, OWNER_CHARACTERS_MAX)
        if len(self.awaits) > AWAITED_SITES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"awaits has {len(self.awaits)} sites, at most {AWAITED_SITES_MAX} are allowed")
        for site, handovers in self.awaits.items():
            _check_length("awaits: the name of a site", site, EDGE_REF_CHARACTERS_MAX)
            if len(handovers) > AWAITED_HANDOVERS_MAX:
                raise Malformed(
                    Reason.FIELD_RANGE, f"awaits has {len(handovers)} handovers, at most {AWAITED_HANDOVERS_MAX} are allowed"
                )
            for one in handovers:
                _check_length("awaits: the id of a handover", one, HANDOVER_ID_CHARACTERS_MAX)

    @property
    def id(self) -> str:
        """The id of the handover: its sender, and the number that the sender gave it."""
        return f"{self.sender} {self.number}"


@dataclass(frozen=True, slots=True)
class HandoverPart:
    """More subscriptions and messages of a handover that was too large for one record."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    queued: tuple[QueuedMessage, ...] = ()
    subscriptions: tuple[HeldSubscription, ...] = ()


@dataclass(frozen=True, slots=True)
class MissedMessages:
    """Messages of a site that a moving endpoint lacks, for this endpoint alone; found by the central hub."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    """The central hub, for the site that it read: SITE/@hub."""
    receiver: EdgeRef
    number: int
    handover: str
    """The id of the handover that it answers: one claim may be answered by several."""
    messages: tuple[ForwardedMessage, ...] = ()
    is_last: bool = True
    """Whether this is the last record of this site for this move."""

    def __post_init__(self) -> None:
        _check_length("handover", self.handover, HANDOVER_ID_CHARACTERS_MAX)


@dataclass(frozen=True, slots=True)
class HandoverTaken:
    """A handover has arrived and is stored: its sender may withdraw the endpoint's subscriptions."""

    endpoint: EndpointId
    epoch: Epoch
    sender: EdgeRef
    receiver: EdgeRef
    number: int
    subscriptions: tuple[HeldSubscription, ...] = ()


@dataclass(frozen=True, slots=True)
class EndpointClaim:
    """An endpoint is at an edge (D8); a record without value withdraws the claim: the edge has no state of the endpoint left."""

    endpoint: EndpointId
    edge: EdgeRef
    epoch: Epoch
    clean_start_epoch: Epoch = NO_EPOCH
    """When the endpoint last started a new session: older sessions at other edges are discarded, not handed over."""
    asks_prior_edge: bool = False
    """Whether the edge asks for an earlier residency at another site (`PriorEdge`)."""
    place: Place | None = None
    proof: int = 0
    """How the identity of its client is proven (`IdentityProof`); a higher number is stronger."""
    owner: str = ""
    """The owner of the session (`ClientIdentity.owner`); empty: anonymous."""
    kept_since: Epoch = NO_EPOCH
    """Since when its owner has the endpoint: of two owners with equal proof the earlier wins; `NO_EPOCH`: it yields to others."""

    def __post_init__(self) -> None:
        _check_length("owner", self.owner, OWNER_CHARACTERS_MAX)


class EndpointPosition(NamedTuple):
    """The last position of an endpoint."""

    endpoint: EndpointId
    place: Place
    heading_deg: float | None
    speed_mps: float | None
    seen_at: Instant


@dataclass(frozen=True, slots=True)
class EndpointPositions:
    """The last positions of those endpoints of an edge that moved."""

    edge: EdgeRef
    positions: tuple[EndpointPosition, ...]


@dataclass(frozen=True, slots=True)
class ClaimNotice:
    """To the edge that serves an endpoint: another edge has claimed it, hand it over (D8)."""

    claim: EndpointClaim


@dataclass(frozen=True, slots=True)
class PriorEdge:
    """To the edge that has claimed an endpoint: the endpoint's previous edge, if at another site."""

    endpoint: EndpointId
    epoch: Epoch
    edge: EdgeRef | None


@dataclass(frozen=True, slots=True)
class PrepareHandover:
    """To the edge that an endpoint moves towards: its subscriptions."""

    endpoint: EndpointId
    edge: EdgeRef
    """The edge that serves it now."""
    epoch: Epoch
    subscriptions: tuple[HeldSubscription, ...] = ()


@dataclass(frozen=True, slots=True)
class Interest:
    """A subscription of an endpoint at an edge (D7)."""

    edge: EdgeRef
    """The edge is `ANY_EDGE` when the central hub announces the subscription for a whole site."""
    subscription: Subscription


@dataclass(frozen=True, slots=True)
class EdgeInfo:
    """An edge: its coverage and its address."""

    edge: EdgeRef
    coverage: Area | None = None
    """None: everywhere."""
    outside_squares: tuple[tuple[int, int], ...] = ()
    """Squares of `OUTSIDE_SQUARE_DEG` (row, column) outside the coverage in which it has endpoints."""
    address: str = ""
    """Where endpoints connect, as `mqtt://HOST:PORT`; empty if it is not advertised."""


OUTSIDE_SQUARE_DEG: Final = 0.05


@dataclass(frozen=True, slots=True)
class HubInfo:
    """Heartbeat of a process of the central hub."""

    name: str
    sites: tuple[str, ...]
    at: Instant


SiteRecord = (
    ForwardedMessage
    | Handover
    | HandoverPart
    | MissedMessages
    | HandoverTaken
    | EndpointClaim
    | EndpointPositions
    | ClaimNotice
    | PriorEdge
    | PrepareHandover
    | Interest
    | EdgeInfo
    | HubInfo
)
"""All records in the log of a site."""

CROSS_HUB: Final = "reserved.cross-hub"
SUBSCRIPTION_INFO: Final = "reserved.subscription-info"
VEHICLE_INFO: Final = "reserved.update-vehicle-info"


def service_sender(name: str) -> str:
    """Return the name of a service where the name of an edge is expected: no edge can have it."""
    return f"{SERVICE_MARK}{name}"


def source_of_sender(sender: EdgeRef) -> SystemSource:
    """Return the source of the messages that an edge or a service publishes itself."""
    if sender.edge.startswith(SERVICE_MARK):
        return service_source(sender.edge.removeprefix(SERVICE_MARK))
    return edge_source(sender.edge)


def inbox_topic(edge: EdgeRef) -> str:
    """Return the topic of records from the central hub and handlers to an edge."""
    return f"reserved.subscription-{edge.site}-{edge.edge}"


def handler_topic(handler: str) -> str:
    """Return the topic of messages from edges to a handler."""
    return f"reserved.publish-{handler}"


def interest_key(edge: EdgeRef, endpoint: str, name: str) -> str:
    """Return the key under which an edge announces a subscription; a record without value withdraws it."""
    return f"{edge}\n{endpoint}\n{name}"


def edge_key(edge: EdgeRef) -> str:
    """Return the key of an edge's `EdgeInfo`."""
    return f"@{edge}"


def claim_key(endpoint: str, edge: EdgeRef) -> str:
    """Return the key under which an edge claims an endpoint; a record without value withdraws the claim."""
    return f"{endpoint}\n{edge}"


def claim_of_key(key: str) -> tuple[EndpointId, EdgeRef]:
    """Return the endpoint and the edge in the key of a claim; raises ValueError."""
    endpoint, _, edge = key.rpartition("\n")
    return endpoint_id(endpoint), edge_ref(edge)
