"""Interest: which sites want a message, from what their edges say that endpoints ask for (D7).

What must hold:
- a site wants what one of its endpoints asks for; an endpoint that moves takes along what other sites still ask for on its
  behalf, from the moment the register has it at the new site;
- equal wishes of a site are one; a wish counts as the same whoever has it, and whatever its id, quality and share;
- an area that moves with its owner counts as no area; wishes that there is no room for count as a wish for everything;
- a change costs as much as the endpoint that changed has wishes, however many others have.
"""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from typing import Final, NamedTuple

from milepost.matching.matcher import Limits, Matcher
from milepost.model.addresses import ToContent
from milepost.model.areas import Around
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.subscriptions import Subscription
from milepost.wire.json_form import to_json

PLANS_MAX: Final = 100_000
OWNER: Final = EndpointId("centre")
_DIGEST_BYTES: Final = 12
_ANYWHERE: Final = ToContent()

Sites = frozenset[str]


class Asked(NamedTuple):
    """What is asked for, by whomever."""

    digest: str
    subscription: Subscription


class Change(NamedTuple):
    """A site wants something that it did not, or no longer does."""

    site: str
    asked: Asked
    is_wanted: bool


@dataclass(slots=True)
class _Wish:
    site: str
    endpoint: EndpointId
    asked: Asked
    moved_to: str | None
    """Where the endpoint is now, as far as is known."""


@dataclass(slots=True)
class _Loan:
    asked: tuple[Asked, ...]
    until: Instant


def asked_of(subscription: Subscription) -> Asked:
    """What a subscription asks for, without who asks."""
    area = None if isinstance(subscription.area, Around) else subscription.area
    bare = Subscription(OWNER, subscription.query, area, subscription.frame)
    return Asked(blake2b(to_json(bare), digest_size=_DIGEST_BYTES).hexdigest(), bare)


class Interest:
    """The wishes of all sites."""

    def __init__(self, sites: Iterable[str], wishes_max: int = 1 << 20) -> None:
        self._names = list(sites)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._matcher = Matcher(Limits(wishes_max, max(1, len(self._names)), wishes_max))
        self._wishes: dict[tuple[str, str], _Wish] = {}
        self._of: dict[EndpointId, dict[tuple[str, str], _Wish]] = {}
        self._loans: dict[tuple[str, EndpointId], _Loan] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self._changes: list[Change] = []
        self._plans: dict[str, Sites] = {}
        self._wanting_all: Counter[str] = Counter()
        """How many wishes of a site could not be taken apart: it gets everything."""

    def __len__(self) -> int:
        return len(self._counts)

    def put(self, site: str, key: str, endpoint: EndpointId, subscription: Subscription, at: str | None) -> None:
        """An edge says under a key what an endpoint asks for; the register has the endpoint `at` a site."""
        self.take_away(site, key)
        wish = _Wish(site, endpoint, asked_of(subscription), None)
        self._wishes[site, key] = self._of.setdefault(endpoint, {})[site, key] = wish
        self._count_up(site, wish.asked)
        self._move(wish, at)

    def take_away(self, site: str, key: str) -> None:
        """An edge takes back what it said under a key."""
        wish = self._wishes.pop((site, key), None)
        if wish is None:
            return
        others = self._of[wish.endpoint]
        del others[site, key]
        if not others:
            del self._of[wish.endpoint]
        self._move(wish, None)
        self._count_down(site, wish.asked)

    def locate(self, endpoint: EndpointId, at: str | None) -> None:
        """The register has an endpoint at a site."""
        for wish in self._of.get(endpoint, {}).values():
            self._move(wish, at)

    def lend(self, site: str, endpoint: EndpointId, subscriptions: Iterable[Subscription], until: Instant) -> list[Asked]:
        """Count an endpoint's wishes for a site for a while, until its edges say so themselves; gives what is asked for."""
        asked = tuple(asked_of(one) for one in subscriptions)
        before = self._loans.pop((site, endpoint), None)
        self._loans[site, endpoint] = _Loan(asked, until)
        for one in asked:
            self._count_up(site, one)
        if before is not None:
            self._give_back(site, before)
        return list(asked)

    def expire(self, now: Instant) -> None:
        """End what was lent for a while."""
        for (site, endpoint), loan in list(self._loans.items()):  # few: endpoints on the move
            if loan.until <= now:
                del self._loans[site, endpoint]
                self._give_back(site, loan)

    def take_changes(self) -> list[Change]:
        """What changed since this was asked last, in order."""
        changes, self._changes = self._changes, []
        return changes

    def wanted_by(self, message: Message, now: Instant) -> Sites:
        """The sites that want a message for its content."""
        matcher = self._matcher
        is_plain = not message.tags and (message.place is None or not matcher.has_areas)
        if is_plain and (plan := self._plans.get(message.topic)) is not None:
            return plan
        bare = message if message.address == _ANYWHERE else replace(message, address=_ANYWHERE)
        rows = matcher.rows_wanting(bare, now)
        sites = frozenset(self._names[number] for number in matcher.owners_of(rows).tolist()) | self._wanting_all.keys()
        if is_plain and len(self._plans) < PLANS_MAX and not message.is_expired(now) and matcher.is_lasting(bare):
            self._plans[message.topic] = sites
        return sites

    def maybe_wanted_by(self, topic: str) -> Sites | None:
        """The sites that want a plain message on a topic, if that was found out before and holds for all of them."""
        return self._plans.get(topic)

    @property
    def by_site(self) -> Mapping[str, int]:
        """How many different wishes each site has."""
        found = dict.fromkeys(self._names, 0)
        for site, _ in self._counts:
            found[site] += 1
        return found

    def _move(self, wish: _Wish, at: str | None) -> None:
        """Count a wish for the site where its endpoint is, too."""
        if at == wish.moved_to:
            return
        before, wish.moved_to = wish.moved_to, at
        if at is not None:
            self._count_up(at, wish.asked)
        if before is not None:
            self._count_down(before, wish.asked)

    def _give_back(self, site: str, loan: _Loan) -> None:
        for one in loan.asked:
            self._count_down(site, one)

    def _count_up(self, site: str, asked: Asked) -> None:
        which = site, asked.digest
        count = self._counts[which] = self._counts.get(which, 0) + 1
        if count == 1:
            self._begin(site, asked)
            self._changed(Change(site, asked, True))

    def _count_down(self, site: str, asked: Asked) -> None:
        which = site, asked.digest
        self._counts[which] -= 1
        if not self._counts[which]:
            del self._counts[which]
            self._end(site, asked)
            self._changed(Change(site, asked, False))

    def _begin(self, site: str, asked: Asked) -> None:
        try:
            self._rows[site, asked.digest] = self._matcher.add(self._numbers[site], asked.subscription)
        except Malformed:  # more formulas of negations alone than are looked through for each message, or no room
            self._wanting_all[site] += 1

    def _end(self, site: str, asked: Asked) -> None:
        row = self._rows.pop((site, asked.digest), None)
        if row is not None:
            self._matcher.remove(row)
            return
        self._wanting_all[site] -= 1
        if not self._wanting_all[site]:
            del self._wanting_all[site]

    def _changed(self, change: Change) -> None:
        self._plans.clear()
        self._changes.append(change)
