"""Routing: the sites a message goes to, by their subscriptions, endpoints and coverage (D9, M14, M15)."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from hashlib import blake2b
from math import floor
from typing import Final, NamedTuple, assert_never

from milepost.federation.hub_actions import DropReason, HubCounts
from milepost.federation.hub_registry import HubRegistry
from milepost.matching.matcher import Matcher, MatcherLimits
from milepost.model.addresses import ToArea, ToContent, ToEndpoint, ToEveryone, ToNotified
from milepost.model.areas import Area, Around, touches
from milepost.model.endpoints import EndpointId
from milepost.model.instants import Instant
from milepost.model.messages import Message
from milepost.model.reasons import Malformed
from milepost.model.site_records import OUTSIDE_SQUARE_DEG, EdgeInfo, EdgeRef, ForwardedMessage
from milepost.model.subscriptions import Subscription
from milepost.wire.json_form import to_json

# Coverage (M15). Invariant: no site with an endpoint inside an area is left out; a site without one may be included.

CACHED_AREAS_MAX: Final = 1_000
_COLUMNS: Final = round(360 / OUTSIDE_SQUARE_DEG)


class CoverageTable:
    """The edges of all sites, and the areas where their endpoints may be."""

    def __init__(self) -> None:
        self._edges: dict[EdgeRef, EdgeInfo] = {}
        self._cached_sites: dict[Area, frozenset[str]] = {}

    def put(self, info: EdgeInfo) -> None:
        """Add or replace the description of an edge."""
        if self._edges.get(info.edge) != info:
            self._edges[info.edge] = info
            self._cached_sites.clear()

    def remove(self, edge: EdgeRef) -> None:
        """Remove an edge."""
        if self._edges.pop(edge, None) is not None:
            self._cached_sites.clear()

    def edges(self) -> list[EdgeInfo]:
        """Return all edges."""
        return list(self._edges.values())

    def sites_touching(self, area: Area) -> frozenset[str]:
        """Return the sites with an edge that may have an endpoint inside."""
        found = self._cached_sites.get(area)
        if found is None:
            found = frozenset(edge.site for edge, info in self._edges.items() if _may_have_endpoints(info, area))
            if len(self._cached_sites) >= CACHED_AREAS_MAX:
                self._cached_sites.clear()
            self._cached_sites[area] = found
        return found


def _may_have_endpoints(info: EdgeInfo, area: Area) -> bool:
    return info.coverage is None or touches(info.coverage, area) or _has_outside_endpoints(info, area)


def _has_outside_endpoints(info: EdgeInfo, area: Area) -> bool:
    """Return whether a square with endpoints outside the coverage meets one of the boxes around the area."""
    for box in area.boxes if info.outside_squares else ():
        south, north = _square(box.south), _square(box.north)
        west = _square(box.west)
        width = (_square(box.east) - west) % _COLUMNS if box.east - box.west < 360.0 else _COLUMNS
        if any(south <= row <= north and (column - west) % _COLUMNS <= width for row, column in info.outside_squares):
            return True
    return False


def _square(degrees: float) -> int:
    return floor(degrees / OUTSIDE_SQUARE_DEG)


# Interest of sites, from the subscriptions that their edges announce (D7).
#
# Invariants:
# - a site has the interest of its endpoints; the subscriptions that other sites still announce for an endpoint that has moved
#   count for its new site from the moment the registry has it there;
# - equal subscriptions of a site count as one, whatever their owner, id, QoS and share;
# - an area that moves with its owner counts as no area; subscriptions for which there is no room count as interest in everything;
# - the cost of a change is linear in the endpoint's subscriptions, and independent of those of others.

CACHED_TOPICS_MAX: Final = 100_000
HUB_OWNER: Final = EndpointId("hub")
_DIGEST_BYTES: Final = 12
_ANYWHERE: Final = ToContent()

Sites = frozenset[str]


class SharedInterest(NamedTuple):
    """A subscription without its owner: equal ones have one digest."""

    digest: str
    subscription: Subscription


class InterestChange(NamedTuple):
    """A new interest of a site, or the end of one."""

    site: str
    interest: SharedInterest
    is_added: bool


@dataclass(slots=True)
class _AnnouncedInterest:
    site: str
    endpoint: EndpointId
    interest: SharedInterest
    moved_to: str | None
    """The current site of the endpoint, if known."""


@dataclass(slots=True)
class _TemporaryInterest:
    interest: tuple[SharedInterest, ...]
    until: Instant


def shared_interest_of(subscription: Subscription) -> SharedInterest:
    """Return a subscription without its owner, id, QoS and share."""
    area = None if isinstance(subscription.area, Around) else subscription.area
    bare = Subscription(HUB_OWNER, subscription.query, area, subscription.time_window)
    return SharedInterest(blake2b(to_json(bare), digest_size=_DIGEST_BYTES).hexdigest(), bare)


class SiteInterest:
    """The interest of all sites."""

    def __init__(self, sites: Iterable[str], subscriptions_max: int = 1 << 20) -> None:
        self._names = list(sites)
        self._numbers = {name: number for number, name in enumerate(self._names)}
        self._matcher = Matcher(MatcherLimits(subscriptions_max, max(1, len(self._names)), subscriptions_max))
        self._announced: dict[tuple[str, str], _AnnouncedInterest] = {}
        self._by_endpoint: dict[EndpointId, dict[tuple[str, str], _AnnouncedInterest]] = {}
        self._temporary: dict[tuple[str, EndpointId], _TemporaryInterest] = {}
        self._counts: dict[tuple[str, str], int] = {}
        self._rows: dict[tuple[str, str], int] = {}
        self._changes: list[InterestChange] = []
        self._cached_topics: dict[str, Sites] = {}
        self._receiving_all: Counter[str] = Counter()
        """By site, number of subscriptions for which there was no room: such a site receives all messages."""

    def __len__(self) -> int:
        return len(self._counts)

    def put(self, site: str, key: str, endpoint: EndpointId, subscription: Subscription, at: str | None) -> None:
        """Add a subscription of an endpoint that an edge announces under a key; the registry has the endpoint *at* a site."""
        self.remove(site, key)
        entry = _AnnouncedInterest(site, endpoint, shared_interest_of(subscription), None)
        self._announced[site, key] = self._by_endpoint.setdefault(endpoint, {})[site, key] = entry
        self._count_up(site, entry.interest)
        self._relocate(entry, at)

    def remove(self, site: str, key: str) -> None:
        """Remove the subscription under a key."""
        entry = self._announced.pop((site, key), None)
        if entry is None:
            return
        others = self._by_endpoint[entry.endpoint]
        del others[site, key]
        if not others:
            del self._by_endpoint[entry.endpoint]
        self._relocate(entry, None)
        self._count_down(site, entry.interest)

    def locate(self, endpoint: EndpointId, at: str | None) -> None:
        """Note the site at which the registry has an endpoint."""
        for entry in self._by_endpoint.get(endpoint, {}).values():
            self._relocate(entry, at)

    def add_temporary(
        self, site: str, endpoint: EndpointId, subscriptions: Iterable[Subscription], until: Instant
    ) -> list[SharedInterest]:
        """Count an endpoint's subscriptions for a site for a while, until its edges announce them; return them."""
        interest = tuple(shared_interest_of(one) for one in subscriptions)
        before = self._temporary.pop((site, endpoint), None)
        self._temporary[site, endpoint] = _TemporaryInterest(interest, until)
        for one in interest:
            self._count_up(site, one)
        if before is not None:
            self._end_temporary(site, before)
        return list(interest)

    def expire(self, now: Instant) -> None:
        """End expired loans: subscriptions counted for a site for a while."""
        for (site, endpoint), loan in list(self._temporary.items()):  # few: endpoints on the move
            if loan.until <= now:
                del self._temporary[site, endpoint]
                self._end_temporary(site, loan)

    def take_changes(self) -> list[InterestChange]:
        """Return the changes since the last call, in order."""
        changes, self._changes = self._changes, []
        return changes

    def sites_matching(self, message: Message, now: Instant) -> Sites:
        """Return the sites with a subscription that a message matches."""
        matcher = self._matcher
        is_cacheable = not message.tags and (message.place is None or not matcher.has_areas)
        if is_cacheable and (cached := self._cached_topics.get(message.topic)) is not None:
            return cached
        bare = message if message.address == _ANYWHERE else replace(message, address=_ANYWHERE)
        rows = matcher.find_rows(bare, now)
        sites = frozenset(self._names[number] for number in matcher.owners_of(rows).tolist()) | self._receiving_all.keys()
        if (
            is_cacheable
            and len(self._cached_topics) < CACHED_TOPICS_MAX
            and not message.is_expired(now)
            and matcher.is_cacheable(bare)
        ):
            self._cached_topics[message.topic] = sites
        return sites

    def cached_sites(self, topic: str) -> Sites | None:
        """Return the sites that want a plain message on a topic, if that is cached."""
        return self._cached_topics.get(topic)

    @property
    def by_site(self) -> Mapping[str, int]:
        """Number of different subscriptions of each site."""
        found = dict.fromkeys(self._names, 0)
        for site, _ in self._counts:
            found[site] += 1
        return found

    def _relocate(self, entry: _AnnouncedInterest, at: str | None) -> None:
        """Count a subscription also for the current site of its endpoint."""
        if at == entry.moved_to:
            return
        before, entry.moved_to = entry.moved_to, at
        if at is not None:
            self._count_up(at, entry.interest)
        if before is not None:
            self._count_down(before, entry.interest)

    def _end_temporary(self, site: str, loan: _TemporaryInterest) -> None:
        for one in loan.interest:
            self._count_down(site, one)

    def _count_up(self, site: str, interest: SharedInterest) -> None:
        which = site, interest.digest
        count = self._counts[which] = self._counts.get(which, 0) + 1
        if count == 1:
            self._begin(site, interest)
            self._changed(InterestChange(site, interest, True))

    def _count_down(self, site: str, interest: SharedInterest) -> None:
        which = site, interest.digest
        self._counts[which] -= 1
        if not self._counts[which]:
            del self._counts[which]
            self._end(site, interest)
            self._changed(InterestChange(site, interest, False))

    def _begin(self, site: str, interest: SharedInterest) -> None:
        try:
            self._rows[site, interest.digest] = self._matcher.add(self._numbers[site], interest.subscription)
        except Malformed:  # too many queries of negations alone, or no room
            self._receiving_all[site] += 1

    def _end(self, site: str, interest: SharedInterest) -> None:
        row = self._rows.pop((site, interest.digest), None)
        if row is not None:
            self._matcher.remove(row)
            return
        self._receiving_all[site] -= 1
        if not self._receiving_all[site]:
            del self._receiving_all[site]

    def _changed(self, change: InterestChange) -> None:
        self._cached_topics.clear()
        self._changes.append(change)


