"""The central hub: connects the logs of sites, maintains the registry, and moves sessions between sites (D1, D7-D9).

    followed, of all sites, by every process                             of sites that this process owns
    subscription-info ──▶ interest, coverage ──▶ announcements ──────▶   the site's interest, to all other sites
    update-vehicle-info ─▶ registry, interest ─▶ claims ─────────────▶   notices that endpoints are elsewhere, answers
    cross-hub (watched) ─▶ arrivals, moves ──────┐
                                                 ▼
    cross-hub (`route`) ───────────────────────▶ stream ─────────────▶   records to other sites, missed messages

Invariants:
- every process follows all sites; only the owner of a site appends because of it. Ownership may change at any moment, and two
  processes may believe to own a site for a while: records that are appended twice have the same key or number;
- a process owns a site after it has read the followed topics up to their ends at that time;
- there is no clock and no log here: `HubLink` has them.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from milepost.federation.hub_actions import DropReason, HubAppend, HubCounts, HubReadBack
from milepost.federation.hub_registry import ENDPOINTS_MAX, ClaimNotices, HubRegistry
from milepost.federation.hub_routing import CoverageTable, Routing, SiteInterest
from milepost.federation.hub_streams import SLACK_NS, Arrivals, CrossHubWatch, SiteStream
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.site_records import (
    ANY_EDGE,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    EdgeInfo,
    EdgeRef,
    EndpointClaim,
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
#     @@SITE newline DIGEST           `Interest`, the edge being `ANY_EDGE`       an endpoint of the site has the subscription
#     @@SITE newline @SITE/EDGE       the edge's own `EdgeInfo`                   the edge is described at its site
#
# Invariants:
# - entries are read back: the next owner of a site appends missing ones and withdraws superfluous ones;
# - no entry is withdrawn at once: by then, announcements on behalf of a moving endpoint have been read everywhere;
# - an entry costs one record per other site when it is added and one when it is withdrawn.

WITHDRAW_AFTER_NS: Final = 5 * SECOND_NS
IN_TRANSIT_NS: Final = 2 * SECOND_NS
"""Time for which an entry that differs from the intended one may still be in transit."""

_OWN: Final = "@@"


def is_own_key(key: str) -> bool:
    """Return whether a key belongs to the central hub."""
    return key.startswith(_OWN)


class Announcements:
    """The entries about each site, and those that are in the logs of the others."""

    def __init__(self, sites: Iterable[str]) -> None:
        self._sites = tuple(sites)
        self._intended: dict[str, dict[str, bytes]] = {site: {} for site in self._sites}
        self._present: dict[tuple[str, str], dict[str, bytes]] = {
            (at, about): {} for at in self._sites for about in self._sites if at != about
        }
        self._owned: set[str] = set()
        self._ending: dict[tuple[str, str], Instant] = {}
        self._mismatched: dict[tuple[str, str, str], Instant] = {}
        self._appends: list[HubAppend] = []

    def put(self, site: str, name: str, value: bytes) -> None:
        """Announce an entry about a site at all other sites."""
        self._ending.pop((site, name), None)
        self._intended[site][name] = value
        if site in self._owned:
            self._correct_everywhere(site, name)

    def remove(self, site: str, name: str, now: Instant) -> None:
        """Withdraw an entry after a while."""
        self._ending.setdefault((site, name), Instant(now + WITHDRAW_AFTER_NS))

    def read(self, at: str, key: str, value: bytes | None, now: Instant) -> None:
        """Handle an entry of the hub that was read from a site's log."""
        about, separator, name = key.removeprefix(_OWN).partition("\n")
        present = self._present.get((at, about))
        if not separator or present is None:
            return
        _set(present, name, value)
        if about in self._owned and self._intended[about].get(name) != value:
            self._mismatched.setdefault((at, about, name), Instant(now + IN_TRANSIT_NS))

    def own(self, site: str, is_own: bool) -> None:
        """Start or stop announcing entries about a site."""
        if not is_own:
            self._owned.discard(site)
            return
        self._owned.add(site)
        for at in self._sites:
            if at != site:
                present = self._present[at, site]
                for name in present.keys() | self._intended[site].keys():
                    if name in present or (site, name) not in self._ending:
                        self._correct(at, site, name)

    def tick(self, now: Instant) -> None:
        """Withdraw entries that have ended, and correct those that differ."""
        for (site, name), due in list(self._ending.items()):
            if due > now:
                break  # ordered by end
            del self._ending[site, name]
            self._intended[site].pop(name, None)
            if site in self._owned:
                self._correct_everywhere(site, name)
        for (at, about, name), due in list(self._mismatched.items()):
            if due > now:
                break
            del self._mismatched[at, about, name]
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
        intended, present = self._intended[about].get(name), self._present[at, about]
        if intended != present.get(name):
            _set(present, name, intended)
            self._appends.append(HubAppend(at, SUBSCRIPTION_INFO, f"{_OWN}{about}\n{name}", intended))


