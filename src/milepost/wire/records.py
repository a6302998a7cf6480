"""Records of a site's log: values ↔ JSON, one object each, identified by its `type`.

Invariants:
- every record carries the version of its form as its first member (`v`); a record of a newer version is refused as such;
- members with their default value are absent; instants and numbers that may need 64 bits are texts, edges are `SITE/EDGE`;
- messages, subscriptions and areas have the form of `wire.json_form`;
- a log has many writers: every fault is `Malformed`, and affects only that record;
- records for pipelines hold columns of many rows, all equally long; unknown and invalid numbers (such as the latitude of a report
  that was refused for it) are null.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import msgspec
import numpy as np
import orjson
from numpy.typing import NDArray

from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.pipeline_records import MICROSECOND_NS, Reputation, ScoreReason
from milepost.model.site_records import (
    NEVER,
    NO_EPOCH,
    ClaimNotice,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    ForwardedMessage,
    Handover,
    HandoverPart,
    HandoverTaken,
    HeldSubscription,
    HubInfo,
    Interest,
    MissedMessages,
    NotifiedIncident,
    PrepareHandover,
    PriorEdge,
    QueuedMessage,
    SiteRecord,
    edge_ref,
)
from milepost.wire.json_form import MessageForm, PlaceForm, SubscriptionForm
from milepost.wire.json_form.codec import VERSION, Codec, Form, Notation, Standalone, Whole, absent
from milepost.wire.json_form.field_codecs import Base64, Digits, EndpointName, GeoArea, SourceName, text_of

REPUTATION_BYTES_MAX: Final = 10_000

Numbers = NDArray[Any]


@dataclass(frozen=True, slots=True, eq=False)
class ReportRecord:
    """Position reports that an edge received, as columns; unknown numbers are NaN."""

    edge: EdgeRef
    endpoints: Sequence[str]
    seen_at: Numbers
    """Nanoseconds; microseconds in the record."""
    latitudes: Numbers
    longitudes: Numbers
    headings_deg: Numbers
    speeds_mps: Numbers
    verdicts: Numbers
    """0, or the number of the reason for which the report was refused."""
    covered: Numbers
    """As in `CoveringEdge`."""


def reports_to_record(reports: ReportRecord) -> bytes:
    """Return the bytes of a record of reports."""
    return _columns_to_record(
        {
            "v": VERSION,
            "type": "reports",
            "edge": str(reports.edge),
            "endpoints": reports.endpoints,
            "seen_at_us": reports.seen_at // MICROSECOND_NS,
            "latitudes": reports.latitudes,
            "longitudes": reports.longitudes,
            "headings_deg": reports.headings_deg,
            "speeds_mps": reports.speeds_mps,
            "verdicts": reports.verdicts,
            "covered": reports.covered,
        }
    )


@dataclass(frozen=True, slots=True)
class DeliveryRecord:
    """The delivery of one area message to some endpoints, as columns."""

    edge: EdgeRef
    source: str
    id: int
    topic: str
    endpoints: Sequence[str]
    states: Sequence[str]
    """As in `DeliveryState`."""
    at_us: Sequence[int]
    reasons: Sequence[int]
    """0, or the number of the reason for which the message was dropped."""


def deliveries_to_record(deliveries: DeliveryRecord) -> bytes:
    """Return the bytes of a record of deliveries."""
    return _columns_to_record(
        {
            "v": VERSION,
            "type": "deliveries",
            "edge": str(deliveries.edge),
            "source": deliveries.source,
            "id": str(deliveries.id),
            "topic": deliveries.topic,
            "endpoints": deliveries.endpoints,
            "states": deliveries.states,
            "at_us": deliveries.at_us,
            "reasons": deliveries.reasons,
        }
    )


def _columns_to_record(columns: dict[str, object]) -> bytes:
    contiguous = {name: np.ascontiguousarray(one) if isinstance(one, np.ndarray) else one for name, one in columns.items()}
    return orjson.dumps(contiguous, option=orjson.OPT_SERIALIZE_NUMPY)  # encodes arrays without converting them to lists


# Reputation of endpoints.


class ScoreReasonForm(Form, frozen=True):
    """A reason for a score."""

    MODEL = ScoreReason
    evidence: str
    count: Whole


def _reputation(endpoint: EndpointId, score: float, at_us: int, reasons: tuple[ScoreReason, ...]) -> Reputation:
    return Reputation(endpoint, score, Instant(at_us * MICROSECOND_NS), reasons)


class ReputationForm(Standalone, frozen=True, tag="reputation"):
    """The reputation of an endpoint."""

    MODEL = _reputation
    endpoint: EndpointName
    score: float
    at_us: Whole
    reasons: tuple[ScoreReasonForm, ...] = ()


_REPUTATION: Final = Codec[Reputation]("reputation", ReputationForm, bytes_max=REPUTATION_BYTES_MAX)


def reputation_from_record(data: bytes) -> Reputation:
    """Return the reputation of a record; raises only `Malformed`."""
    return _REPUTATION.decode(data)


RECORD_BYTES_MAX: Final = 64_000_000
"""Maximum bytes of a record; the limits of logs are lower."""


def to_record(value: SiteRecord) -> bytes:
    """Return the bytes of a record."""
    return _CODEC.encode(value)


def from_record(data: bytes) -> SiteRecord:
    """Return the value of a record; raises only `Malformed`."""
    return _CODEC.decode(data)


def record_prefix(kind: str) -> bytes:
    """Return the first bytes of every record of a type."""
    return b'{"v":%d,"type":"%b"' % (VERSION, kind.encode())


# The head of a message's record, read from its first bytes without parsing the rest: it suffices for most reads of a log.
#
#     {"v":1,"type":"forwarded","from":"SITE/EDGE","number":"17" … "topic":"t/a" … }
#                                      publisher and position      plain messages only
#
# Only records exactly as written by `to_record` have a head; all others must be parsed. The audience of a plain message
# depends on its topic alone: it is addressed to matching subscriptions, has no area and no expiry, and is not retained.

_DIGITS: Final = rb"(?:0|[1-9][0-9]{0,18})"
_OCTETS: Final = rb"[A-Za-z0-9+/]*+={0,2}"
_PLAIN: Final = (
    rb'(?:,"qos":[12])?(?:,"extras":"%(octets)s")?'
    rb',"message":\{"type":"message","id":"%(digits)s","source":"[ !#-\[\]-~]+"'
    rb',"topic":"([ !$-*,-\[\]-~]+)","seen_at":"[0-9T:.-]+Z"(?:,"reliable":true)?(?:,"body":"%(octets)s")?\}\}\Z'
) % {b"octets": _OCTETS, b"digits": _DIGITS}
_FORWARDED: Final = re.compile(
    re.escape(record_prefix("forwarded"))
    + rb',"from":"([A-Za-z0-9_-]+)/([A-Za-z0-9_-]+)","number":"(%b)"(?:%b)?' % (_DIGITS, _PLAIN)
)


class RecordHead(NamedTuple):
    """The origin of a message, and its topic if the audience depends on that alone."""

    site: str
    sender: str
    """The edge, as SITE/EDGE."""
    number: int
    topic: str | None
    """The topic of a plain message; None for all others."""


def head_of(value: bytes) -> RecordHead | None:
    """Return the head of a message's record; None for other records and other spellings."""
    found = _FORWARDED.match(value)
    if found is None:
        return None
    site, edge, number, topic = found.groups()
    name = site.decode()
    return RecordHead(name, f"{name}/{edge.decode()}", int(number), topic.decode() if topic is not None else None)


