"""The subscriptions that a client wants, independent of connections and sessions.

Invariants:
- the id is derived from the content of the subscription, so that a client that restarts under its name receives its queued
  messages in the right inbox;
- at most `SUBSCRIPTIONS_MAX` at a time.
"""

from collections.abc import Iterator
from typing import Final, Generic, TypeVar
from zlib import crc32

from milepost.client.errors import RefusedByEdge
from milepost.client.messages import SubscriptionRequest
from milepost.model.reasons import Reason

SUBSCRIPTIONS_MAX: Final = 1_000
"""Maximum subscriptions of one client."""

SUBSCRIPTION_ID_MAX: Final = 268_435_455
"""The largest Subscription Identifier of MQTT, used for both protocols."""

Entry = TypeVar("Entry")


class ClientSubscriptions(Generic[Entry]):
    """Subscriptions by id; an entry is the protocol's state of one subscription."""

    def __init__(self) -> None:
        self._entries: dict[int, Entry] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[Entry]:
        return iter(list(self._entries.values()))

    def is_free(self, subscription_id: int) -> bool:
        """Return whether a new subscription may use this id."""
        return subscription_id not in self._entries

    def id_for(self, request: SubscriptionRequest) -> int:
        """Return the id for a new subscription, or raise `RefusedByEdge` at the limit."""
        if len(self._entries) >= SUBSCRIPTIONS_MAX:
            raise RefusedByEdge.of(Reason.SUBSCRIPTIONS_FULL, f"a client may have {SUBSCRIPTIONS_MAX} subscriptions")
        time_window = request.time_window_text or request.time_window
        content = (request.filter, request.share, request.query, request.area, time_window, request.qos)
        subscription_id = crc32(repr(content).encode()) % SUBSCRIPTION_ID_MAX + 1
        while not self.is_free(subscription_id):
            subscription_id = subscription_id % SUBSCRIPTION_ID_MAX + 1
        return subscription_id
