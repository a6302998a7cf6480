"""Messages between an endpoint and its edge: session messages, and pub/sub messages with their session (M3, M10).

Invariants:
- INIT, answered by ACKNOWLEDGE with a token, opens a session; every later message carries the token until CLOSE;
- session messages always carry the token (except INIT, and refusals of messages without one); pub/sub messages carry it
  between an endpoint and its edge, and have none between parts that share a log;
- values only: `listeners.udp` decides which message is allowed when.
"""

import re
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NewType

from milepost.model.endpoints import EndpointId, SourceId, endpoint_id, source_id
from milepost.model.instants import SECOND_NS
from milepost.model.messages import Message, MessageId
from milepost.model.multicast_cells import MulticastGrid
from milepost.model.reasons import Malformed, Reason, Refused
from milepost.model.reports import Report
from milepost.model.subscriptions import SUBSCRIPTION_ID_MAX, Notice, Subscription, SubscriptionId

SessionToken = NewType("SessionToken", int)
"""Drawn at random by the edge, unsigned 64 bits, never 0: its bearer acts for the session."""

REPORTING_INTERVAL_NS_MAX: Final = 86_400 * SECOND_NS
KEYS_NS_MAX: Final = 7 * 86_400 * SECOND_NS
RESET_BYTES: Final = 16
DETAIL_CHARACTERS_MAX: Final = 1024
MATCHES_MAX: Final = 64
"""Maximum subscription ids of one delivered message."""

_REASON_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,63}")
_REASON_NUMBER_MAX: Final = 65_535
_REASON_NAMES: Final[dict[int, str]] = {reason.value: reason.name for reason in Reason}


class CloseCause(IntEnum):
    """Why a session ends."""

    DONE = 1
    """The endpoint leaves."""
    SILENT = 2
    """Three reporting intervals without a report (M12)."""
    REPLACED = 3
    """The same endpoint opened a newer session."""
    MOVED = 4
    """Another edge serves the endpoint from now on."""
    STOPPING = 5
    """The edge shuts down."""
    EXPELLED = 6
    """The endpoint broke the rules too often."""


@dataclass(frozen=True, slots=True)
class MessageName:
    """Permanent identity of a message."""

    source: SourceId
    id: MessageId

    def __post_init__(self) -> None:
        source_id(self.source)
        _check_range("id", self.id, 0, 2**64 - 1)


@dataclass(frozen=True, slots=True)
class SubscriptionName:
    """Identity of a subscription: its owner and the id that the owner chose."""

    owner: EndpointId
    id: SubscriptionId

    def __post_init__(self) -> None:
        endpoint_id(self.owner)
        _check_range("id", self.id, 0, SUBSCRIPTION_ID_MAX)


Name = MessageName | SubscriptionName
"""The subject of an acknowledgement or refusal."""


@dataclass(frozen=True, slots=True)
class Init:
    """Request for a session, with the endpoint's first report, so that the edge knows its position at once."""

    report: Report
    former: SessionToken | None = None
    """The session to resume under a new token."""
    joins_multicast: bool = False
    """Whether the endpoint listens to the multicast group of its cell."""

    def __post_init__(self) -> None:
        check_maybe_session(self.former)


@dataclass(frozen=True, slots=True)
class AcknowledgeDatagram:
    """The edge opens the session and asks for a report at least every `reporting_interval_ns`."""

    session: SessionToken
    reporting_interval_ns: int
    edge: EndpointId
    is_resumed: bool = False
    """Whether the former session is resumed, with its subscriptions."""
    reset: bytes = b""
    """Reset token that the edge sends if it no longer knows the session; empty if nothing is sealed."""
    keys_ns: int | None = None
    """Lifetime of the session's keys; None if there are none."""
    cells: MulticastGrid | None = None
    """Multicast groups of area messages; None if they are not multicast."""

    def __post_init__(self) -> None:
        check_session(self.session)
        _check_range("reporting_interval_ns", self.reporting_interval_ns, 1, REPORTING_INTERVAL_NS_MAX)
        endpoint_id(self.edge)
        if len(self.reset) not in (0, RESET_BYTES):
            raise Malformed(Reason.FIELD_RANGE, f"reset has {len(self.reset)} bytes, not {RESET_BYTES}")
        if self.keys_ns is not None:
            _check_range("keys_ns", self.keys_ns, 1, KEYS_NS_MAX)


