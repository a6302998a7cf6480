"""The registry of all sites: claims of endpoints, and notices to edges whose endpoints are elsewhere (D1, D7, D8).

Invariants:
- of one endpoint, owner and edge the claim with the highest epoch wins, in whatever order and however often claims are read,
  until the edge withdraws it; of two owners at one edge, the one read last;
- an endpoint is at the edge of the claim that wins (`claims.ranked`); other sites that still hold a part of its session stay
  known;
- while an endpoint is in the registry at two sites, the edge whose claim loses gets a notice: once from each process that owns
  the site of the winner, and whenever the edge repeats its claim: it may have been killed, and have lost the notice;
- an edge that asks for the previous edge of its endpoint gets an answer, also if there was none; repeated answers are harmless.
  If the endpoint belongs to another owner, the answer is the notice of the winning claim: no session is handed over;
- the number of endpoints is limited.
"""

from collections.abc import Collection, Iterator
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from milepost.federation.claims import as_of_owner, ranked
from milepost.federation.hub_actions import HubAppend, HubCounts
from milepost.model.endpoints import EndpointId
from milepost.model.instants import SECOND_NS, Instant
from milepost.model.site_records import (
    ClaimNotice,
    EdgeRef,
    EndpointClaim,
    EndpointPosition,
    EndpointPositions,
    Epoch,
    PriorEdge,
    inbox_topic,
)
from milepost.wire.records import to_record

ENDPOINTS_MAX: Final = 1_000_000


@dataclass(slots=True)
class _Entry:
    claims: dict[EdgeRef, EndpointClaim] = field(default_factory=dict)
    seen: EndpointPosition | None = None


