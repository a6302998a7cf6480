"""The values of the client interface: publications, subscription requests, received messages."""

from dataclasses import dataclass, field

from milepost.model.addresses import Address, ToContent
from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason
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
    is_signed: bool = False
    """Whether an edge certified by the certificate authority signed it, so that it originates from the system itself."""

    @property
    def message(self) -> Message:
        """The same as a model `Message`; an unknown source becomes `UNKNOWN_SOURCE`, an unknown `seen_at` the time of receipt."""
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


def check_qos(qos: int) -> None:
    """Raise `Malformed` for an invalid QoS."""
    if qos not in (0, 1, 2):
        raise Malformed(Reason.FIELD_RANGE, f"qos is {qos!r}, not 0, 1 or 2")
