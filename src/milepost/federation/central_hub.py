"""The central hub: connects the logs of sites, maintains the registry, and moves sessions between sites (D1, D7-D9).

    followed, of all sites, by every process                             of sites that this process owns
    subscription-info ──▶ interest, coverage ──▶ announcements ──────▶   the site's interest, to all other sites
    update-vehicle-info ─▶ registry, interest ─▶ claims ─────────────▶   notices that endpoints are elsewhere, answers
    cross-hub (watched) ─▶ arrivals, moves ──────┐
                                                 ▼
    cross-hub (`route`) ───────────────────────▶ stream ─────────────▶   messages and letters to other sites, extras

Invariants:
- every process follows all sites; only the owner of a site appends because of it. Ownership may change at any moment, and two
  processes may believe to own a site for a while: records that are appended twice have the same key or number;
- a process owns a site after it has read the followed topics up to their ends at that time;
- there is no clock and no log here: `HubLink` has them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from milepost.federation.hub_actions import DropReason, HubAppend, HubCounts, HubReadBack
from milepost.federation.hub_registry import ENDPOINTS_MAX, Claims, HubRegistry
from milepost.federation.hub_routing import Coverage, Routing, SiteInterest
from milepost.federation.hub_streams import SLACK_NS, Arrivals, CrossHubWatch, Stream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import (
    ALL,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    Claim,
    EdgeInfo,
    EdgeRef,
    EndpointPositions,
    HandoverTaken,
    HubInfo,
    Interest,
    LoggedRecord,
    claim_of_key,
    edge_key,
)
from milepost.wire.records import from_record, to_record

# Announcements: entries about each site at all other sites, its interest and its edges (D7).
#
#     key at all other sites          value                                       while
#     @@SITE newline DIGEST           `Interest`, the edge being `ALL`              an endpoint of the site has the subscription
#     @@SITE newline @SITE/EDGE       the edge's own `EdgeInfo`                   the edge is described at its site
#
# Invariants:
# - entries are read back: the next owner of a site appends missing ones and withdraws superfluous ones;
# - no entry is withdrawn at once: by then, announcements on behalf of a moving endpoint have been read everywhere;
# - an entry costs one record per other site when it is added and one when it is withdrawn.

TAKE_BACK_NS: Final = 5 * SECOND_NS
DOUBT_NS: Final = 2 * SECOND_NS
"""Time for which an entry that differs from the intended one may still be in transit."""

_OWN: Final = "@@"


def is_own_key(key: str) -> bool:
    """Return whether a key belongs to the central hub."""
    return key.startswith(_OWN)


class Announcements:
    """The entries about each site, and those that are in the logs of the others."""

    def __init__(self, sites: Iterable[str]) -> None:
        self._sites = tuple(sites)
        self._wanted: dict[str, dict[str, bytes]] = {site: {} for site in self._sites}
        self._stands: dict[tuple[str, str], dict[str, bytes]] = {
            (at, about): {} for at in self._sites for about in self._sites if at != about
        }
        self._owned: set[str] = set()
        self._ending: dict[tuple[str, str], Instant] = {}
        self._doubtful: dict[tuple[str, str, str], Instant] = {}
        self._appends: list[HubAppend] = []

    def put(self, site: str, name: str, value: bytes) -> None:
        """Announce an entry about a site at all other sites."""
        self._ending.pop((site, name), None)
        self._wanted[site][name] = value
        if site in self._owned:
            self._correct_everywhere(site, name)

    def take_away(self, site: str, name: str, now: Instant) -> None:
        """Withdraw an entry after a while."""
        self._ending.setdefault((site, name), Instant(now + TAKE_BACK_NS))

    def read(self, at: str, key: str, value: bytes | None, now: Instant) -> None:
        """Handle an entry of the hub that was read from a site's log."""
        about, mark, name = key.removeprefix(_OWN).partition("\n")
        stands = self._stands.get((at, about))
        if not mark or stands is None:
            return
        _set(stands, name, value)
        if about in self._owned and self._wanted[about].get(name) != value:
            self._doubtful.setdefault((at, about, name), Instant(now + DOUBT_NS))

    def own(self, site: str, is_own: bool) -> None:
        """Start or stop announcing entries about a site."""
        if not is_own:
            self._owned.discard(site)
            return
        self._owned.add(site)
        for at in self._sites:
            if at != site:
                stands = self._stands[at, site]
                for name in stands.keys() | self._wanted[site].keys():
                    if name in stands or (site, name) not in self._ending:
                        self._correct(at, site, name)

    def tick(self, now: Instant) -> None:
        """Withdraw entries that have ended, and correct those that differ."""
        for (site, name), due in list(self._ending.items()):
            if due > now:
                break  # ordered by end
            del self._ending[site, name]
            self._wanted[site].pop(name, None)
            if site in self._owned:
                self._correct_everywhere(site, name)
        for (at, about, name), due in list(self._doubtful.items()):
            if due > now:
                break
            del self._doubtful[at, about, name]
            if about in self._owned:
                self._correct(at, about, name)

    def take_appends(self) -> list[HubAppend]:
        """Return the records to append."""
        appends, self._appends = self._appends, []
        return appends

    def _correct_everywhere(self, about: str, name: str) -> None:
        for at in self._sites:
            if at != about:
                self._correct(at, about, name)

    def _correct(self, at: str, about: str, name: str) -> None:
        wanted, stands = self._wanted[about].get(name), self._stands[at, about]
        if wanted != stands.get(name):
            _set(stands, name, wanted)
            self._appends.append(HubAppend(at, SUBSCRIPTION_INFO, f"{_OWN}{about}\n{name}", wanted))


