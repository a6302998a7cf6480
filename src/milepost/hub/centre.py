"""The centre: joins the logs of sites, keeps the register, and lets endpoints find their sessions between sites (D1, D7-D9).

    followed, of all sites, by every process                         of sites this process acts for (`own`)
    subscription-info ──▶ interest, coverage ──▶ spreading ──────▶   what the site wants, told to all others
    update-vehicle-info ─▶ register, interest ─▶ claims ─────────▶   who is elsewhere, who was where
    cross-hub (watched) ─▶ arrivals, moves ──────┐
                                                 ▼
    cross-hub (`route`) ───────────────────────▶ stream ─────────▶   messages and letters to other sites, extras

What must hold:
- every process knows all of what is followed; only who owns a site appends because of it. Ownership may change at any moment, and
  two processes may take themselves for owners for a while: what is said twice is said under the same key or number;
- a site is owned when what is followed has been read up to where it ended then;
- nothing here asks the clock or touches a log: `CentreLink` does.
"""

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

from milepost.hub.actions import Append, Incoming, ReadBack
from milepost.hub.claims import Claims
from milepost.hub.counts import Counts, Drop
from milepost.hub.coverage import Coverage
from milepost.hub.interest import Interest
from milepost.hub.moves import SLACK_NS
from milepost.hub.recent import Arrivals
from milepost.hub.register import ENDPOINTS_MAX, Register
from milepost.hub.routing import Routing
from milepost.hub.spreading import Spreading, is_own_key
from milepost.hub.streams import Stream
from milepost.hub.watching import Watch
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.reasons import Malformed, Reason
from milepost.model.sites import (
    ALL,
    CROSS_HUB,
    SUBSCRIPTION_INFO,
    VEHICLE_INFO,
    CentreInfo,
    Claim,
    EdgeInfo,
    EdgeRef,
    Places,
    Taken,
    Wanted,
    claim_of_key,
    edge_key,
)
from milepost.wire.records import from_record, to_record

HEARTBEAT_NS: Final = SECOND_NS
HEARTBEAT_KEY: Final = "@@centre"
FAULTS_MAX: Final = 100
"""So many faults are remembered until somebody asks; all are counted."""


_DROPS: Final = {Reason.SOURCE_FORGED: Drop.FALSE, Reason.ENDPOINTS_FULL: Drop.REGISTER_FULL}


class Fault(NamedTuple):
    """A record that is not what it should be, or could not be dealt with whole."""

    site: str
    topic: str
    offset: int
    why: Drop
    detail: str


