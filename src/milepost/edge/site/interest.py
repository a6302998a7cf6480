"""Interest: who, beyond this edge, wants what is said here: by subscription, so that nothing leaves that nobody wants (D7).

What must hold:
- asked about a topic, it never says no if some message on it may be wanted: areas and frames are not looked at then;
- asked about a message, it is exact, but for areas that move with their owner, who is not here: they count as everywhere;
- `changed` is called when an answer about some topic may have changed, and not for every subscription that comes and goes.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final

from milepost.matching.matcher import Limits, Matcher
from milepost.model.addresses import ToContent
from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId
from milepost.model.frames import ALWAYS
from milepost.model.instants import Instant
from milepost.model.messages import Message, MessageId
from milepost.model.queries import OnTopic
from milepost.model.reasons import Malformed
from milepost.model.subscriptions import Subscription, SubscriptionId

OWNERS_MAX: Final = 65_536
PLANS_MAX: Final = 100_000
_ANYWHERE: Final = ToContent()
_ANYBODY: Final = EndpointId("anybody")
_EVERYTHING: Final = OnTopic("#")

Owners = frozenset[str]


class Interest:
    """Subscriptions of others, by a key of their own and an owner: an edge, a site, a handler, or who is on the move."""

    def __init__(self, changed: Callable[[], None], subscriptions_max: int = 1 << 20) -> None:
        self._changed = changed
        limits = Limits(subscriptions_max, OWNERS_MAX, subscriptions_max)
        self._exact = Matcher(limits)
        self._loose = Matcher(limits)
        """Those with an area or a frame, without it."""
        self._rows: dict[str, tuple[int, int | None, str]] = {}
        self._keys: dict[int, str] = {}
        self._numbers: dict[str, int] = {}
        self._names: list[str] = []
        self._counts: Counter[str] = Counter()
        self._plans: dict[str, Owners] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __contains__(self, key: str) -> bool:
        return key in self._rows

    def put(self, key: str, owner: str, subscription: Subscription) -> None:
        """Somebody wants something, in place of what was under the key."""
        self.take_away(key)
        asked = replace(subscription, id=SubscriptionId(0), share=None)
        if isinstance(asked.area, Around):
            asked = replace(asked, area=None)
        number = self._number_of(owner)
        row = _add(self._exact, number, asked)
        loose = replace(asked, area=None, frame=ALWAYS)
        loose_row = _add(self._loose, number, loose) if loose != asked else None
        query = str(asked.query)
        self._rows[key] = (row, loose_row, query)
        self._keys[row] = key
        self._plans.clear()
        self._counts[query] += 1
        if self._counts[query] == 1:
            self._changed()

    def take_away(self, key: str) -> bool:
        """Nobody wants that any more; tells whether somebody did."""
        if key not in self._rows:
            return False
        self._exact.remove(self._rows[key][0])
        self._forget(key)
        return True

    def expire(self, now: Instant) -> None:
        """Forget what was wanted for a time that is over."""
        for row in self._exact.expire(now):
            self._forget(self._keys[row])

    def is_wanted(self, topic: str, now: Instant) -> bool:
        """Whether any message on a topic may be wanted."""
        if not self._rows:
            return False
        message = Message(MessageId(0), _ANYBODY, topic, now)
        return bool(self._owners(message, now)) or self._loose.rows_wanting(message, now).size > 0

    def wanted_by(self, message: Message, now: Instant) -> Owners:
        """Who wants a message that is addressed to its content."""
        if not self._rows:
            return frozenset()
        return self._owners(message if message.address == _ANYWHERE else replace(message, address=_ANYWHERE), now)

    def _owners(self, message: Message, now: Instant) -> Owners:
        exact = self._exact
        is_plain = not message.tags and (message.place is None or not exact.has_areas)
        if is_plain and (plan := self._plans.get(message.topic)) is not None:
            return plan
        owners = frozenset(self._names[number] for number in exact.owners_of(exact.rows_wanting(message, now)).tolist())
        if is_plain and exact.is_lasting(message) and len(self._plans) < PLANS_MAX:
            self._plans[message.topic] = owners
        return owners

    def _number_of(self, owner: str) -> int:
        if owner not in self._numbers:
            self._numbers[owner] = len(self._names)
            self._names.append(owner)
        return self._numbers[owner]

    def _forget(self, key: str) -> None:
        row, loose_row, query = self._rows.pop(key)
        del self._keys[row]
        if loose_row is not None:
            self._loose.remove(loose_row)
        self._plans.clear()
        self._counts[query] -= 1
        if not self._counts[query]:
            del self._counts[query]
            self._changed()

    def keys(self) -> Iterator[str]:
        """The keys under which something is wanted."""
        return iter(list(self._rows))


def _add(matcher: Matcher, owner: int, asked: Subscription) -> int:
    try:
        return matcher.add(owner, asked)
    except Malformed:  # too many formulas of negations alone: then everything may be wanted there
        return matcher.add(owner, Subscription(asked.owner, _EVERYTHING))
