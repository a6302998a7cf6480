"""What a client says and hears: publications, wishes, received messages."""

from dataclasses import dataclass, field

from milepost.model.addresses import Address, ToContent
from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId
from milepost.model.frames import ALWAYS, Frame
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import Message, MessageId
from milepost.model.places import Place
from milepost.model.priorities import Priority
from milepost.model.queries import Query
from milepost.model.reasons import Malformed, Reason
from milepost.model.subscriptions import check_share
from milepost.model.tags import Tag
from milepost.model.topics import check_filter

UNKNOWN: EndpointId = EndpointId("unknown")
"""The source of a message whose server does not tell who sent it."""


@dataclass(frozen=True, slots=True)
class Publication:
    """A message as its sender writes it; what is left out has the default that a message has."""

    topic: str
    body: bytes = b""
    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    address: Address = field(default_factory=ToContent)
    priority: Priority = Priority.CONVENIENCE
    seen_at: Instant | None = None
    """Nothing: when it arrives at the edge."""
    valid_until: Instant | None = None
    valid_for_s: float | None = None
    """In place of `valid_until`: so long from when it is said, rounded up to whole seconds on the way."""
    qos: int = 0
    retain: bool = False
    properties: tuple[tuple[str, str], ...] = ()
    """Names and values of the application's own."""

    def __post_init__(self) -> None:
        check_quality(self.qos)
        if self.valid_for_s is not None and self.valid_until is not None:
            raise Malformed(Reason.FIELD_RANGE, "valid_for_s and valid_until say the same: give one of the two")
        if self.valid_for_s is not None and not self.valid_for_s > 0:
            raise Malformed(Reason.FIELD_RANGE, f"valid_for_s is {self.valid_for_s!r}, not above 0")


@dataclass(frozen=True, slots=True)
class Wish:
    """What a subscription asks for."""

    filter: str = "#"
    query: Query | None = None
    area: Area | Around | None = None
    frame: Frame = ALWAYS
    phrase: str = ""
    """The frame as it was written, for the edge's clock to read; once that was done, `frame` counts."""
    qos: int = 1
    share: str | None = None

    def __post_init__(self) -> None:
        check_filter(self.filter)
        check_quality(self.qos)
        if self.share is not None:
            check_share(self.share)


@dataclass(frozen=True, slots=True)
class Received:
    """A message as it arrived."""

    topic: str
    body: bytes
    received_at: Instant
    tags: frozenset[Tag] = frozenset()
    place: Place | None = None
    source: EndpointId | None = None
    """Who sent it; nothing if the edge does not say."""
    seen_at: Instant | None = None
    valid_until: Instant = FOREVER
    priority: Priority = Priority.CONVENIENCE
    address: Address = field(default_factory=ToContent)
    qos: int = 0
    is_retained: bool = False
    """Whether the edge had kept it from before the subscription."""
    is_again: bool = False
    """Whether the edge sent it before, in which case this may be the second copy."""
    properties: tuple[tuple[str, str], ...] = ()
    """Names and values of the sender's own."""
    id: MessageId | None = None
    """With `source` the message's name for good; nothing over MQTT, where messages have none on their way."""
    is_signed: bool = False
    """Whether an edge of the authority vouches for it: then the system itself said it."""

    @property
    def message(self) -> Message:
        """The same as a message of the model; where nobody says who sent it or when it was seen: `UNKNOWN`, and now."""
        seen_at = self.received_at if self.seen_at is None else self.seen_at
        return Message(
            MessageId(self.received_at) if self.id is None else self.id,
            self.source or UNKNOWN,
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


def check_quality(qos: int) -> None:
    """Refuse a quality of service that does not exist."""
    if qos not in (0, 1, 2):
        raise Malformed(Reason.FIELD_RANGE, f"qos is {qos!r}, not 0, 1 or 2")