def _set(stands: dict[str, bytes], name: str, value: bytes | None) -> None:
    if value is None:
        stands.pop(name, None)
    else:
        stands[name] = value


HEARTBEAT_NS: Final = SECOND_NS
HEARTBEAT_KEY: Final = "@@centre"
FAULTS_MAX: Final = 100
"""Maximum faults remembered until they are taken; all are counted."""


_DROPS: Final = {Reason.SOURCE_FORGED: DropReason.FALSE, Reason.ENDPOINTS_FULL: DropReason.REGISTER_FULL}


class HubFault(NamedTuple):
    """A record that is wrong, or could not be handled completely."""

    site: str
    topic: str
    offset: int
    why: DropReason
    detail: str


class CentralHub:
    """The decisions of the hub, without I/O: records in, appends and requests to read again out."""

    def __init__(self, name: str, sites: Iterable[str], *, endpoints_max: int = ENDPOINTS_MAX) -> None:
        self.name = name
        self.sites = tuple(sites)
        self.counts = HubCounts()
        self.registry = HubRegistry(endpoints_max)
        self.interest = SiteInterest(self.sites)
        self.coverage = Coverage()
        self.heartbeats: dict[str, HubInfo] = {}
        """The last heartbeat of the process that owns a site, as it is in that site's log."""
        self._owned: set[str] = set()
        self._routing = Routing(self.sites, self.interest, self.registry, self.coverage, self.counts)
        self._announcements = Announcements(self.sites)
        self._claims = Claims(self.registry, self._owned, self.counts)
        self._arrivals = {site: Arrivals() for site in self.sites}
        self._watches = {site: CrossHubWatch(site, self.sites, self._arrivals[site]) for site in self.sites}
        self._streams: dict[str, Stream] = {}
        self._beat_at = Instant(0)
        self._appends: list[HubAppend] = []
        self._faults: list[HubFault] = []
        self._takers: dict[str, Callable[[str, LoggedRecord, Instant], None]] = {
            SUBSCRIPTION_INFO: self._take_subscription_info,
            VEHICLE_INFO: self._take_vehicle_info,
            CROSS_HUB: self._take_cross_hub,
        }

    @property
    def owned(self) -> frozenset[str]:
        """The sites that this process owns."""
        return frozenset(self._owned)

    def on_records(self, site: str, topic: str, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Handle records of a topic that every process follows."""
        take = self._takers[topic]
        for record in records:
            try:
                take(site, record, now)
            except Malformed as fault:
                self._fault(site, topic, record.offset, _DROPS.get(fault.reason, DropReason.UNREADABLE), str(fault))
        self._spread(now)

    def own(self, site: str, is_own: bool, now: Instant, *, first: int = 0) -> None:
        """Acquire or release ownership of a site; its cross-hub is delivered from offset *first* on."""
        self._announcements.own(site, is_own)
        if not is_own:
            self._owned.discard(site)
            self._streams.pop(site, None)
            return
        self._owned.add(site)
        stream = self._streams[site] = Stream(
            site, first, self._routing, self._arrivals, self.counts, taken=self._on_taken, fault=self._fault
        )
        self._claims.begin(site, now)
        for watch in self._watches.values():
            for move in watch.moves():
                if site in move.left:
                    stream.extra(move, self.seen_up_to(site), now)
        self._beat_at = Instant(0)
        self.tick(now)

    def route(self, site: str, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Copy records of the cross-hub of an owned site."""
        self._streams[site].route(records, now)
        self._spread(now)

    def on_read(self, site: str, records: Sequence[LoggedRecord], now: Instant, *, is_whole: bool = True) -> None:
        """Handle records that were requested by `take_reads`."""
        if site in self._streams:
            self._streams[site].on_read(records, now, is_whole=is_whole)
            self._spread(now)

    def position(self, site: str) -> int:
        """Return the offset of the site's cross-hub up to which all records are handled, once their appends are confirmed."""
        return self._streams[site].position

    def seen_up_to(self, site: str) -> int:
        """Return the offset after the last record of the site's cross-hub that was watched."""
        return self._watches[site].next_offset

    def is_waiting(self, site: str) -> bool:
        """Return whether the site's stream waits for records to be read again: further ones are only queued."""
        return self._streams[site].is_waiting

    def tick(self, now: Instant) -> None:
        """Run the timers; to be called several times a second."""
        if now - self._beat_at >= HEARTBEAT_NS:
            self._beat_at = now
            beat = to_record(HubInfo(self.name, tuple(sorted(self._owned)), now))
            self._appends += [HubAppend(site, SUBSCRIPTION_INFO, HEARTBEAT_KEY, beat) for site in sorted(self._owned)]
        self.interest.expire(now)
        self._claims.tick(now)
        for watch in self._watches.values():
            watch.tick(now)
        self._spread(now)
        self._announcements.tick(now)

    def take_appends(self) -> list[HubAppend]:
        """Return the records to append, in order for each site."""
        found, self._appends = self._appends, []
        found += self._announcements.take_appends() + self._claims.take_appends()
        for stream in self._streams.values():
            found += stream.appends
            stream.appends = []
        return found

    def take_reads(self) -> list[HubReadBack]:
        """Return the requests to read again; each is answered by `on_read`."""
        found = [read for stream in self._streams.values() for read in stream.reads]
        for stream in self._streams.values():
            stream.reads = []
        return found

    def take_faults(self) -> list[HubFault]:
        """Return the faults of records, for the log."""
        faults, self._faults = self._faults, []
        return faults

    # Topics that every process follows

    def _take_subscription_info(self, site: str, record: LoggedRecord, now: Instant) -> None:
        key, value = record.key, record.value
        if key == HEARTBEAT_KEY:
            beat = from_record(value) if value is not None else None
            if isinstance(beat, HubInfo):
                self.heartbeats[site] = beat
        elif is_own_key(key):
            self._announcements.read(site, key, value, now)
        elif key.startswith("@"):
            self._take_edge(site, key, value, now)
        elif value is None:
            self.interest.take_away(site, key)
        else:
            self._take_wish(site, key, from_record(value))

    def _take_wish(self, site: str, key: str, wanted: object) -> None:
        if not isinstance(wanted, Interest) or wanted.edge.site != site:
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} is not what an edge of {site} wants")
        _, _, rest = key.partition("\n")
        endpoint = EndpointId(rest.partition("\n")[0])
        latest = self.registry.latest(endpoint)
        self.interest.put(site, key, endpoint, wanted.subscription, latest.edge.site if latest is not None else None)

    def _take_edge(self, site: str, key: str, value: bytes | None, now: Instant) -> None:
        if value is None:
            self.coverage.take_away(EdgeRef(site, key.partition("/")[2]))
            self._announcements.take_away(site, key, now)
            return
        info = from_record(value)
        if not isinstance(info, EdgeInfo) or info.edge.site != site or key != edge_key(info.edge):
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} does not describe an edge of {site}")
        self.coverage.put(info)
        self._announcements.put(site, key, value)

    def _take_vehicle_info(self, site: str, record: LoggedRecord, now: Instant) -> None:
        del now
        if record.value is None:
            self._take_back_claim(site, record.key)
            return
        match from_record(record.value):
            case Claim(endpoint, edge) as claim if edge.site == site:
                if not self.registry.put(claim):
                    raise Malformed(Reason.ENDPOINTS_FULL, endpoint)
                self._relocate(endpoint, edge)
                if claim.asks and claim in self.registry.stands(endpoint):
                    self._claims.asked(claim)
            case EndpointPositions(edge) as places if edge.site == site:
                self.registry.see(places)
            case other:
                raise Malformed(Reason.SOURCE_FORGED, f"a {type(other).__name__} that is not of {site}")

    def _take_back_claim(self, site: str, key: str) -> None:
        try:
            endpoint, edge = claim_of_key(key)
        except ValueError:  # the key of an edge's positions, which are no claims
            return
        if edge.site == site:
            self.registry.clear(endpoint, edge)
            self._relocate(endpoint)

    def _relocate(self, endpoint: EndpointId, claimant: EdgeRef | None = None) -> None:
        latest = self.registry.latest(endpoint)
        self.interest.locate(endpoint, latest.edge.site if latest is not None else None)
        self._claims.changed(endpoint, claimant)

    def _take_cross_hub(self, site: str, record: LoggedRecord, now: Instant) -> None:
        move = self._watches[site].take(record, now)
        if move is None:
            return
        self.interest.lend(site, move.endpoint, move.subscriptions, Instant(now + SLACK_NS))
        for other in sorted(move.left & self._owned):
            self._streams[other].extra(move, self.seen_up_to(other), now)

    # Consequences

    def _on_taken(self, taken: HandoverTaken, now: Instant) -> None:
        """Announce the subscriptions at the new site before the former site reads that it may withdraw them."""
        subscriptions = [held.subscription for held in taken.subscriptions]
        self.interest.lend(taken.sender.site, taken.endpoint, subscriptions, Instant(now + SLACK_NS))
        self._spread(now)

    def _spread(self, now: Instant) -> None:
        for site, asked, is_wanted in self.interest.take_changes():
            if is_wanted:
                self._announcements.put(site, asked.digest, to_record(Interest(EdgeRef(site, ALL), asked.subscription)))
            else:
                self._announcements.take_away(site, asked.digest, now)

    def _fault(self, site: str, topic: str, offset: int, why: DropReason, detail: str) -> None:
        self.counts.dropped[why] += 1
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(HubFault(site, topic, offset, why, detail))
