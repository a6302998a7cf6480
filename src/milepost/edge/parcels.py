"""Parcels: messages on their way through an edge, and the shapes in which they are handed out.

A parcel is made for every message that needs more than being passed on as it came. It is a `Message` taken apart: millions
pass, and most are never asked for the whole. A delivery is a parcel as some takers get it; all takers that get it alike share
one, so that a message to a thousand endpoints is a parcel, a few deliveries and a thousand numbers.
"""

from collections.abc import Callable, Mapping
from typing import Final

from milepost.model.addresses import Address, ToContent
from milepost.model.endpoints import EndpointId
from milepost.model.instants import FOREVER, Instant
from milepost.model.messages import NO_FIELDS, Message, MessageId, Scalar
from milepost.model.places import Place
from milepost.model.priorities import DEADLINE_NS, Priority
from milepost.model.reasons import Reason
from milepost.model.tags import Tag
from milepost.model.telling import Fate

EDGE_ITSELF: Final = -1
"""The origin of what the edge says of its own accord."""

ELSEWHERE: Final = -2
"""The origin of what another edge or a handler says."""

Heed = Callable[["Parcel", list[EndpointId], Fate, Reason | None], None]
"""Told what became of a message for some endpoints, and why if it was dropped."""

TO_CONTENT: Final = ToContent()
_NO_TAGS: Final[frozenset[Tag]] = frozenset()


class Parcel:
    """One message, where it came from and what its door wants carried along."""

    __slots__ = (
        "address",
        "body",
        "extras",
        "fields",
        "heed",
        "holders",
        "id",
        "is_retained",
        "number",
        "origin",
        "place",
        "priority",
        "qos",
        "said_by",
        "said_number",
        "seen_at",
        "signed",
        "size",
        "source",
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
        source: EndpointId,
        origin: int = EDGE_ITSELF,
        qos: int = 0,
        is_retained: bool = False,
        priority: Priority = Priority.CONVENIENCE,
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
        """The number of the session it came from."""
        self.qos = qos
        self.is_retained = is_retained
        """Whether the sender wants it kept for those who subscribe later."""
        self.priority = priority
        self.valid_until = valid_until
        self.extras = extras
        """MQTT's properties as receivers get them; nothing: nobody has put the message into these words yet."""
        self.tags = tags
        self.place = place
        self.address = address
        self.fields = fields
        self.size = len(topic) + len(body) + len(extras or b"")
        """Bytes it is counted with in a queue."""
        self.id = 0
        """The id that its source gave it; 0 if it has none."""
        self.signed: tuple[bytes, bytes] | None = None
        """Signature and certificate, on what the system says itself."""
        self.said_by = ""
        self.said_number = 0
        """The edge at which it was published, as SITE/EDGE, and its number there; 0 if it did not leave that edge."""
        self.heed: Heed | None = None
        """Nothing: nobody wants to know what becomes of it."""
        self.number = 0
        """Its name in storage, 0 while it has none."""
        self.holders = 0
        """How many kept deliveries refer to it."""

    @property
    def deadline(self) -> int:
        """When it should have arrived: orders messages of one class."""
        wanted = self.seen_at + DEADLINE_NS[self.priority]
        return min(self.valid_until, wanted)

    @property
    def message(self) -> Message:
        """The whole as the model has it."""
        return self.message_as(reliable=self.qos > 0)

    def message_as(self, *, reliable: bool) -> Message:
        """The whole as the model has it; what is signed says itself whether it is to be answered."""
        signature, certificate = self.signed or (b"", b"")
        return Message(
            MessageId(self.id or self.number),
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
    """A parcel as some of its takers get it."""

    __slots__ = ("is_again", "is_from_store", "labels", "parcel", "qos")

    def __init__(
        self, parcel: Parcel, qos: int, labels: tuple[int, ...] = (), *, is_from_store: bool = False, is_again: bool = False
    ) -> None:
        self.parcel = parcel
        self.qos = qos
        self.labels = labels
        """The ids of the taker's subscriptions that matched, those that have one."""
        self.is_from_store = is_from_store
        """Whether the taker is told that the message was retained."""
        self.is_again = is_again
        """Whether it may have been sent before, by a process that died since."""