class Routing:
    """The destination sites of messages."""

    def __init__(
        self, sites: Iterable[str], interest: SiteInterest, registry: HubRegistry, coverage: CoverageTable, counts: HubCounts
    ) -> None:
        self._sites = frozenset(sites)
        self._interest = interest
        self._registry = registry
        self._coverage = coverage
        self._counts = counts

    def sites_for(self, forwarded: ForwardedMessage, now: Instant) -> Sites:
        """Return the sites a message goes to, without its own and those that have it."""
        sites = self._sites if forwarded.is_retained else self._addressed(forwarded.message, now)
        return sites.difference((forwarded.sender.site,), forwarded.direct)

    def maybe_sites_for(self, topic: str) -> Sites | None:
        """Return the sites that want plain messages on a topic, if that is cached."""
        return self._interest.cached_sites(topic)

    def _addressed(self, message: Message, now: Instant) -> Sites:
        match message.address:
            case ToContent(within):
                sites = self._interest.sites_matching(message, now)
                return sites if within is None or not sites else sites & self._coverage.sites_touching(within)
            case ToEndpoint(endpoint):
                sites = self._registry.sites_of(endpoint)
                if not sites:
                    self._counts.dropped[DropReason.ENDPOINT_UNKNOWN] += 1
                return sites
            case ToArea(area):
                return self._coverage.sites_touching(area)
            case ToEveryone() | ToNotified():  # the notified endpoints may be anywhere by now
                return self._sites
            case _:
                assert_never(message.address)
