"""Subscriptions that the endpoint wants at the edge.

Invariants:
- an id is not reused soon after its subscription ended: a late answer would be taken for one to the new subscription;
- if messages still arrive for an ended subscription, UNSUBSCRIBE is sent again: the edge may have missed it, or have received an
  older copy of SUBSCRIBE later.
"""

from collections.abc import Iterable
from typing import Final

from milepost.client.subscriptions import ClientSubscriptions
from milepost.model.endpoints import EndpointId
from milepost.model.session_datagrams import SubscriptionName
from milepost.model.subscriptions import Subscription, SubscriptionId

ENDED_MAX: Final = 1_000
"""Maximum ended subscriptions remembered."""


class UdpSubscriptions(ClientSubscriptions[Subscription]):
    """All subscriptions of an endpoint, and the most recently ended ones."""

    def __init__(self, owner: EndpointId) -> None:
        super().__init__()
        self._owner = owner
        self._granted: set[int] = set()
        self._ended: dict[int, None] = {}

    def is_free(self, subscription_id: int) -> bool:
        """Return whether the id is unused and no late answer can refer to it."""
        return super().is_free(subscription_id) and subscription_id not in self._ended

    def add(self, subscription: Subscription) -> None:
        """Add a subscription."""
        self._entries[subscription.id] = subscription
        self._ended.pop(subscription.id, None)

    def grant(self, subscription_id: int) -> None:
        """Record that the edge granted a subscription."""
        if subscription_id in self._entries:
            self._granted.add(subscription_id)

    def is_granted(self, subscription_id: int) -> bool:
        """Return whether an edge granted the subscription before."""
        return subscription_id in self._granted

    def remove(self, subscription_id: int) -> None:
        """End a subscription."""
        self._granted.discard(subscription_id)
        if self._entries.pop(subscription_id, None) is not None:
            self._ended[subscription_id] = None
        if len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]

    def ended_among(self, matches: Iterable[SubscriptionId]) -> list[SubscriptionName]:
        """Return the ended subscriptions among those that a message matches."""
        return [SubscriptionName(self._owner, subscription_id) for subscription_id in matches if subscription_id in self._ended]