@dataclass(frozen=True, slots=True)
class ReportSent:
    """A report inside a session; also the endpoint's keepalive (M11)."""

    session: SessionToken
    report: Report

    def __post_init__(self) -> None:
        check_session(self.session)


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """Keepalive of the edge (M11)."""

    session: SessionToken

    def __post_init__(self) -> None:
        check_session(self.session)


@dataclass(frozen=True, slots=True)
class Close:
    """Either side ends the session."""

    session: SessionToken
    cause: CloseCause = CloseCause.DONE

    def __post_init__(self) -> None:
        check_session(self.session)


@dataclass(frozen=True, slots=True)
class Refusal:
    """A refusal with code and name of the reason, so that an older peer can show a reason it does not know."""

    reason: int
    name: str
    detail: str = ""
    about: Name | None = None
    session: SessionToken | None = None

    def __post_init__(self) -> None:
        _check_range("reason", self.reason, 1, _REASON_NUMBER_MAX)
        known = _REASON_NAMES.get(self.reason)
        if _REASON_NAME.fullmatch(self.name) is None or (known is not None and known != self.name):
            raise Malformed(Reason.FIELD_RANGE, f"name is {self.name[:64]!r} for reason {self.reason}")
        if len(self.detail) > DETAIL_CHARACTERS_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"detail has {len(self.detail)} characters, {DETAIL_CHARACTERS_MAX} are allowed")
        check_maybe_session(self.session)


def refusal_of(refused: Refused, about: Name | None = None, session: SessionToken | None = None) -> Refusal:
    """Return the answer to a peer for *refused*; a detail that is too long is cut and ends in "..."."""
    detail = refused.detail
    if len(detail) > DETAIL_CHARACTERS_MAX:
        detail = detail[: DETAIL_CHARACTERS_MAX - 3] + "..."
    return Refusal(refused.reason.value, refused.reason.name, detail, about, session)


@dataclass(frozen=True, slots=True)
class PublishDatagram:
    """An inbound message, or an outbound one with the ids of the receiver's subscriptions that it matched."""

    message: Message
    session: SessionToken | None = None
    matches: tuple[SubscriptionId, ...] = ()

    def __post_init__(self) -> None:
        check_maybe_session(self.session)
        if len(self.matches) > MATCHES_MAX:
            raise Malformed(Reason.FIELD_RANGE, f"matches has {len(self.matches)} ids, {MATCHES_MAX} are allowed")
        for number in self.matches:
            _check_range("matches", number, 0, SUBSCRIPTION_ID_MAX)


@dataclass(frozen=True, slots=True)
class SubscribeDatagram:
    """Request for a subscription; replaces one with the same owner and id."""

    subscription: Subscription
    session: SessionToken | None = None

    def __post_init__(self) -> None:
        check_maybe_session(self.session)


@dataclass(frozen=True, slots=True)
class UnsubscribeDatagram:
    """Request to remove a subscription."""

    subscription: SubscriptionName
    session: SessionToken | None = None

    def __post_init__(self) -> None:
        check_maybe_session(self.session)


@dataclass(frozen=True, slots=True)
class Notify:
    """A match of a subscription: metadata only, the content is fetched separately (T5)."""

    notice: Notice
    session: SessionToken | None = None

    def __post_init__(self) -> None:
        check_maybe_session(self.session)


@dataclass(frozen=True, slots=True)
class ReceivedDatagram:
    """Acknowledgement of a reliable message or a subscription, which need not be repeated."""

    name: Name
    session: SessionToken | None = None

    def __post_init__(self) -> None:
        check_maybe_session(self.session)


SessionMessage = Init | AcknowledgeDatagram | ReportSent | Heartbeat | Close | Refusal
PubSubMessage = PublishDatagram | SubscribeDatagram | UnsubscribeDatagram | Notify | ReceivedDatagram
Datagram = SessionMessage | PubSubMessage
"""Contents of a datagram: the two kinds of M3."""


def check_session(token: int) -> None:
    """Raise `Malformed` unless *token* is a session token."""
    if isinstance(token, bool) or not isinstance(token, int) or not 0 < token < 2**64:
        raise Malformed(Reason.FIELD_RANGE, f"session is {token!r}, not in 1..2^64-1")


def check_maybe_session(token: int | None) -> None:
    """Raise `Malformed` unless *token* is a session token or None."""
    if token is not None:
        check_session(token)


def _check_range(name: str, value: int, lowest: int, highest: int) -> None:
    if isinstance(value, bool) or not isinstance(value, int) or not lowest <= value <= highest:
        raise Malformed(Reason.FIELD_RANGE, f"{name} is {value!r}, not in {lowest}..{highest}")
