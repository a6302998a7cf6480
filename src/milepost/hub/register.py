"""The register: who is where (D1, D7, D8).

What must hold:
- of one endpoint and edge the claim with the highest epoch counts, in whatever order and however often claims are read, until the
  edge takes it back;
- an endpoint is where its claim with the highest epoch says; other sites that still hold something of it stay known;
- the number of endpoints is limited.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, field
from typing import Final

from milepost.model.endpoints import EndpointId
from milepost.model.sites import Claim, EdgeRef, Places, Whereabouts

ENDPOINTS_MAX: Final = 1_000_000


@dataclass(slots=True)
class _Entry:
    claims: dict[EdgeRef, Claim] = field(default_factory=dict)
    seen: Whereabouts | None = None


class Register:
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

    def put(self, claim: Claim) -> bool:
        """An endpoint is at an edge; tells whether there was room."""
        entry = self._entries.get(claim.endpoint)
        if entry is None:
            if len(self._entries) >= self._endpoints_max:
                return False
            entry = self._entries[claim.endpoint] = _Entry()
        before = entry.claims.get(claim.edge)
        if before is None or before.epoch <= claim.epoch:
            entry.claims[claim.edge] = claim
            self._note_split(claim.endpoint, entry)
        return True

    def clear(self, endpoint: EndpointId, edge: EdgeRef) -> None:
        """An edge takes its claim back, whichever it was."""
        entry = self._entries.get(endpoint)
        if entry is not None and edge in entry.claims:
            self._remove(endpoint, entry, edge)

    def see(self, places: Places) -> None:
        """Endpoints were seen at places; what was seen earlier than what is known says nothing."""
        for one in places.places:
            entry = self._entries.get(one.endpoint)
            if entry is not None and (entry.seen is None or entry.seen.seen_at <= one.seen_at):
                entry.seen = one

    def stands(self, endpoint: EndpointId) -> list[Claim]:
        """The highest claim of each site, the highest of all first."""
        entry = self._entries.get(endpoint)
        if entry is None:
            return []
        by_site: dict[str, Claim] = {}
        for claim in sorted(entry.claims.values(), key=lambda one: (one.epoch, one.edge), reverse=True):
            by_site.setdefault(claim.edge.site, claim)
        return list(by_site.values())

    def latest(self, endpoint: EndpointId) -> Claim | None:
        """Where an endpoint is."""
        entry = self._entries.get(endpoint)
        return max(entry.claims.values(), key=lambda one: (one.epoch, one.edge)) if entry is not None else None

    def sites_of(self, endpoint: EndpointId) -> frozenset[str]:
        """The sites that have an endpoint, or still something of it."""
        entry = self._entries.get(endpoint)
        return frozenset(edge.site for edge in entry.claims) if entry is not None else frozenset()

    def seen(self, endpoint: EndpointId) -> Whereabouts | None:
        """Where an endpoint was seen last, if that was told."""
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