class EdgeRefText(Notation):
    """An edge, as SITE/EDGE."""

    write = staticmethod(str)

    @staticmethod
    def read(value: object) -> EdgeRef:
        """Return the edge."""
        return edge_ref(text_of(value))


def _no_numbers() -> dict[str, Digits]:
    return msgspec.field(default_factory=dict)


# Messages, subscriptions, edges and the central hub.


class ForwardedMessageForm(Standalone, frozen=True, kw_only=True, tag="forwarded"):
    """A message that its edge forwarded."""

    MODEL = ForwardedMessage
    sender: EdgeRefText = msgspec.field(name="from")
    number: Digits
    qos: Whole = 0
    is_retained: bool = msgspec.field(name="retained", default=False)
    extras: Base64 = absent(None)
    direct: tuple[str, ...] = ()
    owner: str = ""
    message: MessageForm


class InterestForm(Standalone, frozen=True, tag="interest"):
    """A subscription at an edge."""

    MODEL = Interest
    edge: EdgeRefText
    subscription: SubscriptionForm


class EdgeInfoForm(Standalone, frozen=True, tag="edge"):
    """An edge."""

    MODEL = EdgeInfo
    edge: EdgeRefText
    coverage: GeoArea = absent(None)
    outside_squares: tuple[tuple[Whole, Whole], ...] = ()
    address: str = ""


class HubInfoForm(Standalone, frozen=True, tag="hub"):
    """The central hub."""

    MODEL = HubInfo
    name: str
    sites: tuple[str, ...]
    at: Digits


# Locations of endpoints.


class ClaimForm(Standalone, frozen=True, tag="claim"):
    """An endpoint is at an edge."""

    MODEL = EndpointClaim
    endpoint: EndpointName
    edge: EdgeRefText
    epoch: Digits
    clean_start_epoch: Digits = absent(NO_EPOCH)
    asks_prior_edge: bool = False
    place: PlaceForm = absent(None)
    proof: Whole = 0
    owner: str = ""
    kept_since: Digits = absent(NO_EPOCH)


class ClaimNoticeForm(Standalone, frozen=True, tag="claimed"):
    """Another edge has claimed an endpoint."""

    MODEL = ClaimNotice
    claim: ClaimForm


