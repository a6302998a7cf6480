"""Publications: messages on their way through an edge, and the forms in which they are delivered.

A publication is made for every message that cannot be passed on unchanged. It is a `Message` taken apart: there are millions,
and most are never needed as a whole. A delivery is a publication as some receivers get it; all receivers that get it alike share
one, so that a message to a thousand endpoints is one publication, a few deliveries and a thousand packet ids.
"""

from collections.abc import Callable, Mapping
from typing import Final

from milepost.model.addresses import Address, ToContent
from milepost.model.endpoints import EndpointId, SourceId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import NO_FIELDS, Message, MessageId, Scalar
from milepost.model.pipeline_records import DeliveryState
from milepost.model.places import Place
from milepost.model.priorities import DEADLINE_NS, Priority
from milepost.model.reasons import Reason
from milepost.model.tags import Tag

EDGE_ITSELF: Final = -1
"""Origin of messages that the edge itself publishes."""

ELSEWHERE: Final = -2
"""Origin of messages from another edge or a handler."""

DeliveryObserver = Callable[["Publication", list[EndpointId], DeliveryState, Reason | None], None]
"""Called with the delivery state of a message for some endpoints, and the reason if it was dropped."""

TO_CONTENT: Final = ToContent()
_NO_TAGS: Final[frozenset[Tag]] = frozenset()


class Publication:
    """One message, its origin, and data that its listener wants carried along."""

    __slots__ = (
        "address",
        "body",
        "extras",
        "fields",
        "forwarded_by",
        "forwarded_number",
        "id",
        "is_retained",
        "number",
        "observer",
        "origin",
        "place",
        "priority",
        "qos",
        "response_topic",
        "seen_at",
        "signed",
        "signer",
        "size",
        "source",
        "states_priority",
        "stored_references",
        "tags",
        "topic",
        "valid_until",
    )

    def __init__(
        self,
        topic: str,
        body: bytes,
        seen_at: Instant,
        *,
        source: SourceId,
        origin: int = EDGE_ITSELF,
        qos: int = 0,
        is_retained: bool = False,
        priority: Priority | None = None,
        valid_until: Instant = FOREVER,
        extras: bytes | None = b"",
        tags: frozenset[Tag] = _NO_TAGS,
        place: Place | None = None,
        address: Address = TO_CONTENT,
        fields: Mapping[str, Scalar] = NO_FIELDS,
    ) -> None:
        self.topic = topic
        self.body = body
        self.seen_at = seen_at
        self.source = source
        self.origin = origin
        """The number of the publishing session."""
        self.qos = qos
        self.is_retained = is_retained
        """The RETAIN flag: the message is stored for later subscribers."""
        self.priority = Priority.CONVENIENCE if priority is None else priority
        self.states_priority = priority is not None
        """Whether the publisher stated the priority; otherwise its topic or event kind decides."""
        self.valid_until = valid_until
        self.extras = extras
        """MQTT properties as receivers get them; None: not encoded as MQTT yet."""
        self.response_topic = ""
        """The topic in these properties on which the publisher expects an answer; empty: none."""
        self.tags = tags
        self.place = place
        self.address = address
        self.fields = fields
        self.size = len(topic) + len(body) + len(extras or b"")
        """Bytes that count against queue limits."""
        self.id = 0
        """Unique per source; assigned by the publisher or, before it is accepted, by the edge. 0 only until then."""
        self.signed: tuple[bytes, bytes] | None = None
        """Signature and certificate; nothing that the signature covers may be changed."""
        self.signer: str | None = None
        """Its verified signer, or the owner of the session that published it (`trust.alert_origin`); None: as signed."""
        self.forwarded_by = ""
        self.forwarded_number = 0
        """The edge at which it was published, as SITE/EDGE, and its number there; 0 if it did not leave that edge."""
        self.observer: DeliveryObserver | None = None
        """Observer of the message's delivery states; None: not traced."""
        self.number = 0
        """Its number in storage; 0 while it is not stored."""
        self.stored_references = 0
        """How many stored deliveries refer to it."""

    @property
    def is_plain(self) -> bool:
        """Whether it has nothing beyond topic and payload."""
        return not (self.tags or self.fields) and self.place is None and self.address is TO_CONTENT

    @property
    def deadline(self) -> int:
        """Latest time at which it should arrive; orders messages of one class."""
        target = self.seen_at + DEADLINE_NS[self.priority]
        return min(self.valid_until, target)

    @property
    def message(self) -> Message:
        """The publication as a `Message`."""
        return self.message_as(reliable=self.qos > 0)

    def message_as(self, *, reliable: bool) -> Message:
        """Return the publication as a `Message`; a signed one keeps the reliability it was signed with."""
        signature, certificate = self.signed or (b"", b"")
        return Message(
            MessageId(self.id),
            self.source,
            self.topic,
            self.seen_at,
            tags=self.tags,
            address=self.address,
            place=self.place,
            valid_until=self.valid_until,
            priority=self.priority,
            reliable=self.qos > 0 if self.signed else reliable,
            fields=self.fields,
            body=self.body,
            signature=signature,
            certificate=certificate,
        )


class Delivery:
    """A publication as some of its receivers get it."""

    __slots__ = ("has_retain_flag", "is_duplicate", "publication", "qos", "subscription_ids")

    def __init__(
        self,
        publication: Publication,
        qos: int,
        subscription_ids: tuple[int, ...] = (),
        *,
        has_retain_flag: bool = False,
        is_duplicate: bool = False,
    ) -> None:
        self.publication = publication
        self.qos = qos
        self.subscription_ids = subscription_ids
        """Subscription ids of the receiver that matched, as far as there are any."""
        self.has_retain_flag = has_retain_flag
        """Whether the receiver sees the RETAIN flag."""
        self.is_duplicate = is_duplicate
        """Whether it may have been sent before, by a process that has died since (DUP)."""