def _set(present: dict[str, bytes], name: str, value: bytes | None) -> None:
    if value is None:
        present.pop(name, None)
    else:
        present[name] = value


HEARTBEAT_NS: Final = SECOND_NS
HEARTBEAT_KEY: Final = "@@hub"
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
        self.coverage = CoverageTable()
        self.heartbeats: dict[str, HubInfo] = {}
        """The last heartbeat of the process that owns a site, as it is in that site's log."""
        self._owned: set[str] = set()
        self._routing = Routing(self.sites, self.interest, self.registry, self.coverage, self.counts)
        self._announcements = Announcements(self.sites)
        self._claims = ClaimNotices(self.registry, self._owned, self.counts)
        self._arrivals = {site: Arrivals() for site in self.sites}
        self._watches = {site: CrossHubWatch(site, self.sites, self._arrivals[site]) for site in self.sites}
        self._streams: dict[str, SiteStream] = {}
        self._heartbeat_at = Instant(0)
        self._appends: list[HubAppend] = []
        self._faults: list[HubFault] = []
        self._handlers: dict[str, Callable[[str, LoggedRecord, Instant], None]] = {
            SUBSCRIPTION_INFO: self._on_subscription_info,
            VEHICLE_INFO: self._on_vehicle_info,
            CROSS_HUB: self._on_cross_hub,
        }

    @property
    def owned(self) -> frozenset[str]:
        """The sites that this process owns."""
        return frozenset(self._owned)

    def on_records(self, site: str, topic: str, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Handle records of a topic that every process follows."""
        handle = self._handlers[topic]
        for record in records:
            try:
                handle(site, record, now)
            except Malformed as fault:
                self._fault(site, topic, record.offset, _DROPS.get(fault.reason, DropReason.UNREADABLE), str(fault))
        self._announce_changes(now)

    def own(self, site: str, is_own: bool, now: Instant, *, first: int = 0) -> None:
        """Acquire or release ownership of a site; its cross-hub is delivered from offset *first* on."""
        self._announcements.own(site, is_own)
        if not is_own:
            self._owned.discard(site)
            self._streams.pop(site, None)
            return
        self._owned.add(site)
        stream = self._streams[site] = SiteStream(
            site, first, self._routing, self._arrivals, self.counts, taken=self._on_taken, fault=self._fault
        )
        self._claims.take_ownership(site, now)
        for watch in self._watches.values():
            for move in watch.moves():
                if site in move.sites_missing:
                    stream.queue_missed(move, self.watched_up_to(site), now)
        self._heartbeat_at = Instant(0)
        self.tick(now)

    def route(self, site: str, records: Sequence[LoggedRecord], now: Instant) -> None:
        """Copy records of the cross-hub of an owned site."""
        self._streams[site].route(records, now)
        self._announce_changes(now)

    def on_read(self, site: str, records: Sequence[LoggedRecord], now: Instant, *, is_complete: bool = True) -> None:
        """Handle records that were requested by `take_reads`."""
        if site in self._streams:
            self._streams[site].on_read(records, now, is_complete=is_complete)
            self._announce_changes(now)

    def position(self, site: str) -> int:
        """Return the offset of the site's cross-hub up to which all records are handled, once their appends are confirmed."""
        return self._streams[site].position

    def watched_up_to(self, site: str) -> int:
        """Return the offset after the last record of the site's cross-hub that was watched."""
        return self._watches[site].next_offset

    def is_waiting(self, site: str) -> bool:
        """Return whether the site's stream waits for records to be read again: further ones are only queued."""
        return self._streams[site].is_waiting

    def tick(self, now: Instant) -> None:
        """Run the timers; to be called several times a second."""
        if now - self._heartbeat_at >= HEARTBEAT_NS:
            self._heartbeat_at = now
            heartbeat = to_record(HubInfo(self.name, tuple(sorted(self._owned)), now))
            self._appends += [HubAppend(site, SUBSCRIPTION_INFO, HEARTBEAT_KEY, heartbeat) for site in sorted(self._owned)]
        self.interest.expire(now)
        self._claims.tick(now)
        for watch in self._watches.values():
            watch.tick(now)
        self._announce_changes(now)
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

    def _on_subscription_info(self, site: str, record: LoggedRecord, now: Instant) -> None:
        key, value = record.key, record.value
        if key == HEARTBEAT_KEY:
            heartbeat = from_record(value) if value is not None else None
            if isinstance(heartbeat, HubInfo):
                self.heartbeats[site] = heartbeat
        elif is_own_key(key):
            self._announcements.read(site, key, value, now)
        elif key.startswith("@"):
            self._on_edge_info(site, key, value, now)
        elif value is None:
            self.interest.remove(site, key)
        else:
            self._on_interest(site, key, from_record(value))

    def _on_interest(self, site: str, key: str, interest: object) -> None:
        if not isinstance(interest, Interest) or interest.edge.site != site:
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} is not a subscription announced by an edge of {site}")
        _, _, rest = key.partition("\n")
        endpoint = EndpointId(rest.partition("\n")[0])
        winner = self.registry.winner(endpoint)
        self.interest.put(site, key, endpoint, interest.subscription, winner.edge.site if winner is not None else None)

    def _on_edge_info(self, site: str, key: str, value: bytes | None, now: Instant) -> None:
        if value is None:
            self.coverage.remove(EdgeRef(site, key.partition("/")[2]))
            self._announcements.remove(site, key, now)
            return
        info = from_record(value)
        if not isinstance(info, EdgeInfo) or info.edge.site != site or key != edge_key(info.edge):
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} does not describe an edge of {site}")
        self.coverage.put(info)
        self._announcements.put(site, key, value)

    def _on_vehicle_info(self, site: str, record: LoggedRecord, now: Instant) -> None:
        del now
        if record.value is None:
            self._on_claim_withdrawn(site, record.key)
            return
        match from_record(record.value):
            case EndpointClaim(endpoint, edge) as claim if edge.site == site:
                if not self.registry.put(claim):
                    raise Malformed(Reason.ENDPOINTS_FULL, endpoint)
                self._relocate(endpoint, edge)
                if claim.asks_prior_edge and claim in self.registry.claims_by_site(endpoint):
                    self._claims.on_question(claim)
            case EndpointPositions(edge) as places if edge.site == site:
                self.registry.note_positions(places)
            case other:
                raise Malformed(Reason.SOURCE_FORGED, f"a {type(other).__name__} that is not of {site}")

    def _on_claim_withdrawn(self, site: str, key: str) -> None:
        try:
            endpoint, edge = claim_of_key(key)
        except ValueError:  # the key of an edge's positions, which are no claims
            return
        if edge.site == site:
            self.registry.remove(endpoint, edge)
            self._relocate(endpoint)

    def _relocate(self, endpoint: EndpointId, claimant: EdgeRef | None = None) -> None:
        winner = self.registry.winner(endpoint)
        self.interest.locate(endpoint, winner.edge.site if winner is not None else None)
        self._claims.changed(endpoint, claimant)

    def _on_cross_hub(self, site: str, record: LoggedRecord, now: Instant) -> None:
        move = self._watches[site].on_record(record, now)
        if move is None:
            return
        self.interest.add_temporary(site, move.endpoint, move.subscriptions, Instant(now + SLACK_NS))
        for other in sorted(move.sites_missing & self._owned):
            self._streams[other].queue_missed(move, self.watched_up_to(other), now)

    # Consequences

    def _on_taken(self, taken: HandoverTaken, now: Instant) -> None:
        """Announce the subscriptions at the new site before the former site reads that it may withdraw them."""
        subscriptions = [held.subscription for held in taken.subscriptions]
        self.interest.add_temporary(taken.sender.site, taken.endpoint, subscriptions, Instant(now + SLACK_NS))
        self._announce_changes(now)

    def _announce_changes(self, now: Instant) -> None:
        for site, interest, is_added in self.interest.take_changes():
            if is_added:
                record = to_record(Interest(EdgeRef(site, ANY_EDGE), interest.subscription))
                self._announcements.put(site, interest.digest, record)
            else:
                self._announcements.remove(site, interest.digest, now)

    def _fault(self, site: str, topic: str, offset: int, why: DropReason, detail: str) -> None:
        self.counts.dropped[why] += 1
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(HubFault(site, topic, offset, why, detail))