class PriorEdgeForm(Standalone, frozen=True, tag="prior"):
    """The previous edge of an endpoint."""

    MODEL = PriorEdge
    endpoint: EndpointName
    epoch: Digits
    edge: EdgeRefText = absent(None)


class PlacePair(PlaceForm, frozen=True, array_like=True):
    """A place as latitude and longitude."""


class EndpointPositionRow(Form, frozen=True, array_like=True):
    """The last position of an endpoint, as an array because there are many."""

    MODEL = EndpointPosition
    endpoint: EndpointName
    place: PlacePair
    heading_deg: float | None
    speed_mps: float | None
    seen_at: Digits


class EndpointPositionsForm(Standalone, frozen=True, tag="positions"):
    """The last positions of endpoints at an edge."""

    MODEL = EndpointPositions
    edge: EdgeRefText
    positions: tuple[EndpointPositionRow, ...]


# Handover of a session from one edge to another.


class HeldSubscriptionForm(Form, frozen=True):
    """A subscription as stored in a session."""

    MODEL = HeldSubscription
    name: str
    subscription: SubscriptionForm
    no_local: bool = False
    retain_as_published: bool = False
    since: dict[str, Digits] = _no_numbers()


class QueuedMessageRow(Form, frozen=True, array_like=True):
    """A message queued for an endpoint."""

    MODEL = QueuedMessage
    packet_id: Whole
    qos: Whole
    is_sent: bool
    is_released: bool
    subscription_ids: tuple[Whole, ...]
    has_retain_flag: bool
    forwarded_by: str
    forwarded_number: Digits
    publication: Base64


class NotifiedIncidentRow(Form, frozen=True, array_like=True):
    """An incident that an endpoint was notified of."""

    MODEL = NotifiedIncident
    source: SourceName
    incident: str
    id: Digits
    had_earlier: bool
    until: Digits
    signer: str


class _HandoverRecord(Standalone, frozen=True):
    """Members that all records of a handover begin with."""

    endpoint: EndpointName
    epoch: Digits
    sender: EdgeRefText = msgspec.field(name="from")
    receiver: EdgeRefText = msgspec.field(name="to")
    number: Digits


class HandoverForm(_HandoverRecord, frozen=True, tag="handover"):
    """The state of an endpoint's session."""

    MODEL = Handover
    is_complete: bool = msgspec.field(name="complete", default=True)
    has_session: bool = True
    expiry_ns: Digits = absent(0)
    place: PlaceForm = absent(None)
    subscriptions: tuple[HeldSubscriptionForm, ...] = ()
    queued: tuple[QueuedMessageRow, ...] = ()
    received: tuple[Whole, ...] = ()
    cursors: dict[str, Digits] = _no_numbers()
    offset: Digits = absent(0)
    as_of: Digits = absent(NEVER)
    parts: Whole = 0
    began: Digits = absent(NO_EPOCH)
    clean_start_epoch: Digits = absent(NO_EPOCH)
    awaits: dict[str, tuple[str, ...]] = msgspec.field(default_factory=dict)
    offsets: dict[str, Digits] = _no_numbers()
    notified: tuple[NotifiedIncidentRow, ...] = ()
    user: str = ""
    role: str = ""
    kept_since: Digits = absent(NO_EPOCH)


class HandoverPartForm(_HandoverRecord, frozen=True, tag="handover_part"):
    """A further part of a handover."""

    MODEL = HandoverPart
    queued: tuple[QueuedMessageRow, ...] = ()
    subscriptions: tuple[HeldSubscriptionForm, ...] = ()


class MissedMessagesForm(_HandoverRecord, frozen=True, tag="missed"):
    """Messages that the central hub found for an endpoint."""

    MODEL = MissedMessages
    handover: str
    messages: tuple[ForwardedMessageForm, ...] = ()
    is_last: bool = msgspec.field(name="last", default=True)


class HandoverTakenForm(_HandoverRecord, frozen=True, tag="handover_taken"):
    """Acknowledgement of a handover."""

    MODEL = HandoverTaken
    subscriptions: tuple[HeldSubscriptionForm, ...] = ()


class PrepareHandoverForm(Standalone, frozen=True, tag="prepare"):
    """Announcement of an endpoint that moves towards an edge."""

    MODEL = PrepareHandover
    endpoint: EndpointName
    edge: EdgeRefText
    epoch: Digits
    subscriptions: tuple[HeldSubscriptionForm, ...] = ()


_CODEC: Final[Codec[SiteRecord]] = Codec(
    "record",
    ForwardedMessageForm, InterestForm, EdgeInfoForm, HubInfoForm, ClaimForm, ClaimNoticeForm, PriorEdgeForm,
    EndpointPositionsForm, HandoverForm, HandoverPartForm, MissedMessagesForm, HandoverTakenForm, PrepareHandoverForm,
    bytes_max=RECORD_BYTES_MAX,
)  # fmt: skip
