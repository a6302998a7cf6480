"""Subscriptions: a query, an area and a time window combined; and the notice of a match."""

from dataclasses import dataclass, field
from typing import Final, NewType

from milepost.model.areas import Area, Around
from milepost.model.endpoints import EndpointId, SourceId, endpoint_id, source_id
from milepost.model.instants import Instant, check_instant
from milepost.model.messages import Message, MessageId, check_message_id
from milepost.model.places import Place
from milepost.model.queries import Query, holds
from milepost.model.reasons import Malformed, Reason, shown
from milepost.model.tags import Tag, check_tags, maybe_bad_character
from milepost.model.time_windows import ALWAYS, TimeWindow
from milepost.model.topics import check_topic

SubscriptionId = NewType("SubscriptionId", int)
"""Chosen by the owner, unsigned 32 bits, 0 if there is none; returned with every match."""

SUBSCRIPTION_ID_MAX: Final = 2**32 - 1
SHARE_NAME_CHARACTERS_MAX: Final = 64
SUMMARY_BYTES_MAX: Final = 16_384


@dataclass(frozen=True, slots=True)
class Subscription:
    """A subscription of `owner` by content (query), location (area, fixed or around the owner) and time (time window) (T3).

    With `share`, all subscriptions with that share name and query form a group: each message goes to one of them.
    """

    owner: EndpointId
    query: Query
    area: Area | Around | None = None
    time_window: TimeWindow = field(default=ALWAYS)
    id: SubscriptionId = SubscriptionId(0)
    qos: int = 1
    share: str | None = None

    def __post_init__(self) -> None:
        endpoint_id(self.owner)
        _check_id(self.id)
        if self.qos not in (0, 1, 2):
            raise Malformed(Reason.FIELD_RANGE, f"qos is {self.qos!r}, not 0, 1 or 2")
        if self.share is not None:
            check_share(self.share)

    def matches(self, message: Message, owner_at: Place | None, *, if_unplaced: bool = False) -> bool:
        """Return whether *message* matches query, area and time window while the owner is at *owner_at*.

        `if_unplaced`: the result for an area around an owner whose place is not known.
        """
        if not holds(self.query, message.topic, message.tags) or not self.time_window.holds(message.seen_at):
            return False
        area = self.area
        if isinstance(area, Around):
            if owner_at is None:
                return if_unplaced
            area = area.at(owner_at)
        if area is None:
            return True
        return message.place is not None and bool(area.contains(message.place.vector[None, :])[0])


@dataclass(frozen=True, slots=True)
class Notice:
    """Metadata of a match: enough to decide whether to download, never the content itself (T5)."""

    subscription: SubscriptionId
    message: MessageId
    source: SourceId
    topic: str
    tags: frozenset[Tag]
    place: Place | None
    seen_at: Instant
    summary: bytes = b""
    """A thumbnail or a first line, chosen by the publisher (T2)."""

    def __post_init__(self) -> None:
        _check_id(self.subscription)
        check_message_id(self.message)
        source_id(self.source)
        check_topic(self.topic)
        check_tags(self.tags)
        check_instant("seen_at", self.seen_at)
        if len(self.summary) > SUMMARY_BYTES_MAX:
            raise Malformed(
                Reason.MESSAGE_TOO_LARGE, f"the summary has {len(self.summary)} bytes, {SUMMARY_BYTES_MAX} are allowed"
            )


def notice_of(message: Message, subscription: SubscriptionId, summary: bytes = b"") -> Notice:
    """Return the notice that *message* matched *subscription*."""
    return Notice(subscription, message.id, message.source, message.topic, message.tags, message.place, message.seen_at, summary)


def check_share(name: str) -> None:
    """Raise `Malformed` unless *name* can be a share name."""
    has_mark = maybe_bad_character(name) is not None or any(mark in name for mark in "/+#")
    if has_mark or not 0 < len(name) <= SHARE_NAME_CHARACTERS_MAX:
        raise Malformed(Reason.SHARE_NAME, f"the share name is {shown(name[:40])}")


def _check_id(number: int) -> None:
    if isinstance(number, bool) or not isinstance(number, int) or not 0 <= number <= SUBSCRIPTION_ID_MAX:
        raise Malformed(Reason.FIELD_RANGE, f"the subscription's id is {shown(number)}, not in 0..{SUBSCRIPTION_ID_MAX}")