class Centre:
    """Decides; is told what was read, and gives what is to be appended."""

    def __init__(self, name: str, sites: Iterable[str], *, endpoints_max: int = ENDPOINTS_MAX) -> None:
        self.name = name
        self.sites = tuple(sites)
        self.counts = Counts()
        self.register = Register(endpoints_max)
        self.interest = Interest(self.sites)
        self.coverage = Coverage()
        self.heartbeats: dict[str, CentreInfo] = {}
        """The last sign of life of whoever acts for a site, as it stands there."""
        self._owned: set[str] = set()
        self._routing = Routing(self.sites, self.interest, self.register, self.coverage, self.counts)
        self._spreading = Spreading(self.sites)
        self._claims = Claims(self.register, self._owned, self.counts)
        self._arrivals = {site: Arrivals() for site in self.sites}
        self._watches = {site: Watch(site, self.sites, self._arrivals[site]) for site in self.sites}
        self._streams: dict[str, Stream] = {}
        self._beat_at = Instant(0)
        self._appends: list[Append] = []
        self._faults: list[Fault] = []
        self._takers: dict[str, Callable[[str, Incoming, Instant], None]] = {
            SUBSCRIPTION_INFO: self._take_subscription_info,
            VEHICLE_INFO: self._take_vehicle_info,
            CROSS_HUB: self._take_cross_hub,
        }

    @property
    def owned(self) -> frozenset[str]:
        """The sites that this process acts for."""
        return frozenset(self._owned)

    def on_records(self, site: str, topic: str, records: Sequence[Incoming], now: Instant) -> None:
        """Take note of what was read from a topic that every process follows."""
        take = self._takers[topic]
        for record in records:
            try:
                take(site, record, now)
            except Malformed as fault:
                self._fault(site, topic, record.offset, _DROPS.get(fault.reason, Drop.UNREADABLE), str(fault))
        self._spread(now)

    def own(self, site: str, is_own: bool, now: Instant, *, first: int = 0) -> None:
        """Begin or cease to act for a site; its cross-hub will come from offset `first` on."""
        self._spreading.own(site, is_own)
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

    def route(self, site: str, records: Sequence[Incoming], now: Instant) -> None:
        """Copy what was read from the cross-hub of a site that this process acts for."""
        self._streams[site].route(records, now)
        self._spread(now)

    def on_read(self, site: str, records: Sequence[Incoming], now: Instant, *, is_whole: bool = True) -> None:
        """Records that were asked for by `take_reads`."""
        if site in self._streams:
            self._streams[site].on_read(records, now, is_whole=is_whole)
            self._spread(now)

    def position(self, site: str) -> int:
        """All before this offset of the site's cross-hub is dealt with, once what was to be appended for it is safe."""
        return self._streams[site].position

    def seen_up_to(self, site: str) -> int:
        """One above the last offset of the site's cross-hub that was watched."""
        return self._watches[site].next_offset

    def is_waiting(self, site: str) -> bool:
        """Whether the site's stream waits for records to be read again: more of it is only kept until then."""
        return self._streams[site].is_waiting

    def tick(self, now: Instant) -> None:
        """Do what is due; to be called several times a second."""
        if now - self._beat_at >= HEARTBEAT_NS:
            self._beat_at = now
            beat = to_record(CentreInfo(self.name, tuple(sorted(self._owned)), now))
            self._appends += [Append(site, SUBSCRIPTION_INFO, HEARTBEAT_KEY, beat) for site in sorted(self._owned)]
        self.interest.expire(now)
        self._claims.tick(now)
        for watch in self._watches.values():
            watch.tick(now)
        self._spread(now)
        self._spreading.tick(now)

    def take_appends(self) -> list[Append]:
        """What is to be appended, in this order to each site."""
        found, self._appends = self._appends, []
        found += self._spreading.take_appends() + self._claims.take_appends()
        for stream in self._streams.values():
            found += stream.appends
            stream.appends = []
        return found

    def take_reads(self) -> list[ReadBack]:
        """What is to be read again; each is to be answered by `on_read`."""
        found = [read for stream in self._streams.values() for read in stream.reads]
        for stream in self._streams.values():
            stream.reads = []
        return found

    def take_faults(self) -> list[Fault]:
        """What was wrong with records, for the log."""
        faults, self._faults = self._faults, []
        return faults

    # What every process follows

    def _take_subscription_info(self, site: str, record: Incoming, now: Instant) -> None:
        key, value = record.key, record.value
        if key == HEARTBEAT_KEY:
            beat = from_record(value) if value is not None else None
            if isinstance(beat, CentreInfo):
                self.heartbeats[site] = beat
        elif is_own_key(key):
            self._spreading.read(site, key, value, now)
        elif key.startswith("@"):
            self._take_edge(site, key, value, now)
        elif value is None:
            self.interest.take_away(site, key)
        else:
            self._take_wish(site, key, from_record(value))

    def _take_wish(self, site: str, key: str, wanted: object) -> None:
        if not isinstance(wanted, Wanted) or wanted.edge.site != site:
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} is not what an edge of {site} wants")
        _, _, rest = key.partition("\n")
        endpoint = EndpointId(rest.partition("\n")[0])
        latest = self.register.latest(endpoint)
        self.interest.put(site, key, endpoint, wanted.subscription, latest.edge.site if latest is not None else None)

    def _take_edge(self, site: str, key: str, value: bytes | None, now: Instant) -> None:
        if value is None:
            self.coverage.take_away(EdgeRef(site, key.partition("/")[2]))
            self._spreading.take_away(site, key, now)
            return
        info = from_record(value)
        if not isinstance(info, EdgeInfo) or info.edge.site != site or key != edge_key(info.edge):
            raise Malformed(Reason.SOURCE_FORGED, f"{key[:100]!r} does not describe an edge of {site}")
        self.coverage.put(info)
        self._spreading.put(site, key, value)

    def _take_vehicle_info(self, site: str, record: Incoming, now: Instant) -> None:
        del now
        if record.value is None:
            self._take_back_claim(site, record.key)
            return
        match from_record(record.value):
            case Claim(endpoint, edge) as claim if edge.site == site:
                if not self.register.put(claim):
                    raise Malformed(Reason.ENDPOINTS_FULL, endpoint)
                self._relocate(endpoint, edge)
                if claim.asks and claim in self.register.stands(endpoint):
                    self._claims.asked(claim)
            case Places(edge) as places if edge.site == site:
                self.register.see(places)
            case other:
                raise Malformed(Reason.SOURCE_FORGED, f"a {type(other).__name__} that is not of {site}")

    def _take_back_claim(self, site: str, key: str) -> None:
        try:
            endpoint, edge = claim_of_key(key)
        except ValueError:  # of an edge's places, which say nothing about who is there
            return
        if edge.site == site:
            self.register.clear(endpoint, edge)
            self._relocate(endpoint)

    def _relocate(self, endpoint: EndpointId, claimant: EdgeRef | None = None) -> None:
        latest = self.register.latest(endpoint)
        self.interest.locate(endpoint, latest.edge.site if latest is not None else None)
        self._claims.changed(endpoint, claimant)

    def _take_cross_hub(self, site: str, record: Incoming, now: Instant) -> None:
        move = self._watches[site].take(record, now)
        if move is None:
            return
        self.interest.lend(site, move.endpoint, move.subscriptions, Instant(now + SLACK_NS))
        for other in sorted(move.left & self._owned):
            self._streams[other].extra(move, self.seen_up_to(other), now)

    # What comes of it

    def _on_taken(self, taken: Taken, now: Instant) -> None:
        """Before the former site hears that nobody there must ask any more: somebody else does, and all have been told."""
        subscriptions = [held.subscription for held in taken.subscriptions]
        self.interest.lend(taken.sender.site, taken.endpoint, subscriptions, Instant(now + SLACK_NS))
        self._spread(now)

    def _spread(self, now: Instant) -> None:
        for site, asked, is_wanted in self.interest.take_changes():
            if is_wanted:
                self._spreading.put(site, asked.digest, to_record(Wanted(EdgeRef(site, ALL), asked.subscription)))
            else:
                self._spreading.take_away(site, asked.digest, now)

    def _fault(self, site: str, topic: str, offset: int, why: Drop, detail: str) -> None:
        self.counts.dropped[why] += 1
        if len(self._faults) < FAULTS_MAX:
            self._faults.append(Fault(site, topic, offset, why, detail))