class HubRegistry:
    """Claims of all sites, by endpoint and edge."""

    def __init__(self, endpoints_max: int = ENDPOINTS_MAX) -> None:
        self._endpoints_max = endpoints_max
        self._entries: dict[EndpointId, _Entry] = {}
        self._split: dict[EndpointId, None] = {}

    def __len__(self) -> int:
        return len(self._entries)

    def __iter__(self) -> Iterator[EndpointId]:
        return iter(self._entries)

    @property
    def split(self) -> Collection[EndpointId]:
        """The endpoints that several sites have."""
        return self._split.keys()

    def put(self, claim: EndpointClaim) -> bool:
        """Add a claim; return whether there was room."""
        entry = self._entries.get(claim.endpoint)
        if entry is None:
            if len(self._entries) >= self._endpoints_max:
                return False
            entry = self._entries[claim.endpoint] = _Entry()
        before = entry.claims.get(claim.edge)
        if before is None or before.epoch <= claim.epoch or before.owner != claim.owner:
            entry.claims[claim.edge] = claim
            self._note_split(claim.endpoint, entry)
        return True

    def remove(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """Remove the claim of an edge."""
        entry = self._entries.get(endpoint)
        if entry is not None and edge in entry.claims:
            self._remove(endpoint, entry, edge)

    def note_positions(self, places: EndpointPositions) -> None:
        """Note positions of endpoints; earlier ones than those known are ignored."""
        for one in places.positions:
            entry = self._entries.get(one.endpoint)
            if entry is not None and (entry.seen is None or entry.seen.seen_at <= one.seen_at):
                entry.seen = one

    def claims_by_site(self, endpoint: EndpointId) -> list[EndpointClaim]:
        """Return the highest claim of each site, the winner of all first."""
        entry = self._entries.get(endpoint)
        if entry is None:
            return []
        by_site: dict[str, EndpointClaim] = {}
        for claim in ranked(entry.claims.values()):
            by_site.setdefault(claim.edge.site, claim)
        return list(by_site.values())

    def notice_of(self, claim: EndpointClaim) -> ClaimNotice:
        """Return the notice of a claim that wins, for an edge that knows no other claim of its owner."""
        entry = self._entries.get(claim.endpoint)
        return ClaimNotice(as_of_owner(claim, [claim, *entry.claims.values()] if entry is not None else [claim]))

    def winner(self, endpoint: EndpointId) -> EndpointClaim | None:
        """Return the claim that wins."""
        entry = self._entries.get(endpoint)
        return ranked(entry.claims.values())[0] if entry is not None else None

    def sites_of(self, endpoint: EndpointId) -> frozenset[str]:
        """Return the sites that have a claim of an endpoint."""
        entry = self._entries.get(endpoint)
        return frozenset(edge.site for edge in entry.claims) if entry is not None else frozenset()

    def position_of(self, endpoint: EndpointId) -> EndpointPosition | None:
        """Return the last position of an endpoint, if it is known."""
        entry = self._entries.get(endpoint)
        return entry.seen if entry is not None else None

    def _remove(self, endpoint: EndpointId, entry: _Entry, edge: EdgeRef) -> None:
        del entry.claims[edge]
        if not entry.claims:
            del self._entries[endpoint]
        self._note_split(endpoint, entry)

    def _note_split(self, endpoint: EndpointId, entry: _Entry) -> None:
        if len(entry.claims) > 1 and len({edge.site for edge in entry.claims}) > 1:
            self._split[endpoint] = None
        else:
            self._split.pop(endpoint, None)


ANSWERED_WITHIN_NS: Final = 30 * SECOND_NS
"""Age after which a question is not answered any more."""
QUESTIONS_MAX: Final = 100_000


class ClaimNotices:
    """Notices and answers to edges about endpoints that moved between sites."""

    def __init__(self, registry: HubRegistry, owned: AbstractSet[str], counts: HubCounts) -> None:
        self._registry = registry
        self._owned = owned
        self._counts = counts
        self._notified: dict[EndpointId, dict[EdgeRef, tuple[Epoch, Epoch]]] = {}
        """By endpoint and edge: the epoch of the winning claim, and since when its owner has the endpoint, in the last notice."""
        self._questions: dict[EndpointId, EndpointClaim] = {}
        self._appends: list[HubAppend] = []

    def changed(self, endpoint: EndpointId, claimant: EdgeRef | None = None) -> None:
        """Handle a change in the registry: an edge has claimed an endpoint or withdrawn its claim."""
        claims = self._registry.claims_by_site(endpoint)
        if len(claims) < 2:
            self._notified.pop(endpoint, None)
            return
        first, *lower = claims
        if first.edge.site not in self._owned:
            return
        notified, notice = self._notified.setdefault(endpoint, {}), self._registry.notice_of(first)
        rank = first.epoch, notice.claim.kept_since
        for claim in lower:
            if claim.edge == claimant or notified.get(claim.edge) != rank:
                notified[claim.edge] = rank
                self._counts.claim_notices += 1
                self._append(claim.edge, endpoint, to_record(notice))

    def on_question(self, claim: EndpointClaim) -> None:
        """Handle an edge's question for the previous edge of an endpoint."""
        self._questions.pop(claim.endpoint, None)
        self._questions[claim.endpoint] = claim
        if len(self._questions) > QUESTIONS_MAX:
            del self._questions[next(iter(self._questions))]
        if claim.edge.site in self._owned:
            self._answer(claim)

    def take_ownership(self, site: str, now: Instant) -> None:
        """Acquire ownership of a site: repeat notices that an earlier owner may not have sent."""
        for endpoint in list(self._registry.split):
            winner = self._registry.winner(endpoint)
            if winner is not None and winner.edge.site == site:
                self._notified.pop(endpoint, None)
                self.changed(endpoint)
        for claim in self._questions.values():
            if claim.edge.site == site and claim.epoch > now - ANSWERED_WITHIN_NS:
                self._answer(claim)

    def tick(self, now: Instant) -> None:
        """Forget questions that are too old."""
        while self._questions:
            endpoint, claim = next(iter(self._questions.items()))
            if claim.epoch > now - ANSWERED_WITHIN_NS:
                break
            del self._questions[endpoint]

    def take_appends(self) -> list[HubAppend]:
        """Return the records to append."""
        appends, self._appends = self._appends, []
        return appends

    def _answer(self, claim: EndpointClaim) -> None:
        winner, *_ = claims = self._registry.claims_by_site(claim.endpoint) or [claim]
        self._counts.questions_answered += 1
        if winner.owner != claim.owner and winner.edge.site != claim.edge.site:
            self._append(claim.edge, claim.endpoint, to_record(self._registry.notice_of(winner)))
            return
        others = [one for one in claims if one.edge.site != claim.edge.site and one.owner == claim.owner]
        prior = next((one.edge for one in others if one.epoch < claim.epoch), None)
        self._append(claim.edge, claim.endpoint, to_record(PriorEdge(claim.endpoint, claim.epoch, prior)))

    def _append(self, edge: EdgeRef, endpoint: EndpointId, value: bytes) -> None:
        self._appends.append(HubAppend(edge.site, inbox_topic(edge), endpoint, value))
