"""Subscriptions as the edge is to have them.

What must hold:
- a number is not given out again soon after its subscription ended: a late answer would be taken for one to the new one;
- a subscription that ended and of which messages still come is ended once more: the edge may have missed it, or heard of an older
  repeat of its beginning later.
"""

from collections.abc import Iterable, Iterator
from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.sessions import SubscriptionName
from milepost.model.subscriptions import Subscription, SubscriptionId

LEFT_MAX: Final = 1_000
"""So many that ended are remembered."""


class Wishes:
    """All subscriptions of an endpoint, and those it had."""

    def __init__(self, owner: EndpointId) -> None:
        self._owner = owner
        self._asked: dict[SubscriptionId, Subscription] = {}
        self._left: dict[SubscriptionId, None] = {}

    def __len__(self) -> int:
        return len(self._asked)

    def __iter__(self) -> Iterator[Subscription]:
        return iter(list(self._asked.values()))

    def is_free(self, number: SubscriptionId) -> bool:
        """Whether no answer that may still come is about a subscription of that number."""
        return number not in self._asked and number not in self._left

    def add(self, subscription: Subscription) -> None:
        """Have one."""
        self._asked[subscription.id] = subscription
        self._left.pop(subscription.id, None)

    def remove(self, number: SubscriptionId) -> None:
        """Have it no more."""
        if self._asked.pop(number, None) is not None:
            self._left[number] = None
        if len(self._left) > LEFT_MAX:
            del self._left[next(iter(self._left))]

    def strays(self, matches: Iterable[SubscriptionId]) -> list[SubscriptionName]:
        """Those of the subscriptions that a message came for which ended."""
        return [SubscriptionName(self._owner, number) for number in matches if number in self._left]
