"""The values of the client interface: publications, subscription requests, received messages."""

from base64 import b64encode
from dataclasses import dataclass, field

from milepost.model.addresses import Address, ToContent
from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import FOREVER, SECOND_NS, Instant
from milepost.model.messages import Message, MessageId, MessageSigner, Scalar
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.subscriptions import check_share
from milepost.model.tags import Tag
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.model.topics import check_filter

UNKNOWN_SOURCE: EndpointId = EndpointId("unknown")
"""The source of a message when the server does not name its sender."""


@dataclass(frozen=True, slots=True)
class OutgoingMessage:
    """A message to be published; omitted fields have the defaults of `Message`."""

    topic: str
    body: bytes = b""
    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    address: Address = field(default_factory=ToContent)
    priority: Priority = Priority.CONVENIENCE
    seen_at: Instant | None = None
    """None: the time of arrival at the edge."""
    valid_until: Instant | None = None
    valid_for_s: float | None = None
    """Alternative to `valid_until`: validity from the time of publishing, rounded up to whole seconds in transit."""
    qos: int = 0
    retain: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    """User properties of the application."""
    is_signed: bool = False
    """Whether the operator signs it; everything in it is then stated by the client, and nothing filled in by the edge."""

    def __post_init__(self) -> None:
        check_qos(self.qos)
        if self.valid_for_s is not None and self.valid_until is not None:
            raise Malformed(Reason.FIELD_RANGE, "valid_for_s and valid_until both set the end of validity: give one of the two")
        if self.valid_for_s is not None and not self.valid_for_s > 0:
            raise Malformed(Reason.FIELD_RANGE, f"valid_for_s is {self.valid_for_s!r}, not above 0")


@dataclass(frozen=True, slots=True)
class SubscriptionRequest:
    """The content of a subscription."""

    filter: str = "#"
    query: Query | None = None
    area: Area | Around | None = None
    time_window: TimeWindow = ALWAYS
    time_window_text: str = ""
    """The time window as text, for the edge's clock to resolve; after the first request `time_window` is used instead."""
    qos: int = 1
    share: str | None = None

    def __post_init__(self) -> None:
        check_filter(self.filter)
        check_qos(self.qos)
        if self.share is not None:
            check_share(self.share)


@dataclass(frozen=True, slots=True)
class ReceivedMessage:
    """A received message."""

    topic: str
    body: bytes
    received_at: Instant
    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    source: SourceId | None = None
    """The sender; None if the edge does not name it."""
    seen_at: Instant | None = None
    valid_until: Instant = FOREVER
    priority: Priority = Priority.CONVENIENCE
    address: Address = field(default_factory=ToContent)
    qos: int = 0
    is_retained: bool = False
    """Whether it is a retained message from before the subscription."""
    is_redelivery: bool = False
    """Whether this is a redelivery (DUP), and so possibly a duplicate."""
    properties: tuple[tuple[str, str], ...] = ()
    """User properties of the sender."""
    id: MessageId | None = None
    """Together with `source` the permanent name of the message; None over MQTT, which does not transmit it."""
    signer: MessageSigner | None = None
    """The edge, service or operator whose signature was verified; None: it is not signed, or the client trusts no authority."""
    signed_message: Message | None = None
    """The message as it was signed, with signature and certificate."""

    @property
    def is_signed(self) -> bool:
        """Whether its signature was verified."""
        return self.signer is not None

    @property
    def message(self) -> Message:
        """The same as a model `Message`; an unknown source becomes `UNKNOWN_SOURCE`, an unknown `seen_at` the time of receipt."""
        if self.signed_message is not None:
            return self.signed_message
        seen_at = self.received_at if self.seen_at is None else self.seen_at
        return Message(
            MessageId(self.received_at) if self.id is None else self.id,
            self.source or UNKNOWN_SOURCE,
            self.topic,
            seen_at,
            self.tags,
            self.address,
            self.place,
            max(self.valid_until, seen_at),
            self.priority,
            self.qos > 0,
            body=self.body,
        )


def message_of(publication: OutgoingMessage, source: EndpointId, number: MessageId, now: Instant) -> Message:
    """Return a publication as a message of this endpoint; its user properties become fields."""
    fields = dict(publication.properties)
    if len(fields) < len(publication.properties):
        raise Malformed(Reason.FIELD_RANGE, "two properties have the same name; over udp and in signed messages each occurs once")
    return Message(
        number,
        source,
        publication.topic,
        now if publication.seen_at is None else publication.seen_at,
        publication.tags,
        publication.address,
        publication.place,
        _valid_until(publication, now),
        publication.priority,
        publication.qos > 0,
        fields,
        publication.body,
    )


def _valid_until(publication: OutgoingMessage, now: Instant) -> Instant:
    if publication.valid_for_s is not None:
        return Instant(now + round(publication.valid_for_s * SECOND_NS))
    return FOREVER if publication.valid_until is None else publication.valid_until


def received_from_message(message: Message, now: Instant, signer: MessageSigner | None) -> ReceivedMessage:
    """Return the received message; all its fields become user properties. `signer`: its verified signer, if any."""
    return ReceivedMessage(
        message.topic,
        message.body,
        now,
        message.tags,
        message.place,
        message.source,
        message.seen_at,
        message.valid_until,
        message.priority,
        message.address,
        qos=1 if message.reliable else 0,
        properties=tuple((name, _text_of(value)) for name, value in message.fields.items()),
        id=message.id,
        signer=signer,
        signed_message=None if signer is None else message,
    )


def _text_of(value: Scalar) -> str:
    match value:
        case str():
            return value
        case bool():  # before int, its base class
            return "true" if value else "false"
        case bytes():
            return b64encode(value).decode()
        case int() | float():
            return repr(value)
        case _:
            raise AssertionError(f"a field contains {shown(value)}")


def check_qos(qos: int) -> None:
    """Raise `Malformed` for an invalid QoS."""
    if qos not in (0, 1, 2):
        raise Malformed(Reason.FIELD_RANGE, f"qos is {qos!r}, not 0, 1 or 2")
